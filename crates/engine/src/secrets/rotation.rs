//! Rotating the hashing secret: the operator's side.
//!
//! The steps, each a compare-and-swap that is refused if it is too early. The old secret is kept as long as a node or a
//! record might need it.
//!
//! [`announce`] → [`advance`] (commands begin to move) → wait until the old records are gone → [`advance`] (the old
//! secret is dropped) → [`finish`] (its markers are removed). [`progress`] shows what the rotation is waiting for.
//! Live nodes remove killed ones; if no node is running, let the calling process be one, with [`open`](super::open)
//! and [`Secrets::tend`](super::Secrets::tend).
//!
//! Every call to the store has a timeout ([`Bounded`]). A step that fails halfway can be repeated.

use super::stored::{Registration, Rotation, Settings, State, StoredSecret, swap};
use super::{Bounded, Error, Phase, drawn};
use crate::probe_entry;
use crate::runtime::random::Random;
use semel_core::store::{Count, Filter, Page, Written};

/// How many entries are read at a time.
const PAGE: usize = 500;
/// How many answers in a row may be lost before this is an error.
const LOST_MAX: u32 = 8;
/// How many passes over the markers before some are reported as left.
const ROUNDS: u32 = 4;

/// The secret to rotate to.
#[derive(Clone, Copy)]
pub enum Next<'a> {
    /// A secret that is configured on every node; the store gets only its ID.
    Configured(&'a [u8]),
    /// A new one, which every node gets from the store.
    Generated,
}

/// The progress of a rotation, and what it is waiting for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// The phase.
    pub phase: Phase,
    /// The generation of the secret that decides now.
    pub generation: u32,
    /// Every registered node.
    pub nodes: Vec<Node>,
    /// While commands are moving: how many records are still stored under the old secret, or cannot be read.
    pub records_left: u64,
    /// How many markers there are.
    pub markers: u64,
}

/// A registered node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Whether it has confirmed the current phase.
    pub confirmed: bool,
}

/// Announces the next secret. All nodes learn it from now on; commands are still claimed under the old one.
pub async fn announce(store: Bounded<'_>, next: Next<'_>, random: &dyn Random) -> Result<(), Error> {
    let state = state(store).await?;
    let Rotation::Steady = state.rotation else { return Err(Error::Phase(state.phase())) };
    let next = match next {
        Next::Configured(bytes) => StoredSecret::configured(bytes)?,
        Next::Generated => StoredSecret::generated(drawn(random))?,
    };
    if next.id == state.secret.id {
        return Err(Error::Same);
    }
    swap(store, Some(&state), &state.then(Rotation::Announced { next })).await
}

/// Cancels an announcement, as long as no command has moved.
pub async fn withdraw(store: Bounded<'_>) -> Result<(), Error> {
    let state = state(store).await?;
    let Rotation::Announced { .. } = state.rotation else { return Err(Error::Phase(state.phase())) };
    swap(store, Some(&state), &state.then(Rotation::Steady)).await
}

/// Advances to the next phase: from announced to moving, and from moving to settled, which drops the old secret.
/// Refused while a node has not confirmed the current phase, and in the second step while records are stored under
/// the old secret.
pub async fn advance(store: Bounded<'_>) -> Result<Phase, Error> {
    let state = state(store).await?;
    // Read after the state: a node that registers later reads this state or a later one.
    all_confirmed(store, &state).await?;
    let next = match &state.rotation {
        Rotation::Steady | Rotation::Settled => return Err(Error::Phase(state.phase())),
        Rotation::Announced { next } => state.then(Rotation::Moving { next: next.clone() }),
        Rotation::Moving { next } => {
            // Counted when nobody can insert under the old secret any more. Twice, because a record whose date was
            // set back could be missed in one pass.
            for _ in 0..2 {
                match records_left(store, &state).await? {
                    0 => {}
                    left => return Err(Error::RecordsLeft(left)),
                }
            }
            let generation = state.generation.checked_add(1).ok_or(Error::Damaged("too many secrets"))?;
            State { generation, secret: next.clone(), ..state.then(Rotation::Settled) }
        }
    };
    swap(store, Some(&state), &next).await?;
    Ok(next.phase())
}

