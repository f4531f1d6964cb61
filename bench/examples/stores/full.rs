//! A Redis store at full load while its sweeper runs: whether it stops growing.

use crate::options::Options;
use crate::{bare_redis, open};
use semel::{Engine, Event, Intent, Observer, Settings, WorkResult, payload};
use semel_bench::lifecycle;
use semel_core::classify::Ending;
use semel_core::key::Key;
use semel_core::policy::{Class, Policy};
use semel_core::scope::{Identity, Operation, Scope};
use semel_core::store::Count;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// How long an outcome is replayed, and then its tombstone kept.
const RETENTION: Duration = Duration::from_secs(8);
const LEASE: Duration = Duration::from_secs(6);
/// How often the progress is printed.
const LINE_EVERY: Duration = Duration::from_secs(5);
/// The share of the last lines that is compared with those before.
const END: usize = 4;

/// The lag of the sweeper's round, in milliseconds.
#[derive(Clone, Default)]
struct Lag(Arc<AtomicU64>);

impl Observer for Lag {
    fn observe(&self, event: &Event<'_>) {
        if let Event::SweptChunk { lag, .. } = event {
            self.0.store(u64::try_from(lag.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    }
}

pub(crate) fn run(runtime: &Runtime, options: &Options, seconds: u64) -> Result<(), Box<dyn Error>> {
    let server = bare_redis::Server::find()?;
    let address = format!("//{}?prefix={}", server.address, server.prefix);
    let store = open(runtime, &semel_redis::Backend, &address)?;
    let mut settings = Settings { cache_bytes_max: 0, ..Settings::default() };
    // Nothing expires in the first moments after a start, and a short test has only those.
    (settings.clock.settle, settings.clock.heartbeat) = (Duration::ZERO, Duration::from_secs(1));
    settings.request_timeout = settings.store_timeout;
    settings.sweep.records_per_second_max = options.sweep_rate;
    let lag = Lag::default();
    let engine = Engine::builder(store.clone()).settings(settings).observer(lag.clone());
    let engine = runtime.block_on(engine.build())?;
    let policy = Policy::new(Class::Downstream).with(|policy| {
        (policy.lease, policy.ttl, policy.tombstone) = (LEASE, RETENTION, RETENTION);
        policy.work_deadline = LEASE;
    })?;
    let (policy, next) = (Arc::new(policy), Arc::new(AtomicU64::new(0)));
    let clients = options.clients.last().copied().unwrap_or(64);
    println!(
        "\n{clients} clients, records kept for 2 × {RETENTION:?}, sweeper at {} per second",
        options.sweep_rate
    );
    println!("{:>8} {:>12} {:>10} {:>8} {:>8}", "seconds", "new keys/s", "records", "MiB", "lag");
    for _ in 0..clients {
        let (engine, policy, next) = (engine.clone(), Arc::clone(&policy), Arc::clone(&next));
        runtime.spawn(async move {
            loop {
                command(&engine, &policy, next.fetch_add(1, Ordering::Relaxed)).await;
            }
        });
    }
    let (begun, mut before, mut counts) = (Instant::now(), 0, Vec::new());
    while begun.elapsed() < Duration::from_secs(seconds) {
        let line_begun = Instant::now();
        std::thread::sleep(LINE_EVERY);
        let done = next.load(Ordering::Relaxed);
        let count = runtime.block_on(store.count(Count::Records, u64::MAX))?.count;
        let rate = (done - before) as f64 / line_begun.elapsed().as_secs_f64();
        let lag = Duration::from_millis(lag.0.load(Ordering::Relaxed));
        let bytes = runtime.block_on(store.usage())?.data_bytes.unwrap_or_default();
        println!(
            "{:>8} {rate:>12.0} {count:>10} {:>8.1} {:>7.1}s",
            begun.elapsed().as_secs(),
            bytes as f64 / f64::from(1 << 20),
            lag.as_secs_f64()
        );
        before = done;
        counts.push(count);
    }
    let most = |counts: &[u64]| counts.iter().copied().max().unwrap_or_default();
    let (earlier, end) = counts.split_at(counts.len().saturating_sub(END));
    println!("most records: {} before, {} in the last {END} lines", most(earlier), most(end));
    server.clean()
}

async fn command(engine: &Engine, policy: &Arc<Policy>, number: u64) {
    let caller = format!("caller-{}", number % lifecycle::CALLERS);
    let scope = Scope::new(Identity::api_key(caller), Operation::route("POST", "/v1/payments"));
    let key = Key::from_source(&format!("order-{number:020}")).expect("a proper key");
    let intent = Intent::new(scope, key, Arc::clone(policy), payload::Raw::from("amount=5"));
    let work = |_| async { WorkResult::from(Ending::Succeeded(lifecycle::outcome())) };
    // On a busy machine a lease may end before its command is stored. The client goes on with the next one.
    drop(engine.execute(intent, work).await);
}
