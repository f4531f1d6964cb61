//! Prints the results as a table.

use crate::meter::Run;
use semel_bench::meter::{median, quantile};

/// Resident memory of this process; zero if the system does not report it.
pub(crate) fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().split(' ').next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) / 1024
}

/// One line per subject; ratios are relative to the first, run by run.
pub(crate) fn commands(names: &[&str], runs: &[Vec<Run>]) {
    println!(
        "{:<24} {:>10} {:>7} {:>9} {:>9} {:>9} {:>9} {:>8} {:>8}",
        "", "per second", "ratio", "p50 ms", "p99 ms", "p999 ms", "CPU us", "writer", "checkpt"
    );
    for (name, mine) in names.iter().zip(runs) {
        let ratios = mine.iter().zip(&runs[0]).map(|(mine, first)| mine.per_second / first.per_second);
        let of = |figure: fn(&Run) -> f64| median(mine.iter().map(figure));
        let mut latencies: Vec<u32> = mine.iter().flat_map(|run| run.latencies.iter().copied()).collect();
        latencies.sort_unstable();
        println!(
            "{name:<24} {:>10.0} {:>7.2} {:>9.3} {:>9.3} {:>9.3} {:>9.1} {:>8.1} {:>8.1}",
            of(|run| run.per_second),
            median(ratios),
            quantile(&latencies, 500),
            quantile(&latencies, 990),
            quantile(&latencies, 999),
            of(|run| run.cpu_micros),
            of(|run| run.writer_micros),
            of(|run| run.checkpoint_micros),
        );
    }
}