/// Removes the markers of the dropped secret, and ends the rotation. Refused while a node has not confirmed that it
/// no longer uses the old secret. Can be repeated after a failure.
pub async fn finish(store: Bounded<'_>) -> Result<(), Error> {
    let state = state(store).await?;
    let Rotation::Settled = state.rotation else { return Err(Error::Phase(state.phase())) };
    all_confirmed(store, &state).await?;
    let mut left = markers(store).await?;
    for _ in 0..ROUNDS {
        if left == 0 {
            return swap(store, Some(&state), &state.then(Rotation::Steady)).await;
        }
        remove_markers(store).await?;
        left = markers(store).await?;
    }
    Err(Error::MarkersLeft(left))
}

/// The progress of the rotation. Reads every record while commands are moving.
pub async fn progress(store: Bounded<'_>) -> Result<Progress, Error> {
    let state = state(store).await?;
    let nodes = nodes(store, &state).await?;
    let phase = state.phase();
    let records_left = if phase == Phase::Moving { records_left(store, &state).await? } else { 0 };
    let markers = markers(store).await?;
    Ok(Progress { phase, generation: state.generation, nodes, records_left, markers })
}

async fn state(store: Bounded<'_>) -> Result<State, Error> {
    Settings::read(store).await?.state()?.ok_or(Error::Damaged("the store has no secret yet"))
}

async fn nodes(store: Bounded<'_>, state: &State) -> Result<Vec<Node>, Error> {
    let settings = Settings::read(store).await?;
    let node = |(key, value): (&String, &bytes::Bytes)| match Registration::decode(value) {
        Ok(node) => Node { confirmed: node.confirmed == Some(state.epoch), name: node.name },
        // A registration that cannot be read has confirmed nothing.
        Err(_) => Node { name: key.clone(), confirmed: false },
    };
    Ok(settings.nodes.iter().map(node).collect())
}

async fn all_confirmed(store: Bounded<'_>, state: &State) -> Result<(), Error> {
    let nodes = nodes(store, state).await?;
    let behind: Vec<_> = nodes.into_iter().filter(|node| !node.confirmed).map(|node| node.name).collect();
    if behind.is_empty() { Ok(()) } else { Err(Error::NodesBehind(behind)) }
}

/// How many records are stored under the deciding secret, or an earlier one. An unreadable record may be one.
async fn records_left(store: Bounded<'_>, state: &State) -> Result<u64, Error> {
    let (filter, mut after, mut left) = (Filter::default(), None, 0);
    loop {
        let Page { items, next, .. } = store.page(&filter, after.as_ref(), PAGE).await?;
        let is_left = |generation| generation <= state.generation;
        left += items
            .iter()
            .filter(|item| item.record().is_none_or(|record| is_left(record.generation())))
            .count() as u64;
        match next {
            Some(_) => after = next,
            None => return Ok(left),
        }
    }
}

/// How many moved markers there are, without the entries by which nodes try whether the store accepts writes.
async fn markers(store: Bounded<'_>) -> Result<u64, Error> {
    let count = store.count(Count::Markers, u32::MAX.into()).await?.count;
    if count == 0 || count > u64::from(probe_entry::COUNT) {
        return Ok(count);
    }
    let Page { items, .. } = store.markers(None, PAGE).await?;
    Ok(items.iter().filter(|item| !probe_entry::is_entry(item.id)).count() as u64)
}

async fn remove_markers(store: Bounded<'_>) -> Result<(), Error> {
    let (mut after, mut lost) = (None, 0);
    loop {
        let Page { items, next, .. } = store.markers(after.as_ref(), PAGE).await?;
        for item in items {
            match store.remove_marker(item.id).await {
                // Refused: already removed. Lost: the next pass finds it, or not.
                Ok(Written::Done { .. } | Written::Refused(_)) => lost = 0,
                Err(error) if error.is_ambiguous() && lost < LOST_MAX => lost += 1,
                Err(error) => return Err(error.into()),
            }
        }
        match next {
            Some(_) => after = next,
            None => return Ok(()),
        }
    }
}
