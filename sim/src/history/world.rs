//! The world of a history.
//!
//! What all parts share (time, randomness, the store's entries, the ledger, the audit), and faults of whole nodes.
//! Every decision comes from the seed.

use super::audit::Audit;
use super::chance::Chance;
use super::executor::{Handle, Sleep, TaskOwner};
use super::exercised::Exercised;
use super::host::{self, Host};
use super::plan::{Plan, millis};
use super::provider::Ledger;
use super::sabotage::Sabotage;
use bytes::Bytes;
use semel::core::fingerprint::{Fingerprint, Payload, Selection};
use semel::core::id::CommandId;
use semel::core::key::Key;
use semel::core::scope::{Identity, Operation, Scope, Secret};
use semel::core::store;
use semel::core::time::Time;
use semel::{Engine, memory, payload};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The hashing secret of every node.
pub(crate) const SECRET: &[u8] = b"the same secret on every node!!!";

/// When histories start, by the store's clock.
const EPOCH_MILLIS: u64 = 1_700_000_000_000;

/// How many payloads there are.
pub(crate) const PAYLOADS: usize = 3;

/// How far a wrong clock is off: more than any node is down for, and more than [`DOWNTIME_MAX`].
const WRONG_MILLIS: (u64, u64) = (1_200_000, 400 * 86_400_000);

/// The store's clock: virtual time plus an offset.
pub(crate) struct StoreClock {
    handle: Arc<Handle>,
    /// The offset within the policies' skew.
    ahead_millis: AtomicU64,
    /// The additional offset of a wrong clock.
    wrong_millis: AtomicI64,
    /// The additional offset of the machine whose call is being carried out.
    machine_millis: AtomicU64,
}

impl StoreClock {
    /// What it would show if it were not wrong.
    fn right(&self) -> Time {
        let ahead = self.ahead_millis.load(Ordering::Relaxed);
        Time::from_millis(EPOCH_MILLIS + self.handle.now() / 1_000_000 + ahead)
    }
}

impl store::Clock for StoreClock {
    fn now(&self) -> Time {
        let wrong = self.wrong_millis.load(Ordering::Relaxed);
        let machine = Duration::from_millis(self.machine_millis.load(Ordering::Relaxed));
        Time::from_millis(self.right().as_millis().saturating_add_signed(wrong)) + machine
    }
}

/// The world of a history.
pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) sabotage: Option<Sabotage>,
    pub(crate) handle: Arc<Handle>,
    pub(crate) store: memory::Store,
    pub(crate) secret: Secret,
    /// The earlier entries of each ID and their times, for a store that answers with old ones.
    pub(crate) past: Mutex<BTreeMap<CommandId, Vec<(u64, store::Reading)>>>,
    clock: Arc<StoreClock>,
    chance: Mutex<Chance>,
    audit: Mutex<Audit>,
    ledger: Mutex<Ledger>,
    hosts: Mutex<Vec<Host>>,
    /// How far each node's own clock is ahead, in milliseconds.
    ahead_millis: Vec<AtomicU64>,
    /// The mark when a node with another clock started, for a store that goes on showing it.
    pub(crate) old_mark: Mutex<Option<Bytes>>,
    outage_until: AtomicU64,
    healed: AtomicBool,
    over: AtomicBool,
}

