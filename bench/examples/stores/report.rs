//! Prints the results as a table.

use semel_bench::meter::{median, quantile};

/// One run of one subject. CPU is in microseconds per command.
pub(crate) struct Run {
    pub(crate) per_second: f64,
    pub(crate) mean_millis: f64,
    pub(crate) client_micros: f64,
    /// NaN if there is no server.
    pub(crate) server_micros: f64,
    /// Empty if latencies are not reported.
    pub(crate) latencies: Vec<u32>,
}

/// One line per subject, medians over its runs; ratios are relative to the first, run by run.
pub(crate) fn table(names: &[&str], runs: &[Vec<Run>]) {
    println!(
        "{:<18} {:>10} {:>6} {:>9} {:>6} {:>9} {:>10} {:>10} {:>6}",
        "", "per second", "ratio", "mean ms", "ratio", "p99 ms", "client us", "server us", "ratio"
    );
    for (name, mine) in names.iter().zip(runs) {
        let of = |figure: fn(&Run) -> f64| median(mine.iter().map(figure));
        let ratio = |figure: fn(&Run) -> f64| {
            median(mine.iter().zip(&runs[0]).map(|(mine, first)| figure(mine) / figure(first)))
        };
        let mut latencies: Vec<u32> = mine.iter().flat_map(|run| run.latencies.iter().copied()).collect();
        latencies.sort_unstable();
        println!(
            "{name:<18} {:>10.0} {:>6.2} {:>9.3} {:>6.2} {:>9} {:>10.1} {:>10} {:>6}",
            of(|run| run.per_second),
            ratio(|run| run.per_second),
            of(|run| run.mean_millis),
            ratio(|run| run.mean_millis),
            figure_or_dash(quantile(&latencies, 990), 3),
            of(|run| run.client_micros),
            figure_or_dash(of(|run| run.server_micros), 1),
            figure_or_dash(ratio(|run| run.server_micros), 2),
        );
    }
}

fn figure_or_dash(value: f64, decimals: usize) -> String {
    if value.is_nan() { "-".to_owned() } else { format!("{value:.decimals$}") }
}
