//! Many histories, spread over threads.
//!
//! Hands out seeds and sums up the results, which do not depend on the thread.

use super::exercised::Tally;
use super::promise::Promise;
use super::run::{Report, play};
use super::sabotage::Sabotage;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The results of many histories.
#[derive(Debug, Default)]
pub struct Batch {
    /// How many were run.
    pub histories: u64,
    /// What they exercised.
    pub tally: Tally,
    /// The first one that broke a promise, by its seed.
    pub broken: Option<Report>,
}

/// Runs histories from `seed` on, on so many threads, until one breaks a promise (`wanted`, or any). Calls `seen` after
/// each with the number of histories so far.
pub fn play_many(
    seed: u64,
    runs: u64,
    threads: usize,
    sabotage: Option<Sabotage>,
    wanted: Option<Promise>,
    seen: impl Fn(u64) + Sync,
) -> Batch {
    let (next, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let batch = Mutex::new(Batch::default());
    let locked = || batch.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let player = || {
        while !stop.load(Ordering::Relaxed) {
            let turn = next.fetch_add(1, Ordering::Relaxed);
            if turn >= runs {
                return;
            }
            let report = play(seed.wrapping_add(turn), sabotage);
            let mut batch = locked();
            batch.histories += 1;
            batch.tally.add(&report.tally);
            let histories = batch.histories;
            let is_wanted = |promise| wanted.is_none_or(|wanted| wanted == promise);
            if report.violation.as_ref().is_some_and(|violation| is_wanted(violation.promise)) {
                stop.store(true, Ordering::Relaxed);
                let first = batch.broken.as_ref().is_none_or(|known| report.seed < known.seed);
                batch.broken = if first { Some(report) } else { batch.broken.take() };
            }
            drop(batch);
            seen(histories);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(player);
        }
    });
    batch.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}
