//! A paying client: one intent, one key, any number of requests. It uses HTTP/1.1 with one TCP connection per request,
//! and can leave before the response arrives.

use crate::demo::payments::{TROUBLE, Trouble};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::{HeaderMap, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use semel::core::id::OperationId;
use semel::{Random, SystemRandom};
use semel_http::names;
use semel_net::client::{self, Connection};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::net::TcpStream;

/// The longest wait for a response: the story has to end.
const PATIENCE: Duration = Duration::from_secs(10);
/// How much of a response is read.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// A client with one intent.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) customer: &'static str,
    /// In cents.
    pub(super) amount: u64,
    pub(super) key: String,
    to: SocketAddr,
    sent: Arc<AtomicU32>,
}

/// What the client received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reply {
    Answer(Answer),
    /// The connection closed, or the client left.
    Nothing,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) is_replay: bool,
    pub(super) operation_id: Option<OperationId>,
    pub(super) body: Bytes,
}

impl Client {
    /// A client that sends to `to`.
    pub(super) fn new(customer: &'static str, amount: u64, key: String, to: SocketAddr) -> Self {
        Self { customer, amount, key, to, sent: Arc::default() }
    }

    /// The same client after a crash and a restart, with the key that it read back. Both count their requests together.
    pub(super) fn restarted(&self, key: String) -> Self {
        Self { customer: self.customer, amount: self.amount, key, to: self.to, sent: Arc::clone(&self.sent) }
    }

    /// The number of requests sent so far.
    pub(super) fn sent(&self) -> u32 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Requests the charge and waits for the response.
    pub(super) async fn ask(&self, trouble: Option<Trouble>) -> Reply {
        self.ask_for(self.amount, trouble).await
    }

    /// Requests another amount than intended, with the same key.
    pub(super) async fn ask_for(&self, amount: u64, trouble: Option<Trouble>) -> Reply {
        let answer = async {
            let mut connection = connect(self.to).await?;
            let answer = self.send(&mut connection, amount, trouble).await?;
            read(answer).await
        };
        let answered = tokio::time::timeout(PATIENCE, answer).await;
        answered.ok().flatten().map_or(Reply::Nothing, Reply::Answer)
    }

    /// Requests the charge and closes the connection as soon as `leave` is ready.
    pub(super) async fn ask_and_leave(
        &self,
        trouble: Option<Trouble>,
        leave: impl Future<Output = ()>,
    ) -> Reply {
        let asking = async {
            // Dropping the connection closes it.
            let Some(mut connection) = connect(self.to).await else { return };
            drop(self.send(&mut connection, self.amount, trouble).await);
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = asking => {}
            () = leave => {}
            () = tokio::time::sleep(PATIENCE) => {}
        }
        Reply::Nothing
    }

    async fn send(
        &self,
        connection: &mut Connection,
        amount: u64,
        trouble: Option<Trouble>,
    ) -> Option<Response<Incoming>> {
        let order = format!(r#"{{"amount": {amount}, "currency": "eur", "customer": "{}"}}"#, self.customer);
        let mut request = Request::post("/charges")
            .header(HOST, self.to.to_string())
            .header(CONTENT_TYPE, "application/json")
            .header(names::KEY, &self.key);
        if let Some(trouble) = trouble {
            request = request.header(TROUBLE, trouble.as_str());
        }
        let request = request.body(Full::new(Bytes::from(order))).ok()?;
        connection.ready().await.ok()?;
        self.sent.fetch_add(1, Ordering::Relaxed);
        connection.send(request).await.ok()
    }
}

/// The body of `path` at `to`, if the request succeeds.
pub(super) async fn fetch(to: SocketAddr, path: &str) -> Option<Bytes> {
    let exchange = async {
        let mut connection = connect(to).await?;
        let request = Request::get(path).header(HOST, to.to_string()).body(Full::default()).ok()?;
        let answer = read(connection.send(request).await.ok()?).await?;
        (answer.status == 200).then_some(answer.body)
    };
    tokio::time::timeout(PATIENCE, exchange).await.ok().flatten()
}

/// A fresh key: a random UUID.
pub(super) fn fresh_key() -> String {
    let bits = SystemRandom.bits();
    // Version 4, variant 1.
    let bits = bits & !(0xf << 76) & !(0x3 << 62) | 0x4 << 76 | 0x2 << 62;
    let digits = format!("{bits:032x}");
    [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
}

/// A connection that is closed when it is dropped.
async fn connect(address: SocketAddr) -> Option<Connection> {
    Connection::over(TcpStream::connect(address).await.ok()?).await.ok()
}

async fn read(response: Response<Incoming>) -> Option<Answer> {
    let (parts, body) = response.into_parts();
    let body = client::read(body, ANSWER_BYTES_MAX).await.ok()?;
    let text = |headers: &HeaderMap, name| {
        headers.get(name).and_then(|value| value.to_str().ok().map(str::to_owned))
    };
    Some(Answer {
        status: parts.status.as_u16(),
        is_replay: text(&parts.headers, names::REPLAYED).as_deref() == Some("true"),
        operation_id: text(&parts.headers, names::OPERATION_ID).and_then(|id| id.parse().ok()),
        body,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::payments;

    #[test]
    fn fresh_keys_are_random_uuids() {
        let (one, other) = (fresh_key(), fresh_key());
        assert_ne!(one, other);
        assert!(one.parse::<OperationId>().is_ok(), "{one} is a UUID");
        assert_eq!(one.as_bytes()[14], b'4', "{one}");
        assert!(matches!(one.as_bytes()[19], b'8' | b'9' | b'a' | b'b'), "{one}");
    }

    #[tokio::test]
    async fn a_client_that_leaves_hears_nothing_and_has_been_charged() {
        let payments = payments::start().await.expect("a port");
        let client = Client::new("ada", 100, fresh_key(), payments.address());
        let charged = payments.ledger().until_charged("ada", 1);
        assert_eq!(client.ask_and_leave(Some(Trouble::Slow), charged).await, Reply::Nothing);
        assert_eq!((client.sent(), payments.ledger().charges().len()), (1, 1));
    }

    #[tokio::test]
    async fn without_a_listener_nothing_is_sent() {
        let nobody = semel_test_support::ReservedAddress::new();
        let client = Client::new("ada", 100, fresh_key(), nobody.address());
        assert_eq!(client.ask(None).await, Reply::Nothing);
        assert_eq!(client.sent(), 0);
    }
}
