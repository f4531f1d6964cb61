//! Under which secret's ID to look for and claim a command.

use super::{Commands, Error, View};
use crate::runtime::clock::Clock;
use semel_core::id::CommandId;
use semel_core::machine::{Command, Expect, Route, Stage, purge, route};
use semel_core::store::{self, Change, Kind, Reading, Store, Written};
use semel_core::time::Now;
use std::time::Duration;

/// How often the entry under the old ID may change before we give up.
const TRIES: u32 = 16;

/// Where to look for and claim a command.
pub struct Located<'c, 'a> {
    /// The command with the right ID.
    pub command: &'c Command<'a>,
    /// The entry under that ID, if it had to be read.
    pub reading: Option<Reading>,
    may_insert: bool,
}

impl Located<'_, '_> {
    /// Whether a write with this condition may be stored here. When commands move to the new secret, nothing new is
    /// inserted under an old ID, not even in the place of a removed record: [`locate`] again instead.
    pub fn permits(&self, expect: &Expect) -> bool {
        self.may_insert || *expect != Expect::Absent
    }
}

/// Replaces the time in an answer to a call at this uptime by the node's trusted time.
pub type TimeCorrection<'a> = dyn Fn(&mut Reading, Duration) -> Now + Sync + 'a;

/// Finds out under which secret's ID to look for and claim a command. Needs the store only during a rotation.
///
/// Decide from [`Located::reading`] if there is one. Take a fresh view and call again if a write is not
/// [permitted](Located::permits), if it is refused and there is no entry any more, or if the decision is to follow a
/// marker. (If the view does not know the marker, the node is behind, as with [`Error::Stale`].)
pub async fn locate<'c, 'a>(
    store: &dyn Store,
    view: &View,
    clock: &dyn Clock,
    dating: &TimeCorrection<'_>,
    commands: &'c Commands<'a>,
) -> Result<Located<'c, 'a>, Error> {
    let (Some(outgoing), Some(old)) = (&view.outgoing, &commands.old) else {
        return Ok(Located { command: &commands.current, reading: None, may_insert: true });
    };
    let may_insert = outgoing.stage == Stage::Announced;
    let moved = Located { command: &commands.current, reading: None, may_insert: true };
    for _ in 0..TRIES {
        let asked = clock.uptime();
        let mut reading = store.get(old.id).await?;
        let now = dating(&mut reading, asked);
        match route(outgoing.stage, reading.found()) {
            // The record's retention is over: remove it, so that the key moves too and is not reused under the old
            // ID.
            Route::Old if !may_insert && is_gone(&reading, now) => {
                view.check(clock.uptime())?;
                remove_expired(store, old.id, &reading, now).await?;
                continue;
            }
            Route::Old => return Ok(Located { command: old, reading: Some(reading), may_insert }),
            Route::New => return Ok(moved),
            Route::PlantMarker => {}
        }
        view.check(clock.uptime())?;
        match store.write(old.id, Change::InsertMarker).await {
            Ok(Written::Done { .. }) => return Ok(moved),
            // Somebody was faster: read again.
            Ok(Written::Refused(_)) => {}
            // Read again. It does not matter who inserted the marker.
            Err(error) if error.is_ambiguous() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(store::Error::new(Kind::Unavailable, "finding out under which secret a command is stored").into())
}

fn is_gone(reading: &Reading, now: Now) -> bool {
    reading.record().is_some_and(|record| purge(record, now).is_ok())
}

/// Removes a record whose retention is over. The next read shows the result.
async fn remove_expired(store: &dyn Store, id: CommandId, reading: &Reading, now: Now) -> Result<(), Error> {
    let Some(Ok(expect)) = reading.record().map(|record| purge(record, now)) else { return Ok(()) };
    match store.write(id, Change::Remove(expect)).await {
        Err(error) if !error.is_ambiguous() => Err(error.into()),
        _ => Ok(()),
    }
}
