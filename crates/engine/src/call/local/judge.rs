//! What a local command does, given what is in the database.

use super::{Local, LocalCommand};
use crate::call::admission;
use crate::call::answer::{Error, ExecuteResponse};
use crate::call::reply::{self, Subject};
use crate::call::wait;
use crate::node::beat;
use crate::observe::Call;
use crate::quota::Permit;
use semel_core::id::{CommandId, OperationId};
use semel_core::machine::{
    self, Begin, Command, Decision, Expect, NewAttempt, Reply, Route, Stage, Unchanged, Write,
};
use semel_core::policy::Class;
use semel_core::store::{self, Kind, Reading};
use std::fmt;
use std::time::Duration;

/// What was read in the command's transaction, after trying its lock.
#[derive(Debug)]
pub struct LocalLook {
    /// Whether the transaction has the command's lock.
    pub has_lock: bool,
    /// The entry under [`LocalCommand::arbiter`].
    pub arbiter: Reading,
    /// The entry under [`LocalCommand::moved_to`], if there is such an ID.
    pub moved_to: Option<Reading>,
    /// The uptime of the read.
    pub asked: Duration,
}

/// What a local command has to do.
#[derive(Debug)]
pub enum LocalJudgement {
    /// Run the work in this transaction, and end it with [`LocalCommand::end`].
    Run(LocalAttempt),
    /// Roll back, and answer with this.
    Answered(ExecuteResponse),
    /// Roll back: somebody else runs it. Call [`LocalCommand::pause`], and read again.
    Wait,
    /// Roll back: the command has moved. Read again immediately.
    Again,
}

/// An attempt of a local command, in an open transaction. The store has nothing of it yet.
pub struct LocalAttempt {
    pub(super) id: CommandId,
    pub(super) claim: Box<Write>,
    pub(super) marker: Option<Marker>,
    pub(super) permit: Option<Permit>,
}

/// The marker that the transaction inserts under the old secret's ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Marker {
    /// Inserted where there is no entry.
    Planted(CommandId),
    /// Replaces a record whose retention is over.
    Over(CommandId, Unchanged),
}

impl LocalAttempt {
    /// The attempt for the work.
    pub fn local(&self) -> Local {
        let record = &self.claim.next;
        Local { operation_id: record.operation_id(), attempt: record.attempt(), fence: record.fence() }
    }

    /// The conditions that must hold in the database until the writes of its [end](LocalCommand::end).
    pub fn expects(&self) -> impl Iterator<Item = (CommandId, Expect)> + use<> {
        let marker = self.marker.map(|marker| match marker {
            Marker::Planted(id) => (id, Expect::Absent),
            Marker::Over(id, unchanged) => (id, Expect::Unchanged(unchanged)),
        });
        std::iter::once((self.id, self.claim.expect)).chain(marker)
    }

    /// How long its work may take.
    pub fn work_deadline(&self) -> Duration {
        self.claim.next.policy().work_deadline
    }

    pub(super) fn name(&self) -> (OperationId, &str) {
        (self.claim.next.operation_id(), self.claim.next.operation())
    }
}

impl fmt::Debug for LocalAttempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalAttempt").field("local", &self.local()).finish_non_exhaustive()
    }
}

impl LocalCommand {
    /// Reads through the store, for databases without locks, where only the last write decides.
    pub async fn look(&self) -> Result<LocalLook, Error> {
        let node = &self.node;
        let asked = node.clock.uptime();
        // Without adjusting the time: that happens when the reading is judged.
        let read = async |id| node.store.bounded(Call::Get, node.store.raw.get(id)).await;
        let (arbiter, moved_to) = self.ids();
        let arbiter = read(arbiter).await?;
        let moved_to = match moved_to {
            Some(id) => Some(read(id).await?),
            None => None,
        };
        Ok(LocalLook { has_lock: true, arbiter, moved_to, asked })
    }

