//! The subjects: different ways to claim and finish the same command.

use semel::{Engine, Intent, RequestOutcome, Settings, WorkResult, payload};
use semel_bench::barelog::BareLog;
use semel_bench::lifecycle::{self, claim, finish, id};
use semel_core::classify::Ending;
use semel_core::codec;
use semel_core::key::Key;
use semel_core::policy::{Class, Policy};
use semel_core::scope::{Identity, Operation, Scope};
use semel_core::store::{Change, Store, Written};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;

#[derive(Clone)]
pub(crate) enum Subject {
    /// The baseline: the same bytes, appended to a log.
    Log(Arc<BareLog>),
    /// A store: one insert and one swap.
    Store(&'static str, Arc<dyn Store>),
    /// The engine over a store.
    Engine(&'static str, Engine, Arc<Policy>),
    /// Replays by an engine: the first key, the number of keys, and the engine.
    Replay(&'static str, u64, u64, Arc<Subject>),
}

impl Subject {
    /// An engine that caches this many bytes of outcomes, and sweeps only on request.
    pub(crate) fn engine(
        name: &'static str,
        runtime: &Runtime,
        store: Arc<dyn Store>,
        cache_bytes_max: usize,
    ) -> Result<Self, Box<dyn Error>> {
        let mut settings = Settings { cache_bytes_max, ..Settings::default() };
        settings.sweep.every = Duration::ZERO;
        let engine =
            runtime.block_on(Engine::builder(store).settings(settings).name("gateway-7f9c").build())?;
        Ok(Self::Engine(name, engine, Arc::new(Policy::new(Class::Downstream))))
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Log(_) => "bare log",
            Self::Store(name, _) | Self::Engine(name, ..) | Self::Replay(name, ..) => name,
        }
    }

    /// Claims and finishes the `number`th command. It is durable on return.
    pub(crate) async fn command(&self, number: u64) {
        match self {
            Self::Log(log) => {
                let claim = claim(number);
                log.append(codec::encode_record(&claim.next)).await;
                log.append(codec::encode_record(&finish(&claim).next)).await;
            }
            Self::Store(_, store) => {
                let claim = claim(number);
                let claimed = store.write(id(number), Change::Insert(&claim.next)).await;
                assert!(matches!(claimed, Ok(Written::Done { .. })), "{claimed:?}");
                let finish = finish(&claim);
                let finished = store.write(id(number), Change::from(&finish)).await;
                assert!(matches!(finished, Ok(Written::Done { .. })), "{finished:?}");
            }
            Self::Engine(_, engine, policy) => {
                let answer = execute(engine, policy, number).await;
                assert!(matches!(&answer, RequestOutcome::Ran(ran) if ran.stored.is_some()), "{answer:?}");
            }
            Self::Replay(_, first, keys, engine) => {
                let Self::Engine(_, engine, policy) = &**engine else {
                    panic!("only an engine replays");
                };
                let answer = execute(engine, policy, first + number % keys).await;
                assert!(matches!(answer, RequestOutcome::Replayed(_)), "{answer:?}");
            }
        }
    }
}

async fn execute(engine: &Engine, policy: &Arc<Policy>, number: u64) -> RequestOutcome {
    let caller = format!("caller-{}", number % lifecycle::CALLERS);
    let scope = Scope::new(Identity::api_key(caller), Operation::route("POST", "/v1/payments"));
    let key = Key::from_source(&format!("order-{number:016}")).expect("a proper key");
    let intent = Intent::new(scope, key, policy.clone(), payload::Raw::from("amount=5"));
    let work = |_| async { WorkResult::from(Ending::Succeeded(lifecycle::outcome())) };
    engine.execute(intent, work).await.expect("the store is well").outcome
}
