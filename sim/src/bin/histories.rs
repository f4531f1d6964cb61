//! The command behind `cargo xtask sim`.
//!
//! What lives here: arguments, progress and tables. What must never: code of the histories themselves.

use semel_sim::describe::grouped;
use semel_sim::history::batch::{Batch, play_many};
use semel_sim::history::{Exercised, Report, Sabotage, play};
use semel_sim::stopwatch::Stopwatch;
use std::process::ExitCode;

const HELP: &str = "\
Plays seeded histories of the real engine, and holds each to what Semel promises.

usage: cargo xtask sim [options]

  --seed N          the first seed (default 1)
  --runs M          how many histories, each with the next seed (default 10,000)
  --threads N       how many at a time (default 2)
  --sabotage NAME   with a broken part around the engine: the histories must detect it
  --sabotages       every such sabotage, to see that each is caught
  --trace           with --runs 1: show everything that happened";

struct Options {
    seed: u64,
    runs: u64,
    threads: usize,
    sabotage: Option<Sabotage>,
    sabotages: bool,
    trace: bool,
}

fn options() -> Result<Options, String> {
    let mut options =
        Options { seed: 1, runs: 10_000, threads: 2, sabotage: None, sabotages: false, trace: false };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || {
            let text = arguments.next().unwrap_or_default();
            text.replace([',', '_'], "").parse::<u64>().map_err(|_| format!("{argument} needs a number"))
        };
        match argument.as_str() {
            "--seed" => options.seed = number()?,
            "--runs" => options.runs = number()?,
            "--threads" => options.threads = usize::try_from(number()?.max(1)).unwrap_or(1),
            "--sabotage" => {
                let name = arguments.next().unwrap_or_default();
                options.sabotage = Some(Sabotage::named(&name).ok_or(format!("no sabotage `{name}`"))?);
            }
            "--sabotages" => options.sabotages = true,
            "--trace" => options.trace = true,
            "--help" | "-h" => return Err(String::new()),
            other => return Err(format!("unknown option {other}")),
        }
    }
    Ok(options)
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(problem) if problem.is_empty() => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(problem) => {
            eprintln!("{problem}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    let good = if options.sabotages {
        Sabotage::ALL.into_iter().filter(|sabotage| !is_caught(&options, *sabotage)).count() == 0
    } else if options.trace && options.runs == 1 {
        let report = play(options.seed, options.sabotage);
        print!("{}", report.trace.about(None));
        println!("trace hash {:016x}", report.trace.hash());
        report.violation.is_none_or(|violation| {
            println!("BROKEN {}: {}", violation.promise, violation.how);
            false
        })
    } else {
        run(&options)
    };
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(options: &Options) -> bool {
    let watch = Stopwatch::start();
    let every = (options.runs / 10).max(1);
    let batch = play_many(options.seed, options.runs, options.threads, options.sabotage, None, |histories| {
        if histories % every == 0 {
            let rate = as_f64(histories) / watch.since_start().as_secs_f64();
            println!("{:>12} histories, {rate:.0} a second", grouped(as_usize(histories)));
        }
    });
    print_tally(&batch);
    if let Some(report) = &batch.broken {
        print_broken(report, options.sabotage);
        return false;
    }
    let blind_spots = batch.tally.blind_spots();
    if !blind_spots.is_empty() && options.runs >= 2_000 {
        println!("\nNever exercised, so not tested: {blind_spots:?}");
        return false;
    }
    true
}

fn print_tally(batch: &Batch) {
    println!();
    for pair in Exercised::ALL.chunks(2) {
        let cell = |what: &Exercised| {
            format!("{:>11}  {:<40}", grouped(as_usize(batch.tally.of(*what))), what.text())
        };
        println!("{}", pair.iter().map(cell).collect::<String>().trim_end());
    }
}

/// The broken promise, the events of its key, and the command that repeats it.
fn print_broken(report: &Report, sabotage: Option<Sabotage>) {
    let Some(violation) = &report.violation else { return };
    println!("\nseed {} BREAKS a promise: {}\n{}\n", report.seed, violation.promise, violation.how);
    print!("{}", report.trace.about(violation.key));
    let with = sabotage.map(|sabotage| format!(" --sabotage {sabotage:?}")).unwrap_or_default();
    println!("\nto repeat it: cargo xtask sim --seed {} --runs 1{with}", report.seed);
}

fn is_caught(options: &Options, sabotage: Sabotage) -> bool {
    let Options { seed, runs, threads, .. } = *options;
    let batch = play_many(seed, runs, threads, Some(sabotage), Some(sabotage.breaks()), |_| {});
    let (number, promise) = (grouped(as_usize(batch.histories)), sabotage.breaks());
    match &batch.broken {
        Some(report) => {
            println!("{sabotage:?}: caught after {number} histories, seed {}: {promise}", report.seed);
        }
        None => println!("{sabotage:?}: NOT CAUGHT in {number} histories: {promise}"),
    }
    batch.broken.is_some()
}

fn as_usize(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people to read")]
fn as_f64(number: u64) -> f64 {
    number as f64
}
