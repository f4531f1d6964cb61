//! What must break: each seeded bug in a configuration that shows it, and each assumption switched off.

use crate::bug::Bug;
use crate::catalogue::{self, lossy_failover};
use crate::config::{Assumptions, Config, Provider};
use crate::invariant::Violation;
use semel_core::machine::Begin;
use semel_core::policy::Class;

const CLAIMED: &[Begin] = &[Begin::Claimed];

/// A careless operator removes a record while its effect is still in flight, and the fence has to stop the effect.
fn purged_early(assume: Assumptions) -> Config {
    Config {
        provider: Provider { checks_fence: true, ..Provider::default() },
        assume: Assumptions { effects_are_timely: false, verdicts_are_true: false, ..assume },
        answer_faults: 1,
        operator_acts: 1,
        reconciler: false,
        ttl: 1,
        tombstone: 1,
        ..Config::base("a record that is gone before its effect", Class::External)
    }
}

/// A configuration that shows a bug, and the promise that it breaks.
#[expect(clippy::too_many_lines, reason = "one arm for each bug")]
pub fn of(bug: Bug) -> (Config, Violation) {
    use Class::{Downstream, External};
    let external = |name| Config::base(name, External);
    let downstream = |name| Config::base(name, Downstream);
    match bug {
        Bug::TokenLeftOutOfSwap => {
            (lossy_failover(external("lossy fail-over")), Violation::StaleAttemptActed)
        }
        Bug::VersionLeftOutOfSwap => {
            (Config { renewals: 1, write_faults: 1, ..external("renewals") }, Violation::StaleAttemptActed)
        }
        Bug::StateLeftOutOfSwap => (
            lossy_failover(Config { crashes: 0, ..external("lossy fail-over") }),
            Violation::StaleAttemptActed,
        ),
        Bug::EffectOutsideTransaction => {
            (Config::base("transactions", Class::Local), Violation::NotExactlyOnce)
        }
        Bug::SuccessTakenForDoubt => (external("plain requests"), Violation::UnknownWithoutFault),
        Bug::VerdictsNeverCount => {
            (Config { answer_faults: 1, horizon: 2, ..external("lost answers") }, Violation::Wedged)
        }
        Bug::OperatorNeedNotWait => {
            (Config { operator_acts: 1, ..external("operators") }, Violation::OutcomeUntrue)
        }
        Bug::RefusalNeverTriedAgain => (
            Config {
                provider: Provider { declines: true, ..Provider::default() },
                ..external("a provider that does nothing")
            },
            Violation::WronglyAnswered,
        ),
        Bug::ReleaseOn5xx => {
            (Config { answer_faults: 1, ..external("lost answers") }, Violation::OutcomeUntrue)
        }
        Bug::LeaseAsTtl => (external("crashes"), Violation::SecondEffect),
        Bug::AnswerBeforeDurable => (external("crashes"), Violation::AcknowledgedOutcomeLost),
        Bug::NotFoundAsProof | Bug::NotFoundJudgedWhenAnswered => {
            (Config { answer_faults: 1, horizon: 6, ..external("late effects") }, Violation::OutcomeUntrue)
        }
        Bug::OwnerRefusedOnItsOwnUnknown => (external("slow owners"), Violation::OwnerShutOut),
        Bug::OwnerAllowedOverSuccessor => {
            (Config { horizon: 6, ..downstream("slow owners") }, Violation::StaleAttemptActed)
        }
        Bug::MismatchAfterInProgress | Bug::FingerprintSkippedOnReplay => {
            (Config { payloads: 2, ..external("two payloads") }, Violation::OtherPayloadAnswered)
        }
        Bug::TakeOverOfExternalProcessing => (external("slow owners"), Violation::SecondEffect),
        Bug::UnreadableAsAbsent => {
            (Config { damages: 1, ..external("unreadable records") }, Violation::UnreadableTouched)
        }
        Bug::LookUnderBothOnSecretChange => {
            (Config { rotation: true, ..external("change of secret") }, Violation::SecondEffect)
        }
        Bug::FenceRestartsAfterPurge => (purged_early(Assumptions::ALL), Violation::StaleAttemptActed),
        Bug::StillRunningStoredAsOutcome => (
            Config {
                answer_faults: 1,
                attempts_each: 2,
                provider: Provider { deduplicates: true, is_slow: true, ..Provider::default() },
                ..downstream("a slow provider")
            },
            Violation::OutcomeUntrue,
        ),
        Bug::EarlierDoubtForgotten => (
            Config {
                provider: Provider { deduplicates: true, declines: true, ..Provider::default() },
                answer_faults: 1,
                ..downstream("a provider that says nothing was done")
            },
            Violation::OutcomeUntrue,
        ),
        Bug::DedupWindowIgnored => (
            Config { window: 3, horizon: 6, crashes: 1, ..downstream("the end of the provider's memory") },
            Violation::SecondEffectDownstream,
        ),
        Bug::OwnFinishRecognisedByTokenAlone => (
            Config { write_faults: 1, operator_acts: 1, ..external("operators and lost finishes") },
            Violation::AcknowledgedOutcomeLost,
        ),
        Bug::TokenIsTheWorker => (
            Config {
                workers: 1,
                attempts_each: 2,
                write_faults: 1,
                ..downstream("a worker's second attempt")
            },
            Violation::OutcomeUntrue,
        ),
        Bug::UnknownPurged => (Config { horizon: 6, ..external("slow owners") }, Violation::SecondEffect),
        Bug::OutcomeForgottenWithoutTombstone => {
            (Config { horizon: 4, ..external("late retries") }, Violation::FinalOutcomeChanged)
        }
        Bug::EffectBeforeStart => {
            (Config { begin: CLAIMED, ..external("claimed first") }, Violation::OutcomeUntrue)
        }
        Bug::LeaseNotCheckedBeforeSending => {
            (Config { horizon: 6, ..external("paused owners") }, Violation::OutcomeUntrue)
        }
        Bug::FailOpenOnLostClaim => {
            (Config { write_faults: 1, ..external("lost claims") }, Violation::SecondEffect)
        }
        Bug::FinishOverFinal => (
            Config { horizon: 6, write_faults: 1, ..external("slow owners") },
            Violation::FinalOutcomeChanged,
        ),
        Bug::QuietWithoutSkew => (catalogue::owners_clock_goes_back(), Violation::OutcomeUntrue),
        Bug::QuietWithoutDeadline => (catalogue::slow_effects(), Violation::OutcomeUntrue),
        Bug::LeaseDeadWithoutSkew => (catalogue::clocks_disagree(), Violation::UnknownWithoutFault),
        Bug::SentWithinSkew => (catalogue::clocks_disagree(), Violation::SentAfterGivenUp),
        Bug::WindowWithoutSkew => (catalogue::memory_by_other_clocks(), Violation::SecondEffectDownstream),
        Bug::RenewalShortensLease => (catalogue::owners_clock_goes_back(), Violation::SentAfterGivenUp),
        Bug::DoubtForgottenOnStart | Bug::DoubtForgottenOnRenewal => {
            (catalogue::inherited_doubt(), Violation::OutcomeUntrue)
        }
        Bug::UnreadablePassedBy => (catalogue::unreadable_under_old_id(), Violation::SecondEffect),
        Bug::SelectionKeptOnRelease => (catalogue::releases(), Violation::WronglyAnswered),
        Bug::ResolvedWhileOwned | Bug::OutcomeWithoutStart | Bug::ReleasedWhileOwned => {
            (catalogue::releases(), Violation::ForbiddenMoveAccepted)
        }
        Bug::TrustIgnored => (catalogue::wrong_start(), Violation::FinalOutcomeChanged),
        Bug::LeaseHeldByItsDate | Bug::GapForgotten => {
            (catalogue::replaced_clock(), Violation::SentAfterGivenUp)
        }
        Bug::ReplacedTimeForgotten => (catalogue::replaced_clock(), Violation::FinalOutcomeChanged),
        Bug::ReplacedTombstoneForgotten | Bug::TombstoneExtendedBackwards => {
            (catalogue::replaced_tombstones(), Violation::FinalOutcomeChanged)
        }
        Bug::ErasedByOldDates => (catalogue::replaced_erasures(), Violation::FinalOutcomeChanged),
        Bug::OldDatesBelieved => (catalogue::memory_by_replaced_clock(), Violation::SecondEffectDownstream),
        Bug::LocalConflictIgnored => (Config::base("transactions", Class::Local), Violation::NotExactlyOnce),
        Bug::DoubtSettledWithoutLock => (
            Config { write_faults: 1, ..Config::base("transactions", Class::Local) },
            Violation::RolledBackCommitted,
        ),
        Bug::DoubtSettledByContent => (
            Config { erasures: 1, write_faults: 1, ..Config::base("transactions", Class::Local) },
            Violation::RolledBackCommitted,
        ),
        Bug::DoubtSettledAfterRetention => (catalogue::replaced_commits(), Violation::RolledBackCommitted),
        Bug::ErasedByRemoval => (catalogue::erasures(), Violation::SecondEffect),
        Bug::ErasedTombstoneShortened => (catalogue::erasures(), Violation::FinalOutcomeChanged),
        Bug::ErasedUnsettled => (catalogue::erasures(), Violation::ForbiddenMoveAccepted),
    }
}

