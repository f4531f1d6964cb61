//! The hashing secret that all nodes of a store share, and its rotation under traffic.
//!
//! Reading the store's secret, each node's [`View`] of it and its validity, finding a command's ID while two secrets
//! are in use ([`locate`]), and the operator's side of a [`rotation`]. A node that may be behind claims nothing, no
//! secret appears in an error, a log or debug output, and no new secret is made if the store might have one.
//!
//! `docs/decisions/secrets.md` has the protocol, and why a paused node cannot make a command run twice.

mod bounded;
mod copying;
mod error;
mod locate;
mod node;
pub mod rotation;
mod stored;
mod view;

pub use bounded::Bounded;
pub(crate) use copying::{Copying, Registered, registered, state_id};
pub use error::Error;
pub use locate::{Located, TimeCorrection, locate};
pub use node::{RefreshSettings, Secrets};
pub(crate) use stored::STATE;
pub use view::{Commands, NumberedSecret, Outgoing, View};

use crate::runtime::clock::Clock;
use crate::runtime::random::Random;
use semel_core::scope::Secret;
use semel_core::store::{Filter, Kind, Page, Store};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use stored::{Settings, State, StoredSecret};

/// The phase of the store's rotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// No rotation.
    Steady,
    /// All nodes learn the next secret; commands are claimed under the old one.
    Announced,
    /// Commands are claimed under the next secret, after a marker was inserted under the old ID.
    Moving,
    /// The old secret is no longer used; its markers may be left.
    Settled,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Steady => "steady",
            Self::Announced => "announced",
            Self::Moving => "moving",
            Self::Settled => "settled",
        })
    }
}

/// The configured secrets of a node. Usually none: the store then has its own.
#[derive(Clone, Copy, Default)]
pub struct Configured<'a> {
    /// The current secret. Refused if the store uses another one.
    pub secret: Option<&'a [u8]>,
    /// The secret to rotate to, which the store may not know yet.
    pub rotate_to: Option<&'a [u8]>,
}

/// A configured secret, ready to use.
struct ConfiguredSecret {
    id: String,
    secret: Arc<Secret>,
}

/// Reads the store's hashing secret and registers this node.
///
/// A store without a secret gets one by insert-if-absent: the configured one (only its ID is stored), or a new one
/// from `random` (its bytes are stored, because every node needs them). `name` is this node's name for operators.
/// Retries for a few seconds if the store is unavailable.
///
/// Run [`Secrets::tend`] from then on: a node that does not refresh its view claims nothing.
pub async fn open(
    store: Arc<dyn Store>,
    configured: Configured<'_>,
    clock: Arc<dyn Clock>,
    random: &dyn Random,
    name: &str,
    refresh: RefreshSettings,
) -> Result<Arc<Secrets>, Error> {
    refresh.check()?;
    let mut known = Vec::new();
    for bytes in configured.secret.into_iter().chain(configured.rotate_to) {
        let secret = Secret::from_bytes(bytes)?;
        known.push(ConfiguredSecret { id: secret.id().to_string(), secret: Arc::new(secret) });
    }
    let first = match configured.secret {
        Some(bytes) => StoredSecret::configured(bytes)?,
        None => StoredSecret::generated(drawn(random))?,
    };
    let asked = Bounded::by_the_caller(&*store);
    let state = patiently(&*clock, || learn(asked, State::first(first.clone()))).await?;
    judge(&state, configured)?;
    let node = node::enter(Arc::clone(&store), Arc::clone(&clock), known, random.bits(), name, refresh);
    let refreshed = patiently(&*clock, || node.refresh()).await;
    // A node that joins must know all secrets in use.
    let joined = refreshed.and_then(|()| node.trouble().map_or(Ok(()), |id| Err(Error::Missing(id))));
    if let Err(error) = joined {
        // Best effort: the others remove a silent node anyway.
        let _ = node.leave().await;
        return Err(error);
    }
    Ok(node)
}

/// The store's state; `first` is stored if there is none. The stored value counts, whatever the result of our own
/// write.
async fn learn(store: Bounded<'_>, mut first: State) -> Result<State, Error> {
    let mut settings = Settings::read(store).await?;
    if settings.state()?.is_none() && has_entries(store).await? {
        // The records may be from a node that initialised the store a moment ago.
        settings = Settings::read(store).await?;
        if settings.state()?.is_none() && settings.lost_at()?.is_none() {
            return Err(Error::Lost);
        }
    }
    let state = match (settings.state()?, settings.lost_at()?) {
        (Some(state), _) => state,
        (None, lost_at) => {
            if let Some(lost_at) = lost_at {
                first = first.after_loss(lost_at);
            }
            match stored::swap(store, None, &first).await {
                Ok(()) => first,
                Err(Error::Changed) => Settings::read(store).await?.state()?.ok_or(Error::Changed)?,
                Err(error) => return Err(error),
            }
        }
    };
    settings.forget_loss(store).await;
    Ok(state)
}

/// Whether the store has any record or marker, readable or not.
async fn has_entries(store: Bounded<'_>) -> Result<bool, Error> {
    let is_empty = |page: &Page| page.items.is_empty() && page.next.is_none();
    let records = store.page(&Filter::default(), None, 1).await.map_err(Error::Store)?;
    if !is_empty(&records) {
        return Ok(true);
    }
    let markers = store.markers(None, 1).await.map_err(Error::Store)?;
    Ok(!is_empty(&markers))
}

/// Rejects a configured secret that the store does not know. After a rotation, the new one may still be configured as
/// the one to rotate to.
fn judge(state: &State, configured: Configured<'_>) -> Result<(), Error> {
    let Some(bytes) = configured.secret else { return Ok(()) };
    let given = Secret::from_bytes(bytes)?.id();
    let ids = state.ids();
    let rotated = match configured.rotate_to {
        Some(bytes) => Secret::from_bytes(bytes)?.id().to_string() == state.secret.id,
        None => false,
    };
    if rotated || ids.contains(&&*given.to_string()) {
        return Ok(());
    }
    Err(Error::Unknown { given, known: ids.join(", ") })
}

fn drawn(random: &dyn Random) -> [u8; 32] {
    let mut bytes = [0; 32];
    let (first, second) = bytes.split_at_mut(16);
    first.copy_from_slice(&random.bits().to_le_bytes());
    second.copy_from_slice(&random.bits().to_le_bytes());
    bytes
}

/// Retries for a few seconds if that may help.
async fn patiently<T, F>(clock: &dyn Clock, mut attempt: impl FnMut() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let mut pause = Duration::from_millis(50);
    loop {
        match attempt().await {
            // What is lost does not come back within seconds, and an operator waits for the message.
            Err(Error::Store(error)) if error.kind() == Kind::DataLost => return Err(Error::Store(error)),
            Err(Error::Store(error)) if error.is_retryable() && pause < Duration::from_secs(5) => {
                clock.sleep(pause).await;
                pause *= 2;
            }
            Err(Error::Changed) if pause < Duration::from_secs(5) => pause *= 2,
            result => return result,
        }
    }
}
