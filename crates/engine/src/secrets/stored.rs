//! The store's settings about the hashing secret: one for its state, one for each node.
//!
//! The whole state is one value, so it changes atomically. Its epoch grows with every change, so no value occurs
//! twice and a compare-and-swap is safe.

use super::{Bounded, ConfiguredSecret, Error, Phase, copying};
use bytes::Bytes;
use semel_core::scope::Secret;
use semel_core::store::{SECRET_LOST_SETTING, SECRET_SETTING, Setting};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const STATE: &str = SECRET_SETTING;
pub(super) const NODE: &str = "secrets.node.";
const FORMAT: u8 = 1;
/// How often an ambiguous write is checked before the error is returned.
const TRIES: u32 = 8;

/// The current secret, and the phase of its rotation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct State {
    pub(super) format: u8,
    /// Grows by one with every change.
    pub(super) epoch: u64,
    /// How many secrets this store had before `secret`.
    pub(super) generation: u32,
    /// The secret that decides: in use, or being replaced.
    pub(super) secret: StoredSecret,
    pub(super) rotation: Rotation,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Rotation {
    /// No rotation.
    Steady,
    /// All nodes have to learn the next secret.
    Announced { next: StoredSecret },
    /// Claims move to the next secret.
    Moving { next: StoredSecret },
    /// `secret` is already the new one; markers of the old one may be left.
    Settled,
}

/// A stored secret: its ID, and its bytes unless they are configured on every node.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoredSecret {
    pub(super) id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<String>,
}

/// Shows the ID only.
impl std::fmt::Debug for StoredSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StoredSecret({})", self.id)
    }
}

impl StoredSecret {
    /// A secret that every node is configured with: only its id.
    pub(super) fn configured(bytes: &[u8]) -> Result<Self, Error> {
        Ok(Self { id: Secret::from_bytes(bytes)?.id().to_string(), bytes: None })
    }

    /// A secret that nodes get from the store.
    pub(super) fn generated(bytes: [u8; 32]) -> Result<Self, Error> {
        Ok(Self { bytes: Some(hex::encode(bytes)), ..Self::configured(&bytes)? })
    }

    /// The secret itself, from the store or from this node's configuration.
    pub(super) fn secret(&self, known: &[ConfiguredSecret]) -> Result<Arc<Secret>, Error> {
        let Some(bytes) = &self.bytes else {
            let known = known.iter().find(|known| known.id == self.id);
            return known
                .map(|known| Arc::clone(&known.secret))
                .ok_or_else(|| Error::Missing(self.id.clone()));
        };
        let bytes = hex::decode(bytes).map_err(|_| Error::Damaged("the secret is not hexadecimal"))?;
        let secret = Secret::from_bytes(&bytes).map_err(|_| Error::Damaged("the secret is too short"))?;
        if secret.id().to_string() != self.id {
            return Err(Error::Damaged("the secret does not match its ID"));
        }
        Ok(Arc::new(secret))
    }
}

impl State {
    pub(super) fn first(secret: StoredSecret) -> Self {
        Self { format: FORMAT, epoch: 1, generation: 0, secret, rotation: Rotation::Steady }
    }

    /// The first state after an operator accepted the loss of the previous ones, at this second. Its numbers are higher
    /// than all that nodes and records have: secrets do not change every second.
    pub(super) fn after_loss(self, seconds: u32) -> Self {
        Self { epoch: seconds.into(), generation: seconds, ..self }
    }

    /// The next state: the same secret in another phase.
    pub(super) fn then(&self, rotation: Rotation) -> Self {
        Self { epoch: self.epoch + 1, rotation, ..self.clone() }
    }

    pub(super) fn phase(&self) -> Phase {
        match self.rotation {
            Rotation::Steady => Phase::Steady,
            Rotation::Announced { .. } => Phase::Announced,
            Rotation::Moving { .. } => Phase::Moving,
            Rotation::Settled => Phase::Settled,
        }
    }

