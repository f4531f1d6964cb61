//! The plan of a history: how many take part, with which settings, and what may go wrong.
//!
//! Everything here is chosen before the history starts. Each history has only some of the faults, and one in eight has
//! none: a bug that many faults hide may show with one alone.

use super::chance::Chance;
use semel::core::policy::{AfterExpiry, Class, Policy, PolicySettings};
use semel::quota::{Quotas, Rate};
use semel::{ClockSettings, Probe, Settings, Sweep};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

/// How likely each fault is, in a thousand.
#[derive(Debug, Clone, Default)]
pub(crate) struct Faults {
    /// A call to the store is lost.
    pub(crate) lost_there: u64,
    /// An answer of the store is lost.
    pub(crate) lost_back: u64,
    /// A call arrives long after it was made.
    pub(crate) late: u64,
    /// A call arrives twice.
    pub(crate) twice: u64,
    /// The store is full.
    pub(crate) full: u64,
    /// The calling node dies when its call arrives.
    pub(crate) fatal: u64,
    /// The calling node is paused when its call arrives.
    pub(crate) stunning: u64,
    /// The provider's answer leaves the outcome open, or never arrives.
    pub(crate) doubtful: u64,
    /// An effect arrives just before its deadline.
    pub(crate) late_effect: u64,
    /// Work panics, exceeds its deadline or is slow.
    pub(crate) bad_work: u64,
}

/// Faults of whole nodes, the store or its clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlannedFault {
    Crash,
    Pause,
    Shutdown,
    Outage,
    ClockJump,
    /// The store's clock is far wrong.
    WrongClock,
    Damage,
}

impl PlannedFault {
    const ALL: [Self; 7] = [
        Self::Crash,
        Self::Pause,
        Self::Shutdown,
        Self::Outage,
        Self::ClockJump,
        Self::WrongClock,
        Self::Damage,
    ];
}

/// How long all nodes may be down before the clock is distrusted.
pub(crate) const DOWNTIME_MAX: Duration = Duration::from_mins(10);

/// When every node has forgotten erased outcomes.
pub(crate) const FORGOTTEN_AFTER: Duration = Duration::from_mins(1);

/// One key and its policy.
#[derive(Debug, Clone)]
pub(crate) struct KeyPlan {
    pub(crate) policy: Arc<Policy>,
    /// The same policy with other durations, which some requests have.
    pub(crate) slower: Arc<Policy>,
}

/// Whether outcomes are sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sealing {
    Off,
    /// With the same key all the time.
    Kept,
    /// With another key from some moment on.
    Changed,
}

/// The plan of a history.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "independent choices of a history")]
pub(crate) struct Plan {
    pub(crate) nodes: usize,
    pub(crate) clients: usize,
    pub(crate) requests: u64,
    pub(crate) keys: Vec<KeyPlan>,
    pub(crate) faults: Faults,
    pub(crate) planned_faults: Vec<PlannedFault>,
    /// How far the store's clock may be off; every policy includes it as skew.
    pub(crate) skew: Duration,
    /// By how many millionths each node's clock is too fast.
    pub(crate) drift_ppm: Vec<u64>,
    pub(crate) settings: Settings,
    /// Whether the nodes have a reconciler.
    pub(crate) reconcilers: bool,
    /// Whether operators settle unknown outcomes.
    pub(crate) operators: bool,
    /// Whether operators erase records.
    pub(crate) erases: bool,
    /// Whether a node starts with another clock than a live one.
    pub(crate) contradicts: bool,
    /// The quota of every node.
    pub(crate) quotas: Quotas,
    pub(crate) sealing: Sealing,
    /// Whether there are no faults.
    pub(crate) is_calm: bool,
}

