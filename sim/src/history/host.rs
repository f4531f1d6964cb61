//! A node: its clock, its randomness, its tasks, and its engine.
//!
//! Engines are built only here, and get nothing that a real node would not have.

use super::executor::{Handle, TaskOwner};
use super::network::{self, Network};
use super::provider;
use super::ring;
use super::sabotage::Sabotage;
use super::world::World;
use semel::core::store;
use semel::core::time::Time;
use semel::{Case, Clock, Engine, Finding, Random, Sleep, Spawn, Task};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The operation of every intent.
pub(crate) const OPERATION: &str = "charge";

/// A node, as seen by the world.
#[derive(Default)]
pub(crate) struct Host {
    pub(crate) engine: Option<Engine>,
    pub(crate) is_down: bool,
    /// Which ring of sealing keys it was last started with.
    pub(crate) ring: u64,
    boots: u64,
}

/// Starts a node on the same store with the same secret, without any memory.
pub(crate) fn boot(world: &Arc<World>, node: usize) {
    let stage = world.audit().ring;
    let boots = {
        let host = &mut world.hosts()[node];
        host.is_down = false;
        host.ring = stage;
        host.boots += 1;
        host.boots
    };
    world.note(None, format!("node {node} starts"));
    let world = Arc::clone(world);
    let starting = Arc::clone(&world);
    world.spawn(TaskOwner::Node(node), async move {
        loop {
            let built = tokio::select! {
                biased;
                built = build(&starting, node, boots, stage) => built,
                () = starting.sleep(Duration::from_secs(2)) => None,
            };
            if let Some(engine) = built {
                let mark = network::mark_time(&starting);
                starting.audit().node_started(starting.handle.now(), node, mark);
                starting.hosts()[node].engine = Some(engine);
                return;
            }
            starting.sleep(Duration::from_millis(200)).await;
        }
    });
}

async fn build(world: &Arc<World>, node: usize, boots: u64, stage: u64) -> Option<Engine> {
    let handle = &world.handle;
    let counts_pauses = !world.is_sabotaged(Sabotage::StoppedClock);
    let clock = HostClock {
        handle: Arc::clone(handle),
        node,
        drift_ppm: world.plan.drift_ppm[node],
        counts_pauses,
        base: Duration::from_secs(1_000 * (boots + 1)),
    };
    let repeated = world.is_sabotaged(Sabotage::RepeatedTokens);
    let random = HostRandom { world: Arc::clone(world), repeated, drawn: AtomicU64::new(0) };
    let spawn = HostSpawn { handle: Arc::clone(handle), node };
    let network = Arc::new(Network::new(Arc::clone(world), node));
    let mut builder = Engine::builder(network)
        .secret(super::world::SECRET)
        .settings(world.plan.settings.clone())
        .quotas(world.plan.quotas.clone())
        .name(format!("node {node}.{boots}"))
        .on(Arc::new(clock), Arc::new(random), Arc::new(spawn));
    if let Some(ring) = ring::of_node(world, stage) {
        builder = builder.sealing(ring);
    }
    if world.plan.reconcilers {
        let asking = Arc::clone(world);
        builder = builder.reconciler(OPERATION, move |case: Case| ask(Arc::clone(&asking), case));
    }
    builder.build().await.ok()
}

/// Asks the provider, which answers truthfully as of some moment between question and answer.
async fn ask(world: Arc<World>, case: Case) -> Finding {
    provider::ask(&world, &case.record).await
}

/// A node's clocks. It has no wall clock: the engine must not need one if the store has its own.
struct HostClock {
    handle: Arc<Handle>,
    node: usize,
    drift_ppm: u64,
    counts_pauses: bool,
    base: Duration,
}

impl store::Clock for HostClock {
    fn now(&self) -> Time {
        Time::from_millis(0)
    }
}

impl Clock for HostClock {
    fn uptime(&self) -> Duration {
        let mut now = self.handle.now();
        if !self.counts_pauses {
            now -= self.handle.paused_total(self.node);
        }
        let fast = u128::from(now) * u128::from(1_000_000 + self.drift_ppm) / 1_000_000;
        self.base + Duration::from_nanos_u128(fast)
    }

    fn sleep(&self, span: Duration) -> Sleep {
        // Never less than `span` by its own uptime.
        let nanos = span.as_nanos().saturating_mul(1_000_000) / u128::from(1_000_000 + self.drift_ppm) + 2;
        Box::pin(self.handle.sleep(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))))
    }
}

struct HostRandom {
    world: Arc<World>,
    repeated: bool,
    drawn: AtomicU64,
}

impl Random for HostRandom {
    fn bits(&self) -> u128 {
        if self.repeated {
            return u128::from(self.drawn.fetch_add(1, Ordering::Relaxed) / 8);
        }
        ring::Drawn(Arc::clone(&self.world)).bits()
    }
}

struct HostSpawn {
    handle: Arc<Handle>,
    node: usize,
}

impl Spawn for HostSpawn {
    fn spawn(&self, task: Task) {
        self.handle.spawn(TaskOwner::Node(self.node), task);
    }
}
