//! Commands while the sweeper runs, compared with commands without it.

use crate::meter::{self, Run};
use crate::options::Options;
use crate::report;
use crate::subject::Subject;
use semel_bench::lifecycle::{claim_at, finish_at, id};
use semel_core::store::{Change, Store, Written};
use semel_core::time::Time;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::runtime::Runtime;

const TASKS: u64 = 64;
/// The due records come in this many portions; between them, the same load runs without a sweep.
const PORTIONS: u64 = 5;
const RUN: Duration = Duration::from_millis(500);
/// Past the retention of an outcome, but not past that of its tombstone.
const EXPIRED_SINCE: Duration = Duration::from_hours(25);

pub(crate) fn under_load(
    runtime: &Runtime,
    options: &Options,
    store: &Arc<dyn Store>,
    next: &Arc<AtomicU64>,
) -> Result<(), Box<dyn Error>> {
    let load = Subject::engine("engine", runtime, store.clone(), 0)?;
    let Subject::Engine(_, engine, _) = &load else { unreachable!("an engine was made") };
    let (mut without, mut with): (Vec<Run>, Vec<Run>) = (Vec::new(), Vec::new());
    let (mut swept, mut seconds) = (0, 0.0);
    for _ in 0..PORTIONS {
        make_due(runtime, store, next, options.due / PORTIONS);
        let before = with.len();
        let sweeper = engine.clone();
        let started = std::time::Instant::now();
        let sweep = runtime.spawn(async move { (sweeper.sweep().await, started.elapsed()) });
        while !sweep.is_finished() {
            with.push(meter::measure(runtime, TASKS, RUN, next, &load));
        }
        // For as long as the sweep took.
        for _ in before..with.len() {
            without.push(meter::measure(runtime, TASKS, RUN, next, &load));
        }
        let (result, took) = runtime.block_on(sweep)?;
        let result = result?;
        assert_eq!((result.failed, result.stopped), (0, false), "{result:?}");
        swept += result.expired;
        seconds += took.as_secs_f64();
    }
    println!("\n{TASKS} tasks, claim + finish beside a sweep of {swept} records in {seconds:.1} s");
    report::commands(&["without a sweep", "with a sweep"], &[without, with]);
    Ok(())
}

/// Inserts `count` expired outcomes.
fn make_due(runtime: &Runtime, store: &Arc<dyn Store>, next: &Arc<AtomicU64>, count: u64) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock that is set");
    let then = Time::from_millis(0) + now.saturating_sub(EXPIRED_SINCE);
    let first = next.fetch_add(count, Ordering::Relaxed);
    let tasks: Vec<_> = (first..first + count)
        .map(|number| {
            let store = store.clone();
            runtime.spawn(async move {
                let finished = finish_at(&claim_at(number, then), then);
                let written = store.write(id(number), Change::Insert(&finished.next)).await;
                assert!(matches!(written, Ok(Written::Done { .. })), "{written:?}");
            })
        })
        .collect();
    for task in tasks {
        runtime.block_on(task).expect("written");
    }
}
