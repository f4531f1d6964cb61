//! One client uses up everything, and another one is still served.

use crate::world::{World, until, within};
use semel_test_support::client::TestRequest;
use semel_test_support::upstream::{Act, Gate, Seen, response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

const GREEDY: &str = "127.0.0.1";
const OTHER: &str = "127.0.0.2";

async fn connect_from(world: &World, address: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(format!("{address}:0").parse().expect("an address")).expect("an address of this machine");
    within(socket.connect(world.gateway.address)).await.expect("it listens")
}

/// The status of the answer to `request`, sent from `address`.
async fn status_from(world: &World, address: &str, request: &[u8]) -> (TcpStream, u16) {
    let mut client = connect_from(world, address).await;
    client.write_all(request).await.expect("sent");
    let status = status(&mut client).await;
    (client, status)
}

async fn status(client: &mut TcpStream) -> u16 {
    let mut line = [0; 12];
    within(client.read_exact(&mut line)).await.expect("an answer");
    str::from_utf8(&line[9..]).expect("digits").parse().expect("a status")
}

/// The head of a request with a body of `bytes`.
fn head(path: &str, headers: &str, bytes: usize) -> Vec<u8> {
    format!("POST {path} HTTP/1.1\r\nhost: a\r\n{headers}content-length: {bytes}\r\n\r\n").into_bytes()
}

fn key(number: usize) -> String {
    format!("idempotency-key: a-key-of-{number:012}\r\n")
}

fn charge(seen: &Seen) -> Act {
    Act::Say(response("201 Created", &[], seen.body.len().to_string()))
}

#[tokio::test]
async fn bodies_that_never_end_do_not_keep_another_clients_request_out() {
    const BYTES: usize = 1 << 20;
    let limits =
        "[limits]\nbodies_max = \"4MiB\"\n[defaults]\nrequest_max = \"1MiB\"\n[listen]\nrate_min = \"0B\"\n";
    let world = World::configured(limits, charge).await;
    let mut stuck_clients = Vec::new();
    // Exactly as many as fit, so they do not wait for each other.
    for number in 0..4 {
        let mut client = connect_from(&world, GREEDY).await;
        let most = vec![b'x'; BYTES - 1];
        let sent = [head("/charges", &key(number), BYTES), most].concat();
        client.write_all(&sent).await.expect("sent");
        stuck_clients.push(client);
    }
    // The same client finds no room, and its own requests are not ended for it. It sends a small body, so that it does
    // not wait for a request that waits for it.
    let little = [head("/charges", &key(100), 5), b"hello".to_vec()].concat();
    let complete_request = |number| [head("/charges", &key(number), BYTES), vec![b'x'; BYTES]].concat();
    until(async || {
        let (_, status) = status_from(&world, GREEDY, &little).await;
        (status == 503).then_some(())
    })
    .await;
    let (_, status_of_other) = status_from(&world, OTHER, &complete_request(200)).await;
    assert_eq!(status_of_other, 201);
    // Ended requests got a response, and none of them ran.
    let mut gone = 0;
    for client in &mut stuck_clients {
        client.write_all(b"x").await.expect("sent");
        gone += usize::from(status(client).await == 503);
    }
    assert!((1..4).contains(&gone), "{gone} of 4");
    assert!(world.upstream.seen().iter().all(|seen| [5, BYTES].contains(&seen.body.len())));
}

#[tokio::test]
async fn a_trusted_proxys_client_has_its_own_address() {
    const BYTES: usize = 1 << 20;
    let limits = "[limits]\nbodies_max = \"2MiB\"\n[defaults]\nrequest_max = \"1MiB\"\n";
    let trust = format!("forwarded_by = [\"{GREEDY}\"]");
    for (terms, wanted) in [(trust.as_str(), 201), ("", 503)] {
        let world = World::configured_before(terms, limits, charge).await;
        let from = |client: &str, number| format!("x-forwarded-for: {client}\r\n{}", key(number));
        let mut stuck_clients = Vec::new();
        for number in 0..2 {
            let mut client = connect_from(&world, GREEDY).await;
            let most = vec![b'x'; BYTES - 1];
            let sent = [head("/charges", &from("192.0.2.1", number), BYTES), most].concat();
            client.write_all(&sent).await.expect("sent");
            stuck_clients.push(client);
        }
        let complete_request = |client: &str, number| {
            [head("/charges", &from(client, number), BYTES), vec![b'x'; BYTES]].concat()
        };
        let little = [head("/charges", &from("192.0.2.1", 100), 5), b"hello".to_vec()].concat();
        until(async || {
            let (_, status) = status_from(&world, GREEDY, &little).await;
            (status == 503).then_some(())
        })
        .await;
        let (_, status) = status_from(&world, GREEDY, &complete_request("192.0.2.2", 200)).await;
        assert_eq!(status, wanted, "{terms}");
    }
}

#[tokio::test]
async fn uploads_that_never_begin_do_not_take_the_services_connections() {
    let world = World::configured_before("connections_max = 4\nconnect_timeout = \"3s\"", "", charge).await;
    let mut silent = Vec::new();
    for _ in 0..8 {
        let mut client = connect_from(&world, GREEDY).await;
        client.write_all(&head("/uploads", "", 10)).await.expect("sent");
        silent.push(client);
    }
    let reply = world.send(TestRequest::post("/uploads").bytes("whole")).await;
    assert_eq!((reply.status, reply.text()), (201, "5"));
    // Requests that have started continue.
    for client in &mut silent {
        client.write_all(b"0123456789").await.expect("sent");
        assert_eq!(status(client).await, 201);
    }
}

#[tokio::test]
async fn uploads_that_drip_leave_connections_for_another_client() {
    let world = World::configured_before("connections_max = 64\nconnect_timeout = \"3s\"", "", charge).await;
    let mut dripping = Vec::new();
    for _ in 0..64 {
        let mut client = connect_from(&world, GREEDY).await;
        client.write_all(&[head("/uploads", "", 10), b"x".to_vec()].concat()).await.expect("sent");
        dripping.push(client);
    }
    until(async || {
        let (_, status) = status_from(&world, GREEDY, b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
        (status == 504).then_some(())
    })
    .await;
    let (_, status) = status_from(&world, OTHER, b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert_eq!(status, 201);
}

#[tokio::test]
async fn unread_replays_of_one_client_block_no_other() {
    const BYTES: usize = 4 << 20;
    let limits = "[limits]\nresponses_max = \"16MiB\"\n";
    let world = World::configured(limits, |_| Act::Say(response("200 OK", &[], "x".repeat(BYTES)))).await;
    let ask = TestRequest::post("/exports").key("an-export-00000000");
    assert_eq!(world.send(ask.clone()).await.body.len(), BYTES);
    let mut unread = Vec::new();
    for _ in 0..12 {
        unread.push(status_from(&world, GREEDY, &ask.raw()).await);
    }
    assert!(unread.iter().any(|(_, status)| *status == 503), "there is room for a few responses only");
    let (mut client, status) = status_from(&world, OTHER, &ask.raw()).await;
    assert_eq!(status, 200);
    let mut received = 0;
    let mut piece = vec![0; 1 << 16];
    while received < BYTES {
        let count = within(client.read(&mut piece)).await.expect("more");
        assert!(count > 0, "it was cut off after {received} bytes");
        received += count;
    }
    assert_eq!(world.calls(), 1);
}

#[tokio::test]
async fn abandoned_requests_count_until_they_end() {
    let limits = "[listen]\nrequests_max = 2\n";
    let world = World::configured(limits, |_| Act::Hang).await;
    for number in 0..2 {
        let accepted =
            TestRequest::post("/jobs").key(&format!("a-job-{number:012}")).with("prefer", "respond-async");
        assert_eq!(world.send(accepted).await.status, 202);
    }
    let refused = world.send(TestRequest::get("/")).await;
    assert_eq!((refused.status, refused.code().as_deref()), (503, Some("GATEWAY_BUSY")));
}

#[tokio::test]
async fn a_request_counts_after_its_client_hung_up() {
    let gate = Gate::closed();
    let held = gate.clone();
    let script = move |seen: &Seen| {
        let is_job = seen.line.contains(" /jobs ");
        if is_job { Act::After(held.clone(), Box::new(charge(seen))) } else { charge(seen) }
    };
    let world = World::configured("[listen]\nrequests_max = 1\n", script).await;
    let mut client = connect_from(&world, GREEDY).await;
    client.write_all(&[head("/jobs", &key(1), 5), b"hello".to_vec()].concat()).await.expect("sent");
    world.upstream.has_seen(1).await;
    drop(client);
    // The gateway needs a moment to notice that the client has gone. The request keeps running either way.
    for _ in 0..20 {
        let refused = world.send(TestRequest::get("/")).await;
        assert_eq!((refused.status, refused.code().as_deref()), (503, Some("GATEWAY_BUSY")));
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    gate.open();
    until(async || (world.send(TestRequest::get("/")).await.status == 201).then_some(())).await;
    let (_, status) =
        status_from(&world, GREEDY, &[head("/jobs", &key(1), 5), b"hello".to_vec()].concat()).await;
    assert_eq!(
        (status, world.upstream.seen().iter().filter(|seen| seen.line.contains(" /jobs ")).count()),
        (201, 1)
    );
}
