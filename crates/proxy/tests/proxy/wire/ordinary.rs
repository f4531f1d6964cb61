//! Requests of ordinary clients pass unchanged.

use super::world::{Seen, World, get, within};

async fn seen(bytes: impl AsRef<[u8]>) -> Vec<Seen> {
    let world = World::new().await;
    let closing = get("/last").replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
    let answer = world.exchange([bytes.as_ref(), closing.as_bytes()].concat()).await;
    let mut seen = world.service.seen();
    assert_eq!(seen.pop().map(|seen| seen.line).as_deref(), Some("GET /last"), "{answer}");
    seen
}

fn one(line: &str, body: &str) -> Vec<Seen> {
    vec![Seen { line: line.to_owned(), body: Some(body.as_bytes().to_vec()) }]
}

#[tokio::test]
async fn a_request_of_curl() {
    let bytes = "POST /charges?a=b HTTP/1.1\r\nHost: localhost:8080\r\nUser-Agent: curl/7.88.1\r\nAccept: */*\r\n\
                 Content-Length: 5\r\nContent-Type: application/x-www-form-urlencoded\r\n\r\nhello";
    assert_eq!(seen(bytes).await, one("POST /charges?a=b", "hello"));
}

#[tokio::test]
async fn a_request_of_a_browser() {
    let bytes = "GET /%7Euser/?q=a+b&c=%F0%9F%98%80 HTTP/1.1\r\nHost: [::1]:8080\r\nConnection: keep-alive\r\n\
                 sec-ch-ua: \"Chromium\";v=\"130\", \"Not?A_Brand\";v=\"99\"\r\nsec-ch-ua-mobile: ?0\r\n\
                 Upgrade-Insecure-Requests: 1\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64)\r\n\
                 Accept: text/html;q=0.9,*/*;q=0.8\r\nAccept-Language: de-DE,de;q=0.9\r\n\
                 Cookie: a=b; c=\"d e\"; _x.y=1\r\nIf-None-Match: W/\"abc\"\r\nX-Empty:\r\nX-Latin: caf\u{e9}\r\n\r\n";
    assert_eq!(seen(bytes).await, one("GET /%7Euser/?q=a+b&c=%F0%9F%98%80", ""));
}

#[tokio::test]
async fn chunks_with_extensions_and_trailers() {
    let bytes = "POST /c HTTP/1.1\r\nhost: a\r\ntransfer-encoding: Chunked\r\nTrailer: X-Sum\r\n\r\n\
                 5;name=\"value\";x\r\nhello\r\n00A\r\n, world!!!\r\n000\r\nX-Sum: 1\r\nX-Other:\t2\r\n\r\n";
    assert_eq!(seen(bytes).await, one("POST /c", "hello, world!!!"));
}

#[tokio::test]
async fn a_body_that_looks_like_a_request() {
    let body = get("/inside");
    let bytes = format!("PUT /outside HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    assert_eq!(seen(bytes).await, one("PUT /outside", &body));
}

#[tokio::test]
async fn requests_that_follow_each_other_at_once() {
    let bytes: String = (0..50).map(|number| get(&format!("/{number}"))).collect();
    let lines: Vec<_> = seen(bytes).await.into_iter().map(|seen| seen.line).collect();
    assert_eq!(lines, (0..50).map(|number| format!("GET /{number}")).collect::<Vec<_>>());
}

#[tokio::test]
async fn an_empty_line_after_a_body() {
    let bytes = "POST /old HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx\r\n";
    assert_eq!(seen(bytes).await, one("POST /old", "x"));
}

#[tokio::test]
async fn a_target_that_names_the_same_host() {
    let bytes = "GET HTTP://Example.com:80/a HTTP/1.1\r\nHost: example.COM\r\n\r\n";
    assert_eq!(seen(bytes).await.len(), 1);
    assert_eq!(seen("GET https://b:443 HTTP/1.1\r\nHost: b\r\n\r\n").await.len(), 1);
}

#[tokio::test]
async fn a_request_for_the_server_itself() {
    assert_eq!(seen("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n").await, one("OPTIONS *", ""));
}

#[tokio::test]
async fn a_request_of_http_1_0_without_a_host() {
    let world = World::new().await;
    let answer = world.exchange("GET /old HTTP/1.0\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.0 200 "), "{answer}");
    assert_eq!(world.service.lines(), ["GET /old"]);
}

#[tokio::test]
async fn a_client_that_waits_for_100_continue() {
    let world = World::new().await;
    let mut client = world.connect().await;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n").await;
    assert_eq!(client.until("\r\n\r\n").await, "HTTP/1.1 100 Continue\r\n\r\n");
    client.send("hello").await;
    assert!(client.until("POST / hello").await.starts_with("HTTP/1.1 200 OK\r\n"));
}

#[tokio::test]
async fn a_request_byte_by_byte() {
    let world = World::new().await;
    let mut client = world.connect().await;
    let bytes = "POST /slow HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n";
    for byte in bytes.bytes() {
        client.send([byte]).await;
    }
    client.until("POST /slow ab").await;
    assert_eq!(world.service.seen(), one("POST /slow", "ab"));
}

#[tokio::test]
async fn a_body_of_many_megabytes_by_length_and_by_chunks() {
    let world = World::new().await;
    let body: Vec<u8> = (0..8_u32 << 20).map(|at| at.to_le_bytes()[at as usize % 3]).collect();
    let mut client = world.connect().await;
    client.send(format!("POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len())).await;
    client.send(&body).await;
    within(world.service.arrived.notified()).await;
    let mut client = world.connect().await;
    client.send("POST /chunks HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    for chunk in body.chunks(70_001) {
        client.send(format!("{:x}\r\n", chunk.len())).await;
        client.send(chunk).await;
        client.send("\r\n").await;
    }
    client.send("0\r\n\r\n").await;
    within(world.service.arrived.notified()).await;
    assert!(world.service.seen().iter().all(|seen| seen.body.as_ref() == Some(&body)));
}

#[tokio::test]
async fn an_answer_to_a_body_that_nobody_reads_is_heard() {
    let world = World::new().await;
    let mut client = world.connect().await;
    client.send("POST /unread HTTP/1.1\r\nHost: a\r\nContent-Length: 1048576\r\n\r\n").await;
    client.send(vec![b'x'; 1 << 20]).await;
    let answer = client.until("POST /unread ").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[tokio::test]
async fn each_request_says_where_it_came_from() {
    let world = World::new().await;
    let mut client = world.connect().await;
    client.send(get("/")).await;
    client.until("GET / ").await;
    let heads = world.service.heads.lock().expect("not poisoned");
    let peer = heads[0].extensions.get::<semel_proxy::listen::Peer>().expect("an extension");
    assert_eq!((peer.address, peer.local), (client.tcp.local_addr().expect("bound"), world.address));
    assert!(!peer.is_tls);
}
