//! Three thousand histories of the real engine, and the proof that they can fail. `cargo xtask campaign` runs many more,
//! from a new seed each time.

use semel_sim::history::batch::{Batch, play_many};
use semel_sim::history::{Report, Sabotage, play};

const THREADS: usize = 2;
/// Enough for every event to occur, which the first test checks.
const HISTORIES: u64 = 3_000;

fn description(report: &Report) -> String {
    let Some(violation) = &report.violation else { return String::new() };
    let (seed, trace) = (report.seed, report.trace.about(violation.key));
    format!("seed {seed} breaks \"{}\": {}\n{trace}", violation.promise, violation.how)
}

#[test]
fn every_promise_holds_in_three_thousand_histories() {
    let Batch { histories, tally, broken } = play_many(1, HISTORIES, THREADS, None, None, |_| {});
    if let Some(report) = broken {
        panic!("{}", description(&report));
    }
    assert_eq!(histories, HISTORIES);
    assert_eq!(tally.blind_spots(), [], "events that no history exercised are not tested");
}

/// Each of these broke a promise in an earlier engine.
#[test]
fn histories_that_broke_a_promise_now_hold() {
    let seeds = [
        // A duplicate in the same process got "in progress" long after another node had taken over and finished.
        756,
        // A duplicate got an expired outcome: its process was paused between reading and answering.
        1_006_205,
        // A duplicate got "in progress" although an outcome was stored whose acknowledgement its owner had lost.
        1_034_835,
        // A claim arrived after its lease had ended and a later attempt with a higher fence was purged.
        1_042_523,
        // An outcome was answered from memory long after its erasure, by a node that was paused while it read.
        1_795_035_565,
        // A clock that had given way was trusted again by an answer that a paused process read late.
        3_854,
        // A node that was ahead gave a fence, its record was removed, and the next attempt got a lower one.
        1_795_047_062,
        // A node whose clock was far behind replayed an outcome that had expired long before. The last mark was older
        // still: calls failed so often that no node could watch it undisturbed. The audit asked for more than was known.
        1_795_126_660,
        // Several calls waited for a node's first heartbeat. It failed, and all but the first claimed nevertheless: they
        // could send nothing, and with a clock that was wrong meanwhile they could not give the claims back.
        1_795_134_646,
        // A node whose clock was ahead dated the lease of a downstream command, which the others then repeated. The audit
        // knew that such a lease counts as over, but only for commands that had not begun.
        1_795_135_443,
        // A node with a clock far behind answered "mismatch" from memory, long after the outcome had expired and another
        // node had used the key again.
        1_795_137_455,
        // A local command's process was paused in its transaction while another one committed and that record was removed;
        // then it committed with the lower fence. Real databases hold a lock, and end a transaction that waits so long.
        1_795_397_200,
    ];
    for seed in seeds {
        let report = play(seed, None);
        assert!(report.violation.is_none(), "{}", description(&report));
    }
}

#[test]
fn a_seed_is_a_history() {
    for seed in 1..100 {
        let (first, second) = (play(seed, None), play(seed, None));
        assert_eq!(first.trace.hash(), second.trace.hash(), "seed {seed}");
        assert_eq!(first.tally, second.tally, "seed {seed}");
        assert_ne!(first.trace.hash(), play(seed + 1, None).trace.hash(), "seed {seed}");
    }
}

#[test]
fn a_history_is_equal_on_every_thread() {
    let alone: Vec<u64> = (1..40).map(|seed| play(seed, None).trace.hash()).collect();
    let beside = std::thread::scope(|scope| {
        let players: Vec<_> =
            (1..40).map(|seed| scope.spawn(move || play(seed, None).trace.hash())).collect();
        players.into_iter().map(|player| player.join().expect("it plays")).collect::<Vec<_>>()
    });
    assert_eq!(alone, beside);
}

/// Shortly before the first seed that catches it, where that is far from 1.
fn first_seed(sabotage: Sabotage) -> u64 {
    match sabotage {
        Sabotage::StoppedClock => 1_700,
        Sabotage::UncheckedSend => 3_800,
        Sabotage::SentByTheLate => 6_700,
        _ => 1,
    }
}

#[test]
fn every_sabotage_is_caught_by_the_promise_that_it_breaks() {
    for sabotage in Sabotage::ALL {
        let promise = sabotage.breaks();
        let caught =
            play_many(first_seed(sabotage), 20_000, THREADS, Some(sabotage), Some(promise), |_| {}).broken;
        assert!(caught.is_some(), "{sabotage:?} is not caught: {promise}");
    }
}