impl Plan {
    pub(crate) fn draw(chance: &mut Chance) -> Self {
        let calm = chance.percent(12);
        let skewed = chance.percent(40);
        let skew = if skewed { millis(300) } else { Duration::ZERO };
        let nodes = chance.index(4) + 1;
        let drift_ppm = (0..nodes).map(|_| if skewed { chance.below(1_000) } else { 0 }).collect();
        let reconcilers = chance.percent(75);
        let mut planned_faults = PlannedFault::ALL.to_vec();
        planned_faults.retain(|fault| {
            let rare = *fault == PlannedFault::Damage;
            let needs_skew = *fault == PlannedFault::ClockJump;
            let taken = chance.percent(if rare { 15 } else { 40 });
            taken && !calm && (skewed || !needs_skew)
        });
        let (clients, requests) = (chance.index(3) + 2, chance.between(2, 6));
        let keys: Vec<_> = (0..chance.between(1, 3)).map(|_| key(chance, skew)).collect();
        let quotas = quotas(chance, keys.len());
        let sealing = match chance.percent(40) {
            true if !calm && chance.percent(60) => Sealing::Changed,
            true => Sealing::Kept,
            false => Sealing::Off,
        };
        Self {
            nodes,
            clients,
            requests,
            keys,
            quotas,
            sealing,
            is_calm: calm,
            faults: if calm { Faults::default() } else { faults(chance) },
            planned_faults,
            skew,
            drift_ppm,
            settings: settings(chance, skew),
            reconcilers,
            operators: !reconcilers || chance.percent(30),
            erases: false,
            contradicts: false,
        }
    }
}

impl Plan {
    /// The same plan with some keys of class `local`. Chosen separately, so that histories without such keys do not
    /// change.
    pub(crate) fn with_local_keys(mut self, chance: &mut Chance) -> Self {
        if !chance.percent(30) {
            return self;
        }
        let local = |policy: &Policy| {
            let settings = PolicySettings { class: Class::Local, ..policy.clone().into() };
            Arc::new(Policy::try_from(settings).expect("valid"))
        };
        for key in &mut self.keys {
            if chance.percent(60) {
                *key = KeyPlan { policy: local(&key.policy), slower: local(&key.slower) };
            }
        }
        self
    }

    /// The same plan with operators who erase, also chosen separately. Outcomes are kept for longer than any node may
    /// remember an erased one, so that a mistake is noticed.
    pub(crate) fn with_erasures(mut self, chance: &mut Chance) -> Self {
        if !chance.percent(20) {
            return self;
        }
        let longer = |policy: &Policy| {
            let settings = PolicySettings { ttl: policy.ttl + 3 * FORGOTTEN_AFTER, ..policy.clone().into() };
            Arc::new(Policy::try_from(settings).expect("valid"))
        };
        for key in &mut self.keys {
            *key = KeyPlan { policy: longer(&key.policy), slower: longer(&key.slower) };
        }
        self.erases = true;
        self
    }

    /// The same plan with a node that starts with another clock, also chosen separately. The store's clock is right then.
    pub(crate) fn with_contradicting_clock(mut self, chance: &mut Chance) -> Self {
        if chance.percent(20) && self.nodes > 1 && !self.is_calm {
            self.planned_faults.retain(|fault| *fault != PlannedFault::WrongClock);
            self.contradicts = true;
        }
        self
    }

    /// How long after an erasure a node may still answer with the erased outcome.
    pub(crate) fn forgotten_after(&self) -> Duration {
        if self.settings.cache_bytes_max == 0 { Duration::ZERO } else { FORGOTTEN_AFTER }
    }

    /// The maximum number of records, if it is limited. There is one caller.
    pub(crate) fn cap(&self) -> Option<u64> {
        self.quotas.records_in_total.or(self.quotas.records_per_caller)
    }

    pub(crate) fn has_cap(&self) -> bool {
        self.cap().is_some()
    }
}

fn faults(chance: &mut Chance) -> Faults {
    let mut some = |percent, most| if chance.percent(percent) { chance.between(1, most) } else { 0 };
    Faults {
        lost_there: some(40, 120),
        lost_back: some(50, 200),
        late: some(40, 100),
        twice: some(30, 150),
        full: some(20, 80),
        fatal: some(30, 60),
        stunning: some(30, 80),
        doubtful: some(50, 400),
        late_effect: some(40, 400),
        bad_work: some(40, 300),
    }
}