/// Why an assumption is needed: its name, a configuration without it, and the promise that breaks.
pub fn without_assumptions() -> Vec<(&'static str, Config, Violation)> {
    use Class::{Downstream, External};
    let all = Assumptions::ALL;
    vec![
        (
            "operators and the effect's own system tell the truth",
            Config {
                assume: Assumptions { verdicts_are_true: false, ..all },
                answer_faults: 1,
                horizon: 5,
                ..Config::base("lies", External)
            },
            Violation::OutcomeUntrue,
        ),
        (
            "an effect arrives before the quiet period ends, or never",
            Config {
                assume: Assumptions { effects_are_timely: false, ..all },
                answer_faults: 1,
                horizon: 5,
                ..Config::base("effects that arrive at any time", External)
            },
            Violation::OutcomeUntrue,
        ),
        (
            "\"once\" is per key and retention period",
            Config {
                assume: Assumptions { once_is_per_retention: false, ..all },
                horizon: 6,
                ..Config::base("retries after retention", External)
            },
            Violation::SecondEffect,
        ),
        (
            "a provider that deduplicates remembers for dedup_window",
            Config {
                assume: Assumptions { provider_remembers: false, ..all },
                crashes: 1,
                ..Config::base("a forgetful provider", Downstream)
            },
            Violation::SecondEffectDownstream,
        ),
        (
            "the store's clock is not set back across a purge",
            purged_early(Assumptions { clock_is_not_set_back: false, ..all }),
            Violation::StaleAttemptActed,
        ),
        (
            "a clock that is wrong when all nodes start is further off than a stop may last",
            Config {
                assume: Assumptions { wrong_start_is_noticed: false, ..all },
                replacements: 0,
                ..catalogue::wrong_start()
            },
            Violation::FinalOutcomeChanged,
        ),
    ]
}
