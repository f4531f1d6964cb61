//! Upstreams over HTTP/2: what the end of a stream proves.

use super::world::{KEY, Peer, Reply, Script, ask, get, head, keyed, layer, post, through, upstream};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper_util::rt::{TokioExecutor, TokioIo};
use semel_http::Failure;
use semel_proxy::upstream::{Options, Upstream};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::mpsc::unbounded_channel;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

/// One frame, written by hand: no library sends these in that order.
fn frame(peer: &mut Peer, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len()).expect("it is short").to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    let _ = peer.stream.write_all(&frame);
}

/// The next frame's kind and stream; `None` at the end.
fn next(peer: &mut Peer) -> Option<(u8, u32)> {
    let mut head = [0; 9];
    peer.stream.read_exact(&mut head).ok()?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut payload = vec![0; length as usize];
    peer.stream.read_exact(&mut payload).ok()?;
    if (head[3], head[4]) == (SETTINGS, 0) {
        frame(peer, SETTINGS, 1, 0, &[]);
    }
    Some((head[3], u32::from_be_bytes([head[5], head[6], head[7], head[8]])))
}

/// Sends the preface, and answers every request head with `play`, which gets the stream and its number on this server.
fn http2_script(play: impl Fn(&mut Peer, u32, usize) + Send + Sync + 'static) -> Script {
    let served = AtomicUsize::new(0);
    Script::new(move |_, peer| {
        let mut preface = [0; 24];
        if peer.stream.read_exact(&mut preface).is_err() {
            return;
        }
        frame(peer, SETTINGS, 0, 0, &[]);
        while let Some((kind, stream)) = next(peer) {
            if kind == HEADERS {
                play(peer, stream, served.fetch_add(1, Ordering::SeqCst) + 1);
            }
        }
    })
}

fn go_away(peer: &mut Peer, last: u32) {
    let mut payload = last.to_be_bytes().to_vec();
    payload.extend([0; 4]);
    frame(peer, GOAWAY, 0, 0, &payload);
}

/// `:status: 204`, with the end of the stream.
fn no_content(peer: &mut Peer, stream: u32) {
    frame(peer, HEADERS, 0x5, stream, &[0x89]);
}

pub(crate) fn refusing_streams() -> Script {
    http2_script(|peer, stream, _| frame(peer, RST_STREAM, 0, stream, &7_u32.to_be_bytes()))
}

fn h2c(script: &Script) -> Upstream {
    upstream(&format!("h2c://{}", script.address), Options::default())
}

#[tokio::test]
async fn a_refused_stream_was_not_processed() {
    let script = refusing_streams();
    let upstream = h2c(&script);
    assert_eq!(ask(&upstream, post("/", "1")).await, Err(Failure::Unreachable));
    assert_eq!(ask(&upstream, get("/")).await, Err(Failure::Unreachable));
    assert_eq!(script.connections(), 1, "the connection stays in use");
}

#[tokio::test]
async fn a_stream_that_is_reset_for_any_other_reason_leaves_doubt() {
    for reason in [0_u32, 1, 2, 8, 11] {
        let script =
            http2_script(move |peer, stream, _| frame(peer, RST_STREAM, 0, stream, &reason.to_be_bytes()));
        assert_eq!(ask(&h2c(&script), post("/", "1")).await, Err(Failure::Broken), "reason {reason}");
    }
}

#[tokio::test]
async fn only_streams_after_a_goaways_last_were_not_processed() {
    for (last, failure) in [(0, Failure::Unreachable), (1, Failure::Broken), (0x7fff_ffff, Failure::Broken)] {
        let script = http2_script(move |peer, _, _| {
            go_away(peer, last);
            peer.half_close();
        });
        assert_eq!(ask(&h2c(&script), post("/", "1")).await, Err(failure), "last {last}");
    }
}

#[tokio::test]
async fn a_connection_that_ends_without_a_word_leaves_doubt() {
    let script = http2_script(|peer, _, _| peer.half_close());
    assert_eq!(ask(&h2c(&script), post("/", "1")).await, Err(Failure::Broken));
}

#[tokio::test]
async fn a_stream_that_ends_within_its_body_is_no_answer() {
    let script = http2_script(|peer, stream, _| {
        frame(peer, HEADERS, 0x4, stream, &[0x88]);
        frame(peer, DATA, 0, stream, b"half");
        frame(peer, RST_STREAM, 0, stream, &0_u32.to_be_bytes());
    });
    let response = head(&h2c(&script), get("/")).await.expect("a head");
    assert_eq!(Reply::read(response).await, Err(Failure::Broken));
}

#[tokio::test]
async fn a_connection_after_goaway_is_replaced_and_its_streams_answered() {
    let script = http2_script(|peer, stream, served| {
        if served == 1 {
            go_away(peer, stream);
        }
        no_content(peer, stream);
    });
    let upstream = h2c(&script);
    for round in 1..=3 {
        assert_eq!(ask(&upstream, get("/")).await.expect("an answer").status, 204, "round {round}");
    }
    assert_eq!(script.connections(), 2);
}

#[tokio::test]
async fn a_response_that_does_not_come_in_time_leaves_doubt() {
    let script = http2_script(|_, _, _| {});
    let options = Options { response_timeout: Duration::from_millis(50), ..Options::default() };
    let upstream = upstream(&format!("h2c://{}", script.address), options);
    assert_eq!(ask(&upstream, post("/", "1")).await, Err(Failure::TimedOut));
}

