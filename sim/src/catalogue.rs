//! The explored configurations: the full set, and the smaller set of every test run.

use crate::config::{Assumptions, Config, Provider};
use semel_core::machine::Begin;
use semel_core::policy::{AfterExpiry, Class};

const EITHER: &[Begin] = &[Begin::Claimed, Begin::Processing];
const CLAIMED: &[Begin] = &[Begin::Claimed];

/// Each takes seconds: one kind of fault at a time.
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
        Config {
            rotation: true,
            write_faults: 1,
            crashes: 1,
            horizon: 2,
            ..Config::base("transactions across a change of secret", Local)
        },
        lossy_failover(Config { horizon: 2, ..Config::base("lossy fail-over", External) }),
        fencing(Config { horizon: 4, ..Config::base("a provider that checks the fence", External) }),
        clocks_disagree(),
        owners_clock_goes_back(),
        memory_by_other_clocks(),
        replaced_clock(),
        replaced_tombstones(),
        replaced_erasures(),
        memory_by_replaced_clock(),
        wrong_start(),
        slow_effects(),
        inherited_doubt(),
        Config { begin: CLAIMED, workers: 3, horizon: 2, ..Config::base("three claims", Downstream) },
        unreadable_under_old_id(),
        releases(),
        erasures(),
        Config { erasures: 1, write_faults: 1, horizon: 3, ..Config::base("erasures", Local) },
        replaced_commits(),
        Config { erasures: 1, crashes: 1, horizon: 2, ..Config::base("erasures", Downstream) },
    ]
}

/// The full set, which takes minutes.
pub fn full() -> Vec<Config> {
    let mut all = kinds_of_faults();
    all.extend(clocks_and_doubts());
    all
}

fn kinds_of_faults() -> Vec<Config> {
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
        transactions_across_a_change_of_secret(),
        lossy_failover(Config { renewals: 1, horizon: 2, ..Config::base("lossy fail-over", External) }),
        fencing(Config { horizon: 5, ..Config::base("a provider that checks the fence", External) }),
    ]
}

fn transactions_across_a_change_of_secret() -> Config {
    Config {
        rotation: true,
        write_faults: 1,
        crashes: 1,
        answer_faults: 1,
        ttl: 2,
        tombstone: 0,
        horizon: 3,
        ..Config::base("transactions across a change of secret", Class::Local)
    }
}

/// The quick configurations with a longer time.
fn clocks_and_doubts() -> Vec<Config> {
    use Class::{Downstream, External};
    vec![
        Config { skew: 2, horizon: 4, ..clocks_disagree() },
        Config {
            skew: 2,
            workers: 1,
            operator_acts: 1,
            answer_faults: 1,
            horizon: 6,
            ..Config::base("operators whose clocks disagree", External)
        },
        Config {
            skew: 1,
            payloads: 2,
            ttl: 2,
            tombstone: 1,
            ..Config::base("expiry by clocks that disagree", External)
        },
        Config { sweeper: true, workers: 1, attempts_each: 2, crashes: 1, ..memory_by_other_clocks() },
        Config { workers: 2, attempts_each: 1, horizon: 3, ..replaced_clock() },
        Config { skew: 1, ..replaced_clock() },
        Config { payloads: 2, horizon: 5, ..replaced_tombstones() },
        Config { replacements: 2, ..replaced_tombstones() },
        Config { horizon: 4, ..replaced_erasures() },
        Config { horizon: 3, ..wrong_start() },
        Config { answer_faults: 1, horizon: 6, ..slow_effects() },
        Config { begin: &[Begin::Processing], horizon: 4, ..inherited_doubt() },
        Config { begin: CLAIMED, workers: 3, horizon: 3, ..Config::base("three claims", Downstream) },
        Config { crashes: 1, ..unreadable_under_old_id() },
        Config { begin: EITHER, answer_faults: 1, horizon: 4, ..releases() },
        Config { erasures: 2, operator_acts: 1, answer_faults: 1, horizon: 3, ..erasures() },
        Config { erasures: 1, skew: 1, ..erasures() },
        Config {
            erasures: 1,
            rotation: true,
            horizon: 2,
            ..Config::base("erasures across a change of secret", External)
        },
    ]
}

pub(crate) fn lossy_failover(config: Config) -> Config {
    Config { failovers: 1, write_faults: 1, crashes: 1, ..config }
}

