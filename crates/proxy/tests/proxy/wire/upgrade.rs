//! A change of protocol during a connection.

use super::world::{World, get, within};

const ASK: &str = "GET /tunnel HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";

#[tokio::test]
async fn after_a_granted_upgrade_every_byte_passes_both_ways() {
    let world = World::new().await;
    let mut client = world.connect().await;
    client.send(ASK).await;
    assert!(client.until("\r\n\r\n").await.starts_with("HTTP/1.1 101 "));
    // None of this is HTTP, and some of it would be refused.
    let bytes = "GET / HTTP/1.1\nContent-Length: 1, 2\0\r\rPOST\n\n<end>";
    client.send(bytes).await;
    assert_eq!(client.until("<end>").await, bytes);
}

#[tokio::test]
async fn bytes_sent_before_the_upgrade_was_granted_are_not_lost() {
    let world = World::new().await;
    let mut client = world.connect().await;
    client.send(format!("{ASK}\0 early <end>")).await;
    assert!(client.until("\r\n\r\n").await.starts_with("HTTP/1.1 101 "));
    assert_eq!(client.until("<end>").await, "\0 early <end>");
    client.send("late <end>").await;
    assert_eq!(client.until("<end>").await, "late <end>");
}

#[tokio::test]
async fn a_tunnel_by_connect_passes_every_byte() {
    let world = World::new().await;
    let mut client = world.connect().await;
    client.send("CONNECT b:443 HTTP/1.1\r\nHost: b:443\r\n\r\n\x16\x03 early <end>").await;
    assert!(client.until("\r\n\r\n").await.starts_with("HTTP/1.1 200 "));
    assert_eq!(client.until("<end>").await, "\x16\x03 early <end>");
}

#[tokio::test]
async fn after_a_declined_upgrade_the_next_request_is_scanned_again() {
    let world = World::new().await;
    let declined = ASK.replace("/tunnel", "/plain");
    let answer = world.exchange(format!("{declined}{}{declined}bad\r\n\r\n", get("/next"))).await;
    let statuses: Vec<_> =
        answer.match_indices("HTTP/1.1 ").map(|(at, _)| &answer[at + 9..at + 12]).collect();
    assert_eq!(statuses, ["200", "200", "200", "400"], "{answer}");
    assert_eq!(world.service.lines(), ["GET /plain", "GET /next", "GET /plain"]);
}

#[tokio::test]
async fn bytes_after_an_upgrade_request_wait_for_the_decision() {
    let world = World::new().await;
    let mut client = world.connect().await;
    client.send(format!("{}{}", ASK.replace("/tunnel", "/hang"), get("/behind"))).await;
    within(world.service.arrived.notified()).await;
    assert_eq!(world.service.lines(), ["GET /hang"]);
    world.service.release();
    client.until("GET /behind ").await;
    assert_eq!(world.service.lines(), ["GET /hang", "GET /behind"]);
}

#[tokio::test]
async fn an_upgrade_request_with_a_body_keeps_its_body() {
    let world = World::new().await;
    let mut client = world.connect().await;
    let ask = ASK.replace("GET", "POST").replace("\r\n\r\n", "\r\nContent-Length: 4\r\n\r\nbody");
    client.send(format!("{ask}early <end>")).await;
    client.until("\r\n\r\n").await;
    assert_eq!(client.until("<end>").await, "early <end>");
    assert_eq!(world.service.seen()[0].body.as_deref(), Some(&b"body"[..]));
}
