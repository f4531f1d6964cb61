//! The real machine, or the real machine with one bug.
//!
//! Without a bug, every function here is the one in `semel_core::machine`: the model explores the production code. A
//! transition that its own check refuses stops the exploration, because no legal one may break a rule.

use crate::bug::Bug;
use crate::tamper::{
    as_if_dead, as_if_remembered_for_ever, decided_of, remembered_longer, tampered, under, with_policy_of,
    without_doubt,
};
use semel_core::classify::{Answer, Ending, Rules};
use semel_core::machine::{
    self, Command, Decision, Due, Erasure, Expect, Found, LocalEnding, NewAttempt, Refusal, Reply, Route,
    Stage, Stamp, Unchanged, Verdict, Write, WriteResult,
};
use semel_core::outcome::{Outcome, Status};
use semel_core::policy::{Class, Policy, PolicySettings};
use semel_core::record::{Record, State, Token};
use semel_core::time::{Now, Trust};
use std::sync::Arc;
use std::time::Duration;

/// The protocol under test.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Protocol {
    /// Its bug; `None` for the real machine.
    pub(crate) bug: Option<Bug>,
}

impl Protocol {
    pub(crate) fn has(self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    /// The current time as a node sees it.
    pub(crate) fn present(self, now: Now) -> Now {
        match self.bug {
            Some(Bug::TrustIgnored) => Now { trust: Trust::Trusted, ..now },
            Some(Bug::GapForgotten) => Now { steady_since: None, ..now },
            Some(Bug::OldDatesBelieved) => Now { replaced_up_to: None, ..now },
            Some(Bug::ReplacedTimeForgotten) => Now { replaced_at: None, ..now },
            _ => now,
        }
    }

    /// How long ago an owner believes it dated its last stored write.
    pub(crate) fn held_for(self, really: Duration) -> Duration {
        if self.has(Bug::LeaseHeldByItsDate) { Duration::ZERO } else { really }
    }

    /// Whether the store applies a write.
    pub(crate) fn met(self, expect: &Expect, found: Found<'_>) -> bool {
        match (self.bug, expect, found) {
            (
                Some(Bug::TokenLeftOutOfSwap),
                Expect::Unchanged(Unchanged { version, state, .. }),
                Found::Record(record),
            ) => record.version() == *version && record.state_name() == *state,
            (
                Some(Bug::VersionLeftOutOfSwap),
                Expect::Unchanged(Unchanged { token, state, .. }),
                Found::Record(record),
            ) => record.token() == *token && record.state_name() == *state,
            (
                Some(Bug::StateLeftOutOfSwap),
                Expect::Unchanged(Unchanged { version, token, .. }),
                Found::Record(record),
            ) => record.version() == *version && record.token() == *token,
            (Some(Bug::UnreadableAsAbsent), Expect::Absent, Found::Unreadable) => true,
            _ => expect.met_by(found),
        }
    }

    /// The current time as the end of a record's retention is judged by it.
    fn judging(self, record: &Record, now: Now) -> Now {
        match (self.bug, record.state()) {
            (Some(Bug::ReplacedTombstoneForgotten), State::Expired { .. }) => {
                Now { replaced_at: None, ..now }
            }
            _ => now,
        }
    }

    pub(crate) fn decide<'a>(
        self,
        found: Found<'a>,
        command: &Command<'_>,
        new_attempt: NewAttempt,
        stamp: Stamp<'_>,
    ) -> Decision<'a> {
        let stamp = match found {
            Found::Record(record) => Stamp { now: self.judging(record, stamp.now), ..stamp },
            _ => stamp,
        };
        let real = || machine::decide(found, command, new_attempt, stamp);
        match (self.bug, found) {
            (Some(Bug::UnreadableAsAbsent), Found::Unreadable) => {
                machine::decide(Found::Nothing, command, new_attempt, stamp)
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
                as_if_remembered_for_ever(record, command, new_attempt, stamp).unwrap_or_else(real)
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
            (Some(Bug::LeaseDeadWithoutSkew), Found::Record(record)) => {
                let hasty = under(record, |policy| policy.skew = Duration::ZERO);
                decided_of(&hasty, record, command, new_attempt, stamp).unwrap_or_else(real)
            }
            (Some(Bug::WindowWithoutSkew), Found::Record(record)) => {
                decided_of(&remembered_longer(record), record, command, new_attempt, stamp)
                    .unwrap_or_else(real)
            }
            (Some(Bug::SelectionKeptOnRelease), Found::Record(record)) => match record.state() {
                State::FailedNotReplayable { bound: false, .. } => tampered(real(), |next| {
                    let selection = record.policy().selection.clone();
                    let settings = PolicySettings { selection, ..Policy::clone(next.policy()).into() };
                    next.set_policy(Arc::new(Policy::as_stored(settings)));
                }),
                _ => real(),
            },
            (None, Found::Record(record)) => {
                let decision = real();
                let refused = decision == Decision::Answer(Reply::Unreadable);
                assert!(!refused, "the machine refuses its own decision about {record:?}");
                decision
            }
            _ => real(),
        }
    }

