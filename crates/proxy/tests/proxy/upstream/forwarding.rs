//! What the upstream gets of a request, and what the client gets of a response.

use super::world::{KEY, Reply, Script, layer, upstream};
use bytes::Bytes;
use http::Request;
use semel_proxy::forward::{Client, Host, Inbound, Options, Outbound, Rules};
use semel_proxy::upstream;
use std::net::{IpAddr, Ipv6Addr};
use tower_layer::Layer as _;
use tower_service::Service;

const ANSWER: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: x-hop\r\nx-hop: 1\r\nkeep-alive: timeout=5\r\n\
                      x-end: 1\r\nproxy-authenticate: Basic\r\n\r\nok";

fn peer(options: Options) -> Options {
    options.client(|_| Some(Client { address: IpAddr::V6(Ipv6Addr::LOCALHOST), is_tls: true }))
}

/// The response of the complete gateway in front of `url`.
async fn forwarded(url: &str, options: Options, request: Request<semel_http::Body>) -> Reply {
    let outbound = Outbound::new(upstream(url, upstream::Options::default()), peer(options));
    let base = url.trim_end_matches('/').splitn(4, '/').nth(3).map(|base| format!("/{base}"));
    let rules = Rules {
        end_to_end: vec!["x-tenant".parse().expect("a name")],
        prefix: String::new(),
        base: base.unwrap_or_default(),
    };
    let mut gateway = Inbound::new(layer().await.layer(outbound), rules);
    let response = gateway.call(request).await.expect("infallible");
    Reply::read(response).await.expect("a complete response")
}

fn request(method: &str, target: &str, lines: &[(&str, &str)]) -> Request<semel_http::Body> {
    let mut request = Request::builder().method(method).uri(target);
    for (name, value) in lines {
        request = request.header(*name, *value);
    }
    request.body(semel_http::Body::from(Bytes::new())).expect("a request")
}

/// The request as the upstream got it, with its header lines in no particular order.
async fn seen(path: &str, options: Options, request: Request<semel_http::Body>) -> Vec<String> {
    let script = Script::answering(ANSWER);
    let reply = forwarded(&format!("http://{}{path}", script.address), options, request).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let mut lines: Vec<_> = script.requests()[0].trim_end().split("\r\n").map(str::to_owned).collect();
    let port = script.address.port().to_string();
    for line in &mut lines {
        *line = line.replace(&port, "PORT");
    }
    lines[1..].sort();
    lines
}

#[tokio::test]
async fn a_request_arrives_unchanged_with_its_origin() {
    let lines = [
        ("host", "pay.example"),
        ("accept", "*/*"),
        ("connection", "keep-alive, x-hop"),
        ("keep-alive", "timeout=1"),
        ("x-hop", "1"),
        ("expect", "100-continue"),
        ("te", "gzip, trailers"),
        ("x-forwarded-for", "10.0.0.1"),
        ("proxy-authorization", "Basic eA=="),
    ];
    let seen = seen("/base/", Options::default(), request("GET", "/a//b/%2e%2E/c?x=%41&", &lines)).await;
    assert_eq!(
        seen,
        [
            "GET /base/a//b/%2e%2E/c?x=%41& HTTP/1.1",
            "accept: */*",
            "forwarded: for=\"[::1]\";host=\"pay.example\";proto=https",
            "host: pay.example",
            "te: trailers",
            "via: 1.1 semel",
            "x-forwarded-for: ::1",
            "x-forwarded-host: pay.example",
            "x-forwarded-proto: https",
        ]
    );
}

#[tokio::test]
async fn an_absolute_target_becomes_host_and_path() {
    let absolute = request("GET", "http://shop.example:81/a?b", &[("host", "pay.example")]);
    let seen = seen("", Options::default(), absolute).await;
    assert_eq!(seen[0], "GET /a?b HTTP/1.1");
    assert!(seen.contains(&"host: shop.example:81".to_owned()), "{seen:?}");
}

#[tokio::test]
async fn the_upstream_sees_its_own_name_where_that_is_asked_for() {
    let options = Options::default().host(Host::Target);
    let seen = seen("", options, request("GET", "/", &[("host", "pay.example")])).await;
    assert!(seen.contains(&"host: 127.0.0.1:PORT".to_owned()), "{seen:?}");
    assert!(seen.contains(&"x-forwarded-host: pay.example".to_owned()), "{seen:?}");
}