impl World {
    pub(crate) fn new(
        plan: Plan,
        chance: Chance,
        handle: Arc<Handle>,
        sabotage: Option<Sabotage>,
    ) -> Arc<Self> {
        let clock = Arc::new(StoreClock {
            handle: Arc::clone(&handle),
            ahead_millis: AtomicU64::new(0),
            wrong_millis: AtomicI64::new(0),
            machine_millis: AtomicU64::new(0),
        });
        let secret = Secret::from_bytes(SECRET).expect("it is long enough");
        let ids = (0..plan.keys.len()).map(|key| secret.command_id(&scope(), &name(key))).collect();
        let fingerprints = (0..PAYLOADS).map(fingerprint).collect();
        let audit = Mutex::new(Audit::new(&plan, ids, fingerprints));
        let hosts = (0..plan.nodes).map(|_| Host::default()).collect();
        let ahead_millis = (0..plan.nodes).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Self {
            plan,
            sabotage,
            handle,
            store: memory::Store::with_clock(Arc::clone(&clock) as Arc<dyn store::Clock>),
            secret,
            past: Mutex::default(),
            clock,
            chance: Mutex::new(chance),
            audit,
            ledger: Mutex::default(),
            hosts: Mutex::new(hosts),
            ahead_millis,
            old_mark: Mutex::default(),
            outage_until: AtomicU64::new(0),
            healed: AtomicBool::new(false),
            over: AtomicBool::new(false),
        })
    }

    pub(crate) fn audit(&self) -> MutexGuard<'_, Audit> {
        lock(&self.audit)
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.ledger)
    }

    pub(crate) fn chance(&self) -> MutexGuard<'_, Chance> {
        lock(&self.chance)
    }

    pub(crate) fn hosts(&self) -> MutexGuard<'_, Vec<Host>> {
        lock(&self.hosts)
    }

    /// The store's time without a wrong clock, by which promises are judged.
    pub(crate) fn store_now(&self) -> Time {
        self.clock.right()
    }

    pub(crate) fn sleep(&self, span: Duration) -> Sleep {
        self.handle.sleep(span)
    }

    pub(crate) fn is_sabotaged(&self, by: Sabotage) -> bool {
        self.sabotage == Some(by)
    }

    /// A fault with this probability in a thousand, until faults end.
    pub(crate) fn fault(&self, permille: u64) -> bool {
        permille > 0 && !self.is_healed() && self.chance().permille(permille)
    }

    pub(crate) fn span(&self, low_millis: u64, high_millis: u64) -> Duration {
        let micros = self.chance().between(low_millis * 1_000, high_millis * 1_000);
        Duration::from_micros(micros)
    }

    pub(crate) fn spawn(&self, home: TaskOwner, task: impl Future<Output = ()> + Send + 'static) -> u64 {
        self.handle.spawn(home, Box::pin(task))
    }

    pub(crate) fn note(&self, key: Option<usize>, text: String) {
        self.audit().note(self.handle.now(), key, text);
    }

    pub(crate) fn count(&self, what: Exercised) {
        self.audit().tally.count(what);
    }

    /// Ends all faults.
    pub(crate) fn heal(&self) {
        self.healed.store(true, Ordering::Relaxed);
        self.outage_until.store(0, Ordering::Relaxed);
        self.put_clock_right();
        for node in 0..self.plan.nodes {
            self.set_clock_of(node, 0);
            self.handle.resume_node(node);
        }
        self.note(None, "faults end".to_owned());
    }

    pub(crate) fn is_healed(&self) -> bool {
        self.healed.load(Ordering::Relaxed)
    }

    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    pub(crate) fn begin_outage(&self, span: Duration) {
        self.count(Exercised::Outage);
        self.note(None, format!("the store is out for {span:?}"));
        let until = self.handle.now() + u64::try_from(span.as_nanos()).unwrap_or(0);
        self.outage_until.store(until, Ordering::Relaxed);
    }

    pub(crate) fn is_out(&self) -> bool {
        self.handle.now() < self.outage_until.load(Ordering::Relaxed)
    }

    /// Sets the store's clock forward or back, within the skew.
    pub(crate) fn turn_clock(&self) {
        // Drift uses part of the allowance.
        let most = u64::try_from(self.plan.skew.as_millis()).unwrap_or(0) * 2 / 3;
        let ahead = self.chance().between(0, most);
        self.clock.ahead_millis.store(ahead, Ordering::Relaxed);
        self.count(Exercised::ClockJump);
        self.note(None, format!("the store's clock is now {ahead} ms ahead"));
    }

    /// Sets the store's clock far wrong, and back after a while.
    pub(crate) fn put_clock_wrong(self: &Arc<Self>) {
        let (by, gone_for) = {
            let mut chance = self.chance();
            let by = chance.between(WRONG_MILLIS.0, WRONG_MILLIS.1);
            let by = i64::try_from(by).unwrap_or(i64::MAX);
            (if chance.percent(50) { by } else { -by }, chance.between(200, 15_000))
        };
        self.count(if by > 0 { Exercised::WrongAhead } else { Exercised::WrongBehind });
        self.note(None, format!("the store's clock is now wrong by {by} ms"));
        self.clock.wrong_millis.store(by, Ordering::Relaxed);
        let world = Arc::clone(self);
        self.spawn(TaskOwner::Outside, async move {
            world.sleep(Duration::from_millis(gone_for)).await;
            world.put_clock_right();
        });
    }

    fn put_clock_right(&self) {
        if self.clock.wrong_millis.swap(0, Ordering::Relaxed) != 0 {
            self.note(None, "the store's clock is right again".to_owned());
        }
    }

    /// Sets a node's own clock ahead.
    pub(crate) fn set_clock_of(&self, node: usize, ahead_millis: u64) {
        if self.ahead_millis[node].swap(ahead_millis, Ordering::Relaxed) != ahead_millis {
            self.note(None, format!("node {node}'s clock is now {ahead_millis} ms ahead of the others"));
        }
    }

    /// How far a node's own clock is ahead.
    pub(crate) fn clock_of(&self, node: usize) -> u64 {
        self.ahead_millis[node].load(Ordering::Relaxed)
    }

    /// Carries out a call of a node, which shows the time of its own machine.
    pub(crate) fn on_machine_of<T>(&self, node: usize, call: impl FnOnce() -> T) -> T {
        self.clock.machine_millis.store(self.clock_of(node), Ordering::Relaxed);
        let answer = call();
        self.clock.machine_millis.store(0, Ordering::Relaxed);
        answer
    }

    /// The engine of a node, if it is up.
    pub(crate) fn engine(&self, node: usize) -> Option<Engine> {
        self.hosts()[node].engine.clone()
    }

    /// A node dies and is restarted later.
    pub(crate) fn crash(self: &Arc<Self>, node: usize, why: &str) {
        if self.hosts()[node].is_down {
            return;
        }
        self.count(Exercised::Crash);
        self.note(None, format!("node {node} dies: {why}"));
        self.take_down(node);
        let world = Arc::clone(self);
        let gone_for = self.span(100, 6_000);
        self.spawn(TaskOwner::Outside, async move {
            world.sleep(gone_for).await;
            host::boot(&world, node);
        });
    }

    pub(crate) fn take_down(&self, node: usize) {
        self.audit().node_fails(node);
        let engine = {
            let host = &mut self.hosts()[node];
            host.is_down = true;
            host.engine.take()
        };
        drop(engine);
        self.handle.kill(node);
    }

    /// A node is paused for a while.
    pub(crate) fn pause(self: &Arc<Self>, node: usize) {
        let span = if self.chance().percent(50) { self.span(100, 3_000) } else { self.span(3_000, 20_000) };
        self.count(Exercised::Pause);
        self.note(None, format!("node {node} is paused for {span:?}"));
        self.audit().node_fails(node);
        self.handle.pause_node(node);
        let world = Arc::clone(self);
        self.spawn(TaskOwner::Outside, async move {
            world.sleep(span).await;
            world.note(None, format!("node {node} continues"));
            world.handle.resume_node(node);
        });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The caller and operation of every history.
pub(crate) fn scope() -> Scope {
    Scope::new(Identity::api_key("k-17"), Operation::named(host::OPERATION))
}

/// A key's name.
pub(crate) fn name(key: usize) -> Key {
    Key::from_source(&format!("order-{key}-charge")).expect("it is a fine key")
}

/// The intent of a call.
pub(crate) fn content(payload: usize) -> payload::Raw {
    payload::Raw::from(format!("amount={payload}"))
}

fn fingerprint(payload: usize) -> Fingerprint {
    content(payload).fingerprint(&Selection::default()).expect("plain bytes have a fingerprint")
}

/// Long enough for everything that is running to end.
pub(crate) const SETTLING: Duration = millis(45_000);
