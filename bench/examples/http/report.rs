//! Prints the results as tables, and compares them with the targets.

use crate::histogram::Histogram;
use crate::subject::{NGINX, OFF, REPLAYS, Run, SQLITE};
use semel_bench::meter::median;

/// The runs of one subject.
pub(crate) struct Measured {
    pub(crate) name: &'static str,
    pub(crate) runs: Vec<Run>,
    /// CPU time of its process from the first run to the last, including the time between them.
    pub(crate) cpu_micros: Option<f64>,
    pub(crate) resident_bytes: Option<u64>,
}

impl Measured {
    fn per_second(&self) -> f64 {
        median(self.runs.iter().map(|run| run.per_second))
    }

    fn cpu_per_request(&self) -> Option<f64> {
        let requests: u64 = self.runs.iter().map(|run| run.latencies.total()).sum();
        self.cpu_micros.map(|micros| micros / requests as f64)
    }

    /// Throughput relative to another subject, round by round.
    fn share_of(&self, other: &Self) -> f64 {
        median(self.runs.iter().zip(&other.runs).map(|(mine, other)| mine.per_second / other.per_second))
    }
}

/// The circumstances that the figures depend on.
pub(crate) fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZeroUsize::get);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().filter(|load| !load.is_empty()).unwrap_or("unknown");
    format!("{cores} cores for clients, proxy and upstream together; load before the run {load}")
}

/// One line per subject, with its throughput relative to nginx and to the unprotected gateway, round by
/// round.
pub(crate) fn table(connections: u64, all: &[Measured]) {
    println!("\n## {connections} connections\n");
    println!(
        "{:<28} {:>10} {:>9} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "", "per second", "of nginx", "of off", "p50 ms", "p99 ms", "p999 ms", "CPU us", "RSS MB"
    );
    for one in all {
        let share = |name| find(all, name).map(|other| one.share_of(other));
        let mut latencies = Histogram::default();
        one.runs.iter().for_each(|run| latencies.merge(&run.latencies));
        println!(
            "{:<28} {:>10.0} {:>9} {:>8} {:>8.3} {:>8.3} {:>8.3} {:>8} {:>8}",
            one.name,
            one.per_second(),
            figure_or_dash(share(NGINX), 2),
            figure_or_dash(share(OFF), 2),
            latencies.quantile(500),
            latencies.quantile(990),
            latencies.quantile(999),
            figure_or_dash(one.cpu_per_request(), 1),
            figure_or_dash(one.resident_bytes.map(megabytes), 1),
        );
    }
}

/// Compares the results with the targets.
pub(crate) fn print_targets(all: &[Measured]) {
    println!();
    for (name, other, least) in [(OFF, NGINX, 0.9), (SQLITE, OFF, 0.5), (REPLAYS, OFF, 0.9)] {
        if let (Some(one), Some(other)) = (find(all, name), find(all, other)) {
            let cpu = one.cpu_per_request().zip(other.cpu_per_request()).map(|(one, other)| one / other);
            let measured = one.share_of(other);
            let label = format!("{name}, as a share of {}", other.name);
            println!(
                "{} (CPU per request: {} times)",
                target_line(&label, measured, least, measured >= least),
                figure_or_dash(cpu, 2)
            );
        }
    }
}

/// Compares a figure with its upper limit.
pub(crate) fn print_upper_target(label: &str, measured: f64, most: f64) {
    println!("{}", target_line(label, measured, most, measured < most));
}

fn target_line(label: &str, measured: f64, target: f64, is_met: bool) -> String {
    let verdict = if is_met { "met" } else { "missed" };
    format!("{label}: {measured:.2}, aim {target}, {verdict}")
}

pub(crate) fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

fn find<'a>(all: &'a [Measured], name: &str) -> Option<&'a Measured> {
    all.iter().find(|one| one.name == name)
}

fn figure_or_dash(figure: Option<f64>, digits: usize) -> String {
    figure.map_or_else(|| "-".to_owned(), |figure| format!("{figure:.digits$}"))
}
