//! Claims race with whole rotations under random delays: one effect per key within its retention.

use super::faulty::{Faulty, give_way};
use super::world::{Dice, Hands, REFRESH, REMEMBERED, World, bounded, locate, payment};
use semel::Clock;
use semel::core::classify::Ending;
use semel::core::machine::{self, Begin, Decision, Due, Expect, Found, NewAttempt, Stamp, Write};
use semel::core::outcome::Outcome;
use semel::core::record::Token;
use semel::core::store::{Change, Clock as _, Filter, Reading, Store, Written};
use semel::secrets::{self, Configured, Phase, Secrets, View, rotation};
use semel::{Random, core};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

type Job<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Tasks of which one at a time runs, chosen at random; sometimes one of them pauses for long.
pub(crate) struct Crowd {
    dice: Dice,
    /// Each with the step until which it pauses.
    tasks: Vec<(u64, Job<'static>)>,
}

impl Crowd {
    pub(crate) fn new(dice: Dice) -> Self {
        Self { dice, tasks: Vec::new() }
    }

    pub(crate) fn add(&mut self, task: impl Future<Output = ()> + 'static) {
        self.tasks.push((0, Box::pin(task)));
    }

    /// Runs them all to their end; `tick` is called before every step.
    pub(crate) fn run(mut self, mut tick: impl FnMut()) {
        let mut context = Context::from_waker(Waker::noop());
        for step in 0_u64.. {
            assert!(step < 3_000_000, "{} tasks make no progress", self.tasks.len());
            if self.tasks.is_empty() {
                return;
            }
            tick();
            let index = usize::try_from(self.dice.below(self.tasks.len() as u64)).expect("small");
            let (pauses_until, task) = &mut self.tasks[index];
            if *pauses_until > step {
                continue;
            }
            if self.dice.below(400) == 0 {
                *pauses_until = step + self.dice.below(4_000);
            } else if task.as_mut().poll(&mut context).is_ready() {
                drop(self.tasks.swap_remove(index));
            }
        }
    }
}

/// A check that a worker omits, to show that it is needed.
#[derive(Clone, Copy, PartialEq)]
enum Slip {
    None,
    /// Claims by an outdated view.
    ViewNotChecked,
}

/// All events, by payment.
#[derive(Default)]
struct Ledger {
    effects: RefCell<BTreeMap<u64, Vec<Duration>>>,
    twice: Cell<bool>,
}

impl Ledger {
    fn book(&self, number: u64, at: Duration) {
        let mut effects = self.effects.borrow_mut();
        let times = effects.entry(number).or_default();
        if times.last().is_some_and(|last| at < *last + REMEMBERED) {
            self.twice.set(true);
        }
        times.push(at);
    }
}

struct Worker {
    node: Arc<Secrets>,
    store: Arc<Faulty>,
    clock: Hands,
    dice: Dice,
    ledger: Rc<Ledger>,
    slip: Slip,
    /// One turn in so many is a request. With few requests, a rotation soon finds no records left.
    calm: u64,
}

impl Worker {
    /// One request for a payment, as an engine handles it.
    async fn request(&self, number: u64) {
        for _ in 0..8 {
            let Ok(view) = self.node.view() else { return };
            let commands = payment(&view, number);
            let Ok(located) = locate(&*self.store, &view, &self.clock, &commands).await else {
                return;
            };
            let mut reading = located.reading.clone();
            loop {
                let new_attempt =
                    NewAttempt { token: Token::from_random(self.dice.bits()), begin: Begin::Processing };
                let found = reading.as_ref().map_or(Found::Nothing, Reading::found);
                let write = match machine::decide(found, located.command, new_attempt, self.stamp()) {
                    Decision::Run(write) => write,
                    Decision::Follow => break,
                    Decision::MarkUnknown(_) | Decision::Answer(_) => return,
                };
                if !located.permits(&write.expect) {
                    break;
                }
                match self.claim(&view, located.command.id, &write).await {
                    Claim::Stored => return self.act(number, located.command.id, &write).await,
                    Claim::Refused(stands) => reading = Some(stands),
                    Claim::Failed => return,
                }
            }
        }
    }

    fn stamp(&self) -> Stamp<'static> {
        Stamp::new(self.clock.now(), "", "")
    }

    async fn claim(&self, view: &View, id: core::id::CommandId, write: &Write) -> Claim {
        // A worker may pause anywhere; here it is most dangerous.
        give_way().await;
        let written = if write.expect == Expect::Absent {
            if view.check(self.clock.uptime()).is_err() && self.slip != Slip::ViewNotChecked {
                return Claim::Failed;
            }
            self.store.write(id, Change::Insert(&write.next)).await
        } else {
            self.store.write(id, Change::from(write)).await
        };
        match written {
            Ok(Written::Done { .. }) => Claim::Stored,
            Ok(Written::Refused(reading)) => Claim::Refused(reading),
            Err(error) if error.is_ambiguous() => {
                let reading = self.store.inner.get(id).await.expect("read");
                let was_applied = machine::applied_claim(write, reading.found()).is_some();
                if was_applied { Claim::Stored } else { Claim::Failed }
            }
            Err(_) => Claim::Failed,
        }
    }

    /// Causes the effect and stores its outcome.
    async fn act(&self, number: u64, id: core::id::CommandId, write: &Write) {
        self.ledger.book(number, self.clock.uptime());
        let store = &self.store.inner;
        loop {
            give_way().await;
            let reading = store.get(id).await.expect("read");
            let Some(record) = reading.record() else { return };
            let ending = Ending::Succeeded(Outcome::value("paid"));
            let Ok(next) = machine::finish(record, write.next.token(), ending, self.stamp()) else { return };
            if let Ok(Written::Done { .. }) = store.write(id, Change::from(&next)).await {
                return;
            }
        }
    }
}

