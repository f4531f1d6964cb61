//! Messages that come twice within a short window.

use crate::address::Address;
use crate::resp::{self, Value};
use crate::servers::{Effect, Servers, slot_of};
use semel_core::store::{Error, Kind};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

const ASKING: &str = "asking Redis about a message";

/// What tells a message apart: who consumes it, where it came from, and its id there.
///
/// Every part is length-prefixed before it is hashed, so that no choice of characters makes two messages one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageId<'a> {
    /// The consumer group: each handles every message once.
    pub group: &'a str,
    /// The topic, queue or stream.
    pub topic: &'a str,
    /// The message's own id; for Kafka its key, partition and offset, joined by the caller.
    pub message: &'a [u8],
}

impl MessageId<'_> {
    fn digest(&self) -> String {
        let mut context = ring::digest::Context::new(&ring::digest::SHA256);
        for part in [self.group.as_bytes(), self.topic.as_bytes(), self.message] {
            context.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            context.update(part);
        }
        let mut text = String::with_capacity(64);
        for byte in context.finish().as_ref() {
            let _ = write!(text, "{byte:02x}");
        }
        text
    }
}

/// What became of the attempt to claim a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a message that was seen before is to be skipped"]
pub enum MessageClaim {
    /// Nobody has claimed it within the window: handle it, and [release](MessageDedup::release) it if that fails.
    Fresh,
    /// Somebody has. It may be handled, in the middle of it, or lost with whoever claimed it.
    Seen,
}

/// Recognises a message that comes again within a window, with one `SET … NX` and an expiry.
///
/// **What it promises**: of several consumers that claim a message within the window, at most one is told
/// [`Fresh`](MessageClaim::Fresh), as long as the server forgets nothing.
///
/// **What it does not promise**: that a message is handled once. It is marked *before* it is handled: a consumer that dies in between
/// leaves it marked, and until the window is over it is skipped. Nothing is kept of what came of it, a changed body under the same id is
/// not noticed, and the window is all there is: what comes again later is fresh. A fail-over or an eviction forgets. Use it where a
/// message lost now and then, or handled twice, is bearable (notifications, cache updates); where it is not, use the engine or an inbox
/// in the database of the effect.
pub struct MessageDedup {
    servers: Servers,
    prefix: String,
    window: Duration,
}

impl MessageDedup {
    /// Connects by the same URLs as the store; `window` is how long a message is remembered, a millisecond at least.
    pub async fn open(url: &str, window: Duration) -> Result<Self, Error> {
        let unfit = |cause: String| Error::new(Kind::Unfit, ASKING).because(cause);
        let (address, is_encrypted) = match url.split_once(':') {
            Some(("redis" | "valkey", address)) => (address, false),
            Some(("rediss" | "valkeys", address)) => (address, true),
            _ => return Err(unfit("its URL begins with redis:// or rediss://".to_owned())),
        };
        if window < Duration::from_millis(1) || window > Duration::from_hours(24 * 365) {
            return Err(unfit("the window is from a millisecond to a year".to_owned()));
        }
        let address = Arc::new(Address::parse(address, is_encrypted).map_err(unfit)?);
        let prefix = address.prefix.clone();
        Ok(Self { servers: Servers::connect(&address, true, None).await?, prefix, window })
    }

    fn key(&self, id: &MessageId<'_>) -> (u16, String) {
        let digest = id.digest();
        (slot_of(&digest), format!("{}:seen:{{{digest}}}", self.prefix))
    }

    /// Claims a message. An [ambiguous](Error::is_ambiguous) error leaves open whether it is marked now: whoever claims again may be told
    /// that it was seen. Handle it then, or wait for the window to pass; skipping it loses it.
    pub async fn claim(&self, id: &MessageId<'_>) -> Result<MessageClaim, Error> {
        let ((slot, key), window) = (self.key(id), self.window.as_millis().to_string());
        let question = resp::command(&[b"SET", key.as_bytes(), b"1", b"NX", b"PX", window.as_bytes()]);
        match self.servers.ask(slot, question, Effect::Writes).await.map_err(|fault| fault.error(ASKING))? {
            Value::Nil => Ok(MessageClaim::Seen),
            _ => Ok(MessageClaim::Fresh),
        }
    }

    /// Forgets a message whose handling failed, so that the next delivery is fresh. Only for whoever was told
    /// [`Fresh`](MessageClaim::Fresh), and within the window: after it, somebody else's claim would be taken away.
    pub async fn release(&self, id: &MessageId<'_>) -> Result<(), Error> {
        let (slot, key) = self.key(id);
        let question = resp::command(&[b"DEL", key.as_bytes()]);
        self.servers.ask(slot, question, Effect::Writes).await.map(drop).map_err(|fault| fault.error(ASKING))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_an_id_are_distinguished() {
        let id = |group, topic, message: &'static [u8]| MessageId { group, topic, message }.digest();
        let ids = [
            id("a", "b", b"c"),
            id("ab", "", b"c"),
            id("a", "bc", b""),
            id("a", "b", b"C"),
            id("", "ab", b"c"),
        ];
        for (at, one) in ids.iter().enumerate() {
            assert!(ids.iter().skip(at + 1).all(|other| other != one));
        }
    }
}
