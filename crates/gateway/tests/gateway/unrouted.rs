//! Requests that are refused before any route: each is counted and logged once.

use crate::world::{World, within};
use semel::{Clock as _, SystemClock};
use semel_test_support::client::TestRequest;
use semel_test_support::upstream::charged;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn world() -> World {
    World::configured_with("[listen]\nhead_timeout = \"1s\"\n", &["--log-requests"], charged).await
}

/// Sends `bytes` on their own connection, and reads the status of the response.
async fn status_of(address: SocketAddr, bytes: &[u8]) -> u16 {
    let mut tcp = TcpStream::connect(address).await.expect("it listens");
    tcp.write_all(bytes).await.expect("sent");
    let mut answer = Vec::new();
    // The connection may break after the response, because not everything was read.
    while answer.len() < 12 && within(tcp.read_buf(&mut answer)).await.is_ok_and(|count| count > 0) {}
    let answer = String::from_utf8_lossy(&answer).into_owned();
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{answer:?}"))
}

/// Refusals by code, and responses of operation `other` by class.
struct Counts {
    page: String,
}

impl Counts {
    async fn of(admin: SocketAddr) -> Self {
        let page = within(TestRequest::get("/metrics").send(admin)).await.expect("an answer");
        Self { page: page.text().to_owned() }
    }

    fn number(&self, series: &str) -> u64 {
        let line = self.page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.map_or(0, |number| number.parse().expect("a number"))
    }

    fn refused(&self, code: &str) -> u64 {
        self.number(&format!("idempotency_refusals_total{{code=\"{code}\"}}"))
    }

    fn responses(&self, class: &str) -> u64 {
        self.number(&format!("semel_responses_total{{operation=\"other\",class=\"{class}\"}}"))
    }
}

/// Status and outcome of each line of the request log.
fn logged(world: &World) -> Vec<(u16, String)> {
    let log = world.log();
    let field = |line: &str, name: &str| {
        let (_, rest) = line.split_once(&format!(" {name}=")).unwrap_or_else(|| panic!("{name} in {line}"));
        rest.split(' ').next().unwrap_or_default().trim_matches('"').to_owned()
    };
    let lines = log.lines().filter(|line| line.contains(" semel::requests: "));
    let lines = lines.map(|line| {
        assert_eq!(field(line, "operation"), "other", "{line}");
        (field(line, "status").parse().expect("a status"), field(line, "outcome"))
    });
    lines.collect()
}

#[tokio::test]
async fn each_refusal_is_counted_by_code_and_status_and_logged_once() {
    let mut world = world().await;
    let (admin, address) = (world.gateway.admin(), world.gateway.address);
    let long = "x".repeat(70_000);
    let requests: [(Vec<u8>, u16, &str); 7] = [
        (b"no HTTP at all\r\n\r\n".to_vec(), 400, "MALFORMED_REQUEST"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n".to_vec(), 400, "MALFORMED_REQUEST"),
        (format!("GET / HTTP/1.1\r\nHost: a\r\nX-Long: {long}\r\n\r\n").into_bytes(), 431, "none"),
        // Its head never ends.
        (b"GET / HTTP/1.1\r\n".to_vec(), 408, "none"),
        // The upstream fails because the client's body is broken.
        (
            b"PUT /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nZZ\r\n".to_vec(),
            400,
            "MALFORMED_REQUEST",
        ),
        (
            b"GET /operations/30313233-3435-3637-3839-616263646566 HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
            404,
            "OPERATION_NOT_FOUND",
        ),
        (b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n".to_vec(), 501, "STREAMING_NOT_PROTECTED"),
    ];
    for (bytes, status, code) in &requests {
        let before = Counts::of(admin).await;
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
        assert_eq!(status_of(address, bytes).await, *status, "{text}");
        let after = Counts::of(admin).await;
        assert_eq!(after.refused(code) - before.refused(code), 1, "{text}");
        let total = |counts: &Counts| counts.responses("4xx") + counts.responses("5xx");
        let class = if *status < 500 { "4xx" } else { "5xx" };
        assert_eq!(after.responses(class) - before.responses(class), 1, "{text}");
        assert_eq!(total(&after) - total(&before), 1, "{text}");
        assert_eq!(after.refused("UPSTREAM_FAILED"), 0, "{text}");
    }
    let expected: Vec<_> = requests
        .iter()
        .map(|(_, status, code)| {
            let outcome = if *code == "none" { "refused" } else { *code };
            (*status, outcome.to_owned())
        })
        .collect();
    assert_eq!(logged(&world), expected);
    assert!(!world.log().contains("hello") && !world.log().contains("no HTTP"), "{}", world.log());
}

#[tokio::test]
async fn a_flood_of_garbage_is_counted_and_its_log_is_bounded() {
    const FLOOD: u64 = 130;
    let mut world = world().await;
    let (admin, address) = (world.gateway.admin(), world.gateway.address);
    let begun = SystemClock.uptime();
    for _ in 0..FLOOD {
        assert_eq!(status_of(address, b"garbage\r\n\r\n").await, 400);
    }
    let took = SystemClock.uptime().saturating_sub(begun);
    assert_eq!(Counts::of(admin).await.refused("MALFORMED_REQUEST"), FLOOD);
    let lines = u64::try_from(logged(&world).len()).expect("a small number");
    let intervals = took.as_secs() / 10 + 1;
    assert!((100..=100 * intervals).contains(&lines), "{lines} lines in {took:?}");
}
