//! The real machine, or the real machine with one bug put into its mouth.
//!
//! Without a bug every function here is the one of `semel_core::machine` and nothing else: the model explores
//! the code that runs.

use crate::bug::Bug;
use semel_core::classify::{Answer, Ending, Rules};
use semel_core::machine::{
    self, Command, Decision, Due, Expect, Found, Refusal, Reply, Route, Stage, Stamp, Ticket, Verdict, Write,
};
use semel_core::outcome::{Outcome, Status};
use semel_core::policy::{Class, Policy};
use semel_core::record::{Record, State, Token};
use semel_core::time::Time;
use std::sync::Arc;
use std::time::Duration;

/// The protocol under test.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Protocol {
    /// The bug that it has; `None`: it is the real one.
    pub(crate) bug: Option<Bug>,
}

impl Protocol {
    pub(crate) fn has(self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    /// Whether the store applies a write.
    pub(crate) fn met(self, expect: &Expect, found: Found<'_>) -> bool {
        match (self.bug, expect, found) {
            (
                Some(Bug::TokenLeftOutOfSwap),
                Expect::Unchanged { version, state, .. },
                Found::Record(record),
            ) => record.version() == *version && record.state_name() == *state,
            (
                Some(Bug::VersionLeftOutOfSwap),
                Expect::Unchanged { token, state, .. },
                Found::Record(record),
            ) => record.token() == *token && record.state_name() == *state,
            (
                Some(Bug::StateLeftOutOfSwap),
                Expect::Unchanged { version, token, .. },
                Found::Record(record),
            ) => record.version() == *version && record.token() == *token,
            (Some(Bug::UnreadableAsAbsent), Expect::Absent, Found::Unreadable) => true,
            _ => expect.met_by(found),
        }
    }

    pub(crate) fn decide<'a>(
        self,
        found: Found<'a>,
        command: &Command<'_>,
        ticket: Ticket,
        stamp: Stamp<'_>,
    ) -> Decision<'a> {
        let real = || machine::decide(found, command, ticket, stamp);
        match (self.bug, found) {
            (Some(Bug::UnreadableAsAbsent), Found::Unreadable) => {
                machine::decide(Found::Nothing, command, ticket, stamp)
            }
            (Some(Bug::MismatchAfterInProgress), Found::Record(record)) => match record.state() {
                State::Claimed { lease_until } | State::Processing { lease_until }
                    if stamp.now.at < *lease_until =>
                {
                    Decision::Answer(Reply::InProgress)
                }
                _ => real(),
            },
            (Some(Bug::FingerprintSkippedOnReplay), Found::Record(record)) => match record.state() {
                State::Succeeded { outcome, expires_at } if stamp.now.at < *expires_at => {
                    Decision::Answer(Reply::Replay(outcome))
                }
                _ => real(),
            },
            (Some(Bug::TakeOverOfExternalProcessing | Bug::DedupWindowIgnored), Found::Record(record)) => {
                as_if_remembered_for_ever(record, command, ticket, stamp).unwrap_or_else(real)
            }
            (Some(Bug::RefusalNeverTriedAgain), Found::Record(record)) => match record.state() {
                State::FailedNotReplayable { expires_at, .. } if stamp.now.at < *expires_at => {
                    Decision::Answer(Reply::InProgress)
                }
                _ => real(),
            },
            (Some(Bug::FenceRestartsAfterPurge), Found::Nothing) => {
                tampered(real(), |next| next.set_fence(1))
            }
            (Some(Bug::EarlierDoubtForgotten), _) => tampered(real(), |next| next.set_earlier_doubt(false)),
            _ => real(),
        }
    }

    pub(crate) fn may_send(self, record: &Record, token: Token, now: Time) -> bool {
        match self.bug {
            Some(Bug::EffectBeforeStart) => matches!(record.state(), State::Claimed { .. }),
            Some(Bug::LeaseNotCheckedBeforeSending) => matches!(record.state(), State::Processing { .. }),
            // Sends whatever it has in hand, as long as the lease holds.
            Some(Bug::DedupWindowIgnored) => {
                matches!(record.state(), State::Processing { lease_until } if now < *lease_until)
            }
            _ => machine::may_send(record, token, now),
        }
    }

    pub(crate) fn finish(
        self,
        record: &Record,
        token: Token,
        ending: Ending,
        stamp: Stamp<'_>,
    ) -> Result<Write, Refusal> {
        match (self.bug, record.state()) {
            (Some(Bug::OwnerRefusedOnItsOwnUnknown), State::Unknown { .. }) => Err(Refusal::Settled),
            (Some(Bug::OwnerAllowedOverSuccessor), _) => {
                machine::finish(record, record.token(), ending, stamp)
            }
            (Some(Bug::FinishOverFinal), State::Succeeded { .. } | State::FailedReplayable { .. }) => {
                let mut open = record.clone();
                open.set_state(State::Processing { lease_until: stamp.now.at });
                let write = machine::finish(&open, token, ending, stamp)?;
                Ok(Write { expect: Expect::unchanged(record), ..write })
            }
            (Some(Bug::EffectBeforeStart), State::Claimed { lease_until }) => {
                let mut started = record.clone();
                started.set_state(State::Processing { lease_until: *lease_until });
                let write = machine::finish(&started, token, ending, stamp)?;
                Ok(Write { expect: Expect::unchanged(record), ..write })
            }
            _ => machine::finish(record, token, ending, stamp),
        }
    }

    pub(crate) fn landed(self, write: &Write, reread: Found<'_>) -> bool {
        match (self.bug, reread) {
            (Some(Bug::OwnFinishRecognisedByTokenAlone), Found::Record(record)) => {
                record.token() == write.next.token() && record.is_terminal()
            }
            _ => machine::landed(write, reread),
        }
    }

    pub(crate) fn claim_landed<'a>(self, claim: &'a Write, reread: Found<'a>) -> Option<&'a Record> {
        match self.bug {
            Some(Bug::FailOpenOnLostClaim) => Some(&claim.next),
            _ => machine::claim_landed(claim, reread),
        }
    }

    pub(crate) fn ending(self, class: Class, status: u16, outcome: Outcome) -> Ending {
        let answer = Answer::new(Status::Http(status));
        match (self.bug, status) {
            (Some(Bug::ReleaseOn5xx), 500) => Ending::NotApplied(None),
            (Some(Bug::SuccessTakenForDoubt), 200) => Ending::InDoubt,
            (Some(Bug::StillRunningStoredAsOutcome), 409) => Ending::FailedReplayable(outcome),
            _ => Ending::of(class, &answer, &Rules::default(), outcome),
        }
    }

    pub(crate) fn due(self, record: &Record, now: Time) -> Due {
        match (self.bug, record.state()) {
            (Some(Bug::LeaseAsTtl), State::Processing { lease_until }) if now >= *lease_until => Due::Purge,
            (Some(Bug::UnknownPurged), State::Unknown { since, .. })
                if now >= *since + record.policy().ttl =>
            {
                Due::Purge
            }
            (
                Some(Bug::OutcomeForgottenWithoutTombstone),
                State::Succeeded { expires_at, .. } | State::FailedReplayable { expires_at, .. },
            ) if now >= *expires_at => Due::Purge,
            _ => machine::due(record, now),
        }
    }

    /// Whether the sweeper removes the record: asked only where [`due`](Self::due) says so.
    pub(crate) fn purge(self, record: &Record, now: Time) -> Result<Expect, Refusal> {
        match self.bug {
            Some(Bug::LeaseAsTtl | Bug::UnknownPurged | Bug::OutcomeForgottenWithoutTombstone) => {
                Ok(Expect::unchanged(record))
            }
            _ => machine::purge(record, now),
        }
    }

    pub(crate) fn reconcile(
        self,
        record: &Record,
        verdict: Verdict,
        stamp: Stamp<'_>,
    ) -> Result<Write, Refusal> {
        match (self.bug, &verdict) {
            (Some(Bug::VerdictsNeverCount), _) => Err(Refusal::WrongState),
            (Some(Bug::NotFoundAsProof), Verdict::NotApplied { .. }) => {
                machine::reconcile(record, Verdict::Refused, stamp)
            }
            (Some(Bug::NotFoundJudgedWhenAnswered), Verdict::NotApplied { .. }) => {
                machine::reconcile(record, Verdict::NotApplied { asked_at: stamp.now.at }, stamp)
            }
            _ => machine::reconcile(record, verdict, stamp),
        }
    }

    pub(crate) fn resolve(
        self,
        record: &Record,
        verdict: Verdict,
        stamp: Stamp<'_>,
    ) -> Result<Write, Refusal> {
        match (self.bug, &verdict) {
            (Some(Bug::OperatorNeedNotWait), Verdict::NotApplied { .. }) => {
                machine::resolve(record, Verdict::Refused, stamp)
            }
            _ => machine::resolve(record, verdict, stamp),
        }
    }

    pub(crate) fn route(self, stage: Stage, under_old: Found<'_>) -> Route {
        match (self.bug, stage, under_old) {
            (Some(Bug::LookUnderBothOnSecretChange), Stage::Moving, Found::Nothing) => Route::New,
            _ => machine::route(stage, under_old),
        }
    }
}

/// What would be decided if the provider deduplicated and never forgot.
fn as_if_remembered_for_ever<'a>(
    record: &Record,
    command: &Command<'_>,
    ticket: Ticket,
    stamp: Stamp<'_>,
) -> Option<Decision<'a>> {
    let real = Arc::clone(record.policy());
    let mut other = record.clone();
    let class = Class::Downstream;
    other.set_policy(Arc::new(Policy { class, dedup_window: Duration::from_hours(1), ..(*real).clone() }));
    match machine::decide(Found::Record(&other), command, ticket, stamp) {
        Decision::Run(mut write) => {
            write.next.set_policy(real);
            Some(Decision::Run(write))
        }
        _ => None,
    }
}

fn tampered(decision: Decision<'_>, tamper: impl FnOnce(&mut Record)) -> Decision<'_> {
    match decision {
        Decision::Run(mut write) => {
            tamper(&mut write.next);
            Decision::Run(write)
        }
        other => other,
    }
}
