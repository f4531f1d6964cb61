//! The settings of both stores: which are copied, and the gate of the target.
//!
//! | setting | |
//! |---|---|
//! | the state of the hashing secret | copied unchanged, and last: nodes can start on a store that has it |
//! | registrations of nodes | not copied: they belong to the source |
//! | the store's ID | not copied: two stores would look like one |
//! | the last time of the nodes | copied, so that a target whose clock is behind is detected; without the uptime of the machine that wrote it |
//! | everything else | copied unchanged |

use super::Error;
use crate::node::store_id::StoreId;
use crate::secrets::{self, Copying, Registered};
use crate::time;
use bytes::Bytes;
use semel_core::id::CommandId;
use semel_core::store::{self, Count, Setting, Store};
use std::collections::BTreeMap;

/// How often a setting is retried after a lost answer.
const TRIES: u32 = 8;

/// All settings of a store, from one read.
#[derive(PartialEq, Eq)]
pub(super) struct Settings(BTreeMap<String, Bytes>);

impl Settings {
    pub(super) async fn read(store: &dyn Store) -> Result<Self, store::Error> {
        Ok(Self(store.settings().await?.into_iter().collect()))
    }

    fn secret(&self) -> Option<&Bytes> {
        self.0.get(secrets::STATE)
    }

    /// Rejects a source without a usable hashing secret.
    pub(super) fn check_source(&self) -> Result<(), Error> {
        self.identity().map(drop)
    }

    /// The nodes that have not left.
    pub(super) fn nodes(&self) -> Vec<Registered> {
        self.0.iter().filter_map(|(name, value)| secrets::registered(name, value)).collect()
    }

    /// The nodes whose registrations differ from `before`; if none differs, what else has changed.
    pub(super) fn names_changed_since(&self, before: &Self) -> Vec<String> {
        let changed = self.0.iter().filter(|(name, value)| before.0.get(*name) != Some(*value));
        let names: Vec<_> = changed.filter_map(|(name, value)| secrets::registered(name, value)).collect();
        if names.is_empty() {
            return vec!["a gateway that just stopped or wrote the time".to_owned()];
        }
        names.into_iter().map(|node| node.name).collect()
    }

    /// Identifies this state of the source. Nodes that use the source change it, because they write their time.
    fn identity(&self) -> Result<String, Error> {
        let secret = secrets::state_id(self.secret().ok_or(Error::NothingToCopy)?).map_err(Error::Secret)?;
        let time = self.0.get(time::MARK).map(|mark| String::from_utf8_lossy(mark)).unwrap_or_default();
        Ok(format!("{secret} {time}"))
    }
}

/// Writes the note that keeps nodes away from the target, and returns it. Rejects a target that is not empty, unless
/// it has the same note. The note of another copy is replaced if nothing was copied yet.
pub(super) async fn close_gate(target: &dyn Store, source: &Settings) -> Result<Vec<u8>, Error> {
    let gate = Copying { source: source.identity()? }.encode();
    let there = Settings::read(target).await.map_err(Error::Target)?;
    let earlier = there.secret();
    if earlier.is_some_and(|earlier| **earlier == *gate) {
        return Ok(gate);
    }
    let refusal = match earlier {
        Some(earlier) if Copying::decode(earlier).is_some() => Error::OtherCopy,
        Some(_) => return Err(Error::TargetUsed),
        None => Error::TargetUsed,
    };
    let count = async |what| target.count(what, 1).await.map(|counted| counted.count).map_err(Error::Target);
    let has_others = there.0.keys().any(|name| name != secrets::STATE);
    if has_others || count(Count::Records).await? > 0 || count(Count::Markers).await? > 0 {
        return Err(refusal);
    }
    match set(target, secrets::STATE, earlier.map(|earlier| &earlier[..]), &gate).await? {
        Setting::Done => Ok(gate),
        Setting::Refused(_) => Err(Error::TargetUsed),
    }
}

/// Copies the settings, the secret last. From then on, nodes can use the target. Returns the names of the copied
/// settings.
pub(super) async fn open_gate(
    target: &dyn Store,
    source: &Settings,
    gate: &[u8],
) -> Result<Vec<String>, Error> {
    let there = Settings::read(target).await.map_err(Error::Target)?;
    let now = target.get(CommandId::from_bytes([0; 32])).await.map_err(Error::Target)?.now;
    let mut copied = Vec::new();
    for (name, value) in &source.0 {
        if name == secrets::STATE || name == StoreId::SETTING || secrets::registered(name, value).is_some() {
            continue;
        }
        let value = if name == time::MARK { time::carried_over(value, now) } else { value.to_vec() };
        let stored = there.0.get(name).map(|value| &value[..]);
        match set(target, name, stored, &value).await? {
            Setting::Done => copied.push(name.clone()),
            Setting::Refused(_) => return Err(Error::TargetUsed),
        }
    }
    let secret = source.secret().ok_or(Error::NothingToCopy)?;
    match set(target, secrets::STATE, Some(gate), secret).await? {
        Setting::Done => copied.push(secrets::STATE.to_owned()),
        Setting::Refused(_) => return Err(Error::TargetUsed),
    }
    Ok(copied)
}

/// Writes a setting, and retries after a lost answer.
async fn set(target: &dyn Store, name: &str, expect: Option<&[u8]>, next: &[u8]) -> Result<Setting, Error> {
    let mut tries = TRIES;
    loop {
        tries -= 1;
        match target.set(name, expect, Some(next)).await {
            // Already written by this call, whose answer was lost, or by another copy of the same source.
            Ok(Setting::Refused(Some(stored))) if *stored == *next => return Ok(Setting::Done),
            Err(error) if error.is_ambiguous() && tries > 0 => {}
            set => return set.map_err(Error::Target),
        }
    }
}
