//! Many responses, and clients that do not read them: how much memory the process uses.

use crate::world::{World, until, within};
use semel_test_support::client::TestRequest;
use semel_test_support::upstream::{Act, response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Responses may take three eighths of this.
const LIMITS: &str = "[limits]\nmemory = \"64MiB\"\n";
/// Far more than the limit plus the program itself; far less than one copy of all responses of a test.
const PEAK_KIB_MAX: usize = 256 * 1024;

fn ask(number: usize) -> TestRequest {
    TestRequest::post("/exports").key(&format!("an-export-{number:08}"))
}

/// Sends the request, and reads only the status of its response.
async fn status(world: &World, ask: &TestRequest) -> (TcpStream, u16) {
    let mut client = TcpStream::connect(world.gateway.address).await.expect("a connection");
    client.write_all(&ask.raw()).await.expect("sent");
    let mut line = [0; 12];
    within(client.read_exact(&mut line)).await.expect("an answer");
    let status = str::from_utf8(&line[9..]).expect("digits").parse().expect("a status");
    (client, status)
}

/// The length of the remaining body for `client`, whose bytes are all the same.
async fn rest(client: &mut TcpStream, bytes: usize) -> usize {
    let mut received = Vec::new();
    let body = loop {
        within(client.read_buf(&mut received)).await.expect("more");
        if let Some(end) = received.windows(4).position(|part| part == b"\r\n\r\n") {
            break end + 4;
        }
    };
    let mut length = received.len() - body;
    let mut piece = vec![0; 1 << 16];
    while length < bytes {
        let count = within(client.read(&mut piece)).await.expect("more");
        assert!(count > 0 && piece[..count].iter().all(|byte| *byte == b'x'), "after {length} bytes");
        length += count;
    }
    length
}

#[tokio::test]
async fn many_long_responses_arrive_within_bounded_memory() {
    const COUNT: usize = 80;
    const BYTES: usize = 6 << 20;
    let world = World::configured(LIMITS, |_| Act::Say(response("200 OK", &[], "x".repeat(BYTES)))).await;
    let asks: Vec<_> = (0..COUNT).map(ask).collect();
    let mut clients = futures_util::future::join_all(asks.iter().map(|ask| status(&world, ask))).await;
    let peak = world.gateway.peak_rss_kib();
    assert!(peak < PEAK_KIB_MAX, "{peak} KiB");
    for (client, status) in &mut clients {
        assert_eq!((*status, rest(client, BYTES).await), (200, BYTES));
    }
    assert_eq!(world.calls(), COUNT);
    let peak = world.gateway.peak_rss_kib();
    assert!(peak < PEAK_KIB_MAX, "{peak} KiB");
    // Whatever the response was: each ran once.
    for number in [0, COUNT / 2, COUNT - 1] {
        let reply = world.send(ask(number)).await;
        let is_reported =
            reply.is_replay() || reply.code().as_deref() == Some("IDEMPOTENCY_RESPONSE_NOT_RETAINED");
        assert!(is_reported, "{:?}", reply.headers);
    }
    assert_eq!(world.calls(), COUNT);
}

#[tokio::test]
async fn unread_replays_do_not_fill_the_memory() {
    const COUNT: usize = 60;
    const BYTES: usize = 9 << 20;
    let mut world = World::configured(LIMITS, |_| Act::Say(response("200 OK", &[], "x".repeat(BYTES)))).await;
    assert_eq!(world.send(ask(0)).await.body.len(), BYTES);
    // After the restart, nothing is in memory except what is requested.
    world.gateway.kill();
    world.gateway = crate::world::Gateway::configured(&world.scratch, &[]);
    let unread = ask(0);
    let mut clients = Vec::new();
    // One after the other: concurrent requests share one read.
    for _ in 0..COUNT {
        clients.push(status(&world, &unread).await);
    }
    let count = |wanted: u16| clients.iter().filter(|(_, status)| *status == wanted).count();
    assert!(
        count(200) > 0 && count(503) > 0 && count(200) + count(503) == COUNT,
        "{} of 200, {} of 503",
        count(200),
        count(503)
    );
    let peak = world.gateway.peak_rss_kib();
    assert!(peak < PEAK_KIB_MAX, "{peak} KiB");
    // The clients disconnect and free their memory.
    drop(clients);
    let replay = until(async || {
        let reply = world.send(ask(0)).await;
        (reply.status == 200).then_some(reply)
    })
    .await;
    assert_eq!((replay.is_replay(), replay.body.len(), world.calls()), (true, BYTES, 1));
}
