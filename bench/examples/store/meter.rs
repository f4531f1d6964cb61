//! Runs a subject for a while, and measures the cost.

use crate::subject::Subject;
use rustix::time::{ClockId, clock_gettime};
use semel_bench::meter;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tokio::runtime::Runtime;

/// One run of one subject.
pub(crate) struct Run {
    pub(crate) per_second: f64,
    /// CPU of the whole process, per command.
    pub(crate) cpu_micros: f64,
    /// CPU of the writer thread and of the checkpoint thread.
    pub(crate) writer_micros: f64,
    pub(crate) checkpoint_micros: f64,
    /// How long each command took, in microseconds; unordered.
    pub(crate) latencies: Vec<u32>,
}

/// CPU time since the process started, in microseconds.
struct Used {
    process: f64,
    writer: f64,
    checkpoint: f64,
}

impl Used {
    fn now() -> Self {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let process = cpu.tv_sec as f64 * 1e6 + cpu.tv_nsec as f64 / 1e3;
        Self { process, writer: of_threads("semel-write"), checkpoint: of_threads("semel-checkpoin") }
    }
}

/// The CPU time of the threads with this name; zero if the kernel does not report it.
fn of_threads(name: &str) -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let of = |path: std::path::PathBuf| {
        let comm = std::fs::read_to_string(path.join("comm")).ok()?;
        let stat = std::fs::read_to_string(path.join("schedstat")).ok()?;
        let nanos: f64 = stat.split(' ').next()?.parse().ok()?;
        (comm.trim() == name).then_some(nanos / 1e3)
    };
    tasks.filter_map(|task| of(task.path())).sum()
}

/// Runs commands in `tasks` concurrent tasks for `span`.
pub(crate) fn measure(
    runtime: &Runtime,
    tasks: u64,
    span: Duration,
    next: &Arc<AtomicU64>,
    subject: &Subject,
) -> Run {
    let before = Used::now();
    let run = meter::measure(runtime, tasks, span, next, || {
        let subject = subject.clone();
        move |number| {
            let subject = subject.clone();
            async move { subject.command(number).await }
        }
    });
    let (after, done) = (Used::now(), run.done());
    Run {
        per_second: run.per_second(),
        cpu_micros: (after.process - before.process) / done,
        writer_micros: (after.writer - before.writer) / done,
        checkpoint_micros: (after.checkpoint - before.checkpoint) / done,
        latencies: run.latencies,
    }
}
