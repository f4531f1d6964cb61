//! Messages and their ids.

use crate::patterns::error::PatternError;
use semel_core::fingerprint::{Error, Fingerprint, Limits, Request, Selection};
use std::fmt::Write as _;

/// The longest name of a topic, and the longest ID, in bytes: both are part of an index.
const TOPIC_MAX: usize = 255;
const ID_MAX: usize = 1_000;
/// The first character of a composite ID, which a simple one must not have.
const PARTS: char = '\u{1f}';

/// Distinguishes the messages of a topic.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(String);

impl MessageId {
    /// An ID that the message carries: a header (`dedup-id`, `Nats-Msg-Id`, the AMQP `message-id`), or a
    /// field of its body. 1 to 1,000 bytes.
    pub fn new(id: impl Into<String>) -> Result<Self, PatternError> {
        let id = id.into();
        if id.starts_with(PARTS) {
            return Err(PatternError::Invalid("the message id begins with a control character".to_owned()));
        }
        Self::checked(id)
    }

    /// An ID of several parts, in order, such as key, partition and offset. `["a", "bc"]` and `["ab", "c"]`
    /// are different.
    ///
    /// ```
    /// use semel_tx::patterns::MessageId;
    ///
    /// let id = MessageId::composite(["order-7", "3", "1024"])?;
    /// assert_ne!(id, MessageId::composite(["order-73", "", "1024"])?);
    /// # Ok::<(), semel_tx::patterns::PatternError>(())
    /// ```
    pub fn composite<'a>(parts: impl IntoIterator<Item = &'a str>) -> Result<Self, PatternError> {
        let mut id = String::new();
        for part in parts {
            // With its length, so that no delimiter in a part can be mistaken for its end. Writing to a
            // string does not fail.
            let _ = write!(id, "{PARTS}{}:{part}", part.len());
        }
        Self::checked(id)
    }

    fn checked(id: String) -> Result<Self, PatternError> {
        match id.len() {
            0 => Err(PatternError::Invalid("the message id is empty".to_owned())),
            bytes if bytes > ID_MAX => Err(PatternError::Invalid(format!(
                "the message id has {bytes} bytes; at most {ID_MAX} are allowed"
            ))),
            _ if id.contains('\0') => Err(PatternError::Invalid("the message id contains a NUL".to_owned())),
            _ => Ok(Self(id)),
        }
    }

    /// The ID as stored in its column.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A message with its identity.
#[derive(Debug, Clone)]
pub struct Message<B = Vec<u8>> {
    pub(super) topic: String,
    pub(super) id: MessageId,
    pub(super) fingerprint: Fingerprint,
    body: B,
}

impl Message<Vec<u8>> {
    /// A message whose body is JSON. White space, the order of members and the spelling of numbers do not
    /// matter: a producer that serialises again for a retry sends the same message. The body may be text,
    /// a slice, or what a broker's library has, such as `Bytes`.
    pub fn json(
        topic: impl Into<String>,
        id: MessageId,
        body: impl Into<Vec<u8>>,
    ) -> Result<Self, PatternError> {
        let body = body.into();
        let fingerprint = fingerprint(&[b"application/json"], &body)
            .map_err(|error| PatternError::Invalid(format!("the message is not JSON: {error}")))?;
        Self::new(topic, id, fingerprint, body)
    }

    /// A message that is compared byte for byte.
    pub fn raw(
        topic: impl Into<String>,
        id: MessageId,
        body: impl Into<Vec<u8>>,
    ) -> Result<Self, PatternError> {
        let body = body.into();
        let fingerprint = fingerprint(&[], &body)
            .map_err(|error| PatternError::Invalid(format!("the message has no fingerprint: {error}")))?;
        Self::new(topic, id, fingerprint, body)
    }
}

impl<B> Message<B> {
    /// A message with the caller's own fingerprint. The topic has 1 to 255 bytes.
    pub fn new(
        topic: impl Into<String>,
        id: MessageId,
        fingerprint: Fingerprint,
        body: B,
    ) -> Result<Self, PatternError> {
        let topic = topic.into();
        if topic.is_empty() || topic.len() > TOPIC_MAX || topic.contains('\0') {
            let reason =
                format!("a topic has 1 to {TOPIC_MAX} bytes without NUL, and this one has {}", topic.len());
            return Err(PatternError::Invalid(reason));
        }
        Ok(Self { topic, id, fingerprint, body })
    }

    /// The body.
    pub fn body(&self) -> &B {
        &self.body
    }

    /// The fingerprint: equal for two messages with the same ID if they are the same message.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// The id.
    pub fn id(&self) -> &MessageId {
        &self.id
    }

    /// The topic.
    pub fn topic(&self) -> &str {
        &self.topic
    }
}

fn fingerprint(content_type: &[&[u8]], body: &[u8]) -> Result<Fingerprint, Error> {
    // The body is already in memory, so it needs no limit.
    let limits = Limits { decoded_body_bytes_max: usize::MAX };
    Request { content_type, ..Request::new("", "", "", body) }.fingerprint(&Selection::default(), &limits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_cannot_move_between_the_parts_of_an_id() {
        let of = |parts: &[&str]| MessageId::composite(parts.iter().copied()).expect("an id");
        assert_ne!(of(&["a", "bc"]), of(&["ab", "c"]));
        assert_ne!(of(&["a", ""]), of(&["a"]));
        assert_ne!(of(&["a\u{1f}1:b"]), of(&["a", "b"]));
        let text = of(&["a", "b"]).as_str().to_owned();
        assert!(MessageId::new(text).is_err(), "an id of one part is never one of several");
    }

    #[test]
    fn ids_too_long_for_an_index_are_refused() {
        assert!(MessageId::new("").is_err() && MessageId::composite([]).is_err());
        assert!(MessageId::new("a\0b").is_err());
        assert!(
            MessageId::new("x".repeat(ID_MAX)).is_ok() && MessageId::new("x".repeat(ID_MAX + 1)).is_err()
        );
        let topic = |topic: &str| Message::raw(topic, MessageId::new("1").expect("an id"), "");
        assert!(topic("").is_err() && topic("a\0").is_err() && topic("payments").is_ok());
    }

    #[test]
    fn reserialized_json_is_the_same_message() {
        let of = |body: &str| {
            let id = MessageId::new("1").expect("an id");
            Message::json("payments", id, body).map(|message| message.fingerprint)
        };
        let first = of(r#"{"amount": 5, "to": "x"}"#).expect("JSON");
        assert_eq!(of(r#"{"to":"x","amount":5.0}"#).expect("JSON"), first);
        assert_ne!(of(r#"{"to":"x","amount":6}"#).expect("JSON"), first);
        assert!(of("{").is_err());
    }
}
