//! The cost of the gateway, compared with the upstream alone and with nginx as a plain proxy.
//!
//! `cargo xtask bench http [--quick] [--connections N,…] [--seconds N] [--records N]`
//!
//! Clients, upstream and each proxy run in separate processes. The subjects run for a second each, in a
//! different order each round, so that other load on the machine affects all of them equally. Compare the
//! ratios. If clients, proxy and upstream share few cores, throughput depends on all three; CPU per request
//! concerns the proxy only.

#![expect(clippy::disallowed_methods, reason = "a benchmark may look at the clock")]

#[path = "../store/filled.rs"]
mod filled;
mod histogram;
mod load;
mod message;
mod options;
mod process;
mod report;
mod subject;
mod upstream;

use clap::Parser as _;
use load::Keys;
use options::Options;
use process::Process;
use report::Measured;
use semel_bench::meter;
use std::error::Error;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use subject::{Clients, Subject};

/// How long one subject runs before the next one.
const RUN_MILLIS: u64 = 1000;
/// The number of connections that the targets refer to.
const TARGET_CONNECTIONS: u64 = 64;
/// How often the gateway is started to measure the start time.
const STARTS: usize = 9;
/// How long the gateway is idle before its memory is measured.
const IDLE: Duration = Duration::from_secs(2);

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    if options.upstream {
        return upstream::serve();
    }
    if options.load {
        return load::serve();
    }
    println!("{}\n{}", options.command_line(), report::machine());
    let folder = Folder::new()?;
    let upstream = Process::upstream()?;
    let mut clients = Clients::start()?;
    let mut subjects = Subject::all(&options, &folder.0, upstream.address, &mut clients)?;
    for &connections in &options.connections {
        let all = in_turns(&options, connections, &mut clients, &mut subjects)?;
        report::table(connections, &all);
        if connections == TARGET_CONNECTIONS {
            report::print_targets(&all);
        }
    }
    drop(subjects);
    if options.only.is_none() {
        println!("\n## Besides requests\n");
        starting(&options, &folder.0, upstream.address)?;
        weight(&options, &folder.0, upstream.address, &mut clients)?;
    }
    Ok(())
}

fn in_turns(
    options: &Options,
    connections: u64,
    clients: &mut Clients,
    subjects: &mut [Subject],
) -> Result<Vec<Measured>, Box<dyn Error>> {
    let before: Vec<_> = subjects.iter().map(Subject::cpu_micros).collect();
    let mut runs: Vec<Vec<_>> = subjects.iter().map(|_| Vec::new()).collect();
    for round in 0..options.seconds.max(1) {
        // In both directions, so that no subject always follows the same neighbour.
        let mut order: Vec<usize> = (0..subjects.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for at in order {
            runs[at].push(subjects[at].run_load(clients, connections, RUN_MILLIS)?);
        }
    }
    let measured = subjects.iter().zip(runs).zip(before).map(|((subject, runs), before)| Measured {
        name: subject.name,
        runs,
        cpu_micros: subject.cpu_micros().zip(before).map(|(after, before)| after - before),
        resident_bytes: subject.resident_bytes(),
    });
    Ok(measured.collect())
}

/// How long the gateway takes to start, and its memory when idle.
fn starting(options: &Options, folder: &Path, upstream: SocketAddr) -> Result<(), Box<dyn Error>> {
    let store = format!("sqlite:{}", folder.join("idle.db").display());
    let mut seconds = Vec::new();
    for _ in 0..STARTS {
        seconds
            .push(Process::semel(&options.semel, upstream, &["--store", &store])?.ready_after.as_secs_f64());
    }
    let process = Process::semel(&options.semel, upstream, &["--store", &store])?;
    std::thread::sleep(IDLE);
    report::print_upper_target(
        "seconds from start to the first answer",
        meter::median(seconds.into_iter()),
        0.2,
    );
    report::print_upper_target("resident MB when idle", report::megabytes(process.resident_bytes()), 20.0);
    Ok(())
}

/// The gateway's memory on a large store, before and after load.
fn weight(
    options: &Options,
    folder: &Path,
    upstream: SocketAddr,
    clients: &mut Clients,
) -> Result<(), Box<dyn Error>> {
    if options.records == 0 {
        return Ok(());
    }
    let file = folder.join("full.db");
    {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build()?;
        std::fs::copy(filled::filled(&runtime, options.records)?, &file)?;
    }
    let store = format!("sqlite:{}", file.display());
    let process = Process::semel(&options.semel, upstream, &["--key", "required", "--store", &store])?;
    println!("on {} records: first answer after {:.2} s", options.records, process.ready_after.as_secs_f64());
    let mut subject = Subject::of("full", process, Keys::New, true);
    let weigh = |subject: &Subject| subject.resident_bytes().map_or(f64::NAN, report::megabytes);
    let records = options.records;
    report::print_upper_target(&format!("resident MB on {records} records, idle"), weigh(&subject), 100.0);
    let run = subject.run_load(clients, TARGET_CONNECTIONS, options.seconds.max(1) * 1000)?;
    let more = run.latencies.total();
    report::print_upper_target(
        &format!("resident MB on {records} records, after {more} more"),
        weigh(&subject),
        100.0,
    );
    Ok(())
}

/// A folder that is removed when this is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> std::io::Result<Self> {
        let folder = filled::target().join(format!("tmp/http-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        Ok(Self(folder.canonicalize()?))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}
