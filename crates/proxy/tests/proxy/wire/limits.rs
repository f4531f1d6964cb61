//! More connections and requests than there is room for.

use super::world::{Client, World, get, options, within};
use semel_proxy::listen::{MessageRefusal, Options, RefusalObserver};
use std::sync::{Arc, Mutex};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpSocket;

async fn connect_from(world: &World, address: &str) -> Client {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(format!("{address}:0").parse().expect("an address")).expect("an address of this machine");
    Client { tcp: within(socket.connect(world.address)).await.expect("it listens") }
}

/// A connection that has been used and is kept open.
async fn kept(world: &World, address: &str) -> Client {
    let mut client = connect_from(world, address).await;
    asks(&mut client, "/").await;
    client
}

async fn asks(client: &mut Client, path: &str) {
    client.send(get(path)).await;
    client.until(&format!("GET {path} ")).await;
}

#[tokio::test]
async fn one_address_cannot_keep_others_out() {
    let world = World::with(Options { connections_max: 4, ..options() }).await;
    let mut other = kept(&world, "127.0.0.2").await;
    let mut first = kept(&world, "127.0.0.1").await;
    let mut second = kept(&world, "127.0.0.1").await;
    let mut busy = connect_from(&world, "127.0.0.1").await;
    busy.send(get("/hang")).await;
    within(async {
        while world.service.lines().len() < 4 {
            world.service.arrived.notified().await;
        }
    })
    .await;
    let mut new = kept(&world, "127.0.0.3").await;
    assert_eq!(first.rest().await, "", "the oldest connection of the largest holder is closed");
    let mut newer = kept(&world, "127.0.0.3").await;
    assert_eq!(second.rest().await, "", "then its next oldest connection");
    // Running requests are not ended, and clients with fewer connections keep theirs.
    for client in [&mut other, &mut new, &mut newer] {
        asks(client, "/again").await;
    }
    world.service.release();
    busy.until("GET /hang ").await;
}

#[tokio::test]
async fn a_tunnel_is_not_closed_for_another_connection() {
    let world = World::with(Options { connections_max: 2, ..options() }).await;
    let mut tunnel = connect_from(&world, "127.0.0.1").await;
    tunnel.send("GET /tunnel HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n").await;
    tunnel.until("\r\n\r\n").await;
    let mut idle = kept(&world, "127.0.0.1").await;
    kept(&world, "127.0.0.1").await;
    assert_eq!(idle.rest().await, "");
    tunnel.send("still there").await;
    tunnel.until("still there").await;
}

#[tokio::test]
async fn requests_beyond_the_common_limit_are_refused() {
    let world = World::with(Options { requests_max: 1, ..options() }).await;
    let mut running = world.connect().await;
    running.send(get("/hang")).await;
    within(world.service.arrived.notified()).await;
    let mut client = world.connect().await;
    client.send(get("/")).await;
    let refused = client.until("\"}").await;
    assert!(refused.starts_with("HTTP/1.1 503 ") && refused.contains("\r\nretry-after: 1\r\n"), "{refused}");
    for part in ["\"code\":\"GATEWAY_BUSY\"", "\"retryable\":true"] {
        assert!(refused.contains(part), "{part} in {refused}");
    }
    assert_eq!(world.service.lines(), ["GET /hang"]);
    world.service.release();
    running.until("GET /hang ").await;
    within(async {
        loop {
            let mut client = world.connect().await;
            client.send(get("/")).await;
            if client.until("\r\n\r\n").await.starts_with("HTTP/1.1 200 ") {
                break;
            }
        }
    })
    .await;
}

const UNREAD: &str = "POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel";

#[tokio::test]
async fn the_largest_holders_unread_body_makes_room() {
    let observed = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&observed);
    let refusals = RefusalObserver::new(move |refusal| seen.lock().expect("not poisoned").push(refusal));
    let world = World::with(Options { requests_max: 3, refusals, ..options() }).await;
    let mut uploads = Vec::new();
    for _ in 0..3 {
        let mut upload = connect_from(&world, "127.0.0.1").await;
        upload.send(UNREAD).await;
        uploads.push(upload);
    }
    within(async {
        while world.service.heads.lock().expect("not poisoned").len() < 3 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let mut holder = connect_from(&world, "127.0.0.1").await;
    holder.send(get("/own")).await;
    assert!(holder.until("\"}").await.starts_with("HTTP/1.1 503 "), "the largest holder is refused");
    let mut other = connect_from(&world, "127.0.0.2").await;
    asks(&mut other, "/other").await;
    let mut gone = 0;
    for upload in &mut uploads {
        upload.send("lo").await;
        let answer = upload.until("\r\n\r\n").await;
        gone += usize::from(answer.starts_with("HTTP/1.1 503 "));
    }
    assert_eq!(gone, 1, "one was ended, and the others were read completely");
    assert_eq!(
        *observed.lock().expect("not poisoned"),
        [MessageRefusal::Busy, MessageRefusal::Busy],
        "each was reported once"
    );
}

#[tokio::test]
async fn a_request_whose_body_was_read_is_not_ended_for_another() {
    let world = World::with(Options { requests_max: 3, ..options() }).await;
    let mut running = Vec::new();
    for _ in 0..3 {
        let mut client = connect_from(&world, "127.0.0.1").await;
        client.send("POST /hang HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello").await;
        running.push(client);
    }
    within(async {
        while world.service.lines().len() < 3 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let mut other = connect_from(&world, "127.0.0.2").await;
    other.send(get("/other")).await;
    assert!(other.until("\"}").await.starts_with("HTTP/1.1 503 "), "all of them are already running");
    for client in &mut running {
        world.service.release();
        let answered = async {
            let answer = client.until("\r\n\r\n").await;
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        };
        // It is unknown which of them continues, so all of them are released in the end.
        let releasing = async {
            loop {
                world.service.release();
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        };
        tokio::select! { () = answered => {}, () = releasing => {} }
    }
}

#[tokio::test]
async fn long_heads_share_a_limit_and_block_no_others() {
    // 32 MiB for the bytes beyond 8 KiB each: 585 of these heads.
    const LONG: usize = 62 * 1024;
    let world = World::with(Options { head_timeout: std::time::Duration::from_mins(1), ..options() }).await;
    let mut heads = Vec::new();
    let mut refused = 0;
    for _ in 0..800 {
        let mut client = connect_from(&world, "127.0.0.1").await;
        client.send(format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(LONG))).await;
        heads.push(client);
    }
    for client in &mut heads {
        let mut status = [0; 12];
        let waited =
            tokio::time::timeout(std::time::Duration::from_millis(5), client.tcp.read_exact(&mut status));
        if waited.await.is_ok_and(|read| read.is_ok()) {
            assert_eq!(&status, b"HTTP/1.1 503");
            refused += 1;
        }
    }
    assert!((100..400).contains(&refused), "{refused} of 800");
    let mut other = connect_from(&world, "127.0.0.2").await;
    asks(&mut other, "/other").await;
    drop(heads);
    within(async {
        loop {
            let mut client = connect_from(&world, "127.0.0.1").await;
            client.send(format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(LONG))).await;
            if client.until("\r\n\r\n").await.starts_with("HTTP/1.1 200 ") {
                break;
            }
        }
    })
    .await;
}
