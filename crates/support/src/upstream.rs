//! A scripted service that records every complete request.

use crate::ReservedAddress;
use crate::wait::within;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

/// A received request.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The number of the request: 1, 2, 3 …
    pub number: usize,
    /// The number of its connection: 1, 2, 3 …
    pub connection: usize,
    /// Method, target and version.
    pub line: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// Without the framing.
    pub body: Vec<u8>,
}

impl Seen {
    /// The first header line with this name, in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// What to do with a request.
#[derive(Debug, Clone)]
pub enum Act {
    /// Send these bytes, and wait for the next request.
    Say(Vec<u8>),
    /// Send these bytes, and close the connection.
    SayAndEnd(Vec<u8>),
    /// Close the connection without a response.
    End,
    /// No answer while the connection lasts.
    Hang,
    /// Continue when the gate is open.
    After(Gate, Box<Act>),
    /// Continue after a delay.
    Later(Duration, Box<Act>),
}

/// A gate that a test opens.
#[derive(Debug, Clone)]
pub struct Gate(Arc<Semaphore>);

impl Gate {
    /// A closed gate.
    pub fn closed() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }

    /// Opens the gate.
    pub fn open(&self) {
        self.0.add_permits(Semaphore::MAX_PERMITS / 2);
    }

    async fn pass(&self) {
        drop(self.0.acquire().await.expect("never closed"));
    }
}

type Script = dyn Fn(&Seen) -> Act + Send + Sync;

struct UpstreamState {
    script: Box<Script>,
    seen: Mutex<Vec<Seen>>,
    count: watch::Sender<usize>,
}

/// The service. It stops when it is dropped.
pub struct Upstream {
    /// Its address.
    pub address: SocketAddr,
    book: Arc<UpstreamState>,
    accepting: JoinHandle<()>,
    /// So that no other process listens there while it [refuses](Self::refuse). Other systems than Linux allow one
    /// socket for each address.
    _reserved: Option<ReservedAddress>,
}

impl Upstream {
    /// Listens, and handles each request by `script`.
    pub async fn start(script: impl Fn(&Seen) -> Act + Send + Sync + 'static) -> Self {
        let book =
            UpstreamState { script: Box::new(script), seen: Mutex::default(), count: watch::Sender::new(0) };
        let reserved = cfg!(target_os = "linux").then(ReservedAddress::new);
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = listener(reserved.as_ref().map_or(any, ReservedAddress::address)).await;
        let address = listener.local_addr().expect("an address");
        let book = Arc::new(book);
        let accepting = Self::accept(listener, &book);
        Self { address, book, accepting, _reserved: reserved }
    }

    fn accept(listener: TcpListener, book: &Arc<UpstreamState>) -> JoinHandle<()> {
        let within = Arc::clone(book);
        tokio::spawn(async move {
            for connection in 1.. {
                let (stream, _) = listener.accept().await.expect("a connection");
                tokio::spawn(serve(Arc::clone(&within), connection, stream));
            }
        })
    }

    /// Stops listening. Open connections continue.
    pub async fn refuse(&mut self) {
        self.accepting.abort();
        let _ = (&mut self.accepting).await;
    }

    /// Listens again, at the same address.
    pub async fn listen_again(&mut self) {
        self.accepting = Self::accept(listener(self.address).await, &self.book);
    }

    /// All requests so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.book.seen.lock().expect("unharmed").clone()
    }

    /// How many requests there were so far.
    pub fn seen_count(&self) -> usize {
        *self.book.count.borrow()
    }

    /// Waits until there were this many requests.
    pub async fn has_seen(&self, count: usize) {
        let mut counted = self.book.count.subscribe();
        within(counted.wait_for(|seen| *seen >= count)).await.expect("it lives");
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn listener(address: SocketAddr) -> TcpListener {
    TcpListener::bind(address).await.expect("a port")
}

async fn serve(book: Arc<UpstreamState>, connection: usize, stream: TcpStream) {
    let mut stream = BufReader::new(stream);
    while let Some((line, headers, body)) = request(&mut stream).await {
        let seen = {
            let mut all = book.seen.lock().expect("unharmed");
            let seen = Seen { number: all.len() + 1, connection, line, headers, body };
            all.push(seen.clone());
            seen
        };
        book.count.send_modify(|count| *count += 1);
        let mut act = (book.script)(&seen);
        let act = loop {
            match act {
                Act::After(gate, then) => {
                    gate.pass().await;
                    act = *then;
                }
                Act::Later(span, then) => {
                    tokio::time::sleep(span).await;
                    act = *then;
                }
                done => break done,
            }
        };
        match act {
            Act::Say(bytes) => {
                if stream.write_all(&bytes).await.is_err() {
                    return;
                }
            }
            Act::SayAndEnd(bytes) => {
                let _ = stream.write_all(&bytes).await;
                let _ = stream.shutdown().await;
                return;
            }
            Act::Hang => {
                let _ = stream.read_to_end(&mut Vec::new()).await;
                return;
            }
            Act::End | Act::After(..) | Act::Later(..) => return,
        }
    }
}

/// The next request, as soon as it is complete.
async fn request(stream: &mut BufReader<TcpStream>) -> Option<(String, Vec<(String, String)>, Vec<u8>)> {
    let first = line(stream).await?;
    let mut headers = Vec::new();
    loop {
        let line = line(stream).await?;
        let Some((name, value)) = line.split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let value = |name: &str| headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    let mut body = Vec::new();
    if value("transfer-encoding").is_some() {
        loop {
            let size = usize::from_str_radix(&line(stream).await?, 16).ok()?;
            let from = body.len();
            body.resize(from + size, 0);
            stream.read_exact(&mut body[from..]).await.ok()?;
            line(stream).await?;
            if size == 0 {
                break;
            }
        }
    } else if let Some(length) = value("content-length") {
        body.resize(length.parse().ok()?, 0);
        stream.read_exact(&mut body).await.ok()?;
    }
    Some((first, headers, body))
}

async fn line(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    line.strip_suffix("\r\n").map(str::to_owned)
}

/// A response with its length.
pub fn response(status: &str, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let mut bytes = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n", body.len()).into_bytes();
    for (name, value) in headers {
        bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(body);
    bytes
}

/// A charge: the response contains the number of the request.
pub fn charged(seen: &Seen) -> Act {
    Act::Say(response("201 Created", &[("location", "/charges/7")], format!("charge {}", seen.number)))
}

/// Answers with a status and little else.
pub fn says(status: &'static str) -> impl Fn(&Seen) -> Act + Send + Sync {
    move |seen| Act::Say(response(status, &[], format!("answer {}", seen.number)))
}