#[tokio::test]
async fn a_client_cannot_remove_needed_headers() {
    let named = "idempotency-key, authorization, x-tenant, operation-id, idempotency-attempt, content-type, host, x-hop";
    let lines = [
        ("host", "pay.example"),
        ("connection", named),
        ("idempotency-key", KEY),
        ("authorization", "Bearer x"),
        ("x-tenant", "7"),
        ("content-type", "application/json"),
        ("x-hop", "1"),
    ];
    let mut request = request("POST", "/charges", &lines);
    *request.body_mut() = semel_http::Body::from(Bytes::from_static(b"{}"));
    let seen = seen("", Options::default(), request).await;
    for name in [
        "idempotency-key: ",
        "authorization: ",
        "x-tenant: ",
        "operation-id: ",
        "idempotency-attempt: 1",
        "content-type: ",
    ] {
        assert!(seen.iter().any(|line| line.starts_with(name)), "{name} in {seen:?}");
    }
    assert!(!seen.iter().any(|line| line.starts_with("x-hop") || line.starts_with("connection")), "{seen:?}");
}

#[tokio::test]
async fn the_upstreams_hop_by_hop_headers_do_not_reach_the_client() {
    let script = Script::answering(ANSWER);
    let sent = request("GET", "/", &[("host", "pay.example")]);
    let reply = forwarded(&format!("http://{}", script.address), Options::default(), sent).await;
    let mut names: Vec<_> = reply.headers.keys().map(http::HeaderName::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["content-length", "via", "x-end"]);
    assert_eq!(reply.text(), "ok");
}

/// The chunks determine the body, so the client must not get the contradicting length.
#[tokio::test]
async fn a_length_beside_chunks_does_not_reach_the_client() {
    let script = Script::answering(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 50\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    );
    let url = format!("http://{}", script.address);
    for lines in [&[("host", "pay.example")][..], &[("host", "pay.example"), ("idempotency-key", KEY)]] {
        let reply = forwarded(&url, Options::default(), request("POST", "/", lines)).await;
        assert_eq!((reply.status, reply.text()), (200, "hello"));
        assert_eq!(reply.headers.get("content-length"), None, "{lines:?}");
    }
}

#[tokio::test]
async fn a_repeated_length_is_forwarded_once() {
    for length in ["content-length: 5, 5", "content-length: 5\r\ncontent-length: 5"] {
        let answer = format!("HTTP/1.1 200 OK\r\n{length}\r\n\r\nhello");
        let script = Script::new(move |_, peer| {
            while peer.request().is_some() {
                peer.say(&answer);
            }
        });
        let sent = request("POST", "/", &[("host", "pay.example")]);
        let reply = forwarded(&format!("http://{}", script.address), Options::default(), sent).await;
        let lengths: Vec<_> = reply.headers.get_all("content-length").iter().collect();
        assert_eq!(reply.text(), "hello");
        assert_eq!(lengths, ["5"], "{length:?}");
    }
}

/// Base path and target are joined. If the result is too long, the request is refused, and never sent without the base
/// path.
#[tokio::test]
async fn a_target_that_is_too_long_is_refused() {
    let script = Script::answering(ANSWER);
    let url = format!("http://{}/tenants/7", script.address);
    for (bytes, status) in [(64_510, 200), (64_511, 414), (65_534, 414)] {
        let target = format!("/{}", "a".repeat(bytes - 1));
        let sent = request("POST", &target, &[("host", "pay.example"), ("idempotency-key", KEY)]);
        let reply = forwarded(&url, Options::default(), sent).await;
        assert_eq!(reply.status, status, "{bytes} bytes");
        assert!(!reply.headers.contains_key("operation-id") || status == 200, "it was claimed");
    }
    let requests = script.requests();
    assert_eq!(requests.len(), 1);
    assert!(requests[0].starts_with("POST /tenants/7/aaa"), "sent without its base path");
}

#[tokio::test]
async fn a_path_that_leads_out_of_the_base_path_is_refused() {
    let script = Script::answering(ANSWER);
    let url = format!("http://{}/tenants/7", script.address);
    for target in ["/..", "/../8/charges", "/%2e%2E/8/charges", "/a/../../8", "/../7/charges"] {
        let sent = request("POST", target, &[("host", "pay.example"), ("idempotency-key", KEY)]);
        assert_eq!(forwarded(&url, Options::default(), sent).await.status, 400, "{target}");
    }
    assert!(script.requests().is_empty());
    let sent = request("POST", "/a/../charges", &[("host", "pay.example")]);
    assert_eq!(forwarded(&url, Options::default(), sent).await.status, 200);
    assert!(script.requests()[0].starts_with("POST /tenants/7/a/../charges HTTP/1.1\r\n"), "as received");
}

