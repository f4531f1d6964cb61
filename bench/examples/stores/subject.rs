//! The subjects: different ways to claim and finish the same command.

use crate::bare_redis::BareRedis;
use crate::by_hand::Pgbench;
use crate::client;
use crate::report::Run;
use crate::server::Server;
use semel::{Engine, Intent, RequestOutcome, Settings, WorkResult, payload};
use semel_bench::barelog::BareLog;
use semel_bench::lifecycle::{self, claim, finish, id};
use semel_bench::meter;
use semel_core::classify::Ending;
use semel_core::codec;
use semel_core::key::Key;
use semel_core::policy::{Class, Policy};
use semel_core::scope::{Identity, Operation, Scope};
use semel_core::store::{Change, Store, Written};
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tokio::runtime::Runtime;

#[derive(Clone)]
pub(crate) enum Subject {
    /// The baseline of PostgreSQL: the two usual statements.
    ByHand(Pgbench),
    /// The baseline of Redis: the two usual commands.
    BareRedis(Arc<BareRedis>),
    /// The baseline of an embedded store: the same bytes, appended to a log.
    Log(Arc<BareLog>),
    Store(Arc<dyn Store>),
    Engine(Engine, Arc<Policy>),
}

impl Subject {
    pub(crate) fn log(path: &Path) -> Result<Self, Box<dyn Error>> {
        Ok(Self::Log(Arc::new(BareLog::create(path)?)))
    }

    pub(crate) fn store(store: Arc<dyn Store>) -> Self {
        Self::Store(store)
    }

    /// An engine without a cache that sweeps only on request.
    pub(crate) fn engine(runtime: &Runtime, store: Arc<dyn Store>) -> Result<Self, Box<dyn Error>> {
        let mut settings = Settings { cache_bytes_max: 0, ..Settings::default() };
        settings.sweep.every = Duration::ZERO;
        let engine = runtime.block_on(Engine::builder(store).settings(settings).build())?;
        Ok(Self::Engine(engine, Arc::new(Policy::new(Class::Downstream))))
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::ByHand(_) => "pgbench, by hand",
            Self::BareRedis(_) => "SET NX + SET",
            Self::Log(_) => "bare log",
            Self::Store(_) => "store",
            Self::Engine(..) => "engine",
        }
    }

    /// Runs the subject once.
    pub(crate) fn run(
        &self,
        runtime: &Runtime,
        clients: u64,
        span: Duration,
        next: &Arc<AtomicU64>,
        server: Option<&Server>,
    ) -> Result<Run, Box<dyn Error>> {
        let server_before = server.map(Server::cpu_micros).transpose()?;
        let client_before = client::cpu_micros()?;
        let (done, per_second, mean_millis, latencies) = if let Self::ByHand(pgbench) = self {
            let result = pgbench.run(clients, span)?;
            (result.done, result.per_second, result.mean_millis, Vec::new())
        } else {
            let run = meter::measure(runtime, clients, span, next, || {
                let subject = self.clone();
                move |number| {
                    let subject = subject.clone();
                    async move { subject.command(number).await }
                }
            });
            let sum: f64 = run.latencies.iter().map(|&micros| f64::from(micros)).sum();
            (run.done(), run.per_second(), sum / run.done() / 1000.0, run.latencies)
        };
        let client_micros = (client::cpu_micros()? - client_before) / done;
        let server_micros = match (server, server_before) {
            (Some(server), Some(before)) => (server.cpu_micros()? - before) / done,
            _ => f64::NAN,
        };
        Ok(Run { per_second, mean_millis, client_micros, server_micros, latencies })
    }

    /// Claims and finishes the `number`th command. Both are durable on return.
    async fn command(&self, number: u64) {
        match self {
            Self::ByHand(_) => unreachable!("pgbench has its own clients"),
            Self::BareRedis(redis) => redis.command(number).await,
            Self::Log(log) => {
                let claim = claim(number);
                log.append(codec::encode_record(&claim.next)).await;
                log.append(codec::encode_record(&finish(&claim).next)).await;
            }
            Self::Store(store) => {
                let claim = claim(number);
                let claimed = store.write(id(number), Change::Insert(&claim.next)).await;
                assert!(matches!(claimed, Ok(Written::Done { .. })), "{claimed:?}");
                let finish = finish(&claim);
                let finished = store.write(id(number), Change::from(&finish)).await;
                assert!(matches!(finished, Ok(Written::Done { .. })), "{finished:?}");
            }
            Self::Engine(engine, policy) => {
                let caller = format!("caller-{}", number % lifecycle::CALLERS);
                let scope = Scope::new(Identity::api_key(caller), Operation::route("POST", "/v1/payments"));
                let key = Key::from_source(&format!("order-{number:020}")).expect("a proper key");
                let intent = Intent::new(scope, key, policy.clone(), payload::Raw::from("amount=5"));
                let work = |_| async { WorkResult::from(Ending::Succeeded(lifecycle::outcome())) };
                let outcome = engine.execute(intent, work).await.expect("the store is well").outcome;
                assert!(matches!(&outcome, RequestOutcome::Ran(ran) if ran.stored.is_some()), "{outcome:?}");
            }
        }
    }
}