enum Claim {
    Stored,
    Refused(Reading),
    Failed,
}

/// Removes expired records.
async fn sweep(store: &dyn Store) {
    let page = store.page(&Filter::default(), None, 500).await.expect("read");
    for item in page.items {
        let Some(record) = item.record() else { continue };
        if machine::due(record, page.now) == Due::Purge {
            let expect = machine::purge(record, page.now).expect("due");
            drop(store.write(item.id, Change::Remove(expect)).await.expect("removed or refused"));
        }
    }
}

/// Runs a rotation from its announcement to its end, retrying steps that are too early.
async fn rotate(store: &dyn Store, dice: &Dice) {
    let store = bounded(store);
    loop {
        give_way().await;
        let Ok(progress) = rotation::progress(store).await else { continue };
        let _ = match progress.phase {
            Phase::Steady => rotation::announce(store, rotation::Next::Generated, dice).await,
            Phase::Announced | Phase::Moving => rotation::advance(store).await.map(|_| ()),
            Phase::Settled => match rotation::finish(store).await {
                Ok(()) => return,
                Err(_) => Ok(()),
            },
        };
    }
}

/// Whether a payment happened twice, and how many happened.
fn race(seed: u64, slip: Slip) -> (bool, usize) {
    let world = World::seeded(seed);
    let dice = world.dice.clone();
    let (inner, clock) = (Arc::clone(&world.store), world.clock.clone());
    let store = Arc::new(Faulty { inner, clock: clock.clone(), dice: dice.clone(), lost: seed % 4 * 5 });
    let (ledger, done) = (Rc::new(Ledger::default()), Rc::new(Cell::new(false)));
    let mut crowd = Crowd::new(dice.clone());
    let calm = [1, 30, 300][usize::try_from(seed % 3).expect("small")];
    for number in 0..3 {
        let (store, clock, dice) = (Arc::clone(&store), clock.clone(), dice.clone());
        let (ledger, done) = (Rc::clone(&ledger), Rc::clone(&done));
        crowd.add(async move {
            let name = format!("node-{number}");
            let faulty: Arc<dyn Store> = Arc::<Faulty>::clone(&store);
            let shared = Arc::new(clock.clone());
            let opened = secrets::open(faulty, Configured::default(), shared, &dice, &name, REFRESH).await;
            let Ok(node) = opened else { return };
            let worker = Worker { node, store, clock, dice, ledger, slip, calm };
            serve(worker, &done).await;
        });
    }
    let (sweeping, swept) = (Arc::clone(&world.store), Rc::clone(&done));
    crowd.add(async move {
        while !swept.get() {
            sweep(&*sweeping).await;
            for _ in 0..50 {
                give_way().await;
            }
        }
    });
    let ended = Rc::clone(&done);
    crowd.add(async move {
        // The first node has to start first: before, there is nothing to rotate.
        while store.inner.settings().await.expect("read").len() < 2 {
            give_way().await;
        }
        for _ in 0..2 {
            rotate(&*store, &dice).await;
        }
        ended.set(true);
    });
    let (turned, chance) = (world.clock.clone(), world.dice.clone());
    crowd.run(move || turned.turn(Duration::from_millis(chance.below(200))));
    let count = ledger.effects.borrow().values().map(Vec::len).sum();
    (ledger.twice.get(), count)
}

/// One node: two workers and a task that refreshes its view, each at its own pace.
async fn serve(worker: Worker, done: &Cell<bool>) {
    let mut refreshed_at = worker.clock.uptime();
    let mut requests: Vec<Job<'_>> = Vec::new();
    let mut refresh: Option<Job<'_>> = None;
    let mut pause = 0;
    let mut context = Context::from_waker(Waker::noop());
    while !done.get() {
        give_way().await;
        if refresh.is_none() && worker.clock.uptime() >= refreshed_at + REFRESH.refresh_every {
            refreshed_at = worker.clock.uptime();
            let node = &worker.node;
            refresh = Some(Box::pin(async move { drop(node.refresh().await) }));
        }
        if refresh.as_mut().is_some_and(|refresh| refresh.as_mut().poll(&mut context).is_ready()) {
            refresh = None;
        }
        if requests.len() < 2 && worker.dice.below(worker.calm) == 0 {
            requests.push(Box::pin(worker.request(worker.dice.below(if worker.calm == 1 { 6 } else { 1 }))));
        }
        // A request may pause by itself while the rest of its node continues.
        if pause == 0 {
            requests.retain_mut(|request| request.as_mut().poll(&mut context).is_pending());
            pause = if worker.dice.below(100) == 0 { worker.dice.below(600) } else { 0 };
        } else {
            pause -= 1;
        }
    }
}

#[test]
fn through_whole_rotations_every_payment_happens_once() {
    let mut effects = 0;
    for seed in 0..300 {
        let (twice, count) = race(seed, Slip::None);
        assert!(!twice, "seed {seed}: a payment happened twice");
        effects += count;
    }
    assert!(effects > 1_000, "only {effects} payments: the race did not take place");
}

#[test]
fn a_worker_that_does_not_check_its_view_pays_twice() {
    assert!((0..200).any(|seed| race(seed, Slip::ViewNotChecked).0), "the check is not needed");
}
