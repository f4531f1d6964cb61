//! The cost of the embedded store and the engine, compared with a bare log that syncs as often.
//!
//! `cargo xtask bench store [--quick] [--records N,…] [--tasks N,…] [--seconds N] [--due N]`
//!
//! The subjects run in turns of a fraction of a second, so that other load on the machine affects all of them
//! equally. Compare the ratios. CPU is that of the whole process: the tasks that ask, including encoding, and
//! the threads that answer.

#![expect(clippy::disallowed_methods, reason = "a benchmark may look at the clock")]

mod files;
mod filled;
mod meter;
mod options;
mod report;
mod subject;
mod sweep;

use clap::Parser as _;
use meter::Run;
use options::Options;
use semel::memory;
use semel_bench::barelog::BareLog;
use semel_core::store::Store;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use subject::Subject;
use tokio::runtime::Runtime;

/// How long one subject runs before the next one.
const RUN: Duration = Duration::from_millis(400);

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build()?;
    if let Some(path) = &options.resident {
        return serve(&runtime, &options, path);
    }
    println!("{}\n{}", options.command_line(), semel_bench::meter::machine());
    let scratch = files::Scratch::new()?;
    for &records in &options.records {
        let path = scratch.file(&runtime, records)?;
        let store = filled::open(&runtime, &path)?;
        println!("\n## {records} records, {} MiB", std::fs::metadata(&path)?.len() >> 20);
        let next = Arc::new(AtomicU64::new(records));
        for &tasks in &options.tasks {
            commands(&runtime, &scratch, &options, &store, &next, (records, tasks))?;
        }
        if options.only.is_some() {
            continue;
        }
        replays(&runtime, &options, &store, &next)?;
        sweep::under_load(&runtime, &options, &store, &next)?;
        runtime.block_on(store.close());
        println!(
            "\nresident memory of a process that serves this file and does nothing else: {}",
            resident(&path)?
        );
    }
    Ok(())
}

/// Claim and finish, with this many concurrent tasks.
fn commands(
    runtime: &Runtime,
    scratch: &files::Scratch,
    options: &Options,
    store: &Arc<dyn Store>,
    next: &Arc<AtomicU64>,
    (records, tasks): (u64, u64),
) -> Result<(), Box<dyn Error>> {
    let log = scratch.log_path();
    let mut subjects = vec![
        Subject::Log(Arc::new(BareLog::create(&log)?)),
        Subject::Store("store", store.clone()),
        Subject::engine("engine", runtime, store.clone(), 0)?,
    ];
    if let Some(only) = &options.only {
        subjects.retain(|subject| subject.name().ends_with(only.as_str()));
    } else if records == 0 {
        let memory: Arc<dyn Store> = Arc::new(memory::Store::new());
        subjects.push(Subject::Store("memory", memory.clone()));
        subjects.push(Subject::engine("engine on memory", runtime, memory, 0)?);
    }
    let runs = in_turns(runtime, options, tasks, next, &subjects);
    println!("\n{tasks} tasks, claim + finish");
    report::commands(&subjects.iter().map(Subject::name).collect::<Vec<_>>(), &runs);
    drop(subjects);
    std::fs::remove_file(log)?;
    Ok(())
}

/// Replays of finished commands.
fn replays(
    runtime: &Runtime,
    options: &Options,
    store: &Arc<dyn Store>,
    next: &Arc<AtomicU64>,
) -> Result<(), Box<dyn Error>> {
    const KEYS: u64 = 1000;
    let first = next.fetch_add(KEYS, Ordering::Relaxed);
    let cached = Subject::engine("engine", runtime, store.clone(), 32 << 20)?;
    runtime.block_on(async {
        for number in first..first + KEYS {
            cached.command(number).await;
        }
    });
    let subjects = [
        Subject::Replay(
            "replay: from the store",
            first,
            KEYS,
            Subject::engine("", runtime, store.clone(), 0)?.into(),
        ),
        Subject::Replay("replay: from the cache", first, KEYS, cached.into()),
    ];
    let runs = in_turns(runtime, options, 64, next, &subjects);
    println!("\n64 tasks, replays");
    report::commands(&subjects.iter().map(Subject::name).collect::<Vec<_>>(), &runs);
    Ok(())
}

/// The runs of each subject, one per round.
fn in_turns(
    runtime: &Runtime,
    options: &Options,
    tasks: u64,
    next: &Arc<AtomicU64>,
    subjects: &[Subject],
) -> Vec<Vec<Run>> {
    let rounds = (options.seconds / RUN.as_secs_f64()).ceil().max(1.0);
    let mut runs: Vec<Vec<Run>> = subjects.iter().map(|_| Vec::new()).collect();
    let mut round = 0.0;
    while round < rounds {
        for (subject, runs) in subjects.iter().zip(&mut runs) {
            runs.push(meter::measure(runtime, tasks, RUN, next, subject));
        }
        round += 1.0;
    }
    runs
}

/// Runs another process on the file and reports its memory. This process also holds the measurements.
fn resident(path: &Path) -> Result<String, Box<dyn Error>> {
    let mut child = std::process::Command::new(std::env::current_exe()?);
    let output = child.arg(options::RESIDENT).arg(path).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Runs in that process.
fn serve(runtime: &Runtime, options: &Options, path: &Path) -> Result<(), Box<dyn Error>> {
    let store = filled::open(runtime, path)?;
    let after_opening = report::resident_mib();
    // Numbers that the file does not contain.
    let next = Arc::new(AtomicU64::new(1 << 40));
    let subject = Subject::Store("store", store.clone());
    drop(in_turns(runtime, options, 64, &next, &[subject]));
    println!("{after_opening} MiB once opened, {} MiB after {} s", report::resident_mib(), options.seconds);
    Ok(())
}
