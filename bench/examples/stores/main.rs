//! The cost of each store, compared with the usual manual solution on the same server.
//!
//! `cargo xtask bench stores [--records N,…] [--clients N,…] [--seconds N] [--rounds N]`, with
//! `--only sqlite|postgres|redis` and `--parameters P`
//!
//! Store and baseline run in turns on the same server with the same durability: two commits per command, for
//! its claim and its outcome. Compare the ratios. Client CPU is that of this process or of `pgbench`; server
//! CPU is that of all its processes.

#![expect(clippy::disallowed_methods, reason = "a benchmark may look at the clock")]

mod bare_redis;
mod by_hand;
mod client;
mod database;
mod full;
mod options;
mod report;
mod server;
mod subject;

use clap::Parser as _;
use options::Options;
use report::Run;
use semel_bench::{lifecycle, meter};
use semel_core::store::{Backend, OpenOptions, Store};
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use subject::Subject;
use tokio::runtime::Runtime;

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    println!("{}\n{}", options.command_line(), meter::machine());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if let Some(seconds) = options.full {
        return full::run(&runtime, &options, seconds);
    }
    if options.measures("sqlite") {
        sqlite(&runtime, &options)?;
    }
    if options.measures("postgres") {
        postgres(&runtime, &options)?;
    }
    if options.measures("redis") {
        redis(&runtime, &options)?;
    }
    Ok(())
}

/// The embedded store, compared with a log that syncs as often. `bench store` shows more detail.
fn sqlite(runtime: &Runtime, options: &Options) -> Result<(), Box<dyn Error>> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/bench/stores");
    std::fs::create_dir_all(&folder)?;
    let (file, log) = (folder.join("store.db"), folder.join("bare.log"));
    for path in semel_sql::sqlite::Backend.files(&file.to_string_lossy()) {
        let _ = std::fs::remove_file(path);
    }
    let store = open(runtime, &semel_sql::sqlite::Backend, &file.to_string_lossy())?;
    let floor = Subject::log(&log)?;
    println!("\n# SQLite {}", semel_sql::sqlite::Backend.library().unwrap_or_default());
    let next = Arc::new(AtomicU64::new(0));
    for &clients in &options.clients {
        let subjects =
            [floor.clone(), Subject::store(store.clone()), Subject::engine(runtime, store.clone())?];
        compare(runtime, options, clients, &next, &subjects, None)?;
    }
    runtime.block_on(store.close());
    Ok(())
}

/// The PostgreSQL store, compared with `INSERT … ON CONFLICT DO NOTHING` and `UPDATE` by pgbench.
fn postgres(runtime: &Runtime, options: &Options) -> Result<(), Box<dyn Error>> {
    let database = database::Database::create(runtime)?;
    let server = server::Server::of(runtime, &database)?;
    println!("\n# PostgreSQL {}", database.version(runtime)?);
    let mut cost_of_few = None;
    for &records in &options.records {
        let parameters = options.parameters.as_deref().unwrap_or_default();
        let address = format!("{}?{parameters}", database.address());
        let store = open(runtime, &semel_sql::postgres::Backend, &address)?;
        let held = database.fill(runtime, &store, records)?;
        println!("\n## {records} records before{held}");
        // Each run uses new numbers.
        let next = Arc::new(AtomicU64::new(records << 32));
        for &clients in &options.clients {
            let subjects = [
                Subject::ByHand(by_hand::Pgbench::new(&database)?),
                Subject::store(store.clone()),
                Subject::engine(runtime, store.clone())?,
            ];
            let cost = compare(runtime, options, clients, &next, &subjects, Some(&server))?;
            if Some(&clients) == options.clients.last() {
                match cost_of_few {
                    None => cost_of_few = Some(cost),
                    Some(few) => {
                        println!("server CPU of the store, compared with the first table: {:.2}", cost / few);
                    }
                }
            }
        }
        runtime.block_on(store.close());
    }
    database.drop(runtime)
}

/// The Redis store, compared with `SET … NX` and `SET` over one connection.
fn redis(runtime: &Runtime, options: &Options) -> Result<(), Box<dyn Error>> {
    let server = bare_redis::Server::find()?;
    let process = server::Server::of_process(server.info("process_id")?.parse()?)?;
    println!("\n# Redis {}", server.info("redis_version")?);
    let parameters = options.parameters.as_deref().map(|given| format!("&{given}")).unwrap_or_default();
    let address = format!("//{}?prefix={}{parameters}", server.address, server.prefix);
    let store = open(runtime, &semel_redis::Backend, &address)?;
    let next = Arc::new(AtomicU64::new(0));
    for &clients in &options.clients {
        let floor = bare_redis::BareRedis::connect(runtime, &server, lifecycle::BODY_BYTES)?;
        let subjects = [
            Subject::BareRedis(floor),
            Subject::store(store.clone()),
            Subject::engine(runtime, store.clone())?,
        ];
        compare(runtime, options, clients, &next, &subjects, Some(&process))?;
    }
    runtime.block_on(store.close());
    server.clean()
}

fn open(runtime: &Runtime, backend: &dyn Backend, address: &str) -> Result<Arc<dyn Store>, Box<dyn Error>> {
    Ok(runtime.block_on(backend.open(address, &OpenOptions::default()))?)
}

/// Runs the subjects in turns; the first is the baseline. Returns the server's CPU per command of the second.
fn compare(
    runtime: &Runtime,
    options: &Options,
    clients: u64,
    next: &Arc<AtomicU64>,
    subjects: &[Subject],
    server: Option<&server::Server>,
) -> Result<f64, Box<dyn Error>> {
    let mut runs: Vec<Vec<Run>> = subjects.iter().map(|_| Vec::new()).collect();
    for _ in 0..options.rounds {
        for (subject, runs) in subjects.iter().zip(&mut runs) {
            runs.push(subject.run(
                runtime,
                clients,
                Duration::from_secs_f64(options.seconds),
                next,
                server,
            )?);
        }
    }
    println!("\n{clients} clients, claim + outcome ({} bytes of response)", lifecycle::BODY_BYTES);
    report::table(&subjects.iter().map(Subject::name).collect::<Vec<_>>(), &runs);
    Ok(meter::median(runs[1].iter().map(|run| run.server_micros)))
}
