//! Under which secret's id a command is to be looked for and claimed.

use super::{Commands, Error, View};
use crate::clock::Clock;
use semel_core::id::CommandId;
use semel_core::machine::{Command, Expect, Route, Stage, purge, route};
use semel_core::store::{self, Change, Kind, Reading, Store, Written};
use semel_core::time::Now;
use std::time::Duration;

/// How often what is under the old id may change under our eyes before we give up.
const TRIES: u32 = 16;

/// Where a command is to be looked for and claimed.
pub struct Located<'c, 'a> {
    /// The command, under the id that counts.
    pub command: &'c Command<'a>,
    /// What is under that id, where it had to be read to find out.
    pub reading: Option<Reading>,
    may_insert: bool,
}

impl Located<'_, '_> {
    /// Whether a write that expects this may be stored for the command here. Once commands move to the new secret,
    /// nothing new is put under an old id, not even where a record stood a moment ago: [`locate`] again instead.
    pub fn permits(&self, expect: &Expect) -> bool {
        self.may_insert || *expect != Expect::Absent
    }
}

/// What a node makes of the time in an answer to a question that it put at this uptime. The time that it goes by is
/// put there instead.
pub type Dating<'a> = dyn Fn(&mut Reading, Duration) -> Now + Sync + 'a;

/// Finds out under which secret's id a command is to be looked for and claimed. Outside of a change of the secret that
/// is clear without asking the store.
///
/// Decide from [`Located::reading`] if there is one. If a write is not [permitted](Located::permits), where it is
/// refused and nothing is there any more, and where the decision is to follow a marker: take a fresh view and ask
/// again. (To follow a marker that the view knows nothing of: the node is behind, as with [`Error::Stale`].)
pub async fn locate<'c, 'a>(
    store: &dyn Store,
    view: &View,
    clock: &dyn Clock,
    dating: &Dating<'_>,
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
            // Past its time: let go of, so that the key moves too instead of being used again and again in the old
            // place.
            Route::Old if !may_insert && is_gone(&reading, now) => {
                view.check(clock.uptime())?;
                let_go(store, old.id, &reading, now).await?;
                continue;
            }
            Route::Old => return Ok(Located { command: old, reading: Some(reading), may_insert }),
            Route::New => return Ok(moved),
            Route::PlantMarker => {}
        }
        view.check(clock.uptime())?;
        match store.write(old.id, Change::InsertMarker).await {
            Ok(Written::Done { .. }) => return Ok(moved),
            // Somebody was faster; what is stored there now tells.
            Ok(Written::Refused(_)) => {}
            // Only reading again tells. One marker is as good as another.
            Err(error) if error.is_ambiguous() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(store::Error::new(Kind::Unavailable, "finding out under which secret a command is kept").into())
}

fn is_gone(reading: &Reading, now: Now) -> bool {
    reading.record().is_some_and(|record| purge(record, now).is_ok())
}

/// Removes a record that is as good as gone. Whatever comes of it, the next look tells.
async fn let_go(store: &dyn Store, id: CommandId, reading: &Reading, now: Now) -> Result<(), Error> {
    let Some(Ok(expect)) = reading.record().map(|record| purge(record, now)) else { return Ok(()) };
    match store.write(id, Change::Remove(expect)).await {
        Err(error) if !error.is_ambiguous() => Err(error.into()),
        _ => Ok(()),
    }
}
