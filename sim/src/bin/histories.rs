//! The command behind `cargo xtask sim`.
//!
//! What lives here: arguments, progress and tables. What must never: code of the histories themselves.

use clap::Parser;
use semel_sim::describe::grouped;
use semel_sim::history::batch::{Batch, play_many};
use semel_sim::history::{Exercised, Report, Sabotage, play};
use semel_sim::stopwatch::Stopwatch;
use std::process::ExitCode;

/// Plays seeded histories of the real engine, and holds each to what Semel promises.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask sim", args_override_self = true)]
struct Options {
    /// The first seed
    #[arg(long, value_name = "N", default_value = "1", value_parser = number)]
    seed: u64,
    /// How many histories, each with the next seed
    #[arg(long, value_name = "M", default_value = "10,000", value_parser = number)]
    runs: u64,
    /// How many at a time
    #[arg(long, value_name = "N", default_value = "2", value_parser = number)]
    threads: u64,
    /// With a broken part around the engine: the histories must detect it
    #[arg(long, value_name = "NAME", value_parser = sabotage)]
    sabotage: Option<Sabotage>,
    /// Every such sabotage, to see that each is caught
    #[arg(long)]
    sabotages: bool,
    /// With --runs 1: show everything that happened
    #[arg(long)]
    trace: bool,
}

impl Options {
    fn threads(&self) -> usize {
        as_usize(self.threads.max(1))
    }
}

/// A number as these programs print it, such as 10,000.
fn number(text: &str) -> Result<u64, String> {
    text.replace([',', '_'], "").parse().map_err(|_| "expected a number".to_owned())
}

fn sabotage(name: &str) -> Result<Sabotage, String> {
    Sabotage::named(name).ok_or_else(|| format!("no sabotage `{name}`"))
}

fn main() -> ExitCode {
    let options = Options::parse();
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
    let batch =
        play_many(options.seed, options.runs, options.threads(), options.sabotage, None, |histories| {
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
    let Options { seed, runs, .. } = *options;
    let batch = play_many(seed, runs, options.threads(), Some(sabotage), Some(sabotage.breaks()), |_| {});
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
