//! Encryption of stored outcomes.
//!
//! The key ring, and sealing and unsealing an outcome for one record. No key appears in debug output, an error or a
//! log. An outcome that cannot be unsealed is answered as not retained, and the record is unchanged.
//!
//! A seal hides headers, body and trailers. It does not hide the status, which the machine and operators need, nor
//! the length.
//!
//! ```
//! use semel::SystemRandom;
//! use semel::core::{id::CommandId, outcome::Outcome};
//! use semel::sealing::{KeyRing, SealingKey};
//!
//! let ring = KeyRing::new(SealingKey::new("2026-11", &[7; 32])?);
//! let id = CommandId::from_bytes([1; 32]);
//! let charged = Outcome::http(201, [("location", "/charges/7")], "{\"id\":7}");
//!
//! let stored = ring.seal(&id, &charged, &SystemRandom);
//! assert_eq!(stored.status, charged.status);
//! assert_eq!(ring.open(&id, &stored), Ok(charged));
//! assert!(ring.open(&CommandId::from_bytes([2; 32]), &stored).is_err());
//! # Ok::<(), semel::sealing::KeyError>(())
//! ```

mod envelope;
mod key;

pub use key::{KeyError, SealingKey};

use crate::runtime::random::Random;
use bytes::Bytes;
use envelope::Envelope;
use semel_core::codec;
use semel_core::id::CommandId;
use semel_core::outcome::{Body, Fields, Outcome};
use std::fmt;

/// The sealing keys of a node.
///
/// The first key seals; all keys unseal. To change the key, first add the new one as a further key **on every node**,
/// then move it to the front. (A node without it would answer outcomes that others sealed with it as not retained.)
/// Keep the old key until the last outcome that it sealed has expired. Stored outcomes are not sealed again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRing {
    sealing: SealingKey,
    others: Vec<SealingKey>,
}

impl KeyRing {
    /// A ring of one key, which seals and unseals.
    pub fn new(sealing: SealingKey) -> Self {
        Self { sealing, others: Vec::new() }
    }

    /// Adds a key that only unseals. A second key with the same name is refused.
    pub fn and(mut self, key: SealingKey) -> Result<Self, KeyError> {
        if self.key(key.name()).is_some() {
            return Err(KeyError::NameTaken(key.name().to_owned()));
        }
        self.others.push(key);
        Ok(self)
    }

    fn key(&self, name: &str) -> Option<&SealingKey> {
        std::iter::once(&self.sealing).chain(&self.others).find(|key| key.name() == name)
    }

    /// Seals an outcome for the record under `id`: everything except the status.
    ///
    /// An outcome with only a status, or one that is already sealed, is unchanged.
    #[must_use]
    pub fn seal(&self, id: &CommandId, outcome: &Outcome, random: &dyn Random) -> Outcome {
        let nothing_to_hide = match outcome.body {
            Body::Sealed(_) => true,
            Body::NotRetained => outcome.headers.is_empty() && outcome.trailers.is_empty(),
            Body::Kept(_) => false,
        };
        if nothing_to_hide {
            return outcome.clone();
        }
        let plain = codec::encode_outcome(outcome);
        let sealed = envelope::seal(&self.sealing, id, outcome.status, plain, random);
        Outcome {
            status: outcome.status,
            headers: Fields::default(),
            body: Body::Sealed(sealed),
            trailers: Fields::default(),
            labels: outcome.labels.clone(),
        }
    }

    /// Unseals an outcome of the record under `id`. One that is not sealed is returned unchanged: it was stored
    /// before sealing was turned on.
    pub fn open(&self, id: &CommandId, outcome: &Outcome) -> Result<Outcome, UnsealError> {
        let Body::Sealed(sealed) = &outcome.body else { return Ok(outcome.clone()) };
        let envelope = Envelope::read(sealed)?;
        let key = self
            .key(envelope.key_name)
            .ok_or_else(|| UnsealError::KeyMissing(envelope.key_name.to_owned()))?;
        let plain = envelope.open(key, id, outcome.status).ok_or(UnsealError::Damaged)?;
        let opened = codec::decode_outcome(&Bytes::from(plain)).map_err(|_| UnsealError::Damaged)?;
        let whole = opened.status == outcome.status
            && !matches!(opened.body, Body::Sealed(_))
            && outcome.headers.is_empty()
            && outcome.trailers.is_empty();
        if whole { Ok(opened) } else { Err(UnsealError::Damaged) }
    }
}

/// Whether the outcome of a command is sealed; see [`Intent::sealed`](crate::Intent::sealed).
///
/// Only for outcomes that are stored from now on: stored ones are replayed in any case. Verdicts of operators and
/// reconcilers are sealed if there are keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Seal {
    /// If the engine has [keys](crate::Builder::sealing).
    #[default]
    WithKeys,
    /// Always: an engine without keys refuses the command. Give the keys to all engines of the store: the record does
    /// not contain this setting, so an engine without keys would store a verdict, or the outcome of a lease,
    /// unsealed.
    Required,
    /// Never, even if there are keys.
    Off,
}

/// Why an outcome could not be unsealed. It is answered as not retained, and the record is unchanged. Raise an alarm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnsealError {
    /// It was sealed with a key that is not in this node's ring.
    KeyMissing(String),
    /// It was sealed in a format that this version does not know.
    Newer(u8),
    /// The seal is invalid: the bytes were changed, belong to another record, or another key has that name.
    Damaged,
}

impl fmt::Display for UnsealError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KeyMissing(name) => write!(
                f,
                "the stored answer is sealed with the key `{name}`, which this node does not have; the effect \
                 happened, and its answer is still stored; add that key to the ring"
            ),
            Self::Newer(format) => write!(
                f,
                "the stored answer is sealed in format {format}, which this node does not know; it is still stored; \
                 upgrade this node"
            ),
            Self::Damaged => f.write_str(
                "the seal of the stored answer is invalid: it was damaged or moved, or this node has another key of that name; \
                 it was not changed; compare the keys, or restore the record from a backup",
            ),
        }
    }
}

impl std::error::Error for UnsealError {}
