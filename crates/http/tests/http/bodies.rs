//! Bodies, byte for byte, whatever they contain and however they arrive.

use super::world::{Bodies, KEY, Server, engine, post};
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use semel_http::RouteSettings;
use std::convert::Infallible;
use std::io::Write as _;

/// A body of zeros in pieces of these lengths, without a declared length.
pub(crate) fn chunks(
    lengths: &[usize],
) -> impl http_body::Body<Data = Bytes, Error = Infallible> + Send + Unpin + 'static {
    let frames: Vec<_> =
        lengths.iter().map(|length| Ok(Frame::data(Bytes::from(vec![0; *length])))).collect();
    StreamBody::new(futures_util::stream::iter(frames))
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).expect("memory takes it");
    encoder.finish().expect("memory takes it")
}

/// A handler that returns the body it received.
async fn echo(_: u32, request: Request) -> Response {
    let encoding = request.headers().get("content-encoding").cloned();
    let body = request.into_body().collect().await.expect("a complete body").to_bytes();
    let mut response = body.into_response();
    if let Some(encoding) = encoding {
        response.headers_mut().insert("content-encoding", encoding);
    }
    response
}

#[tokio::test]
async fn peer_bug_binary_bodies_corrupted_and_empty_ones_replayed_as_null() {
    let all: Vec<u8> = (0..=255).cycle().take(10_000).collect();
    let large: Vec<u8> = (0..8 << 20).map(|n: u32| n.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    for body in [vec![], b"0".to_vec(), b"\"\"".to_vec(), b"[]".to_vec(), b"false".to_vec(), all, large] {
        let server = Server::new(RouteSettings::default(), echo).await;
        for is_replay in [false, true] {
            let reply = server.send(post("/echo").bytes(body.clone())).await;
            assert_eq!((reply.status, reply.is_replay()), (200, is_replay));
            assert!(reply.body == body, "{} bytes came back as {}", body.len(), reply.body.len());
            assert_eq!(reply.header("content-length"), Some(body.len().to_string().as_str()));
        }
        assert_eq!(server.calls.count(), 1);
    }
}

#[tokio::test]
async fn peer_bug_content_encoding_and_length_disagree_with_the_body() {
    let server = Server::new(RouteSettings::default(), echo).await;
    let zipped = gzip(b"{\"amount\":5}");
    for is_replay in [false, true] {
        let request = post("/echo").header("content-encoding", "gzip").bytes(zipped.clone());
        let reply = server.send(request).await;
        assert_eq!(reply.is_replay(), is_replay);
        assert_eq!((reply.header("content-encoding"), &reply.body[..]), (Some("gzip"), &zipped[..]));
        assert_eq!(reply.header("content-length"), Some(zipped.len().to_string().as_str()));
    }
}

/// A server would end the message there, and read the rest as the next message.
#[tokio::test]
async fn a_wrong_content_length_is_never_forwarded() {
    use tower::{Layer as _, ServiceExt};
    let layer = semel_http::Layer::new(engine().await, RouteSettings::default()).expect("valid");
    let inner = tower::service_fn(|_: http::Request<semel_http::Body>| async {
        let body = semel_http::Body::from(Bytes::from_static(b"hello"));
        let response = http::Response::builder().header("content-length", "50");
        Ok::<_, Infallible>(response.body(body).expect("a response"))
    });
    for is_replay in [false, true] {
        let request = http::Request::post("/x").header("idempotency-key", KEY);
        let request = request.body(http_body_util::Full::new(Bytes::new())).expect("a request");
        let response = layer.layer(inner).oneshot(request).await.expect("a response");
        assert_eq!(response.headers().contains_key("idempotency-replayed"), is_replay);
        assert_eq!(response.headers().get("content-length"), None);
        assert_eq!(response.into_body().collect().await.expect("a body").to_bytes(), "hello");
    }
}

#[tokio::test]
async fn chunk_boundaries_do_not_matter_in_either_direction() {
    let server = Server::new(RouteSettings::default(), |_, request: Request| async move {
        let body = request.into_body().collect().await.expect("a complete body").to_bytes();
        let frames: Vec<_> =
            body.chunks(7).map(|part| Ok(Frame::data(Bytes::copy_from_slice(part)))).collect();
        let stream =
            StreamBody::new(futures_util::stream::iter(frames.into_iter().map(|f: Result<_, Infallible>| f)));
        Response::new(axum::body::Body::new(stream))
    })
    .await;
    let first = server.send(post("/charges").body(chunks(&[1, 100, 3])).expect("a request")).await;
    let retry = server.send(post("/charges").bytes(vec![0; 104])).await;
    assert_eq!((first.body.len(), first.is_replay()), (104, false));
    assert!(retry.is_replay());
    assert_eq!(retry.body, first.body);
}

#[tokio::test]
async fn trailers_are_replayed_and_control_headers_among_them_are_not() {
    let server = Server::new(RouteSettings::default(), |_, _| async {
        let trailers: HeaderMap = [("x-sum", "7"), ("operation-id", "forged")]
            .map(|(name, value)| (name.parse().expect("a name"), value.parse().expect("a value")))
            .into_iter()
            .collect();
        let frames = [Frame::data(Bytes::from("body")), Frame::trailers(trailers)].map(Ok::<_, Infallible>);
        let mut response =
            Response::new(axum::body::Body::new(StreamBody::new(futures_util::stream::iter(frames))));
        response.headers_mut().insert("trailer", "x-sum".parse().expect("a value"));
        response
    })
    .await;
    for is_replay in [false, true] {
        let reply = server.charge(5).await;
        assert_eq!((reply.text(), reply.is_replay()), ("body", is_replay));
        let trailers = reply.trailers.expect("trailers");
        assert_eq!((trailers.len(), trailers["x-sum"].as_bytes()), (1, b"7".as_slice()));
    }
}

/// A JSON document of 10 MiB - 61 bytes, in brotli: `{"a":"000…"}`.
const BROTLI: [u8; 41] = [
    0xcb, 0xff, 0xff, 0x3f, 0xf8, 0x8d, 0xd4, 0x60, 0xcd, 0x98, 0x63, 0xa5, 0x88, 0xce, 0x5e, 0xc1, 0x84,
    0xc5, 0x6d, 0x81, 0xc0, 0xd9, 0xfb, 0xbf, 0x15, 0x29, 0xfc, 0xff, 0x81, 0x5f, 0x4a, 0xa4, 0xaf, 0x24,
    0x39, 0x2c, 0x02, 0xb8, 0x77, 0xff, 0x41,
];

#[tokio::test]
async fn a_body_below_the_limit_passes_however_much_it_was_compressed() {
    let server =
        Server::new(RouteSettings::default(), async |_: u32, _: Request| "done".into_response()).await;
    let send = async |path: &str, coding: &str, body: Vec<u8>| {
        let request = post(path).header("content-type", "application/json");
        server.send(request.header("content-encoding", coding).bytes(body)).await
    };
    let zipped = |length: usize| gzip(format!("{{\"a\":\"{}\"}}", "0".repeat(length - 8)).as_bytes());
    let gzip = zipped((10 << 20) - 61);
    assert!(gzip.len() < (10 << 20) / 500, "far beyond what is tried first");
    for (path, coding, body) in [("/br", "br", BROTLI.to_vec()), ("/gzip", "gzip", gzip)] {
        for is_replay in [false, true] {
            let reply = send(path, coding, body.clone()).await;
            assert_eq!((reply.status, reply.is_replay()), (200, is_replay), "{coding}");
        }
    }
    let refused = send("/longer", "gzip", zipped((10 << 20) + 1)).await;
    refused.is_problem(413, "IDEMPOTENCY_REQUEST_TOO_LARGE", false);
}
