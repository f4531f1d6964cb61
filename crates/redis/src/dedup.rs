//! Detects messages that arrive twice within a short window.

use crate::address::Address;
use crate::resp::{self, Value};
use crate::servers::{Effect, Servers};
use crate::slot::slot_of;
use semel_core::store::{Error, Kind};
use std::sync::Arc;
use std::time::Duration;

const ASKING: &str = "asking Redis about a message";

/// Identifies a message: its consumer group, its topic, and its ID there.
///
/// Every part is length-prefixed before it is hashed, so that different messages never collide by choice of
/// characters.
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
        hex::encode(context.finish())
    }
}

/// The result of claiming a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a message that was seen before is to be skipped"]
pub enum MessageClaim {
    /// It was not claimed within the window: handle it, and [release](MessageDedup::release) it if that
    /// fails.
    Fresh,
    /// It was already claimed. It may be handled, being handled, or lost with its consumer.
    Seen,
}

/// Recognises a message that arrives again within a window, with one `SET … NX` and an expiry.
///
/// **What it promises**: of several consumers that claim a message within the window, at most one gets
/// [`Fresh`](MessageClaim::Fresh), as long as the server loses no data.
///
/// **What it does not promise**: that a message is handled once. It is marked *before* it is handled: if a
/// consumer dies in between, the message stays marked and is skipped until the window is over. No result is
/// stored, a changed body under the same ID is not noticed, and a message that comes after the window is
/// fresh again. The server's clock ends the window: if it is set forward, or was behind and is corrected, the
/// window ends early and the message is fresh again. A failover or an eviction forgets marks. Use it where a message that is sometimes lost or
/// handled twice is acceptable (notifications, cache updates); otherwise use the engine, or an inbox in the
/// database of the effect.
pub struct MessageDedup {
    servers: Servers,
    prefix: String,
    window: Duration,
}

impl MessageDedup {
    /// Connects with the same URLs as the store; `window` is how long a message is remembered by the server's
    /// clock, at least a millisecond.
    pub async fn open(url: &str, window: Duration) -> Result<Self, Error> {
        let unfit = |cause: &str| Error::new(Kind::Unfit, ASKING).because(cause);
        let (address, is_encrypted) = match url.split_once(':') {
            Some(("redis" | "valkey", address)) => (address, false),
            Some(("rediss" | "valkeys", address)) => (address, true),
            _ => return Err(unfit("its URL begins with redis:// or rediss://")),
        };
        if window < Duration::from_millis(1) || window > Duration::from_hours(24 * 365) {
            return Err(unfit("the window is from a millisecond to a year"));
        }
        let address = Address::parse(address, is_encrypted)
            .map_err(|cause| Error::new(Kind::Unfit, ASKING).because(cause))?;
        let address = Arc::new(address);
        let prefix = address.prefix.clone();
        Ok(Self { servers: Servers::connect(&address, true, None).await?, prefix, window })
    }

    fn key(&self, id: &MessageId<'_>) -> (u16, String) {
        let digest = id.digest();
        (slot_of(&digest), format!("{}:seen:{{{digest}}}", self.prefix))
    }

    /// Claims a message. After an [ambiguous](Error::is_ambiguous) error it may be marked or not: a second
    /// claim may find it marked. Handle it then, or wait until the window is over; skipping it loses it.
    pub async fn claim(&self, id: &MessageId<'_>) -> Result<MessageClaim, Error> {
        let ((slot, key), window) = (self.key(id), self.window.as_millis().to_string());
        let question = resp::command(&[b"SET", key.as_bytes(), b"1", b"NX", b"PX", window.as_bytes()]);
        match self.servers.ask(slot, question, Effect::Writes).await.map_err(|fault| fault.error(ASKING))? {
            Value::Nil => Ok(MessageClaim::Seen),
            _ => Ok(MessageClaim::Fresh),
        }
    }

    /// Forgets a message whose handling failed, so that the next delivery is fresh. Call it only after
    /// [`Fresh`](MessageClaim::Fresh), and within the window: later, it would remove another consumer's
    /// claim.
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