    /// The IDs of all secrets in use.
    pub(super) fn ids(&self) -> Vec<&str> {
        let next = match &self.rotation {
            Rotation::Announced { next } | Rotation::Moving { next } => Some(&*next.id),
            Rotation::Steady | Rotation::Settled => None,
        };
        std::iter::once(&*self.secret.id).chain(next).collect()
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("numbers and strings serialize to JSON")
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Error> {
        #[derive(Deserialize)]
        struct Head {
            format: u8,
        }
        let head: Head = serde_json::from_slice(bytes).map_err(|_| Error::Damaged("not a state"))?;
        if head.format == copying::FORMAT {
            return Err(Error::Copying);
        }
        if head.format != FORMAT {
            return Err(Error::Newer(head.format));
        }
        serde_json::from_slice(bytes).map_err(|_| Error::Damaged("not a state"))
    }
}

/// A node's registration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Registration {
    /// The node's name.
    pub(super) name: String,
    /// Grows by one with every renewal.
    pub(super) beat: u64,
    /// This node no longer uses earlier epochs.
    pub(super) confirmed: Option<u64>,
    /// How long it must be silent until it certainly uses no view any more.
    lapse_millis: u64,
}

impl Registration {
    pub(super) fn new(name: &str, beat: u64, confirmed: Option<u64>, lapse: Duration) -> Self {
        let lapse_millis = u64::try_from(lapse.as_millis()).unwrap_or(u64::MAX);
        Self { name: name.to_owned(), beat, confirmed, lapse_millis }
    }

    pub(super) fn lapse(&self) -> Duration {
        Duration::from_millis(self.lapse_millis)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("numbers and strings serialize to JSON")
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Error> {
        serde_json::from_slice(bytes).map_err(|_| Error::Damaged("not a node's registration"))
    }
}

/// The setting of the node with these random bits.
pub(super) fn node_key(bits: u128) -> String {
    format!("{NODE}{bits:032x}")
}

/// All settings about the secret, from one read.
pub(super) struct Settings {
    state: Option<Bytes>,
    /// When an operator accepted the loss of the state.
    lost: Option<Bytes>,
    /// Each node's registration, as stored.
    pub(super) nodes: BTreeMap<String, Bytes>,
}

impl Settings {
    pub(super) async fn read(store: Bounded<'_>) -> Result<Self, Error> {
        let mut read = Self { state: None, lost: None, nodes: BTreeMap::new() };
        for (name, value) in store.settings().await? {
            if name == STATE {
                read.state = Some(value);
            } else if name == SECRET_LOST_SETTING {
                read.lost = Some(value);
            } else if name.starts_with(NODE) {
                read.nodes.insert(name, value);
            }
        }
        Ok(read)
    }

    pub(super) fn state(&self) -> Result<Option<State>, Error> {
        self.state.as_deref().map(State::decode).transpose()
    }

    /// The second in which an operator accepted the loss of the state.
    pub(super) fn lost_at(&self) -> Result<Option<u32>, Error> {
        let seconds = |bytes: &Bytes| std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok());
        let lost = self.lost.as_ref().map(|bytes| seconds(bytes).ok_or(Error::Damaged("not a second")));
        lost.transpose()
    }

    /// Removes the note of an accepted loss: the store has a secret again. If this fails, the next node does it.
    pub(super) async fn forget_loss(&self, store: Bounded<'_>) {
        if let Some(lost) = &self.lost {
            let _ = store.set(SECRET_LOST_SETTING, Some(lost), None).await;
        }
    }
}

/// Replaces the state. After a lost answer, the epoch shows whether the write was applied.
pub(super) async fn swap(store: Bounded<'_>, from: Option<&State>, to: &State) -> Result<(), Error> {
    let (expect, next) = (from.map(State::encode), to.encode());
    let mut tries = TRIES;
    loop {
        tries -= 1;
        match store.set(STATE, expect.as_deref(), Some(&next)).await {
            Ok(Setting::Done) => return Ok(()),
            // Refused because of our own write, whose answer was lost.
            Ok(Setting::Refused(Some(stored))) if *stored == *next => return Ok(()),
            Ok(Setting::Refused(_)) => return Err(Error::Changed),
            Err(error) if error.is_ambiguous() && tries > 0 => {}
            Err(error) => return Err(error.into()),
        }
    }
}
