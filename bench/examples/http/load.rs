//! The load generator: a process that reads orders line by line, sends requests for each, and prints the
//! result. One wrong response fails the order.

use crate::histogram::Histogram;
use crate::message::{self, Request};
use std::cell::Cell;
use std::error::Error;
use std::fmt;
use std::io::{BufRead as _, Write as _};
use std::net::SocketAddr;
use std::rc::Rc;
use std::str::FromStr;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::task::LocalSet;

/// How many keys are repeated.
pub(crate) const KEYS: u64 = 1000;
/// The first number of new keys.
const NEW: u64 = 1 << 32;

/// Which keys the requests have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keys {
    /// A new key for each request.
    New,
    /// The first thousand keys, each used once; the run ends with the last.
    Fill,
    /// One of the first thousand.
    Old,
    /// One in ten is a repeated key.
    Mixed,
}

impl Keys {
    const NAMES: [(Self, &'static str); 4] =
        [(Self::New, "new"), (Self::Fill, "fill"), (Self::Old, "old"), (Self::Mixed, "mixed")];

    /// The key of the `number`th request, and whether it was used before.
    fn of(self, number: u64) -> (u64, bool) {
        let is_old = self == Self::Old || (self == Self::Mixed && number.is_multiple_of(10));
        match self {
            Self::Fill => (number, false),
            _ if is_old => (number / 10 % KEYS, true),
            _ => (NEW + number, false),
        }
    }
}

impl FromStr for Keys {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::NAMES.iter().find(|(_, name)| *name == text);
        known.map(|(keys, _)| *keys).ok_or_else(|| format!("there are no keys called {text}"))
    }
}

impl fmt::Display for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::NAMES.iter().find(|(keys, _)| keys == self).map_or("", |(_, name)| name);
        f.write_str(name)
    }
}

/// Reads orders until the input ends: `address connections milliseconds keys is_semel first`.
pub(crate) fn serve() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let fields: Vec<&str> = line.split(' ').collect();
        let [address, connections, millis, keys, is_semel, first] = fields[..] else {
            return Err(format!("not an order: {line}").into());
        };
        let load = Rc::new(Load {
            address: address.parse()?,
            span: Duration::from_millis(millis.parse()?),
            keys: keys.parse()?,
            is_semel: is_semel.parse()?,
            next: Cell::new(first.parse()?),
        });
        let result = match LocalSet::new().block_on(&runtime, run(&load, connections.parse()?)) {
            Ok((histogram, took)) => {
                format!("{} {} {}", load.next.get(), took.as_micros(), histogram.text())
            }
            Err(error) => format!("failed: {error}"),
        };
        println!("{result}");
        std::io::stdout().flush()?;
    }
    Ok(())
}

struct Load {
    address: SocketAddr,
    span: Duration,
    keys: Keys,
    /// Whether responses show that they were replayed.
    is_semel: bool,
    next: Cell<u64>,
}

async fn run(load: &Rc<Load>, connections: u64) -> Result<(Histogram, Duration), Box<dyn Error>> {
    let mut streams = Vec::new();
    for _ in 0..connections {
        let stream = TcpStream::connect(load.address).await?;
        stream.set_nodelay(true)?;
        streams.push(stream);
    }
    let started = Instant::now();
    let clients: Vec<_> = streams
        .into_iter()
        .map(|stream| tokio::task::spawn_local(client(stream, Rc::clone(load), started)))
        .collect();
    let mut histogram = Histogram::default();
    for client in clients {
        histogram.merge(&client.await??);
    }
    Ok((histogram, started.elapsed()))
}

/// One request after another, until the time is over.
async fn client(mut stream: TcpStream, load: Rc<Load>, started: Instant) -> Result<Histogram, String> {
    let mut request = Request::new(&load.address.to_string());
    let mut buffer = vec![0; 16 * 1024];
    let mut histogram = Histogram::default();
    let mut begun = started.elapsed();
    while begun < load.span {
        let number = load.next.get();
        if load.keys == Keys::Fill && number >= KEYS {
            break;
        }
        load.next.set(number + 1);
        let (key, is_old) = load.keys.of(number);
        stream.write_all(request.with_key(key)).await.map_err(|error| error.to_string())?;
        let head = message::read(&mut stream, &mut buffer).await.map_err(|error| error.to_string())?;
        let head = head.ok_or("the connection was closed")?;
        if !head.is_created || !head.is_stored || head.is_replayed != (is_old && load.is_semel) {
            let text = String::from_utf8_lossy(&buffer);
            return Err(format!(
                "not the answer to be measured: {head:?} {}",
                text.lines().next().unwrap_or("")
            ));
        }
        let now = started.elapsed();
        histogram.count(u64::try_from(now.saturating_sub(begun).as_micros()).unwrap_or(u64::MAX));
        begun = now;
    }
    Ok(histogram)
}
