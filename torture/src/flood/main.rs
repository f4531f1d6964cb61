//! Floods a gateway as clients do that mean no good, while an honest client has to be served.
//!
//! What lives here: which floods are run, for how long, and what is judged. What must never: a flood that goes anywhere but to a
//! gateway that was started here, on loopback.

mod attacks;
mod cgroup;
#[path = "../clock.rs"]
mod clock;
mod gateway;
mod honest;
mod service;

use attacks::Attack;
use gateway::World;
use rustix::process::{Resource, getrlimit, nice, setrlimit};
use semel_gateway::stores::Url;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const HELP: &str = "usage: cargo xtask torture [--store URL] [--seconds N] [--scenario NAME] [--all]

  --store URL       where the gateway keeps its records (default: a file in a new temporary directory). On a server each run makes a
                    store of its own and leaves it there; `postgres` and `redis` are servers of `cargo xtask services`
  --seconds N       how long each scenario lasts (default 60)
  --scenario NAME   one of decoding, responses, requests, uploads, readers; each by itself otherwise
  --all             all of them at the same time

Each is run twice: straight to the gateway, and through nginx.";

/// The most memory that the gateway may have had.
const PEAK_MIB_MAX: u64 = 512;
/// Of the honest client's requests, in percent, answered as they should be at the first try.
const SERVED_PERCENT_MIN: u64 = 95;

/// By how much floods step back.
const NICE: i32 = 10;

/// Files that each of the processes may open: nginx has two for each connection.
const FILES_MIN: u64 = 20_000;

type Failure = Box<dyn std::error::Error + Send + Sync>;

struct Orders {
    semel: PathBuf,
    nginx: Option<PathBuf>,
    store: Option<Url>,
    seconds: u64,
    scenarios: Vec<Vec<Attack>>,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--help") {
        println!("{HELP}");
        return ExitCode::SUCCESS;
    }
    let orders = match read(&arguments) {
        Ok(orders) => orders,
        Err(error) => {
            eprintln!("error: {error}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    if let Err(error) = raise_file_limit() {
        eprintln!("error: {error}");
        return ExitCode::FAILURE;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let ended = runtime.map_err(Failure::from).and_then(|runtime| runtime.block_on(run(&orders)));
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Each connection is a file, here and in the processes that are started. The usual limit is a thousand.
fn raise_file_limit() -> Result<(), Failure> {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.maximum.is_some_and(|maximum| maximum < FILES_MIN) {
        return Err(format!("floods need {FILES_MIN} open files; raise the hard limit (ulimit -Hn)").into());
    }
    limit.current = limit.maximum.map_or(Some(FILES_MIN), |maximum| Some(maximum.min(FILES_MIN)));
    Ok(setrlimit(Resource::Nofile, limit)?)
}

fn read(arguments: &[String]) -> Result<Orders, Failure> {
    let (mut semel, mut nginx, mut store, mut seconds, mut chosen, mut is_all) =
        (None, None, None, 60, None, false);
    let mut rest = arguments.iter();
    while let Some(name) = rest.next() {
        if name == "--all" {
            is_all = true;
            continue;
        }
        let value = rest.next().ok_or_else(|| format!("`{name}` needs a value, or is not known"))?;
        match name.as_str() {
            "--semel" => semel = Some(PathBuf::from(value)),
            "--nginx" => nginx = Some(PathBuf::from(value)),
            "--store" => store = Some(value.parse::<Url>()?),
            "--seconds" => {
                seconds = value.parse().map_err(|_| format!("`{value}` is not a number of seconds"))?;
            }
            "--scenario" => {
                chosen =
                    Some(Attack::by_name(value).ok_or_else(|| format!("no scenario is called `{value}`"))?);
            }
            _ => return Err(format!("`{name}` is not known").into()),
        }
    }
    let scenarios = match (chosen, is_all) {
        (Some(one), false) => vec![vec![one]],
        (None, true) => vec![Attack::ALL.to_vec()],
        (None, false) => Attack::ALL.iter().map(|one| vec![*one]).collect(),
        (Some(_), true) => return Err("--all and --scenario exclude each other".into()),
    };
    let semel = semel.ok_or("--semel, the program to flood, is missing")?;
    Ok(Orders { semel, nginx, store, seconds, scenarios })
}

async fn run(orders: &Orders) -> Result<(), Failure> {
    let mut failed = 0;
    for scenario in &orders.scenarios {
        for nginx in [None, orders.nginx.as_ref()].into_iter().take(1 + usize::from(orders.nginx.is_some())) {
            let names: Vec<_> = scenario.iter().map(|attack| attack.name()).collect();
            let way = if nginx.is_some() { "through nginx" } else { "direct" };
            let told = flood(orders, scenario, nginx).await;
            let told = told.map_err(|error| format!("{} ({way}): {error}", names.join(", ")))?;
            failed += usize::from(!told.is_good);
            let verdict = if told.is_good { "ok" } else { "FAILED" };
            println!("{verdict}: {} ({way}): {}", names.join(", "), told.text);
        }
    }
    if failed == 0 { Ok(()) } else { Err(format!("{failed} scenarios failed").into()) }
}

struct Told {
    is_good: bool,
    text: String,
}

/// Where floods run: apart from the honest client and the service, to which they leave the processor. They would come from other
/// machines.
fn elsewhere() -> std::io::Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    // Linux counts this for each thread by itself. Without it they are only in the way.
    builder.worker_threads(2).on_thread_start(|| {
        let _ = nice(NICE);
    });
    builder.enable_all().build()
}

async fn flood(orders: &Orders, attacks: &[Attack], nginx: Option<&PathBuf>) -> Result<Told, Failure> {
    let world = World::start(&orders.semel, nginx, orders.store.as_ref()).await?;
    let is_over = Arc::new(AtomicBool::new(false));
    let (floods, mut tasks) = (elsewhere()?, tokio::task::JoinSet::new());
    let inside = floods.enter();
    for attack in attacks {
        attack.begin(&mut tasks, world.front, &is_over);
    }
    drop(inside);
    let served = honest::serve(world.front, Duration::from_secs(orders.seconds)).await;
    is_over.store(true, Ordering::Relaxed);
    tasks.shutdown().await;
    floods.shutdown_background();
    let peak = world.peak_mib()?;
    let is_good = peak < PEAK_MIB_MAX
        && served.asked > 0
        && served.lost == 0
        && served.first * 100 >= served.asked * SERVED_PERCENT_MIN;
    let limit = if world.is_limited() { ", in a control group" } else { "" };
    let text = format!("{served}; the gateway took {peak} MiB at most{limit}");
    Ok(Told { is_good, text })
}
