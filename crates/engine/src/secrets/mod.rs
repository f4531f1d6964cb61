//! The hashing secret that every node on a store shares, and how it is replaced under traffic.
//!
//! **Contents**: learning the store's secret, each node's [`View`] of it and how long that is good for, the way to a
//! command's id while two secrets are in use ([`locate`]), and the operator's side of a [`rotation`]. **Never here**:
//! a claim by a node that may be behind; a secret in an error, a log or debug output; a secret made up where the
//! store might have one.
//!
//! The protocol, and why no pause of any node makes a command run twice, stands in `docs/decisions/secrets.md`.

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
pub use locate::{Dating, Located, locate};
pub use node::{Secrets, Terms};
pub(crate) use stored::STATE;
pub use view::{Commands, Numbered, Outgoing, View};

use crate::clock::Clock;
use crate::random::Random;
use semel_core::scope::Secret;
use semel_core::store::{Filter, Page, Store};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use stored::{Kept, Settings, State};

/// How far the store has come in replacing its hashing secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Nothing is being replaced.
    Steady,
    /// Every node is learning of the next secret; commands are claimed under the old one.
    Announced,
    /// Commands are claimed under the next secret, each behind a marker under its old id.
    Moving,
    /// The old secret is dropped; its markers may be left.
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

/// The secrets that a node was configured with. Usually none: the store then has one.
#[derive(Clone, Copy, Default)]
pub struct Configured<'a> {
    /// The secret in use. Refused if the store goes by another.
    pub secret: Option<&'a [u8]>,
    /// One that the store may not know yet: rotation to it is asked for.
    pub rotate_to: Option<&'a [u8]>,
}

/// A configured secret, ready to use.
struct Known {
    id: String,
    secret: Arc<Secret>,
}

/// Learns the store's hashing secret and enters this node among those that use it.
///
/// A store that has none yet is given one, by insert-if-absent: the configured one (only its id is stored), or else one
/// drawn from `random` (stored as it is, since every node needs it). `name` is what operators will call this node. An
/// unavailable store is asked again for a few seconds.
///
/// Have [`Secrets::tend`] run from then on: a node that does not refresh its view claims nothing.
pub async fn open(
    store: Arc<dyn Store>,
    configured: Configured<'_>,
    clock: Arc<dyn Clock>,
    random: &dyn Random,
    name: &str,
    terms: Terms,
) -> Result<Arc<Secrets>, Error> {
    terms.check()?;
    let mut known = Vec::new();
    for bytes in configured.secret.into_iter().chain(configured.rotate_to) {
        let secret = Secret::from_bytes(bytes)?;
        known.push(Known { id: secret.id().to_string(), secret: Arc::new(secret) });
    }
    let first = match configured.secret {
        Some(bytes) => Kept::configured(bytes)?,
        None => Kept::generated(drawn(random))?,
    };
    let asked = Bounded::by_the_caller(&*store);
    let state = patiently(&*clock, || learn(asked, State::first(first.clone()))).await?;
    judge(&state, configured)?;
    let node = node::enter(Arc::clone(&store), Arc::clone(&clock), known, random.bits(), name, terms);
    let refreshed = patiently(&*clock, || node.refresh()).await;
    // A node that joins must know every secret in question; one that is behind from the start helps nobody.
    let joined = refreshed.and_then(|()| node.trouble().map_or(Ok(()), |id| Err(Error::Missing(id))));
    if let Err(error) = joined {
        // As good as it goes: silence signs it off as well.
        let _ = node.leave().await;
        return Err(error);
    }
    Ok(node)
}

/// The store's state; `first` becomes it if there is none. Whatever comes of our own write, what counts is what is
/// stored there.
async fn learn(store: Bounded<'_>, first: State) -> Result<State, Error> {
    if let Some(state) = Settings::read(store).await?.state()? {
        return Ok(state);
    }
    if has_entries(store).await? {
        // They may be those of a node that gave the store its secret a moment ago.
        return Settings::read(store).await?.state()?.ok_or(Error::Lost);
    }
    match stored::swap(store, None, &first).await {
        Ok(()) => Ok(first),
        Err(Error::Changed) => Settings::read(store).await?.state()?.ok_or(Error::Changed),
        Err(error) => Err(error),
    }
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

/// Refuses a configured secret that is none of the store's. After a rotation the new one may still be configured as the
/// one to rotate to.
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

/// Tries again for a few seconds where that may help.
async fn patiently<T, F>(clock: &dyn Clock, mut attempt: impl FnMut() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let mut pause = Duration::from_millis(50);
    loop {
        match attempt().await {
            Err(Error::Store(error)) if error.is_retryable() && pause < Duration::from_secs(5) => {
                clock.sleep(pause).await;
                pause *= 2;
            }
            Err(Error::Changed) if pause < Duration::from_secs(5) => pause *= 2,
            result => return result,
        }
    }
}
