//! The usual manual solution on Redis: `SET … NX` for the key and `SET` for its response, over one shared
//! connection.

use std::error::Error;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot};

/// The private server, found by its URL.
pub(crate) struct Server {
    /// `HOST:PORT`.
    pub(crate) address: String,
    /// The prefix of this run's keys.
    pub(crate) prefix: String,
}

impl Server {
    pub(crate) fn find() -> Result<Self, Box<dyn Error>> {
        let url = std::env::var("SEMEL_TEST_REDIS_URL").map_err(|_| "SEMEL_TEST_REDIS_URL is not set")?;
        let address = url.strip_prefix("redis://").and_then(|rest| rest.split(['/', '?']).next());
        let address = address.ok_or("SEMEL_TEST_REDIS_URL is not like redis://HOST:PORT")?.to_owned();
        Ok(Self { address, prefix: format!("bench-{}", std::process::id()) })
    }

    /// A line of `INFO server`.
    pub(crate) fn info(&self, name: &str) -> Result<String, Box<dyn Error>> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.write_all(b"INFO server\r\nQUIT\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        Ok(line.ok_or_else(|| format!("no {name}"))?.trim().to_owned())
    }

    /// Removes the keys of this run.
    pub(crate) fn clean(&self) -> Result<(), Box<dyn Error>> {
        let script = "local n=0 for _,p in ipairs(ARGV) do local c='0' repeat local r=redis.call('SCAN',c,'MATCH',p,'COUNT',1000) \
                      c=r[1] for _,k in ipairs(r[2]) do redis.call('UNLINK',k) n=n+1 end until c=='0' end return n";
        let patterns = [format!("{{{}*", self.prefix), format!("{}*", self.prefix)];
        let mut stream = TcpStream::connect(&self.address)?;
        stream.write_all(&command(&["EVAL", script, "0", &patterns[0], &patterns[1]]))?;
        let mut answer = [0; 64];
        let read = stream.read(&mut answer)?;
        if answer[..read].starts_with(b":") { Ok(()) } else { Err("the keys were not removed".into()) }
    }
}

fn command(arguments: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", arguments.len());
    for argument in arguments {
        // Writing to a string does not fail.
        let _ = write!(bytes, "${}\r\n{argument}\r\n", argument.len());
    }
    bytes.into_bytes()
}

type Question = (Vec<u8>, oneshot::Sender<bool>);

/// Claims and finishes by hand.
pub(crate) struct BareRedis {
    questions: mpsc::UnboundedSender<Question>,
    prefix: String,
    body: String,
}

impl BareRedis {
    pub(crate) fn connect(
        runtime: &Runtime,
        server: &Server,
        body_bytes: usize,
    ) -> Result<Arc<Self>, Box<dyn Error>> {
        let stream = runtime.block_on(tokio::net::TcpStream::connect(&server.address))?;
        stream.set_nodelay(true)?;
        let (reader, mut writer) = stream.into_split();
        let (questions, mut asked) = mpsc::unbounded_channel::<Question>();
        let (expect, mut expected) = mpsc::unbounded_channel::<oneshot::Sender<bool>>();
        runtime.spawn(async move {
            let (mut batch, mut out) = (Vec::new(), Vec::new());
            while asked.recv_many(&mut batch, 512).await > 0 {
                out.clear();
                for (bytes, answer) in batch.drain(..) {
                    out.extend(bytes);
                    drop(expect.send(answer));
                }
                if writer.write_all(&out).await.is_err() {
                    return;
                }
            }
        });
        runtime.spawn(async move {
            let mut lines = BufReader::new(reader).lines();
            while let Some(answer) = expected.recv().await {
                let Ok(Some(line)) = lines.next_line().await else { return };
                let _ = answer.send(line == "+OK");
            }
        });
        Ok(Arc::new(Self { questions, prefix: server.prefix.clone(), body: "x".repeat(body_bytes) }))
    }

    async fn ask(&self, arguments: &[&str]) -> bool {
        let (answer, answered) = oneshot::channel();
        self.questions.send((command(arguments), answer)).expect("the connection is open");
        answered.await.expect("an answer")
    }

    pub(crate) async fn command(&self, number: u64) {
        let key = format!("{}:order-{number:020}", self.prefix);
        assert!(self.ask(&["SET", &key, "amount=5", "NX", "PX", "86400000"]).await, "claimed before");
        assert!(self.ask(&["SET", &key, &self.body, "PX", "86400000"]).await, "not stored");
    }
}
