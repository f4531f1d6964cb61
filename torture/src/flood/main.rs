//! Floods a gateway with hostile clients, while an honest client must be served.
//!
//! What lives here: which floods are run, for how long, and the verdict. What must never: a flood against
//! anything but a gateway that was started here, on loopback.

mod attacks;
mod cgroup;
#[path = "../clock.rs"]
mod clock;
mod gateway;
mod honest;
mod service;

use attacks::Attack;
use clap::{Parser, ValueEnum as _};
use gateway::World;
use rustix::process::{Resource, getrlimit, nice, setrlimit};
use semel_gateway::stores::Url;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The highest memory use that is allowed.
const PEAK_MIB_MAX: u64 = 512;
/// How many of the honest client's requests must be answered correctly at the first try, in percent.
const SERVED_PERCENT_MIN: u64 = 95;

/// How much lower the priority of floods is.
const NICE: i32 = 10;

/// Files that each of the processes may open: nginx has two per connection.
const FILES_MIN: u64 = 20_000;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Floods a gateway with hostile clients, while an honest client must be served.
///
/// Each scenario runs twice: directly against the gateway, and through nginx.
#[derive(Debug, Parser)]
#[command(
    bin_name = "cargo xtask torture",
    override_usage = "cargo xtask torture [OPTIONS]",
    args_override_self = true
)]
struct Options {
    /// The program to flood
    #[arg(long, value_name = "FILE", hide = true)]
    semel: PathBuf,
    #[arg(long, value_name = "FILE", hide = true)]
    nginx: Option<PathBuf>,
    /// Where the gateway keeps its records (default: a file in a new temporary directory). On a server each run creates
    /// a new store and leaves it there; `postgres` and `redis` are servers of `cargo xtask services`
    #[arg(long, value_name = "URL")]
    store: Option<Url>,
    /// How long each scenario lasts
    #[arg(long, value_name = "N", default_value = "60")]
    seconds: u64,
    /// The scenario (default: each in turn)
    #[arg(long, value_name = "NAME", conflicts_with = "all")]
    scenario: Option<Attack>,
    /// All of them at the same time
    #[arg(long)]
    all: bool,
}

impl Options {
    fn scenarios(&self) -> Vec<Vec<Attack>> {
        let known = Attack::value_variants();
        match self.scenario {
            Some(one) => vec![vec![one]],
            None if self.all => vec![known.to_vec()],
            None => known.iter().map(|one| vec![*one]).collect(),
        }
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    if let Err(error) = raise_file_limit() {
        eprintln!("error: {error}");
        return ExitCode::FAILURE;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let ended = runtime.map_err(Failure::from).and_then(|runtime| runtime.block_on(run(&options)));
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Each connection needs a file descriptor, here and in the started processes. The usual limit is a thousand.
fn raise_file_limit() -> Result<(), Failure> {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.maximum.is_some_and(|maximum| maximum < FILES_MIN) {
        return Err(format!("floods need {FILES_MIN} open files; raise the hard limit (ulimit -Hn)").into());
    }
    limit.current = limit.maximum.map_or(Some(FILES_MIN), |maximum| Some(maximum.min(FILES_MIN)));
    Ok(setrlimit(Resource::Nofile, limit)?)
}

async fn run(options: &Options) -> Result<(), Failure> {
    let mut failed = 0;
    for scenario in &options.scenarios() {
        for nginx in [None, options.nginx.as_ref()].into_iter().take(1 + usize::from(options.nginx.is_some()))
        {
            let names: Vec<_> = scenario.iter().map(|attack| attack.name()).collect();
            let route = if nginx.is_some() { "through nginx" } else { "direct" };
            let result = flood(options, scenario, nginx).await;
            let result = result.map_err(|error| format!("{} ({route}): {error}", names.join(", ")))?;
            failed += usize::from(!result.passed);
            let verdict = if result.passed { "ok" } else { "FAILED" };
            println!("{verdict}: {} ({route}): {}", names.join(", "), result.text);
        }
    }
    if failed == 0 { Ok(()) } else { Err(format!("{failed} scenarios failed").into()) }
}

struct FloodResult {
    passed: bool,
    text: String,
}

/// The runtime of the floods. It leaves the processor to the honest client and the service, because real
/// floods come from other machines.
fn flood_runtime() -> std::io::Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    // On Linux this applies to the calling thread. If it fails, the floods only compete for the processor.
    builder.worker_threads(2).on_thread_start(|| {
        let _ = nice(NICE);
    });
    builder.enable_all().build()
}

async fn flood(
    options: &Options,
    attacks: &[Attack],
    nginx: Option<&PathBuf>,
) -> Result<FloodResult, Failure> {
    let world = World::start(&options.semel, nginx, options.store.as_ref()).await?;
    let is_over = Arc::new(AtomicBool::new(false));
    let (floods, mut tasks) = (flood_runtime()?, tokio::task::JoinSet::new());
    let inside = floods.enter();
    for attack in attacks {
        attack.begin(&mut tasks, world.front, &is_over);
    }
    drop(inside);
    let served = honest::serve(world.front, Duration::from_secs(options.seconds)).await;
    is_over.store(true, Ordering::Relaxed);
    tasks.shutdown().await;
    floods.shutdown_background();
    let peak = world.peak_mib()?;
    let passed = peak < PEAK_MIB_MAX
        && served.asked > 0
        && served.failed == 0
        && served.first * 100 >= served.asked * SERVED_PERCENT_MIN;
    let limit = if world.is_limited() { ", in a control group" } else { "" };
    let text = format!("{served}; the gateway used at most {peak} MiB{limit}");
    Ok(FloodResult { passed, text })
}
