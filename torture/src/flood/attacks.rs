//! The floods: what each sends, and how much of it. Each runs without a pause until it is stopped.

use crate::clock;
use crate::honest::connect;
use clap::ValueEnum;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// The address that they come from.
const ADDRESS: &str = "127.0.0.3";
const HOLD_TIME: Duration = Duration::from_secs(5);
/// As long as the gateway allows.
const STREAMS: usize = 128;
const DRIP_INTERVAL: Duration = Duration::from_millis(500);

/// A way to make the service unavailable to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Attack {
    /// Small bodies that decompress to large ones.
    Decoding,
    /// Large responses and replays that the client does not read.
    Responses,
    /// More requests than may run at once, and idle connections.
    Requests,
    /// Slow uploads, with and without a key.
    Uploads,
    /// Responses too long to store, read slowly.
    Readers,
}

impl Attack {
    /// Its name on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Starts it as a number of tasks in `tasks`.
    pub(crate) fn begin(self, tasks: &mut JoinSet<()>, front: SocketAddr, is_over: &Arc<AtomicBool>) {
        let flood = Flood { front, is_over: Arc::clone(is_over), keys: Arc::default(), run: clock::now() };
        match self {
            Self::Decoding => {
                let bombs = [bomb(10 << 20), bomb(1 << 20)].map(Arc::new);
                for number in 0..128 {
                    let bomb = Arc::clone(&bombs[number % 2]);
                    // A parsed body is decoded as a whole, any other as a stream.
                    let kind = if number % 4 < 2 { "application/json" } else { "image/png" };
                    flood.repeat(tasks, move |flood| flood.decode(kind, Arc::clone(&bomb)));
                }
            }
            Self::Responses => {
                for number in 0..300 {
                    flood.repeat(tasks, move |flood| flood.leave_unread(number % 3 == 0));
                }
            }
            Self::Requests => {
                for _ in 0..40 {
                    flood.repeat(tasks, Flood::keep_streams);
                }
                for number in 0..5_200 {
                    let path = if number < 4_200 { "/hang" } else { "/small" };
                    flood.repeat(tasks, move |flood| flood.keep(path));
                }
            }
            Self::Uploads => {
                for _ in 0..31 {
                    flood.repeat(tasks, |flood| flood.upload(true, 4_300_000));
                }
                for number in 0..1_800 {
                    flood.repeat(tasks, move |flood| flood.upload(number % 2 == 0, 100));
                }
            }
            Self::Readers => {
                for _ in 0..60 {
                    flood.repeat(tasks, Flood::sip);
                }
            }
        }
    }
}

/// A JSON string of `bytes`, compressed almost as much as is allowed: a few random letters, and then the same
/// letter.
fn bomb(bytes: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let letters = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        b"0123456789abcdef"[usize::try_from(state >> 60).unwrap_or_default()]
    });
    let mut text = vec![b'"'];
    text.extend(letters.take(bytes / 40));
    text.resize(bytes - 1, b'x');
    text.push(b'"');
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    // Writing into memory does not fail.
    let _ = encoder.write_all(&text);
    encoder.finish().unwrap_or_default()
}

#[derive(Clone)]
struct Flood {
    front: SocketAddr,
    is_over: Arc<AtomicBool>,
    keys: Arc<AtomicU64>,
    run: u64,
}

impl Flood {
    fn repeat<F, A>(&self, tasks: &mut JoinSet<()>, act: F)
    where
        F: Fn(Self) -> A + Send + 'static,
        A: Future<Output = std::io::Result<()>> + Send,
    {
        let flood = self.clone();
        tasks.spawn(async move {
            while !flood.is_over.load(Ordering::Relaxed) {
                if act(flood.clone()).await.is_err() {
                    // It was refused or disconnected: it tries again, as floods do.
                    sleep(DRIP_INTERVAL).await;
                }
            }
        });
    }

    fn new_key(&self) -> String {
        let number = self.keys.fetch_add(1, Ordering::Relaxed);
        format!("idempotency-key: flood-{}-{number:08}\r\n", self.run)
    }

    async fn send(&self, request: &[u8]) -> std::io::Result<TcpStream> {
        let mut connection = connect(self.front, ADDRESS).await?;
        connection.write_all(request).await?;
        Ok(connection)
    }

    async fn decode(self, kind: &str, bomb: Arc<Vec<u8>>) -> std::io::Result<()> {
        let key = self.new_key();
        let head = format!(
            "POST /small HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{key}content-type: {kind}\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n",
            bomb.len()
        );
        let mut connection = self.send(&[head.as_bytes(), &bomb].concat()).await?;
        connection.read_to_end(&mut Vec::new()).await.map(drop)
    }

    async fn leave_unread(self, is_new: bool) -> std::io::Result<()> {
        let key = if is_new { self.new_key() } else { "idempotency-key: flood-of-replays-0\r\n".to_owned() };
        let request = format!("POST /large HTTP/1.1\r\nhost: a\r\n{key}content-length: 0\r\n\r\n");
        let mut connection = self.send(request.as_bytes()).await?;
        connection.read_exact(&mut [0; 12]).await?;
        sleep(HOLD_TIME).await;
        Ok(())
    }

    async fn keep(self, path: &'static str) -> std::io::Result<()> {
        let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n");
        let mut connection = self.send(request.as_bytes()).await?;
        // The answer, and then an idle connection for as long as it is allowed.
        while timeout(HOLD_TIME * 2, connection.read(&mut [0; 1024]))
            .await
            .is_ok_and(|read| read.is_ok_and(|n| n > 0))
        {}
        Ok(())
    }

    /// As many requests as one HTTP/2 connection may have at once. Does nothing if the server does not
    /// support HTTP/2.
    async fn keep_streams(self) -> std::io::Result<()> {
        let connection = connect(self.front, ADDRESS).await?;
        let (mut sender, connection) =
            h2::client::handshake(connection).await.map_err(std::io::Error::other)?;
        let mut streams = JoinSet::new();
        streams.spawn(async move { drop(connection.await) });
        for _ in 0..STREAMS {
            sender = sender.ready().await.map_err(std::io::Error::other)?;
            let request = http::Request::get("http://a/hang").body(()).map_err(std::io::Error::other)?;
            let (response, _) = sender.send_request(request, true).map_err(std::io::Error::other)?;
            streams.spawn(async move { drop(response.await) });
        }
        timeout(HOLD_TIME * 2, async { while streams.join_next().await.is_some() {} }).await.ok();
        Ok(())
    }

    async fn upload(self, has_key: bool, at_once: usize) -> std::io::Result<()> {
        let key = if has_key { self.new_key() } else { String::new() };
        let length = at_once + 100_000;
        let head = format!("POST /small HTTP/1.1\r\nhost: a\r\n{key}content-length: {length}\r\n\r\n");
        let mut connection = self.send(&[head.into_bytes(), vec![b'x'; at_once]].concat()).await?;
        loop {
            connection.write_all(b"x").await?;
            if timeout(DRIP_INTERVAL, connection.read(&mut [0; 1024])).await.is_ok() {
                return Err(std::io::ErrorKind::ConnectionAborted.into());
            }
        }
    }

    async fn sip(self) -> std::io::Result<()> {
        let key = self.new_key();
        let request = format!("POST /long HTTP/1.1\r\nhost: a\r\n{key}content-length: 0\r\n\r\n");
        let mut connection = self.send(request.as_bytes()).await?;
        while connection.read(&mut [0; 64]).await? > 0 {
            sleep(DRIP_INTERVAL).await;
        }
        Ok(())
    }
}