fn key(chance: &mut Chance, skew: Duration) -> KeyPlan {
    let class = if chance.percent(60) { Class::External } else { Class::Downstream };
    // Without a fault, work takes up to 2.1 s.
    let work_deadline = millis(chance.between(2_400, 5_000));
    let policy = PolicySettings {
        lease: millis(chance.between(1_500, 4_000)),
        work_deadline,
        skew,
        ttl: millis(chance.between(12_000, 40_000)),
        denied_ttl: millis(chance.between(6_000, 10_000)),
        tombstone: if chance.percent(30) { Duration::ZERO } else { millis(chance.between(4_000, 20_000)) },
        dedup_window: 2 * work_deadline + skew + millis(chance.between(2_000, 30_000)),
        attempts_max: chance.percent(25).then(|| if chance.percent(50) { 2 } else { 3 }),
        after_expiry: if chance.percent(25) { AfterExpiry::RunAsNew } else { AfterExpiry::Refuse },
        history_entries_max: 4,
        ..Policy::new(class).into()
    };
    let slower = PolicySettings {
        lease: policy.lease + millis(1_000),
        work_deadline: policy.work_deadline + millis(1_000),
        ..policy.clone()
    };
    let fit = |policy: PolicySettings| Arc::new(Policy::try_from(policy).expect("valid"));
    KeyPlan { policy: fit(policy), slower: fit(slower) }
}

/// Mostly none; otherwise a rate, or a cap that is too small for all keys.
fn quotas(chance: &mut Chance, keys: usize) -> Quotas {
    let recounted =
        Quotas { recount_caller_after: millis(500), recount_total_after: millis(2_000), ..Quotas::default() };
    match chance.below(10) {
        0 | 1 => {
            let count = if chance.percent(50) { NonZeroU32::MIN } else { NonZeroU32::MIN.saturating_add(1) };
            let per = millis(chance.between(3_000, 15_000));
            Quotas { new_per_caller: Some(Rate { count, per }), ..recounted }
        }
        2 => Quotas { records_in_total: Some(keys.saturating_sub(1).max(1) as u64), ..recounted },
        3 => Quotas { records_per_caller: Some(keys.saturating_sub(1).max(1) as u64), ..recounted },
        _ => recounted,
    }
}

fn settings(chance: &mut Chance, skew: Duration) -> Settings {
    Settings {
        wait: millis(chance.between(0, 2_000)),
        finish_wait: millis(1_000),
        store_timeout: millis(1_000),
        request_timeout: millis(1_000),
        retry_after: millis(500),
        poll_min: millis(20),
        poll_max: millis(250),
        cache_bytes_max: if chance.percent(50) { 0 } else { 1 << 20 },
        clock: ClockSettings {
            skew,
            settle: millis(chance.between(0, 3_000)),
            downtime_max: DOWNTIME_MAX,
            heartbeat: millis(500),
            ..ClockSettings::default()
        },
        sweep: Sweep {
            every: millis(chance.between(1_000, 4_000)),
            chunk: chance.index(8) + 1,
            ..Sweep::default()
        },
        probe: Probe {
            min: millis(500),
            max: millis(4_000),
            give_up_after: millis(chance.between(10_000, 60_000)),
            timeout: millis(1_000),
            at_once_max: chance.index(4) + 1,
            ..Probe::default()
        },
    }
}

pub(crate) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_plan_has_settings_an_engine_accepts() {
        for seed in 0..2_000 {
            let plan =
                Plan::draw(&mut Chance::new(seed)).with_local_keys(&mut Chance::new(seed.rotate_left(4)));
            let plan = plan.with_erasures(&mut Chance::new(seed.rotate_left(8)));
            assert_eq!(plan.quotas.check(), Ok(()), "seed {seed}");
            for key in &plan.keys {
                assert_eq!(key.policy.check(), Ok(()), "seed {seed}");
                assert_eq!(key.slower.check(), Ok(()), "seed {seed}");
            }
        }
    }
}
