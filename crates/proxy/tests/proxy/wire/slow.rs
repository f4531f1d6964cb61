//! Clients that are slow, silent or many.

use super::world::{World, get, options, within};
use semel::{Clock as _, SystemClock};
use semel_proxy::listen::{Options, Rate};
use std::time::Duration;
use tokio::io::AsyncReadExt;

/// Short, to keep the tests short; nothing here measures it.
const SHORT: Duration = Duration::from_millis(100);

#[tokio::test]
async fn a_head_that_never_ends_is_answered_408_and_closed() {
    let world = World::with(Options { head_timeout: SHORT, ..options() }).await;
    let answer = world.exchange("GET / HTTP/1.1\r\nHost: a\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
    assert!(world.service.seen().is_empty());
}

#[tokio::test]
async fn a_trickling_head_gets_no_extra_time() {
    let world = World::with(Options { head_timeout: SHORT, ..options() }).await;
    let mut client = world.connect().await;
    client.send("GET / HTTP/1.1\r\nX: ").await;
    let (mut reader, mut writer) = client.tcp.into_split();
    let trickling = async move {
        while tokio::io::AsyncWriteExt::write_all(&mut writer, b"x").await.is_ok() {
            tokio::time::sleep(SHORT / 10).await;
        }
    };
    let mut answer = [0; 12];
    let hearing = async { within(reader.read_exact(&mut answer)).await.expect("an answer") };
    tokio::select! { _ = hearing => {}, () = trickling => panic!("closed without a word") }
    assert_eq!(&answer, b"HTTP/1.1 408");
}

#[tokio::test]
async fn a_second_head_that_never_ends_is_answered_408_too() {
    let world = World::with(Options { head_timeout: SHORT, ..options() }).await;
    let answer = world.exchange(format!("{}GET /2 HTTP/1.1\r\n", get("/1"))).await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("HTTP/1.1 408 "), "{answer}");
    assert_eq!(world.service.lines(), ["GET /1"]);
}

#[tokio::test]
async fn a_connection_on_which_nothing_comes_is_closed_without_a_word() {
    let world = World::with(Options { head_timeout: SHORT, ..options() }).await;
    assert_eq!(world.exchange("").await, "");
}

#[tokio::test]
async fn an_idle_connection_is_closed_silently() {
    let world = World::with(Options { idle_timeout: SHORT, ..options() }).await;
    let answer = world.exchange(get("/once")).await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("GET /once "), "{answer}");
}

#[tokio::test]
async fn idle_time_starts_after_a_slow_response() {
    // No other timeout can end the connection.
    let limits = Options { idle_timeout: SHORT, head_timeout: Duration::from_hours(1), ..options() };
    let world = World::with(limits).await;
    let mut client = world.connect().await;
    client.send(get("/hang")).await;
    within(world.service.arrived.notified()).await;
    world.service.release();
    let answer = client.rest().await;
    assert!(answer.ends_with("GET /hang "), "{answer}");
}

#[tokio::test]
async fn a_slow_service_is_no_fault_of_the_client() {
    // None of them may end the connection while the test sends its request, also on a busy machine.
    let short = Duration::from_secs(1);
    let limits = Options { idle_timeout: short, head_timeout: short, body_timeout: short, ..options() };
    let world = World::with(Options { write_timeout: short, ..limits }).await;
    let mut client = world.connect().await;
    client.send(get("/hang")).await;
    within(world.service.arrived.notified()).await;
    tokio::time::sleep(short * 3).await;
    world.service.release();
    client.until("GET /hang ").await;
}

#[tokio::test]
async fn a_body_that_stops_ends_the_connection() {
    let world = World::with(Options { body_timeout: SHORT, ..options() }).await;
    let mut client = world.connect().await;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel").await;
    within(world.service.broken.notified()).await;
    let answer = client.rest().await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
}

#[tokio::test]
async fn chunks_that_stop_are_seen_as_broken() {
    let world = World::with(Options { body_timeout: SHORT, ..options() }).await;
    let mut client = world.connect().await;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n").await;
    within(world.service.broken.notified()).await;
    assert!(client.rest().await.starts_with("HTTP/1.1 400 "));
}

#[tokio::test]
async fn a_body_is_never_complete_after_its_client_hung_up() {
    let world = World::new().await;
    let mut client = world.connect().await;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel").await;
    drop(client);
    assert_eq!(world.stop().await.cut_off, 0);
}