/// A network that went silent does not report it. The first unanswered request reveals it.
#[tokio::test]
async fn a_connection_that_timed_out_gets_no_further_request() {
    for is_head_sent in [false, true] {
        let script = http2_script(move |peer, stream, served| {
            if served > 1 {
                no_content(peer, stream);
            } else if is_head_sent {
                frame(peer, HEADERS, 0x4, stream, &[0x88]);
            }
        });
        let options = Options { response_timeout: Duration::from_millis(200), ..Options::default() };
        let (upstream, layer) = (upstream(&format!("h2c://{}", script.address), options), layer().await);
        let reply = through(&layer, &upstream, keyed("/charges", KEY)).await;
        assert_eq!((reply.status, reply.code().as_deref()), (504, Some("UPSTREAM_TIMEOUT")));
        for key in ["another-key-0123456789", "a-third-key-0123456789"] {
            assert_eq!(through(&layer, &upstream, keyed("/charges", key)).await.status, 204);
        }
        assert_eq!(script.connections(), 2);
    }
}

/// The library keeps the head of an abandoned stream, and would send it when the socket accepts data again.
#[tokio::test]
async fn a_stream_behind_a_full_socket_is_never_sent() {
    let ((read_on, may_read), (report, mut reports)) = (mpsc::channel::<()>(), unbounded_channel());
    let may_read = Mutex::new(may_read);
    let script = Script::new(move |_, peer| {
        let mut preface = [0; 24];
        peer.stream.read_exact(&mut preface).expect("a preface");
        // The largest possible windows, so that only the socket blocks the upload.
        frame(peer, SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]);
        frame(peer, WINDOW_UPDATE, 0, 0, &0x7fff_0000_u32.to_be_bytes());
        while next(peer).expect("a stream").0 != HEADERS {}
        may_read.lock().expect("no panic").recv().expect("a signal from the test");
        let mut opened = 0;
        while let Some((kind, _)) = next(peer) {
            opened += usize::from(kind == HEADERS);
        }
        report.send(opened).expect("a receiver");
    });
    let options = Options { response_timeout: Duration::from_secs(2), ..Options::default() };
    let upstream = upstream(&format!("h2c://{}", script.address), options);
    let taken = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&taken);
    let parts = futures_util::stream::repeat_with(move || {
        counted.fetch_add(1, Ordering::SeqCst);
        Ok::<_, std::convert::Infallible>(http_body::Frame::data(Bytes::from(vec![0; 64 * 1024])))
    });
    let mut upload = post("/upload", "");
    *upload.body_mut() = semel_http::Body::live(http_body_util::StreamBody::new(parts));
    let uploading = tokio::spawn({
        let upstream = upstream.clone();
        async move { ask(&upstream, upload).await }
    });
    let mut before = 0;
    while before == 0 || before != taken.load(Ordering::SeqCst) {
        before = taken.load(Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(ask(&upstream, post("/charges", "1")).await, Err(Failure::Unreachable));
    read_on.send(()).expect("the script waits");
    assert_eq!(reports.recv().await.expect("the connection has ended"), 0, "the abandoned stream was sent");
    assert_eq!(script.connections(), 1);
    uploading.abort();
}

#[tokio::test]
async fn an_attempt_that_is_over_opens_no_stream() {
    let script = http2_script(|_, _, _| panic!("a stream"));
    let mut request = post("/", "1");
    request.extensions_mut().insert(super::world::lost_attempt().await);
    assert_eq!(ask(&h2c(&script), request).await, Err(Failure::Unreachable));
}

#[tokio::test]
async fn many_requests_share_one_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    let all = Arc::new(tokio::sync::Barrier::new(50));
    let serving =
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("a connection");
                counted.fetch_add(1, Ordering::SeqCst);
                let all = Arc::clone(&all);
                let service =
                    hyper::service::service_fn(move |request: http::Request<hyper::body::Incoming>| {
                        let all = Arc::clone(&all);
                        async move {
                            assert_eq!(request.version(), http::Version::HTTP_2);
                            assert_eq!(request.uri().authority().expect("an authority"), "pay.example");
                            let path = request.uri().path().to_owned();
                            let body = request.into_body().collect().await.expect("a body").to_bytes();
                            if path == "/together" {
                                all.wait().await;
                            }
                            let trailers =
                                [("sum".parse().expect("a name"), body.len().into())].into_iter().collect();
                            let body = http_body_util::Full::new(body).with_trailers(std::future::ready(
                                Some(Ok::<_, std::convert::Infallible>(trailers)),
                            ));
                            Ok::<_, std::convert::Infallible>(http::Response::new(body))
                        }
                    });
                let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                tokio::spawn(server.serve_connection(TokioIo::new(stream), service));
            }
        });
    let upstream = upstream(&format!("h2c://{address}"), Options::default());
    let together = (0..50).map(|number: u32| {
        let upstream = upstream.clone();
        tokio::spawn(async move { ask(&upstream, post("/together", number.to_string())).await })
    });
    let together: Vec<_> = together.collect();
    for (number, reply) in together.into_iter().enumerate() {
        let reply = reply.await.expect("no panic").expect("an answer");
        assert_eq!(reply.text(), number.to_string());
    }
    let large: Bytes =
        (0..8 * 1024 * 1024_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let reply = ask(&upstream, post("/large", large.clone())).await.expect("an answer");
    assert!(reply.body == large, "changed on the way");
    assert_eq!(reply.trailers.expect("trailers")["sum"], "8388608");
    assert_eq!(connections.load(Ordering::SeqCst), 1);
    serving.abort();
}
