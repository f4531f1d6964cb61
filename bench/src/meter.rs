//! Tasks that run one command after another, and the figures that benchmarks derive from them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// The result of one run.
pub struct Measurement {
    /// Seconds from the first command to the end of the last.
    pub seconds: f64,
    /// How long each command took, in microseconds; unordered.
    pub latencies: Vec<u32>,
}

impl Measurement {
    /// The number of finished commands.
    pub fn done(&self) -> f64 {
        self.latencies.len() as f64
    }

    /// Commands per second.
    pub fn per_second(&self) -> f64 {
        self.done() / self.seconds
    }
}

/// Runs commands in `tasks` concurrent tasks for `span`. Each command gets the next number.
///
/// # Panics
/// If a command panics: a failed command measures nothing.
pub fn measure<C, F>(
    runtime: &Runtime,
    tasks: u64,
    span: Duration,
    next: &Arc<AtomicU64>,
    command: impl Fn() -> C,
) -> Measurement
where
    C: Fn(u64) -> F + Send + 'static,
    F: Future<Output = ()> + Send,
{
    #[expect(clippy::disallowed_methods, reason = "a benchmark may look at the clock")]
    let started = Instant::now();
    let tasks: Vec<_> = (0..tasks)
        .map(|_| {
            let (command, next) = (command(), next.clone());
            runtime.spawn(async move {
                let mut latencies = Vec::new();
                let mut begun = started.elapsed();
                while begun < span {
                    command(next.fetch_add(1, Ordering::Relaxed)).await;
                    let now = started.elapsed();
                    latencies.push(u32::try_from(now.saturating_sub(begun).as_micros()).unwrap_or(u32::MAX));
                    begun = now;
                }
                latencies
            })
        })
        .collect();
    let mut latencies = Vec::new();
    for task in tasks {
        latencies.extend(runtime.block_on(task).expect("a command that fails measures nothing"));
    }
    Measurement { seconds: started.elapsed().as_secs_f64(), latencies }
}

/// The median; NaN if there are no values.
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The latency in milliseconds that this many of a thousand stay below.
pub fn quantile(sorted: &[u32], of_thousand: usize) -> f64 {
    let index = (sorted.len() * of_thousand / 1000).min(sorted.len().saturating_sub(1));
    sorted.get(index).map_or(f64::NAN, |micros| f64::from(*micros) / 1000.0)
}

/// The circumstances that speed depends on: the cores, and the machine's load.
pub fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZeroUsize::get);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().filter(|load| !load.is_empty()).unwrap_or("unknown");
    format!("{cores} cores, load before the run {load}")
}