#[tokio::test]
async fn a_client_that_takes_nothing_is_let_go() {
    let world = World::with(Options { write_timeout: SHORT, connections_max: 1, ..options() }).await;
    let mut client = world.connect().await;
    client.send(get("/big")).await;
    within(world.service.arrived.notified()).await;
    // The only slot is free again after the first client has lost it.
    let mut second = world.connect().await;
    second.send(get("/second")).await;
    second.until("GET /second ").await;
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_for_a_place() {
    let world = World::with(Options { connections_max: 1, ..options() }).await;
    let mut first = world.connect().await;
    first.send(get("/hang")).await;
    within(world.service.arrived.notified()).await;
    let mut second = world.connect().await;
    second.send(get("/second")).await;
    world.service.release();
    first.until("GET /hang ").await;
    assert_eq!(world.service.lines(), ["GET /hang"]);
    drop(first);
    second.until("GET /second ").await;
}

#[tokio::test]
async fn a_panic_costs_its_own_connection_and_no_other() {
    let world = World::new().await;
    let mut other = world.connect().await;
    other.send(get("/before")).await;
    other.until("GET /before ").await;
    assert_eq!(world.exchange(get("/panic")).await, "");
    other.send(get("/after")).await;
    other.until("GET /after ").await;
    let mut fresh = world.connect().await;
    fresh.send(get("/fresh")).await;
    fresh.until("GET /fresh ").await;
}

/// A minimum rate that a test's client can miss or meet.
fn rate(bytes_per_second: u32) -> Options {
    Options { rate_min: Rate { bytes_per_second, window: SHORT * 3 }, ..options() }
}

/// Sends byte by byte, each well within the time for the next byte, and reads the response meanwhile.
async fn send_slowly(world: &World, head: &str, until: &str) -> String {
    let mut client = world.connect().await;
    client.send(head).await;
    let (mut reader, mut writer) = client.tcp.into_split();
    let dripping = async move {
        while tokio::io::AsyncWriteExt::write_all(&mut writer, b"1\r\nx\r\n").await.is_ok() {
            tokio::time::sleep(SHORT / 10).await;
        }
        std::future::pending::<()>().await;
    };
    let hearing = async {
        let mut answer = String::new();
        while !answer.contains(until) && within(reader.read_to_string(&mut answer)).await.is_ok_and(|n| n > 0)
        {
        }
        answer
    };
    tokio::select! { answer = hearing => answer, () = dripping => String::new() }
}

const CHUNKED: &str = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

#[tokio::test]
async fn a_dripping_body_is_cut_off() {
    let world = World::with(rate(1 << 20)).await;
    let answer = send_slowly(&world, CHUNKED, "(broken)").await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert_eq!(world.service.seen()[0].body, None);
}

#[tokio::test]
async fn a_body_at_the_minimum_rate_is_read_to_its_end() {
    // Longer than a busy machine lets a client wait between two bytes.
    let window = Duration::from_secs(2);
    let world = World::with(Options { rate_min: Rate { bytes_per_second: 1, window }, ..options() }).await;
    let mut client = world.connect().await;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 40\r\n\r\n").await;
    // Twice as long as a client may lag behind.
    for _ in 0..40 {
        client.send("x").await;
        tokio::time::sleep(window * 2 / 40).await;
    }
    client.until(&"x".repeat(40)).await;
}

#[tokio::test]
async fn a_body_may_pause_after_its_response_began() {
    let world = World::with(rate(1 << 20)).await;
    let mut client = world.connect().await;
    // The service answers at once, and keeps reading.
    client.send(CHUNKED.replace("POST /", "POST /echo")).await;
    client.until("\r\n\r\n").await;
    tokio::time::sleep(SHORT * 6).await;
    client.send("4\r\nlate\r\n").await;
    client.until("late").await;
}

#[tokio::test]
async fn a_client_that_reads_too_slowly_is_disconnected() {
    let world = World::with(Options { connections_max: 1, ..rate(64 << 20) }).await;
    let mut client = world.connect().await;
    client.send(get("/big")).await;
    let reading = async {
        let mut little = [0; 64];
        while within(client.tcp.read(&mut little)).await.is_ok_and(|n| n > 0) {
            tokio::time::sleep(SHORT / 10).await;
        }
    };
    let second = async {
        let mut second = world.connect().await;
        second.send(get("/second")).await;
        second.until("GET /second ").await;
    };
    tokio::select! { () = second => {}, () = reading => panic!("its client has not taken what was sent before") }
}

#[tokio::test]
async fn a_client_at_twice_the_minimum_rate_gets_the_whole_response() {
    const LEAST: u32 = 64 * 1024;
    // The client's system acknowledges 64 KiB or more about once per second, and nothing in between.
    let window = Duration::from_millis(300);
    let rate_min = Rate { bytes_per_second: LEAST, window };
    let world = World::with(Options { rate_min, ..options() }).await;
    for _ in 0..5 {
        let mut client = world.connect().await;
        client.send(get("/big")).await;
        let (mut received, mut piece, mut late) = (0, vec![0; 4 * 1024], Duration::ZERO);
        while received < 1 << 20 {
            let count = within(client.tcp.read(&mut piece)).await.unwrap_or(0);
            if count == 0 {
                break;
            }
            received += count;
            let pause = Duration::from_micros(count as u64 * 500_000 / u64::from(LEAST));
            let since = SystemClock.uptime();
            tokio::time::sleep(pause).await;
            late = late.max(SystemClock.uptime().saturating_sub(since + pause));
        }
        if received >= 1 << 20 {
            return;
        }
        // A client that did not run for so long was not at that rate.
        assert!(late > window / 2, "it was cut off after {received} bytes; at most {late:?} late");
    }
    panic!("this machine stood still in each of five tries");
}