/// Effects may arrive at any time: only the fence stops them.
fn fencing(config: Config) -> Config {
    let provider = Provider { checks_fence: true, ..Provider::default() };
    let assume = Assumptions { effects_are_timely: false, ..Assumptions::ALL };
    Config { provider, assume, answer_faults: 1, attempts_each: 1, ttl: 1, tombstone: 1, ..config }
}

/// Clocks disagree; the only other fault is slowness.
pub(crate) fn clocks_disagree() -> Config {
    Config { skew: 1, horizon: 3, ..Config::base("clocks that disagree", Class::External) }
}

/// One owner, whose own clock may go back too, and everybody who could take over from it. Two ticks of skew are needed
/// to see whether a quiet period includes it: one is lost to "longer than".
pub(crate) fn owners_clock_goes_back() -> Config {
    Config {
        workers: 1,
        skew: 2,
        renewals: 1,
        write_faults: 1,
        horizon: 4,
        ..Config::base("an owner whose clock goes back", Class::External)
    }
}

/// A lease and an attempt just fit into the provider's window, each with its skew.
pub(crate) fn memory_by_other_clocks() -> Config {
    let name = "a provider's memory by other clocks";
    Config { skew: 1, window: 5, horizon: 6, sweeper: false, ..Config::base(name, Class::Downstream) }
}

/// The clock of all nodes is replaced, by a little, in both directions: a lease, a quiet period and an outcome span
/// that moment.
pub(crate) fn replaced_clock() -> Config {
    Config {
        workers: 1,
        attempts_each: 2,
        replacements: 1,
        jump: 3,
        horizon: 3,
        after_expiry: AfterExpiry::RunAsNew,
        tombstone: 0,
        ..Config::base("a clock that is replaced", Class::External)
    }
}

/// A tombstone spans the moment at which the clock is replaced.
pub(crate) fn replaced_tombstones() -> Config {
    Config {
        after_expiry: AfterExpiry::Refuse,
        ttl: 1,
        tombstone: 2,
        horizon: 4,
        name: "tombstones and a clock that is replaced",
        ..replaced_clock()
    }
}

/// An operator erases before or after the clock is replaced.
pub(crate) fn replaced_erasures() -> Config {
    Config {
        erasures: 1,
        after_expiry: AfterExpiry::Refuse,
        ttl: 1,
        tombstone: 1,
        name: "erasures and a clock that is replaced",
        ..replaced_clock()
    }
}

/// A provider's window spans the moment at which the clock is replaced.
pub(crate) fn memory_by_replaced_clock() -> Config {
    Config {
        replacements: 1,
        jump: 3,
        horizon: 5,
        sweeper: false,
        ..Config::base("a provider's memory by a replaced clock", Class::Downstream)
    }
}

/// All nodes restart with a wrong clock, and an operator may confirm it.
pub(crate) fn wrong_start() -> Config {
    Config { wrong_starts: 1, horizon: 2, name: "a start with a wrong clock", ..replaced_clock() }
}

/// An effect that is still in flight long after its owner's lease has expired.
pub(crate) fn slow_effects() -> Config {
    Config { deadline: 2, horizon: 5, ..Config::base("slow effects", Class::External) }
}

/// An attempt after one in doubt has every chance to forget the doubt: it starts, renews, and ends without effect.
pub(crate) fn inherited_doubt() -> Config {
    Config {
        begin: CLAIMED,
        renewals: 1,
        horizon: 3,
        provider: Provider { deduplicates: true, declines: true, ..Provider::default() },
        ..Config::base("inherited doubt", Class::Downstream)
    }
}

pub(crate) fn unreadable_under_old_id() -> Config {
    let name = "change of secret, unreadable records";
    Config { rotation: true, damages: 1, horizon: 2, ..Config::base(name, Class::External) }
}

/// An operator erases, while others retry with either payload and the sweeper removes what is over.
pub(crate) fn erasures() -> Config {
    Config {
        erasures: 1,
        payloads: 2,
        horizon: 4,
        ttl: 2,
        tombstone: 1,
        ..Config::base("erasures", Class::External)
    }
}

/// A commit without an answer whose outcome expires before anybody asks for it.
pub(crate) fn replaced_commits() -> Config {
    Config {
        rotation: true,
        write_faults: 1,
        ttl: 1,
        tombstone: 0,
        horizon: 3,
        ..Config::base("commits that are replaced", Class::Local)
    }
}

/// Operators release claims, and the next request has another payload under another selection.
pub(crate) fn releases() -> Config {
    Config {
        begin: CLAIMED,
        payloads: 2,
        reselects: true,
        operator_acts: 1,
        horizon: 2,
        ..Config::base("releases", Class::External)
    }
}
