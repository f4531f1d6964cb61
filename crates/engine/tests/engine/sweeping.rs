//! Several nodes on one store: one of them sweeps, and another one steps in where it does not.

use crate::world::{World, charge, intent_under, secs};
use semel::core::id::CommandId;
use semel::core::policy::{Class, Policy};
use semel::core::record::{Record, StateName};
use semel::core::store::{Change, Count, Cursor, Delegate, Page, Pending, Store, Written};
use semel::{Engine, Settings, Spawn, SystemRandom, Task};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// One node's way to the store. Every call takes a moment, so that nodes which wake together meet.
struct Counted {
    inner: Arc<dyn Store>,
    due: AtomicU64,
    swaps: AtomicU64,
    refused: AtomicU64,
}

impl Delegate for Counted {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn due<'a>(&'a self, after: Option<&'a Cursor>, limit: usize) -> Pending<'a, Page> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            let page = self.inner.due(after, limit).await?;
            self.due.fetch_add(page.items.len() as u64, Ordering::SeqCst);
            tokio::task::yield_now().await;
            Ok(page)
        })
    }

    fn write<'a>(&'a self, id: CommandId, change: Change<&'a Record>) -> Pending<'a, Written> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            let is_swap = matches!(change, Change::Replace(..));
            let written = self.inner.write(id, change).await?;
            self.swaps.fetch_add(u64::from(is_swap), Ordering::SeqCst);
            self.refused.fetch_add(u64::from(matches!(written, Written::Refused(_))), Ordering::SeqCst);
            Ok(written)
        })
    }
}

/// Runs tasks until the node is killed.
#[derive(Clone, Default)]
struct Killable(Arc<Mutex<Vec<tokio::task::AbortHandle>>>);

impl Spawn for Killable {
    fn spawn(&self, task: Task) {
        let handle = tokio::spawn(task).abort_handle();
        self.0.lock().expect("no panic").push(handle);
    }
}

impl Killable {
    fn kill(&self) {
        self.0.lock().expect("no panic").drain(..).for_each(|task| task.abort());
    }
}

struct SweepingNode {
    engine: Engine,
    store: Arc<Counted>,
    tasks: Killable,
}

impl SweepingNode {
    async fn start(world: &World) -> Self {
        let inner: Arc<dyn Store> = world.store.clone();
        let (due, swaps, refused) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let store = Arc::new(Counted { inner, due, swaps, refused });
        let mut settings = Settings::default();
        settings.clock.skew = secs(0);
        let tasks = Killable::default();
        let engine = Engine::builder(store.clone() as Arc<dyn Store>)
            .settings(settings)
            .on(Arc::new(world.clock.clone()), Arc::new(SystemRandom), Arc::new(tasks.clone()))
            .build()
            .await
            .expect("the store answers");
        Self { engine, store, tasks }
    }

    /// How many records it was shown as due, how many swaps it tried, and how many were refused, since it was last asked.
    fn counts(&self) -> [u64; 3] {
        [&self.store.due, &self.store.swaps, &self.store.refused].map(|count| count.swap(0, Ordering::SeqCst))
    }
}

/// Runs 100 commands whose outcomes are over 20 seconds later.
async fn run_a_hundred(engine: &Engine, name: &str) {
    let policy = Policy::new(Class::External)
        .with(|policy| {
            policy.lease = secs(5);
            policy.work_deadline = secs(5);
            policy.ttl = secs(20);
        })
        .expect("fit for use");
    for number in 0..100 {
        let intent = intent_under(policy.clone(), &format!("{name}-{number:030}"), "7");
        engine.run(intent, charge).await.expect("it runs");
    }
}

async fn expired(world: &World) -> u64 {
    world.store.count(Count::State(StateName::Expired), 10_000).await.expect("counted").count
}

async fn nodes(world: &World) -> Vec<SweepingNode> {
    let mut nodes = Vec::new();
    for _ in 0..4 {
        nodes.push(SweepingNode::start(world).await);
    }
    // Everybody knows of everybody, and nothing is held back for the start any more.
    world.pass(secs(150)).await;
    nodes
}

/// Counts from now on.
fn forget_counts(nodes: &[SweepingNode]) {
    for node in nodes {
        let [_, _, _] = node.counts();
    }
}

#[tokio::test]
async fn four_nodes_do_the_sweeping_of_one() {
    let world = World::new();
    let nodes = nodes(&world).await;
    run_a_hundred(&nodes[0].engine, "first").await;
    forget_counts(&nodes);
    world.pass(secs(30)).await;
    assert_eq!(expired(&world).await, 100);
    let counts: Vec<_> = nodes.iter().map(SweepingNode::counts).collect();
    let [due, swaps, refused] =
        counts.iter().fold([0; 3], |sum, one| [sum[0] + one[0], sum[1] + one[1], sum[2] + one[2]]);
    assert_eq!((swaps, refused), (100, 0), "each record is written once: {counts:?}");
    assert!(due <= 100 + 3 * 4, "the others looked at one record at a time: {counts:?}");
    assert_eq!(counts.iter().filter(|[_, swaps, _]| *swaps > 0).count(), 1, "{counts:?}");
}

#[tokio::test]
async fn another_node_steps_in_where_the_one_that_swept_was_killed() {
    let world = World::new();
    let nodes = nodes(&world).await;
    run_a_hundred(&nodes[0].engine, "first").await;
    forget_counts(&nodes);
    world.pass(secs(30)).await;
    let swept = nodes.iter().position(|node| node.counts()[1] > 0).expect("one has swept");
    nodes[swept].tasks.kill();
    let living = &nodes[(swept + 1) % 4];
    run_a_hundred(&living.engine, "second").await;
    forget_counts(&nodes);
    world.pass(secs(20 + 15)).await;
    assert_eq!(expired(&world).await, 200, "nothing is left unswept");
    let counts: Vec<_> = nodes.iter().map(SweepingNode::counts).collect();
    assert_eq!(counts[swept][1], 0, "the dead do nothing");
    let swaps: u64 = counts.iter().map(|[_, swaps, _]| swaps).sum();
    assert!(swaps <= 150, "one of those that live did nearly all of it: {counts:?}");
}
