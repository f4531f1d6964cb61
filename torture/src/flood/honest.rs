//! The client that must be served: it sends requests as a careful client does, and counts how they are
//! answered.

use crate::clock::{self, Stopwatch};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};

/// The address that it comes from; floods use another one.
const ADDRESS: &str = "127.0.0.2";
/// A client gives up after this.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(50);

/// How its requests were answered.
#[derive(Debug, Default)]
pub(crate) struct Served {
    pub(crate) asked: u64,
    /// At the first try.
    pub(crate) first: u64,
    /// Not even after several tries.
    pub(crate) failed: u64,
    slowest: Duration,
    last_failure: String,
}

impl fmt::Display for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { asked, first, failed, slowest, last_failure } = self;
        write!(
            f,
            "{first} of {asked} requests served at the first try, {failed} not at all; the slowest took {} ms",
            slowest.as_millis()
        )?;
        if last_failure.is_empty() { Ok(()) } else { write!(f, " (last failure: {last_failure})") }
    }
}

/// Sends requests one after another for `span`: a new one with a key, the same again, and one without a key.
pub(crate) async fn serve(front: SocketAddr, span: Duration) -> Served {
    let (mut served, watch, run) = (Served::default(), Stopwatch::start(), clock::now());
    let mut number = 0_u64;
    while watch.lap() < span {
        let key = format!("idempotency-key: honest-{run}-{number:08}\r\n");
        let post = format!(
            "POST /small HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{key}content-length: 5\r\n\r\nhello"
        );
        served.ask(front, &post, "").await;
        served.ask(front, &post, "idempotency-replayed: true").await;
        served.ask(front, "GET /small HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n", "").await;
        number += 1;
        sleep(PAUSE).await;
    }
    served
}

impl Served {
    async fn ask(&mut self, front: SocketAddr, request: &str, expected: &str) {
        self.asked += 1;
        for attempt in 0..TRIES {
            let watch = Stopwatch::start();
            let answer = timeout(ANSWER_TIMEOUT, answer(front, request)).await;
            let failure = match answer {
                Ok(Ok(answer)) if answer.starts_with("HTTP/1.1 200 ") && answer.contains(expected) => {
                    self.first += u64::from(attempt == 0);
                    self.slowest = self.slowest.max(watch.lap());
                    return;
                }
                Ok(Ok(answer)) => answer.lines().next().unwrap_or("no answer").to_owned(),
                Ok(Err(error)) => error.to_string(),
                Err(_) => "no answer in time".to_owned(),
            };
            let line = request.lines().next().unwrap_or_default();
            self.last_failure = format!("{line}: {failure}");
            sleep(Duration::from_secs(1)).await;
        }
        self.failed += 1;
    }
}

async fn answer(front: SocketAddr, request: &str) -> std::io::Result<String> {
    let mut connection = connect(front, ADDRESS).await?;
    connection.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// A connection from one of the addresses of this machine.
pub(crate) async fn connect(front: SocketAddr, address: &str) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    let address = address.parse().map_err(std::io::Error::other)?;
    socket.bind(SocketAddr::new(address, 0))?;
    socket.connect(front).await
}
