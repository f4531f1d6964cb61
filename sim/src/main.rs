//! The command behind `cargo xtask model`.
//!
//! What lives here: arguments, progress and tables. What must never: code of the model itself.

use clap::Parser;
use semel_sim::bug::Bug;
use semel_sim::catalogue;
use semel_sim::config::Config;
use semel_sim::describe::grouped;
use semel_sim::explore::{Report, explore};
use semel_sim::invariant::Violation;
use semel_sim::showcase;
use semel_sim::stopwatch::Stopwatch;
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Explores every order of events that the state machine can meet, with the code that runs.
///
/// Without --assumptions or --bugs: the configurations, then the assumptions, then the bugs.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask model", args_override_self = true)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
struct Options {
    /// The smaller configurations of every test run
    #[arg(long)]
    quick: bool,
    /// Only configurations whose class or name contains TEXT
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Only the assumptions, each switched off to see what it is good for
    #[arg(long)]
    assumptions: bool,
    /// Only the seeded bugs, to see that each is caught
    #[arg(long)]
    bugs: bool,
    /// Show the way to each violation, step by step
    #[arg(long)]
    trace: bool,
    /// Explore N configurations at a time
    #[arg(long, value_name = "N", default_value = "2")]
    threads: NonZeroUsize,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let everything = !options.assumptions && !options.bugs;
    let mut good = true;
    if everything {
        good &= explore_catalogue(&options);
    }
    if everything && options.only.is_none() || options.assumptions {
        println!("\nAssumptions, each switched off to show why it is needed:");
        for (assumption, config, expected) in showcase::without_assumptions() {
            good &= show(assumption, &config, None, expected, options.trace);
        }
    }
    if everything && options.only.is_none() || options.bugs {
        println!("\nSeeded bugs, each to be caught:");
        for bug in Bug::ALL {
            let (config, expected) = showcase::of(bug);
            let name = format!("{bug:?}: {}", bug.sentence());
            good &= show(&name, &config, Some(bug), expected, options.trace);
        }
    }
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn explore_catalogue(options: &Options) -> bool {
    let mut configs = if options.quick { catalogue::quick() } else { catalogue::full() };
    if let Some(only) = &options.only {
        configs.retain(|config| format!("{} {}", config.class, config.name).contains(only.as_str()));
    }
    println!(
        "{:<11} {:<38} {:>12} {:>12} {:>6} {:>8}",
        "class", "configuration", "states", "steps", "depth", "time"
    );
    let watch = Stopwatch::start();
    let (taken, states, bad) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..options.threads.get() {
            scope.spawn(|| {
                while let Some(config) = configs.get(taken.fetch_add(1, Ordering::Relaxed)) {
                    let watch = Stopwatch::start();
                    let report = explore(config, None);
                    print_row(config, &report, &watch);
                    states.fetch_add(report.states, Ordering::Relaxed);
                    bad.fetch_add(usize::from(report.violation.is_some()), Ordering::Relaxed);
                }
            });
        }
    });
    let (states, bad) = (states.into_inner(), bad.into_inner());
    println!(
        "\n{} distinct states in {} configurations, {} violations, {:.0} s",
        grouped(states),
        configs.len(),
        bad,
        watch.since_start().as_secs_f64()
    );
    bad == 0 && states > 0
}

fn print_row(config: &Config, report: &Report, watch: &Stopwatch) {
    let mut row = format!(
        "{:<11} {:<38} {:>12} {:>12} {:>6} {:>6.1} s",
        config.class.name(),
        config.name,
        grouped(report.states),
        grouped(report.transitions),
        report.depth,
        watch.since_start().as_secs_f64()
    );
    if let Some((violation, trace)) = &report.violation {
        row = format!("{row}\n  BROKEN {violation}\n{trace}");
    }
    println!("{row}");
}

/// Explores a configuration that must break, and reports how it did.
fn show(name: &str, config: &Config, bug: Option<Bug>, expected: Violation, with_trace: bool) -> bool {
    let report = explore(config, bug);
    println!("  {name}");
    let Some((violation, trace)) = report.violation else {
        println!("    NOT CAUGHT in {} ({} states)", config.name, grouped(report.states));
        return false;
    };
    println!(
        "    breaks \"{}\" ({}, {}) after {} steps, found among {} states",
        violation.promise(),
        config.class,
        config.name,
        trace.steps(),
        grouped(report.states)
    );
    if with_trace {
        print!("{trace}");
    }
    if violation != expected {
        println!("    EXPECTED to break \"{}\"", expected.promise());
    }
    violation == expected
}
