//! One connection to a server, shared by all callers: commands are pipelined, and answers arrive in the same
//! order.
//!
//! Nothing is ever sent twice. The connection's own tasks send and receive, so that a cancelled caller does
//! not disturb the stream.

use crate::address::{Address, Confirmation, Host};
use crate::resp::{self, Malformed, Value};
use crate::tls;
use bytes::{Bytes, BytesMut};
use semel_core::store::{Error, Kind};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error as ThisError;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{Mutex, Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

const CONNECTING: &str = "connecting to Redis";
/// How many commands may wait to be sent; far more than a server answers in a moment.
const WAITING_MAX: usize = 1 << 13;
/// How many commands are sent with one confirmation.
const BATCH_MAX: usize = 512;
/// How many KiB of commands one connection holds, sent or not.
const WAITING_KIB_MAX: u32 = 96 << 10;
/// Longer commands are not copied into the buffer for short ones.
const BUFFERED_BYTES_MAX: usize = 64 << 10;

/// Why a command has no answer.
#[derive(Debug, ThisError)]
pub(crate) enum Failure {
    /// Not a byte of it was sent.
    #[error(transparent)]
    NotSent(#[from] NotSent),
    /// It may have arrived.
    #[error(transparent)]
    Lost(#[from] Lost),
}

#[derive(Debug, ThisError)]
pub(crate) enum NotSent {
    #[error("too much waits to be sent")]
    TooMuchWaits,
    #[error("the connection is closed")]
    Closed,
    #[error("the connection broke")]
    Broken,
}

#[derive(Debug, ThisError)]
pub(crate) enum Lost {
    #[error("the connection closed before the answer arrived")]
    Closed,
    #[error("the server did not answer within {0:?}")]
    Silent(Duration),
    #[error(transparent)]
    Unread(#[from] ReadError),
    #[error(transparent)]
    Unconfirmed(#[from] Doubt),
}

/// Why there is no next reply.
#[derive(Debug, ThisError)]
pub(crate) enum ReadError {
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("the server closed the connection")]
    Closed,
    #[error("the connection broke: {0}")]
    Broken(#[from] std::io::Error),
}

/// What is missing for earlier writes to be safe.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
pub(crate) enum Doubt {
    #[error("{wanted} replicas were to confirm the write: {have} have it")]
    TooFewReplicas { wanted: u8, have: i64 },
    #[error("{wanted} replicas were to confirm the write: {answer}")]
    ReplicasNotAsked { wanted: u8, answer: String },
    #[error("the server was to confirm that the write is on its disk: it was not synced in time")]
    NotSynced,
    #[error("the server was to confirm that the write is on its disk: {answer}")]
    SyncNotAsked { answer: String },
}

type Answer = oneshot::Sender<Result<Value, Failure>>;

struct Question {
    bytes: Bytes,
    /// How many replies precede the relevant one.
    skip: usize,
    answer: Answer,
}

enum Expected {
    Reply { skip: usize, answer: Answer },
    Confirmation,
}

/// The server's description of itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct Greeting {
    /// `standalone`, `cluster` or `sentinel`.
    pub(crate) mode: String,
    pub(crate) version: String,
    pub(crate) is_replica: bool,
}

pub(crate) struct Connection {
    pub(crate) greeting: Greeting,
    questions: mpsc::Sender<Question>,
    /// Set when the connection can no longer be used.
    broken: Arc<watch::Sender<bool>>,
    room: Semaphore,
    answer_timeout: Duration,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// Connects and sends the greeting. The stream is then ready for commands.
pub(crate) async fn greet(address: &Address, host: &Host) -> Result<(Box<dyn Stream>, Greeting), Error> {
    let silent = |_| {
        let cause = format!("{host} did not answer within {:?}", address.connect_timeout);
        Error::new(Kind::Unavailable, CONNECTING).because(cause)
    };
    let greeting = async {
        let unreachable = |error: std::io::Error| {
            Error::new(Kind::Unavailable, CONNECTING).because(format!("{host}: {error}"))
        };
        let stream = TcpStream::connect((host.name.as_str(), host.port)).await.map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        let mut stream: Box<dyn Stream> = if address.is_encrypted {
            let roots = address.root_certificates.as_deref();
            Box::new(tls::connect(stream, &host.name, roots).await.map_err(unreachable)?)
        } else {
            Box::new(stream)
        };
        let greeting = introduce(address, host, &mut *stream).await?;
        Ok((stream, greeting))
    };
    timeout(address.connect_timeout, greeting).await.map_err(silent)?
}

async fn introduce(address: &Address, host: &Host, stream: &mut dyn Stream) -> Result<Greeting, Error> {
    let refused =
        |cause: String| Error::new(Kind::Unavailable, CONNECTING).because(format!("{host}: {cause}"));
    let mut hello: Vec<&[u8]> = vec![b"HELLO", b"2"];
    let credentials = address.credentials()?;
    if let Some((user, password)) = &credentials {
        hello.extend([&b"AUTH"[..], user.as_bytes(), password]);
    }
    let database = address.database.to_string();
    let mut bytes = Vec::new();
    resp::encode(&mut bytes, &hello);
    let reply_count = if address.database == 0 {
        1
    } else {
        resp::encode(&mut bytes, &[b"SELECT", database.as_bytes()]);
        2
    };
    let io = |error: std::io::Error| refused(error.to_string());
    let unread = |error: ReadError| refused(error.to_string());
    stream.write_all(&bytes).await.map_err(io)?;
    stream.flush().await.map_err(io)?;
    let mut buffer = BytesMut::new();
    let mut replies = Vec::new();
    while replies.len() < reply_count {
        let value = next(stream, &mut buffer).await.map_err(unread)?;
        if let Value::Error(text) = &value {
            let fault = crate::fault::ServerRefusal::of(text, false).fault();
            return Err(fault.error(CONNECTING));
        }
        replies.push(value);
    }
    Ok(Greeting::read(&replies[0]))
}

impl Greeting {
    pub(crate) fn read(hello: &Value) -> Self {
        let mut greeting = Self::default();
        for pair in hello.array().chunks(2) {
            let (Some(name), Some(value)) = (pair[0].text(), pair.get(1).and_then(Value::text)) else {
                continue;
            };
            match name {
                "mode" => value.clone_into(&mut greeting.mode),
                "version" => value.clone_into(&mut greeting.version),
                "role" => greeting.is_replica = value != "master",
                _ => {}
            }
        }
        greeting
    }
}

/// The next reply.
pub(crate) async fn next(
    stream: &mut (impl AsyncRead + Unpin + ?Sized),
    buffer: &mut BytesMut,
) -> Result<Value, ReadError> {
    loop {
        if let Some(value) = resp::decode(buffer)? {
            return Ok(value);
        }
        buffer.reserve(16 << 10);
        if stream.read_buf(buffer).await? == 0 {
            return Err(ReadError::Closed);
        }
    }
}

impl Connection {
    /// Connects to `host`. With `confirms`, writes are confirmed as the address says.
    pub(crate) async fn open(address: &Address, host: &Host, confirms: bool) -> Result<Self, Error> {
        let (stream, greeting) = greet(address, host).await?;
        let confirmation = if confirms { address.confirmation } else { Confirmation::default() };
        let (questions, asked) = mpsc::channel(WAITING_MAX);
        let (expect, expected) = mpsc::unbounded_channel();
        let (reader, writer) = tokio::io::split(stream);
        let broken = Arc::new(watch::channel(false).0);
        let confirm = confirming(confirmation, address.answer_timeout / 2);
        let sender = send(asked, writer, expect, confirm, Arc::clone(&broken));
        let receiver = receive(reader, expected, confirmation, Arc::clone(&broken));
        Ok(Self {
            greeting,
            questions,
            broken,
            room: Semaphore::new(WAITING_KIB_MAX as usize),
            answer_timeout: address.answer_timeout,
            tasks: Mutex::new(vec![tokio::spawn(sender), tokio::spawn(receiver)]),
        })
    }

    pub(crate) fn is_broken(&self) -> bool {
        *self.broken.borrow()
    }

    /// Closes it: waiting callers get no answer.
    pub(crate) fn give_up(&self) {
        self.broken.send_replace(true);
    }

    /// Sends a command. If there is no answer in time, the connection is closed.
    pub(crate) async fn ask(&self, bytes: Bytes, skip: usize) -> Result<Value, Failure> {
        let kib = u32::try_from(bytes.len() >> 10).unwrap_or(u32::MAX).saturating_add(1).min(WAITING_KIB_MAX);
        let busy = || NotSent::TooMuchWaits;
        let room = timeout(self.answer_timeout, self.room.acquire_many(kib)).await;
        let _room = room.ok().and_then(Result::ok).ok_or_else(busy)?;
        let (answer, answered) = oneshot::channel();
        let question = Question { bytes, skip, answer };
        self.questions.try_send(question).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => busy(),
            mpsc::error::TrySendError::Closed(_) => NotSent::Closed,
        })?;
        match timeout(self.answer_timeout, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(Lost::Closed.into()),
            Err(_) => {
                self.give_up();
                Err(Lost::Silent(self.answer_timeout).into())
            }
        }
    }

    /// Accepts no more commands, and returns when those sent are answered.
    pub(crate) async fn close(self: Arc<Self>) {
        let tasks = std::mem::take(&mut *self.tasks.lock().await);
        // A task in the middle of a command continues; the connection's tasks end with the last of them.
        drop(self);
        for task in tasks {
            drop(task.await);
        }
    }
}

/// The confirmation commands sent after each batch; empty if nothing has to be confirmed.
fn confirming(confirmation: Confirmation, timeout: Duration) -> Bytes {
    let (replicas, timeout_ms) = (confirmation.replicas.to_string(), timeout.as_millis().to_string());
    let (replicas, timeout_ms) = (replicas.as_bytes(), timeout_ms.as_bytes());
    if confirmation.synced {
        // Replicas confirm only what they have in memory, as with WAIT: two commands, one after the other.
        let mut both = Vec::new();
        resp::encode(&mut both, &[b"WAIT", replicas, timeout_ms]);
        resp::encode(&mut both, &[b"WAITAOF", b"1", b"0", timeout_ms]);
        return both.into();
    }
    if confirmation.is_wanted() { resp::command(&[b"WAIT", replicas, timeout_ms]) } else { Bytes::new() }
}

async fn send(
    mut asked: mpsc::Receiver<Question>,
    mut stream: impl AsyncWrite + Unpin,
    expect: mpsc::UnboundedSender<Expected>,
    confirm: Bytes,
    broken: Arc<watch::Sender<bool>>,
) {
    let (mut batch, mut out) = (Vec::new(), Vec::new());
    let mut breaking = broken.subscribe();
    loop {
        let taken = tokio::select! {
            taken = asked.recv_many(&mut batch, BATCH_MAX) => taken,
            _ = breaking.wait_for(|is_broken| *is_broken) => 0,
        };
        if taken == 0 {
            break;
        }
        if write(&mut batch, &mut out, &mut stream, &expect, &confirm).await.is_err() {
            break;
        }
    }
    // Commands that were not accepted were not sent.
    asked.close();
    while let Ok(question) = asked.try_recv() {
        drop(question.answer.send(Err(NotSent::Broken.into())));
    }
    drop(expect);
    if !*broken.borrow() {
        return;
    }
    drop(stream.shutdown().await);
}

async fn write(
    batch: &mut Vec<Question>,
    out: &mut Vec<u8>,
    stream: &mut (impl AsyncWrite + Unpin),
    expect: &mpsc::UnboundedSender<Expected>,
    confirm: &Bytes,
) -> std::io::Result<()> {
    out.clear();
    let mut is_any_sent = false;
    for Question { bytes, skip, answer } in batch.drain(..) {
        // The caller has gone before it was sent.
        if answer.is_closed() {
            continue;
        }
        is_any_sent = true;
        drop(expect.send(Expected::Reply { skip, answer }));
        if bytes.len() <= BUFFERED_BYTES_MAX {
            out.extend_from_slice(&bytes);
        } else {
            stream.write_all(out).await?;
            out.clear();
            stream.write_all(&bytes).await?;
        }
    }
    if is_any_sent && !confirm.is_empty() {
        drop(expect.send(Expected::Confirmation));
        out.extend_from_slice(confirm);
    }
    stream.write_all(out).await?;
    stream.flush().await
}

async fn receive(
    mut stream: impl AsyncRead + Unpin,
    mut expected: mpsc::UnboundedReceiver<Expected>,
    confirmation: Confirmation,
    broken: Arc<watch::Sender<bool>>,
) {
    let mut breaking = broken.subscribe();
    let receiving = async {
        let mut buffer = BytesMut::new();
        // Answers that were received but not confirmed.
        let mut held: Vec<(Answer, Value)> = Vec::new();
        loop {
            let next_expected = tokio::select! {
                biased;
                next_expected = expected.recv() => next_expected,
                // Notices that a server closed an idle connection before the next command is lost on it.
                read = stream.read_buf(&mut buffer) => match read {
                    Ok(0) | Err(_) => return,
                    Ok(_) => continue,
                },
            };
            match next_expected {
                None => return,
                Some(Expected::Reply { skip, answer }) => {
                    let mut value = next(&mut stream, &mut buffer).await;
                    for _ in 0..skip {
                        value = match value {
                            Ok(_) => next(&mut stream, &mut buffer).await,
                            lost => lost,
                        };
                    }
                    match value {
                        Ok(value) if confirmation.is_wanted() => held.push((answer, value)),
                        Ok(value) => drop(answer.send(Ok(value))),
                        Err(error) => return drop(answer.send(Err(Lost::from(error).into()))),
                    }
                }
                Some(Expected::Confirmation) => {
                    let Ok(doubt) = confirmed(&mut stream, &mut buffer, confirmation).await else { return };
                    for (answer, value) in held.drain(..) {
                        let result = doubt.clone().map_or(Ok(value), |doubt| Err(Lost::from(doubt).into()));
                        drop(answer.send(result));
                    }
                }
            }
        }
    };
    tokio::select! {
        () = receiving => {}
        _ = breaking.wait_for(|is_broken| *is_broken) => {}
    }
    broken.send_replace(true);
}

/// What is missing for earlier writes to be safe; `None` if nothing is.
async fn confirmed(
    stream: &mut (impl AsyncRead + Unpin),
    buffer: &mut BytesMut,
    confirmation: Confirmation,
) -> Result<Option<Doubt>, ReadError> {
    let replicas = next(stream, buffer).await?;
    let synced = if confirmation.synced { Some(next(stream, buffer).await?) } else { None };
    let (wanted, have) = (confirmation.replicas, replicas.number().unwrap_or(-1));
    if have < i64::from(wanted) {
        return Ok(Some(match replicas {
            Value::Error(answer) => Doubt::ReplicasNotAsked { wanted, answer },
            _ => Doubt::TooFewReplicas { wanted, have },
        }));
    }
    if let Some(synced) = synced
        && synced.array().first().and_then(Value::number).is_none_or(|synced| synced < 1)
    {
        return Ok(Some(match synced {
            Value::Error(answer) => Doubt::SyncNotAsked { answer },
            _ => Doubt::NotSynced,
        }));
    }
    Ok(None)
}
