//! Shutdown.

use super::world::{World, get, options, within};
use semel_proxy::listen::{Drained, Options};
use std::time::Duration;
use tokio::net::TcpStream;

#[tokio::test]
async fn a_running_request_is_answered_and_its_connection_closed() {
    let world = World::new().await;
    let (service, address) = (world.service.clone(), world.address);
    let mut client = world.connect().await;
    client.send(get("/hang")).await;
    within(service.arrived.notified()).await;
    let end = tokio::spawn(world.stop());
    // The socket is closed first: when connections are refused, shutdown has begun.
    while TcpStream::connect(address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    service.release();
    let answer = client.rest().await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("GET /hang "), "{answer}");
    assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
    assert_eq!(end.await.expect("no panic"), Drained { ended: 1, cut_off: 0 });
}

#[tokio::test]
async fn idle_connections_are_closed_at_once() {
    let world = World::new().await;
    let mut used = world.connect().await;
    used.send(get("/")).await;
    used.until("GET / ").await;
    let drained = world.stop().await;
    assert_eq!(drained.cut_off, 0);
    assert_eq!(used.rest().await, "");
}

#[tokio::test]
async fn a_connection_without_a_request_does_not_hold_up_the_end() {
    let world = World::new().await;
    let mut silent = world.connect().await;
    // When a later connection is answered, the silent one has its slot.
    let mut other = world.connect().await;
    other.send(get("/")).await;
    other.until("GET / ").await;
    assert_eq!(world.stop().await, Drained { ended: 2, cut_off: 0 });
    assert_eq!(silent.rest().await, "");
}

#[tokio::test]
async fn what_does_not_end_by_the_deadline_is_cut_off() {
    let world = World::with(Options { drain: Duration::from_millis(50), ..options() }).await;
    let service = world.service.clone();
    let mut client = world.connect().await;
    client.send(get("/hang")).await;
    within(service.arrived.notified()).await;
    assert_eq!(world.stop().await, Drained { ended: 0, cut_off: 1 });
    assert_eq!(client.rest().await, "");
}

#[tokio::test]
async fn a_tunnel_counts_as_cut_off() {
    let world = World::with(Options { drain: Duration::from_millis(50), ..options() }).await;
    let mut client = world.connect().await;
    client.send("GET /tunnel HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n").await;
    client.until("\r\n\r\n").await;
    assert_eq!(world.stop().await, Drained { ended: 0, cut_off: 1 });
}