    pub(crate) fn start(self, record: &Record, token: Token, stamp: Stamp<'_>) -> Result<Write, Refusal> {
        let write = self.sound(machine::start(record, token, stamp));
        if self.has(Bug::DoubtForgottenOnStart) { write.map(without_doubt) } else { write }
    }

    pub(crate) fn renew(self, record: &Record, token: Token, now: Now) -> Result<Write, Refusal> {
        match self.bug {
            Some(Bug::DoubtForgottenOnRenewal) => machine::renew(record, token, now).map(without_doubt),
            Some(Bug::RenewalShortensLease) => {
                let hasty = under(record, |policy| policy.skew = Duration::ZERO);
                machine::renew(&hasty, token, now).map(|write| with_policy_of(record, write))
            }
            _ => self.sound(machine::renew(record, token, now)),
        }
    }

    pub(crate) fn may_send(self, record: &Record, token: Token, now: Now, held_for: Duration) -> bool {
        match self.bug {
            Some(Bug::EffectBeforeStart) => matches!(record.state(), State::Claimed { .. }),
            Some(Bug::LeaseNotCheckedBeforeSending) => matches!(record.state(), State::Processing { .. }),
            // Sends whatever it holds, while the lease is valid.
            Some(Bug::DedupWindowIgnored) => {
                matches!(record.state(), State::Processing { lease_until } if now.at < *lease_until)
            }
            Some(Bug::SentWithinSkew) => {
                let mut longer = record.clone();
                if let State::Processing { lease_until } = *record.state() {
                    longer.set_state(State::Processing { lease_until: lease_until + record.policy().skew });
                }
                machine::may_send(&longer, token, now, held_for)
            }
            Some(Bug::WindowWithoutSkew) => {
                machine::may_send(&remembered_longer(record), token, now, held_for)
            }
            _ => machine::may_send(record, token, now, held_for),
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
            (Some(Bug::EffectBeforeStart | Bug::OutcomeWithoutStart), State::Claimed { lease_until }) => {
                let mut started = record.clone();
                started.set_state(State::Processing { lease_until: *lease_until });
                let write = machine::finish(&started, token, ending, stamp)?;
                Ok(Write { expect: Expect::unchanged(record), ..write })
            }
            _ => self.sound(machine::finish(record, token, ending, stamp)),
        }
    }

    pub(crate) fn commit_local(
        self,
        claim: &Write,
        ending: LocalEnding,
        stamp: Stamp<'_>,
    ) -> Result<Write, Refusal> {
        self.sound(machine::commit_local(claim, ending, stamp))
    }

    pub(crate) fn was_applied(self, write: &Write, reread: Found<'_>) -> bool {
        match (self.bug, reread) {
            (Some(Bug::OwnFinishRecognisedByTokenAlone), Found::Record(record)) => {
                record.token() == write.next.token() && record.is_terminal()
            }
            _ => machine::was_applied(write, reread),
        }
    }

    pub(crate) fn applied_claim<'a>(self, claim: &'a Write, reread: Found<'a>) -> Option<&'a Record> {
        match self.bug {
            Some(Bug::FailOpenOnLostClaim) => Some(&claim.next),
            _ => machine::applied_claim(claim, reread),
        }
    }

