//! Stored outcomes that only a holder of a key can read.
//!
//! **Contents**: the ring of keys, sealing an outcome for one record and opening it again. **Never here**: a key in
//! debug output, an error or a log; a guess at what could not be opened. What cannot be opened is answered as not
//! retained, and the record is left as it is.
//!
//! A seal hides headers, body and trailers. It does not hide the status, which the machine and operators need, nor how
//! long the rest is.
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

use crate::random::Random;
use bytes::Bytes;
use envelope::Envelope;
use semel_core::codec;
use semel_core::id::CommandId;
use semel_core::outcome::{Body, Fields, Outcome};
use std::fmt;

/// The keys that this node seals and opens with.
///
/// The first key seals; every key opens. To change the key, put a new one in front **on every node** (a node without it
/// would answer what others sealed with it as not retained: add it as a further key everywhere first, then move it to
/// the front), and keep the old one until the last outcome that it sealed is past its TTL. Nothing is sealed anew:
/// terminal records are final.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRing {
    sealing: SealingKey,
    others: Vec<SealingKey>,
}

impl KeyRing {
    /// A ring of one key, which seals and opens.
    pub fn new(sealing: SealingKey) -> Self {
        Self { sealing, others: Vec::new() }
    }

    /// With a further key that only opens. A name stands for one key: a second one of that name is refused.
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

    /// The outcome as it is to be stored for the record under `id`: its status, and everything else sealed.
    ///
    /// An outcome of which nothing but the status is known has nothing to hide and is stored as it is; one that is
    /// sealed already, too.
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

    /// The outcome as it was before it was sealed for the record under `id`. One that is not sealed is given back as it
    /// is: it was stored before sealing was switched on.
    pub fn open(&self, id: &CommandId, outcome: &Outcome) -> Result<Outcome, Unopened> {
        let Body::Sealed(sealed) = &outcome.body else { return Ok(outcome.clone()) };
        let envelope = Envelope::read(sealed)?;
        let key =
            self.key(envelope.key_name).ok_or_else(|| Unopened::KeyMissing(envelope.key_name.to_owned()))?;
        let plain = envelope.open(key, id, outcome.status).ok_or(Unopened::Damaged)?;
        let opened = codec::decode_outcome(&Bytes::from(plain)).map_err(|_| Unopened::Damaged)?;
        let whole = opened.status == outcome.status
            && !matches!(opened.body, Body::Sealed(_))
            && outcome.headers.is_empty()
            && outcome.trailers.is_empty();
        if whole { Ok(opened) } else { Err(Unopened::Damaged) }
    }
}

/// Whether the outcome of a command is sealed; see [`Intent::sealed`](crate::Intent::sealed).
///
/// It is about what is stored from now on: what was sealed is opened, and what was not is replayed, whatever is said
/// here. Verdicts of operators and reconcilers are sealed wherever there are keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Seal {
    /// Where the engine has [keys](crate::Builder::sealing).
    #[default]
    WithKeys,
    /// In any case: an engine without keys refuses the command. The record does not say so: another engine on the
    /// same store that has no keys stores as it is what it is told by a verdict, or by the token of a lease. Every
    /// one of them needs the keys.
    Required,
    /// Never: it is stored as it is, whatever keys there are.
    Off,
}

/// Why a sealed outcome could not be opened. Either way it is answered as not retained, the record is left as it is,
/// and somebody should be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unopened {
    /// It was sealed with the key of this name, which is not on this node's ring.
    KeyMissing(String),
    /// It was sealed in a way that this version does not know.
    Newer(u8),
    /// The seal is broken: the bytes were changed, belong to another record, or another key goes by that name.
    Damaged,
}

impl fmt::Display for Unopened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KeyMissing(name) => write!(
                f,
                "the stored answer is sealed with the key `{name}`, which this node does not have; the effect \
                 happened and its answer is kept: add that key to the ring"
            ),
            Self::Newer(format) => write!(
                f,
                "the stored answer is sealed in format {format}, which this node does not know; it is kept: \
                 upgrade this node"
            ),
            Self::Damaged => f.write_str(
                "the seal of the stored answer is broken: it was damaged or moved, or the key of its name is another; \
                 it was left as it is: compare the key, or restore the record from a backup",
            ),
        }
    }
}

impl std::error::Error for Unopened {}
