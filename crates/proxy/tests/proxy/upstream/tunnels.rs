//! Upgrades: tunnels for unprotected requests, refusals for protected ones.

use super::world::{KEY, Script, layer, upstream};
use hyper_util::rt::TokioIo;
use semel_proxy::forward::{Inbound, Options, Outbound, Rules};
use semel_proxy::upstream;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tower_layer::Layer as _;
use tower_service::Service;

/// Switches protocols, then echoes everything in capitals.
fn echoing() -> Script {
    Script::new(|_, peer| {
        let Some(request) = peer.request() else { return };
        if !request.contains("\r\nupgrade: echo\r\n") {
            peer.say("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nplain");
            return;
        }
        // The first bytes arrive together with the head.
        peer.say("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\nhello ");
        let mut bytes = [0; 4];
        std::io::Read::read_exact(&mut peer.stream, &mut bytes).expect("four bytes");
        peer.say(&String::from_utf8_lossy(&bytes).to_uppercase());
        assert_eq!(peer.rest(), 0);
    })
}

/// The gateway in front of `script`, on a port.
async fn gateway(script: &Script) -> SocketAddr {
    let url = format!("http://{}", script.address);
    let outbound = Outbound::new(upstream(&url, upstream::Options::default()), Options::default());
    let gateway = Inbound::new(layer().await.layer(outbound), Rules::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let gateway = gateway.clone();
            let service = hyper::service::service_fn(move |request| gateway.clone().call(request));
            let server = hyper::server::conn::http1::Builder::new();
            tokio::spawn(server.serve_connection(TokioIo::new(stream), service).with_upgrades());
        }
    });
    address
}

/// The response until the gateway closes, or up to `until`.
async fn say(stream: &mut TcpStream, text: &str, until: &str) -> String {
    stream.write_all(text.as_bytes()).await.expect("it is open");
    let mut received = Vec::new();
    while !received.ends_with(until.as_bytes()) {
        if stream.read_buf(&mut received).await.expect("it is open") == 0 {
            break;
        }
    }
    String::from_utf8(received).expect("UTF-8")
}

#[tokio::test]
async fn an_upgrade_is_tunnelled_both_ways_and_ends_on_both_sides() {
    let script = echoing();
    let mut client = TcpStream::connect(gateway(&script).await).await.expect("a connection");
    let upgrade = "GET /ws HTTP/1.1\r\nhost: pay.example\r\nconnection: Upgrade\r\nupgrade: echo\r\n\r\n";
    let head = say(&mut client, upgrade, "hello ").await;
    assert!(head.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{head}");
    assert!(head.contains("connection: upgrade\r\n") && head.contains("upgrade: echo\r\n"), "{head}");
    assert_eq!(say(&mut client, "ping", "PING").await, "PING");
    client.shutdown().await.expect("it is open");
    assert_eq!(say(&mut client, "", "never").await, "", "the other side ends too");
}

#[tokio::test]
async fn an_upgrade_with_a_key_is_refused_and_nothing_is_sent() {
    let script = echoing();
    let mut client = TcpStream::connect(gateway(&script).await).await.expect("a connection");
    let upgrade = format!(
        "POST /ws HTTP/1.1\r\nhost: pay.example\r\nconnection: Upgrade\r\nupgrade: echo\r\nidempotency-key: {KEY}\r\n\
         content-length: 0\r\n\r\n"
    );
    let reply = say(&mut client, &upgrade, "}").await;
    assert!(reply.starts_with("HTTP/1.1 501 ") && reply.contains("STREAMING_NOT_PROTECTED"), "{reply}");
    assert_eq!(script.connections(), 0);
}

#[tokio::test]
async fn no_request_can_pass_semel_by_on_an_upgrade_to_http() {
    let script = echoing();
    let mut client = TcpStream::connect(gateway(&script).await).await.expect("a connection");
    let upgrade = "GET / HTTP/1.1\r\nhost: pay.example\r\nconnection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\n\
                 http2-settings: AAMAAABkAAQAAP__\r\n\r\n";
    let reply = say(&mut client, upgrade, "plain").await;
    assert!(reply.starts_with("HTTP/1.1 200 OK\r\n"), "{reply}");
    let seen = &script.requests()[0];
    assert!(!seen.contains("upgrade") && !seen.contains("http2-settings"), "{seen}");
}