    /// Decides what to do, given what was read.
    pub async fn judge(&mut self, look: LocalLook) -> Result<LocalJudgement, Error> {
        let LocalLook { has_lock, mut arbiter, moved_to, asked } = look;
        self.node.store.date(&mut arbiter.now, asked);
        beat::catch_up(&self.node.store).await?;
        let now = arbiter.now;
        let moved_to = moved_to.map_or_else(|| Reading::nothing(now), |reading| Reading { now, ..reading });
        let commands = self.recognised.commands();
        let (command, reading, marker) = match (&self.recognised.view.outgoing, &commands.old) {
            (Some(outgoing), Some(old)) => match machine::route(outgoing.stage, arbiter.found()) {
                Route::Old => match self.room_for_marker(outgoing.stage, &arbiter) {
                    Some(expect) => (&commands.current, moved_to, Some(Marker::Over(old.id, expect))),
                    None => (old, arbiter, None),
                },
                Route::New => (&commands.current, moved_to, None),
                Route::PlantMarker => (&commands.current, moved_to, Some(Marker::Planted(old.id))),
            },
            _ => (&commands.current, arbiter, None),
        };
        let new_attempt = NewAttempt { token: self.node.fresh_token(), begin: Begin::Processing };
        let mut stamp = self.node.stamp(reading.now, "");
        if let Some(who) = &self.recognised.intent.claimed_by {
            stamp.who = who;
        }
        let reply = match machine::decide(reading.found(), command, new_attempt, stamp) {
            Decision::Run(_) if !has_lock => return Ok(LocalJudgement::Wait),
            Decision::Run(claim) => {
                return self.attempt(command, claim, marker).await.map(LocalJudgement::Run);
            }
            Decision::Answer(Reply::InProgress) => return Ok(LocalJudgement::Wait),
            // Another attempt, of another class: the sweeper marks it.
            Decision::MarkUnknown(_) => Reply::Unknown,
            Decision::Answer(reply) => reply,
            // A marker that this view does not know: other nodes have moved on.
            Decision::Follow => {
                self.node.secrets.refresh_in_time().await?;
                self.refresh()?;
                return Ok(LocalJudgement::Again);
            }
        };
        if reading.entry.is_some() && self.node.store.raw.is_in_doubt(command.id) {
            // Its last commit got no answer, so what was read may still be lost. A read through the store confirms
            // it, if it shows the same: the store may have been failed over to a server that lacks it.
            let confirmed = self.node.store.get(command.id).await.map_err(Error::StoreLost)?;
            if confirmed.found() != reading.found() {
                let error = store::Error::new(Kind::Unavailable, "confirming a record of the transaction");
                let cause = "the store shows another one; its server may have been replaced, or the record has changed";
                return Err(Error::StoreLost(error.because(cause)));
            }
        }
        wait::show_end(Some(&self.running_entry), (command.id, asked), &reading, reply);
        if let Some(record) = reading.record().filter(|record| reply::is_kept(record)) {
            self.node.cache.keep(command.id, record, asked);
        }
        let subject = Subject::under(command.id, command);
        let answer = reply::answer(&self.node, &subject, reading.found(), reply);
        self.answered(&answer);
        Ok(LocalJudgement::Answered(answer))
    }

    /// The record that a marker may replace: its retention is over, and commands are moving to the new secret.
    fn room_for_marker(&self, stage: Stage, reading: &Reading) -> Option<Unchanged> {
        let record = reading.record().filter(|_| stage == Stage::Moving)?;
        machine::purge(record, self.node.clock.at(reading.now)).ok()
    }

    async fn attempt(
        &self,
        command: &Command<'_>,
        claim: Box<Write>,
        marker: Option<Marker>,
    ) -> Result<LocalAttempt, Error> {
        // The next attempt keeps its record's class, not the intent's.
        if claim.next.policy().class != Class::Local {
            return Err(Error::NotLocalRecord(claim.next.operation_id()));
        }
        let permit = match claim.expect {
            Expect::Unchanged(_) => None,
            Expect::Absent => {
                match admission::admit(&self.node.store, &self.node.quota, command, &self.recognised.intent)
                    .await
                {
                    Ok(permit) => Some(permit),
                    Err(error) => {
                        admission::report_refused(&self.node, command, &error);
                        return Err(error);
                    }
                }
            }
        };
        Ok(LocalAttempt { id: command.id, claim, marker, permit })
    }
}
