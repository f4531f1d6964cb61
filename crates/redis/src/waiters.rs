//! Wakes callers on this node that wait for a command to change, including changes by other nodes.
//!
//! A node that writes a final state publishes the operation ID; every node receives all of them and wakes its
//! own waiters.

use crate::address::Address;
use crate::connection::{Stream, greet, next};
use crate::resp::{self, Value};
use bytes::BytesMut;
use semel_core::id::OperationId;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// How many commands waiters on this node can wait for; further ones poll.
const AWAITED_MAX: usize = 1 << 14;
/// How often the server must show that it is alive.
const PERIOD: Duration = Duration::from_secs(10);
const RECONNECT: Duration = Duration::from_secs(1);
/// How long opening a store waits for its first subscription.
const FIRST_WAIT: Duration = Duration::from_secs(2);

pub(crate) struct Waiters {
    held: Mutex<BTreeMap<[u8; 16], watch::Sender<()>>>,
    listening: watch::Sender<bool>,
}

impl Waiters {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { held: Mutex::default(), listening: watch::channel(false).0 })
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<[u8; 16], watch::Sender<()>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_listening(&self) -> bool {
        *self.listening.borrow()
    }

    /// Waits until messages arrive, at most as long as a working server takes.
    pub(crate) async fn listened(&self) {
        let mut listening = self.listening.subscribe();
        drop(timeout(FIRST_WAIT, listening.wait_for(|is_listening| *is_listening)).await);
    }

    /// Returns when the command may have changed since this call. `None` if that cannot be known.
    pub(crate) fn subscribe(&self, id: OperationId) -> Option<Pin<Box<dyn Future<Output = ()> + Send>>> {
        if !self.is_listening() {
            return None;
        }
        let mut held = self.held();
        if held.len() >= AWAITED_MAX {
            held.retain(|_, woken| woken.receiver_count() > 0);
        }
        if held.len() >= AWAITED_MAX && !held.contains_key(id.as_bytes()) {
            return None;
        }
        let mut woken = held.entry(*id.as_bytes()).or_insert_with(|| watch::channel(()).0).subscribe();
        drop(held);
        Some(Box::pin(async move {
            // The sender is dropped when the subscription ends: then the caller must check too.
            drop(woken.changed().await);
        }))
    }

    fn wake(&self, id: &[u8; 16]) {
        let mut held = self.held();
        if let Some(woken) = held.remove(id) {
            woken.send_replace(());
        }
    }

    /// Messages were missed, or may have been.
    fn wake_all(&self) {
        self.held().clear();
    }
}

/// Receives notifications of writes as long as the store exists.
pub(crate) async fn listen(waiters: Weak<Waiters>, address: Arc<Address>, channel: String) {
    let mut turn = 0;
    loop {
        let host = &address.hosts[turn % address.hosts.len()];
        turn += 1;
        match greet(&address, host).await {
            // Messages through a replica arrive late, and clients may not publish on it.
            Ok((mut stream, greeting)) if greeting.mode == "cluster" || !greeting.is_replica => {
                let cause = receive(&waiters, &mut *stream, &channel).await;
                tracing::debug!(%cause, "messages of the Redis store are not received for a moment");
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "no connection for messages of the Redis store"),
        }
        let Some(here) = waiters.upgrade() else { return };
        here.listening.send_replace(false);
        here.wake_all();
        drop(here);
        sleep(RECONNECT).await;
    }
}

/// Runs until the connection breaks, and returns the reason.
async fn receive(waiters: &Weak<Waiters>, stream: &mut dyn Stream, channel: &str) -> String {
    let mut buffer = BytesMut::new();
    let mut is_pinged = false;
    let subscribe = resp::command(&[b"SUBSCRIBE", channel.as_bytes()]);
    if let Err(error) = stream.write_all(&subscribe).await {
        return error.to_string();
    }
    loop {
        if let Err(error) = stream.flush().await {
            return error.to_string();
        }
        let received = timeout(PERIOD, next(stream, &mut buffer)).await;
        let Some(here) = waiters.upgrade() else { return "the store was closed".to_owned() };
        let value = match received {
            Ok(Ok(value)) => value,
            Ok(Err(error)) => return error.to_string(),
            Err(_) if is_pinged => return "the server does not answer".to_owned(),
            Err(_) => {
                is_pinged = true;
                if let Err(error) = stream.write_all(&resp::command(&[b"PING"])).await {
                    return error.to_string();
                }
                continue;
            }
        };
        is_pinged = false;
        match value.array() {
            [kind, ..] if kind.text() == Some("subscribe") => {
                here.listening.send_replace(true);
                // Earlier notifications were missed.
                here.wake_all();
            }
            [kind, _, id] if kind.text() == Some("message") => {
                if let Some(id) = id.bytes().and_then(|id| <[u8; 16]>::try_from(&id[..]).ok()) {
                    here.wake(&id);
                }
            }
            _ => {
                if let Value::Error(text) = value {
                    return text;
                }
            }
        }
    }
}