    pub(crate) fn local_write_result(self, write: &Write, reread: Found<'_>, now: Now) -> WriteResult {
        match (self.bug, machine::local_write_result(write, reread, now)) {
            (Some(Bug::DoubtSettledByContent), WriteResult::Applied)
                if !machine::was_applied(write, reread) =>
            {
                WriteResult::NotApplied
            }
            (Some(Bug::DoubtSettledAfterRetention), WriteResult::Unclear) => WriteResult::NotApplied,
            (_, write_result) => write_result,
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

    pub(crate) fn due(self, record: &Record, now: Now) -> Due {
        match (self.bug, record.state()) {
            (Some(Bug::LeaseAsTtl), State::Processing { lease_until }) if now.at >= *lease_until => {
                Due::Purge
            }
            (
                Some(Bug::LeaseDeadWithoutSkew),
                State::Claimed { lease_until } | State::Processing { lease_until },
            ) if now.at >= *lease_until => Due::Lapsed,
            (Some(Bug::UnknownPurged), State::Unknown { since, .. })
                if now.at >= *since + record.policy().ttl =>
            {
                Due::Purge
            }
            (
                Some(Bug::OutcomeForgottenWithoutTombstone),
                State::Succeeded { expires_at, .. } | State::FailedReplayable { expires_at, .. },
            ) if now.at >= *expires_at => Due::Purge,
            _ => machine::due(record, self.judging(record, now)),
        }
    }

    /// Whether the sweeper removes the record: called only if [`due`](Self::due) says so.
    pub(crate) fn purge(self, record: &Record, now: Now) -> Result<Unchanged, Refusal> {
        match self.bug {
            Some(Bug::LeaseAsTtl | Bug::UnknownPurged | Bug::OutcomeForgottenWithoutTombstone) => {
                Ok(Unchanged::of(record))
            }
            _ => machine::purge(record, self.judging(record, now)),
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
            (Some(Bug::QuietWithoutSkew | Bug::QuietWithoutDeadline), _) => {
                self.settle(machine::reconcile, record, verdict, stamp)
            }
            _ => self.sound(machine::reconcile(record, verdict, stamp)),
        }
    }

    /// With a quiet period that is too short, if that makes a difference.
    fn settle(
        self,
        by: fn(&Record, Verdict, Stamp<'_>) -> Result<Write, Refusal>,
        record: &Record,
        verdict: Verdict,
        stamp: Stamp<'_>,
    ) -> Result<Write, Refusal> {
        match by(record, verdict.clone(), stamp) {
            Err(Refusal::QuietUntil(_)) => {
                let hasty = under(record, |policy| match self.bug {
                    Some(Bug::QuietWithoutSkew) => policy.skew = Duration::ZERO,
                    _ => policy.work_deadline = Duration::ZERO,
                });
                by(&hasty, verdict, stamp).map(|write| with_policy_of(record, write))
            }
            result => result,
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
            (Some(Bug::ResolvedWhileOwned), _) => {
                let result = machine::resolve(record, verdict.clone(), stamp);
                as_if_dead(record, result, |dead| machine::resolve(dead, verdict, stamp))
            }
            (Some(Bug::QuietWithoutSkew | Bug::QuietWithoutDeadline), _) => {
                self.settle(machine::resolve, record, verdict, stamp)
            }
            _ => self.sound(machine::resolve(record, verdict, stamp)),
        }
    }

    pub(crate) fn release(self, record: &Record, stamp: Stamp<'_>) -> Result<Write, Refusal> {
        let result = self.sound(machine::release(record, stamp));
        if self.has(Bug::ReleasedWhileOwned) {
            return as_if_dead(record, result, |dead| machine::release(dead, stamp));
        }
        result
    }

    pub(crate) fn erase(self, record: &Record, erasure: Erasure, stamp: Stamp<'_>) -> Result<Write, Refusal> {
        let stamp = match self.bug {
            Some(Bug::ErasedByOldDates) => Stamp { now: Now { replaced_at: None, ..stamp.now }, ..stamp },
            _ => stamp,
        };
        let result = self.sound(machine::erase(record, erasure, stamp));
        match (self.bug, result) {
            (Some(Bug::ErasedTombstoneShortened), Ok(mut write)) if erasure == Erasure::Record => {
                write.next.set_state(State::Expired { until: stamp.now.at });
                Ok(write)
            }
            (Some(Bug::ErasedUnsettled), Err(Refusal::WrongState)) => {
                let mut settled = record.clone();
                let (outcome, ttl) = (Outcome::not_retained(Status::Http(0)), record.policy().ttl);
                settled.set_state(State::FailedReplayable { outcome, expires_at: stamp.now.at + ttl });
                let write = machine::erase(&settled, erasure, stamp)?;
                Ok(Write { expect: Expect::unchanged(record), ..write })
            }
            (_, result) => result,
        }
    }

    pub(crate) fn lapse(self, record: &Record, stamp: Stamp<'_>) -> Result<Write, Refusal> {
        let result = self.sound(machine::lapse(record, stamp));
        if self.has(Bug::LeaseDeadWithoutSkew) {
            return as_if_dead(record, result, |dead| machine::lapse(dead, stamp));
        }
        result
    }

    pub(crate) fn expire(self, record: &Record, stamp: Stamp<'_>) -> Result<Write, Refusal> {
        self.sound(machine::expire(record, stamp))
    }

    pub(crate) fn extend(self, record: &Record, stamp: Stamp<'_>) -> Result<Write, Refusal> {
        let mut write = self.sound(machine::extend(record, stamp))?;
        if self.has(Bug::TombstoneExtendedBackwards) {
            write.next.set_state(State::Expired { until: stamp.now.at });
        }
        Ok(write)
    }

    /// No legal transition breaks a rule of every write.
    fn sound(self, result: Result<Write, Refusal>) -> Result<Write, Refusal> {
        let refused = matches!(result, Err(Refusal::Inconsistent(_)));
        assert!(!(refused && self.bug.is_none()), "the machine refuses its own transition: {result:?}");
        result
    }

    pub(crate) fn route(self, stage: Stage, under_old: Found<'_>) -> Route {
        match (self.bug, stage, under_old) {
            (Some(Bug::LookUnderBothOnSecretChange), Stage::Moving, Found::Nothing)
            | (Some(Bug::UnreadablePassedBy), Stage::Moving, Found::Unreadable) => Route::New,
            _ => machine::route(stage, under_old),
        }
    }
}
