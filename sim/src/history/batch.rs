//! Many histories, spread over threads.
//!
//! What lives here: handing out seeds and adding up what came of them. What must never: anything that depends on which
//! thread played a history.

use super::exercised::Tally;
use super::promise::Promise;
use super::run::{Report, play};
use super::sabotage::Sabotage;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What came of many histories.
#[derive(Debug, Default)]
pub struct Batch {
    /// How many were played.
    pub histories: u64,
    /// What they went through.
    pub tally: Tally,
    /// The first that broke a promise, by its seed.
    pub broken: Option<Report>,
}

/// Plays histories from `seed` on, on so many threads, until one breaks a promise (`wanted`, or any). `seen` is called
/// after each with how many there have been.
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
