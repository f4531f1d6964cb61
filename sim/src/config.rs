//! What is explored: how many workers, which faults, which class, and which assumptions hold.

use semel_core::fingerprint::Selection;
use semel_core::machine::Begin;
use semel_core::policy::{AfterExpiry, Class, Policy, PolicySettings};
use std::sync::Arc;
use std::time::Duration;

/// The assumptions of Semel. Each is a switch: a run without one shows why it is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches")]
pub struct Assumptions {
    /// Operators and the effect's own system answer truthfully.
    pub verdicts_are_true: bool,
    /// An effect arrives within the work deadline after it was sent, or never.
    pub effects_are_timely: bool,
    /// "At most once" applies per key and retention period.
    pub once_is_per_retention: bool,
    /// A deduplicating system remembers for `dedup_window`.
    pub provider_remembers: bool,
    /// The store's clock is not set back across a purge.
    pub clock_is_not_set_back: bool,
    /// A clock that is wrong when all nodes start differs by more than a stop may last.
    pub wrong_start_is_noticed: bool,
}

impl Assumptions {
    /// All assumptions hold.
    pub const ALL: Self = Self {
        verdicts_are_true: true,
        effects_are_timely: true,
        once_is_per_retention: true,
        provider_remembers: true,
        clock_is_not_set_back: true,
        wrong_start_is_noticed: true,
    };
}

/// The system in which the effect happens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches")]
pub struct Provider {
    /// It deduplicates by operation id.
    pub deduplicates: bool,
    /// It may be slow, and answers 409 "still running" meanwhile.
    pub is_slow: bool,
    /// It refuses an effect whose fence is lower than one it has seen.
    pub checks_fence: bool,
    /// It can be asked to refuse an operation ID permanently.
    pub refuses_for_good: bool,
    /// It may decline permanently (a stored failure), or report that it did nothing (a 429).
    pub declines: bool,
}

/// One configuration of the model.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches")]
pub struct Config {
    /// The name in reports.
    pub name: &'static str,
    /// The guarantee class.
    pub class: Class,
    /// How many workers there are (up to 3).
    pub workers: usize,
    /// How many attempts each worker may begin.
    pub attempts_each: u8,
    /// How many different payloads are sent with the one key (up to 2).
    pub payloads: u8,
    /// Whether the second payload is sent under another selection of fingerprinted fields.
    pub reselects: bool,
    /// How attempts may start.
    pub begin: &'static [Begin],
    /// The last tick of the clock, before it jumps far ahead once.
    pub horizon: u16,
    /// Ticks.
    pub lease: u16,
    /// Ticks.
    pub deadline: u16,
    /// Ticks.
    pub ttl: u16,
    /// Ticks.
    pub tombstone: u16,
    /// Ticks.
    pub window: u16,
    /// By how many ticks clocks may disagree: a read clock shows the true time or up to this much later.
    pub skew: u16,
    /// How many times the clock of all nodes may be replaced by one with another time.
    pub replacements: u8,
    /// How many times all nodes may restart with a wrong clock.
    pub wrong_starts: u8,
    /// By how many ticks that clock differs, in either direction.
    pub jump: u16,
    /// What happens to a key after its retention.
    pub after_expiry: AfterExpiry,
    /// How many times a worker may crash.
    pub crashes: u8,
    /// How many writes may be delayed, dropped, or applied with their acknowledgement lost.
    pub write_faults: u8,
    /// How many answers of the provider may be lost, or be a 500.
    pub answer_faults: u8,
    /// How many times a lease may be renewed.
    pub renewals: u8,
    /// How many times a record may become unreadable.
    pub damages: u8,
    /// How many times the store may fail over to an older state.
    pub failovers: u8,
    /// How many times an operator may act.
    pub operator_acts: u8,
    /// How many times an operator may erase what a record stores.
    pub erasures: u8,
    /// Whether a reconciler asks the provider.
    pub reconciler: bool,
    /// Whether a sweeper marks, expires and purges.
    pub sweeper: bool,
    /// Whether the hashing secret changes.
    pub rotation: bool,
    /// The effect's own system.
    pub provider: Provider,
    /// The assumptions.
    pub assume: Assumptions,
}

impl Config {
    /// Two workers, a short time and no faults: the base of all configurations.
    pub fn base(name: &'static str, class: Class) -> Self {
        Self {
            name,
            class,
            workers: 2,
            attempts_each: 1,
            payloads: 1,
            reselects: false,
            begin: &[Begin::Processing],
            horizon: 4,
            lease: 1,
            deadline: 1,
            ttl: 2,
            tombstone: 2,
            window: 4,
            skew: 0,
            replacements: 0,
            wrong_starts: 0,
            jump: 0,
            after_expiry: AfterExpiry::Refuse,
            crashes: 0,
            write_faults: 0,
            answer_faults: 0,
            renewals: 0,
            damages: 0,
            failovers: 0,
            operator_acts: 0,
            erasures: 0,
            reconciler: class != Class::Local,
            sweeper: true,
            rotation: false,
            provider: Provider { deduplicates: class == Class::Downstream, ..Provider::default() },
            assume: Assumptions::ALL,
        }
    }

    /// The policies of the requests, one for each payload.
    pub fn policies(&self) -> [Arc<Policy>; 2] {
        let first = Arc::new(self.policy());
        if !self.reselects {
            return [Arc::clone(&first), first];
        }
        let selection = Selection::default().with_headers(["x-second"]).expect("it is a header's name");
        let second = PolicySettings { selection, ..Policy::clone(&first).into() };
        [first, Arc::new(Policy::as_stored(second))]
    }

    fn policy(&self) -> Policy {
        let ticks = |ticks: u16| Duration::from_millis(u64::from(ticks));
        // Some of these are shorter than anybody would configure. The promises hold under them anyway.
        Policy::as_stored(PolicySettings {
            lease: ticks(self.lease),
            work_deadline: ticks(self.deadline),
            skew: ticks(self.skew),
            ttl: ticks(self.ttl),
            denied_ttl: ticks(self.ttl),
            tombstone: ticks(self.tombstone),
            dedup_window: ticks(self.window),
            after_expiry: self.after_expiry,
            history_entries_max: 0,
            ..Policy::new(self.class).into()
        })
    }

    /// Whether dates in records can differ from the true time.
    pub(crate) fn clock_may_be_wrong(&self) -> bool {
        self.replacements + self.wrong_starts > 0
    }

    /// Whether a record's dates alone are not enough to judge it.
    pub(crate) fn dates_may_be_wrong(&self) -> bool {
        self.clock_may_be_wrong() || !self.assume.clock_is_not_set_back
    }

    /// For how many ticks after an outcome became final the key must not run again.
    pub fn retention(&self) -> u16 {
        match self.after_expiry {
            AfterExpiry::Refuse => self.ttl + self.tombstone,
            AfterExpiry::RunAsNew => self.ttl,
        }
    }

    /// Whether only stale attempts are checked: if a store loses acknowledged writes, or effects may arrive at any
    /// time, nothing more is promised.
    pub fn promises_only_fencing(&self) -> bool {
        self.failovers > 0 || self.provider.checks_fence
    }
}