#[tokio::test]
async fn a_tunnel_is_refused_in_any_letter_case() {
    let script = Script::answering(ANSWER);
    let url = format!("http://{}", script.address);
    for method in ["connect", "Connect"] {
        let sent = request(method, "/charges", &[("host", "pay.example")]);
        assert_eq!(forwarded(&url, Options::default(), sent).await.status, 501, "{method}");
    }
    assert!(script.requests().is_empty());
}

#[tokio::test]
async fn an_empty_body_has_a_length_whatever_the_methods_case() {
    for method in ["POST", "post", "Patch"] {
        let script = Script::answering(ANSWER);
        let url = format!("http://{}", script.address);
        let sent = request(method, "/charges", &[("host", "pay.example")]);
        assert_eq!(forwarded(&url, Options::default(), sent).await.status, 200);
        let head = script.requests().remove(0);
        assert!(head.starts_with(&format!("{method} /charges HTTP/1.1\r\n")), "{head}");
        assert!(head.to_ascii_lowercase().contains("\r\ncontent-length: 0\r\n"), "{head}");
    }
}

#[tokio::test]
async fn a_body_of_unknown_length_arrives_whatever_the_method() {
    for method in ["GET", "HEAD", "DELETE", "OPTIONS", "POST"] {
        let script = Script::new(|_, peer| {
            let head = peer.head().expect("a head");
            assert!(head.contains("transfer-encoding: chunked\r\n"), "{head}");
            let mut body = [0; b"4\r\nfind\r\n0\r\n\r\n".len()];
            std::io::Read::read_exact(&mut peer.stream, &mut body).expect("a body");
            assert_eq!(&body, b"4\r\nfind\r\n0\r\n\r\n");
            peer.say("HTTP/1.1 204 No Content\r\n\r\n");
        });
        let mut sent = request(method, "/", &[("host", "pay.example"), ("transfer-encoding", "chunked")]);
        let part = http_body::Frame::data(Bytes::from_static(b"find"));
        let parts = futures_util::stream::iter([Ok::<_, std::convert::Infallible>(part)]);
        *sent.body_mut() = semel_http::Body::live(http_body_util::StreamBody::new(parts));
        let reply = forwarded(&format!("http://{}", script.address), Options::default(), sent).await;
        assert_eq!(reply.status, 204, "{method}");
    }
}

#[tokio::test]
async fn the_crumbs_of_an_http_2_cookie_arrive_as_one() {
    let lines = [("host", "pay.example"), ("cookie", "session=1"), ("cookie", "theme=dark")];
    let mut sent = request("GET", "/", &lines);
    *sent.version_mut() = http::Version::HTTP_2;
    let seen = seen("", Options::default(), sent).await;
    let cookies: Vec<_> = seen.iter().filter(|line| line.starts_with("cookie")).collect();
    assert_eq!(cookies, ["cookie: session=1; theme=dark"]);
}

#[tokio::test]
async fn requests_for_other_services_are_refused_first() {
    let script = Script::answering(ANSWER);
    let url = format!("http://{}", script.address);
    let two_hosts = [("host", "pay.example"), ("host", "pay.example")];
    for (method, target, lines, status) in [
        ("CONNECT", "bank.example:443", &[("host", "bank.example:443")][..], 501),
        ("GET", "/", &[], 400),
        ("GET", "/", &two_hosts, 400),
        ("GET", "/", &[("host", "user@pay.example")], 400),
        ("GET", "/", &[("host", "pay.example/path")], 400),
        ("GET", "http://user@pay.example/", &[("host", "pay.example")], 400),
    ] {
        let reply = forwarded(&url, Options::default(), request(method, target, lines)).await;
        assert_eq!(reply.status, status, "{method} {target} {lines:?}");
        let code = if status == 400 { "MALFORMED_REQUEST" } else { "STREAMING_NOT_PROTECTED" };
        assert_eq!(reply.code().as_deref(), Some(code), "{method} {target} {lines:?}");
        assert_eq!(reply.headers["content-type"], "application/problem+json");
    }
    assert_eq!(script.connections(), 0);
}

#[tokio::test]
async fn a_failed_request_without_a_key_gets_a_plain_error() {
    let script = Script::new(|_, peer| {
        peer.request();
    });
    let sent = request("POST", "/", &[("host", "pay.example")]);
    let reply = forwarded(&format!("http://{}", script.address), Options::default(), sent).await;
    assert_eq!((reply.status, reply.code().as_deref()), (502, Some("UPSTREAM_FAILED")));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let sent = request("POST", "/", &[("host", "pay.example")]);
    let reply = forwarded(&format!("http://{address}"), Options::default(), sent).await;
    assert_eq!((reply.status, reply.code().as_deref()), (502, Some("UPSTREAM_UNREACHABLE")));
}
