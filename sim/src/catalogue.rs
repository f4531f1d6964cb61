//! The configurations that are explored: the full set, and the smaller one of every test run.

use crate::bug::Bug;
use crate::config::{Assumptions, Config, Provider};
use crate::invariant::Violation;
use semel_core::machine::Begin;
use semel_core::policy::{AfterExpiry, Class};

const EITHER: &[Begin] = &[Begin::Claimed, Begin::Processing];
const CLAIMED: &[Begin] = &[Begin::Claimed];

/// Each in seconds: the kinds of faults one by one.
pub fn quick() -> Vec<Config> {
    use Class::{Downstream, External, Local};
    vec![
        Config { write_faults: 1, horizon: 3, ..Config::base("lost and late writes", External) },
        Config { crashes: 1, horizon: 3, ..Config::base("crashes", External) },
        Config { answer_faults: 1, horizon: 3, ..Config::base("lost answers", External) },
        Config { begin: CLAIMED, crashes: 1, horizon: 3, ..Config::base("claimed first", External) },
        Config {
            payloads: 2,
            horizon: 4,
            ttl: 2,
            tombstone: 1,
            ..Config::base("expiry and re-use", External)
        },
        Config { damages: 1, ..Config::base("unreadable records", External) },
        Config { rotation: true, crashes: 1, horizon: 2, ..Config::base("change of secret", External) },
        Config { operator_acts: 1, answer_faults: 1, horizon: 2, ..Config::base("operators", Downstream) },
        Config { renewals: 1, answer_faults: 1, lease: 2, ..Config::base("renewals", External) },
        Config { crashes: 1, horizon: 3, ..Config::base("crashes", Downstream) },
        Config { write_faults: 1, horizon: 2, ..Config::base("lost and late writes", Downstream) },
        Config {
            write_faults: 1,
            payloads: 2,
            crashes: 1,
            answer_faults: 1,
            horizon: 3,
            ..Config::base("transactions", Local)
        },
        lossy_failover(Config { horizon: 2, ..Config::base("lossy fail-over", External) }),
        fencing(Config { horizon: 4, ..Config::base("a provider that checks the fence", External) }),
    ]
}

/// Everything: minutes.
pub fn full() -> Vec<Config> {
    use Class::{Downstream, External, Local};
    let slow = Provider { deduplicates: true, is_slow: true, ..Provider::default() };
    vec![
        Config { write_faults: 2, ..Config::base("lost and late writes", External) },
        Config { crashes: 1, answer_faults: 1, ..Config::base("crashes and lost answers", External) },
        Config { workers: 3, crashes: 1, horizon: 3, ..Config::base("three workers", External) },
        Config {
            begin: EITHER,
            crashes: 1,
            write_faults: 1,
            horizon: 3,
            ..Config::base("claimed first", External)
        },
        Config { renewals: 2, write_faults: 1, lease: 2, horizon: 4, ..Config::base("renewals", External) },
        Config {
            payloads: 2,
            horizon: 6,
            ttl: 2,
            tombstone: 1,
            ..Config::base("expiry and re-use", External)
        },
        Config {
            after_expiry: AfterExpiry::RunAsNew,
            payloads: 2,
            horizon: 5,
            ..Config::base("run as new", External)
        },
        Config { operator_acts: 2, answer_faults: 1, payloads: 2, ..Config::base("operators", External) },
        Config {
            begin: EITHER,
            operator_acts: 1,
            answer_faults: 1,
            horizon: 3,
            ..Config::base("operators", Downstream)
        },
        Config {
            renewals: 1,
            answer_faults: 1,
            horizon: 5,
            ..Config::base("renewals and late effects", External)
        },
        Config { damages: 1, crashes: 1, ..Config::base("unreadable records", External) },
        Config {
            rotation: true,
            workers: 3,
            crashes: 1,
            horizon: 2,
            ..Config::base("change of secret", External)
        },
        Config { rotation: true, write_faults: 1, horizon: 2, ..Config::base("lost markers", External) },
        Config {
            rotation: true,
            ttl: 2,
            tombstone: 0,
            horizon: 5,
            ..Config::base("change of secret across a purge", External)
        },
        Config { rotation: true, crashes: 1, horizon: 2, ..Config::base("change of secret", Downstream) },
        Config {
            answer_faults: 1,
            provider: Provider { refuses_for_good: true, declines: true, ..Provider::default() },
            ..Config::base("a provider that declines and refuses", External)
        },
        Config { crashes: 1, write_faults: 1, ..Config::base("crashes and lost writes", Downstream) },
        Config {
            answer_faults: 2,
            provider: slow,
            horizon: 3,
            ..Config::base("a slow provider", Downstream)
        },
        Config {
            begin: EITHER,
            crashes: 1,
            window: 3,
            horizon: 4,
            provider: Provider { deduplicates: true, declines: true, ..Provider::default() },
            ..Config::base("the end of the provider's memory", Downstream)
        },
        Config { workers: 3, crashes: 1, horizon: 2, ..Config::base("three workers", Downstream) },
        Config {
            workers: 3,
            write_faults: 1,
            payloads: 2,
            crashes: 1,
            answer_faults: 1,
            horizon: 3,
            ..Config::base("transactions", Local)
        },
        lossy_failover(Config { renewals: 1, horizon: 2, ..Config::base("lossy fail-over", External) }),
        fencing(Config { horizon: 5, ..Config::base("a provider that checks the fence", External) }),
    ]
}

fn lossy_failover(config: Config) -> Config {
    Config { failovers: 1, write_faults: 1, crashes: 1, ..config }
}

/// Effects may arrive at any time: the fence alone stops them.
fn fencing(config: Config) -> Config {
    let provider = Provider { checks_fence: true, ..Provider::default() };
    let assume = Assumptions { effects_are_timely: false, ..Assumptions::ALL };
    Config { provider, assume, answer_faults: 1, attempts_each: 1, ttl: 1, tombstone: 1, ..config }
}

/// A record is soon gone while its effect is still on its way: a careless operator sees to the first, and the
/// fence has to see to the second.
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

/// A configuration in which a bug shows, and the promise that it breaks there.
#[expect(clippy::too_many_lines, reason = "one arm for each bug")]
pub fn showcase(bug: Bug) -> (Config, Violation) {
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
            Config { crashes: 1, attempts_each: 2, write_faults: 1, ..downstream("restarted workers") },
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
    }
}

/// What an assumption is good for: its name, a configuration without it, and the promise that breaks there.
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
    ]
}
