//! The connection between a node and the store, where calls and answers can fail in every way.
//!
//! Implements a store in front of the one with the entries. Calls and answers are delayed, lost and delivered twice; a
//! call may arrive long after its caller gave up or died. Unless sabotaged, it gives only answers that the store would
//! give, and every error except an ambiguous one is true: nothing was written, and nothing will be.

use super::audit::Effect;
use super::executor::TaskOwner;
use super::exercised::Exercised;
use super::sabotage::Sabotage;
use super::world::World;
use bytes::Bytes;
use futures_util::FutureExt;
use semel::core::codec;
use semel::core::id::{CommandId, OperationId};
use semel::core::machine::{Found, Unchanged, Write};
use semel::core::outcome::Body;
use semel::core::record::{Record, State, StateName};
use semel::core::store::{
    Capabilities, Change, ClockSource, Count, Counted, Cursor, Error, Filter, Hazard, Item, Kind, Page,
    Pending, Reading, Setting, Sharing, Store, Written,
};
use semel::core::time::Time;
use semel::memory;
use std::sync::{Arc, PoisonError};
use tokio::sync::oneshot;

/// The store, as one node sees it.
pub(crate) struct Network {
    world: Arc<World>,
    node: usize,
}

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Answered,
    /// Lost before it arrives; whether the caller gets an error.
    LostThere {
        is_reported: bool,
    },
    /// Applied, but the answer is lost; whether the caller gets an error.
    LostBack {
        is_reported: bool,
    },
    /// Applied after this long; nobody waits for the answer any more.
    Late,
    Full,
}

impl Network {
    pub(crate) fn new(world: Arc<World>, node: usize) -> Self {
        Self { world, node }
    }

    fn fate(&self, is_write: bool) -> Fate {
        let (world, faults) = (&self.world, &self.world.plan.faults);
        let is_reported = world.chance().percent(50);
        if world.is_out() || world.fault(faults.lost_there) {
            Fate::LostThere { is_reported }
        } else if world.fault(faults.lost_back) {
            Fate::LostBack { is_reported }
        } else if world.fault(faults.late) {
            Fate::Late
        } else if is_write && world.fault(faults.full) {
            Fate::Full
        } else {
            Fate::Answered
        }
    }

    /// Commits a record together with the application's writes in the same transaction: both or neither.
    pub(crate) async fn commit(
        &self,
        id: CommandId,
        write: &Write,
        effect: Option<(usize, Effect)>,
    ) -> Result<Written, Error> {
        let change = Change::from(write).map(Record::clone);
        let act = move |store: &memory::Store| at_once(store.write(id, change.as_ref()));
        self.carry_with("commit", Some(id), true, effect, act).await
    }

    /// Delivers a call and its answer.
    fn carry<T, A>(&self, what: &'static str, id: Option<CommandId>, is_write: bool, act: A) -> Pending<'_, T>
    where
        T: Send + 'static,
        A: Fn(&memory::Store) -> Result<T, Error> + Send + Sync + 'static,
    {
        self.carry_with(what, id, is_write, None, act)
    }

    /// The same for a write that commits an effect.
    fn carry_with<T, A>(
        &self,
        what: &'static str,
        id: Option<CommandId>,
        is_write: bool,
        effect: Option<(usize, Effect)>,
        act: A,
    ) -> Pending<'_, T>
    where
        T: Send + 'static,
        A: Fn(&memory::Store) -> Result<T, Error> + Send + Sync + 'static,
    {
        Box::pin(async move {
            let world = &self.world;
            let key = id.and_then(|id| world.audit().key_of(id));
            let fate = self.fate(is_write);
            self.note_fate(what, key, fate);
            let lost = |kind| Error::new(kind, what);
            let there = world.span(1, 15);
            match fate {
                Fate::LostThere { is_reported: true } => {
                    world.sleep(there).await;
                    return Err(lost(Kind::Unavailable));
                }
                Fate::LostThere { is_reported: false } => return std::future::pending().await,
                Fate::Full => {
                    world.sleep(there).await;
                    return Err(lost(Kind::Full));
                }
                Fate::Answered | Fate::LostBack { .. } | Fate::Late => {}
            }
            let (world_of, node) = (Arc::clone(world), self.node);
            let delivery = Delivery { world: world_of, node, key, id, is_write, what, effect, act };
            let (late, back) = (fate == Fate::Late, world.span(1, 15));
            let there = if late { world.span(300, 5_000) } else { there };
            // Outside the node, it arrives even if the node dies; as a task of the node, it dies with it.
            let on_its_own = late || is_write && world.chance().percent(50);
            let answer = if on_its_own {
                let (reply, answer) = oneshot::channel();
                let carrier = Arc::clone(world);
                world.spawn(TaskOwner::Outside, async move {
                    carrier.sleep(there).await;
                    drop(reply.send(delivery.deliver()));
                });
                match answer.await {
                    Ok(answer) => answer,
                    Err(_) => return std::future::pending().await,
                }
            } else {
                world.sleep(there).await;
                delivery.deliver()
            };
            world.sleep(back).await;
            match fate {
                Fate::LostBack { is_reported: true } => Err(lost(Kind::Ambiguous)),
                Fate::LostBack { is_reported: false } => std::future::pending().await,
                _ => answer,
            }
        })
    }

    fn note_fate(&self, what: &str, key: Option<usize>, fate: Fate) {
        let (text, exercised) = match fate {
            Fate::Answered => return,
            Fate::LostThere { .. } => ("is lost", Exercised::LostThere),
            Fate::LostBack { .. } => ("loses its answer", Exercised::LostBack),
            Fate::Late => ("is delayed", Exercised::Late),
            Fate::Full => ("finds a full store", Exercised::Full),
        };
        let mut audit = self.world.audit();
        audit.tally.count(exercised);
        audit.touch(key);
        if key.is_some() {
            audit.note(
                self.world.handle.now(),
                key,
                format!("    node {}: {what} {text}: {fate:?}", self.node),
            );
        }
    }
}

/// A call that has arrived at the store.
struct Delivery<A> {
    world: Arc<World>,
    node: usize,
    key: Option<usize>,
    id: Option<CommandId>,
    is_write: bool,
    what: &'static str,
    /// What commits with the write.
    effect: Option<(usize, Effect)>,
    act: A,
}

impl<T, A> Delivery<A>
where
    T: Send + 'static,
    A: Fn(&memory::Store) -> Result<T, Error> + Send + Sync + 'static,
{
    fn deliver(self) -> Result<T, Error> {
        let faults = &self.world.plan.faults;
        let answer = self.once();
        if self.key.is_some() && self.world.fault(faults.fatal) {
            self.world.crash(self.node, self.what);
        } else if self.key.is_some() && self.world.fault(faults.stunning) {
            self.world.pause(self.node);
        }
        if self.is_write && self.world.fault(faults.twice) {
            let mut audit = self.world.audit();
            audit.tally.count(Exercised::Twice);
            audit.touch(self.key);
            drop(audit);
            // Sooner than a purge could happen in between: a store applies a write once or not at all.
            let span = self.world.span(1, 2_000);
            let world = Arc::clone(&self.world);
            let sleep = world.sleep(span);
            world.spawn(TaskOwner::Outside, async move {
                sleep.await;
                drop(self.once());
            });
        }
        answer
    }

    /// Lets the store answer, and shows the result to the audit.
    fn once(&self) -> Result<T, Error> {
        let world = &self.world;
        let act = || world.on_machine_of(self.node, || (self.act)(&world.store));
        let Some(id) = self.id else { return act() };
        let remembers = [Sabotage::StaleReads, Sabotage::ErasedShown].map(|fault| world.is_sabotaged(fault));
        let before = remembers.contains(&true).then(|| stored_entry(world, id));
        if self.is_write && world.is_sabotaged(Sabotage::LeaseAsTtl) {
            forget_dead(world, id);
        }
        let was = self.is_write.then(|| stored_entry(world, id).entry);
        let answer = act();
        if let Some(was) = was {
            let reading = stored_entry(world, id);
            let is_written = reading.entry != was;
            if is_written {
                let by = format!("node {}'s {}", self.node, self.what);
                see(world, self.key, &reading, &by);
            }
            let is_torn = world.is_sabotaged(Sabotage::TornCommit);
            if let Some((key, effect)) = self.effect.as_ref().filter(|_| is_written || is_torn) {
                world.audit().effect(world.handle.now(), *key, effect);
            }
        }
        if let Some(before) = before {
            remember(world, id, before);
        }
        answer
    }
}

/// The entry in the store.
pub(crate) fn stored_entry(world: &World, id: CommandId) -> Reading {
    at_once(world.store.get(id)).expect("memory can be read")
}

/// The time mark of some node.
pub(crate) fn mark(world: &World) -> Option<Bytes> {
    let settings = at_once(world.store.settings()).expect("memory can be read");
    settings.into_iter().find_map(|(name, mark)| (name == "clock").then_some(mark))
}

/// The latest time of any node.
pub(crate) fn mark_time(world: &World) -> Option<Time> {
    let mark: serde_json::Value = serde_json::from_slice(&mark(world)?).ok()?;
    mark["at_ms"].as_u64().map(Time::from_millis)
}

/// Whether a node with another clock is shown the mark as it was when it started.
fn old_mark(world: &World, node: usize) -> Option<Bytes> {
    let is_blind = world.is_sabotaged(Sabotage::UnseenMarks) && world.clock_of(node) > 0;
    let old = world.old_mark.lock().unwrap_or_else(PoisonError::into_inner);
    is_blind.then(|| old.clone()).flatten()
}

/// Shows the audit the entry after a write.
pub(crate) fn see(world: &World, key: Option<usize>, reading: &Reading, by: &str) {
    if let Some(key) = key {
        world.audit().stored(world.handle.now(), world.store_now(), key, reading.record(), by);
    }
}

fn remember(world: &World, id: CommandId, before: Reading) {
    let mut past = world.past.lock().unwrap_or_else(PoisonError::into_inner);
    past.entry(id).or_default().push((world.handle.now(), before));
}

/// The entry of three seconds ago.
fn stale(world: &World, id: CommandId) -> Option<Reading> {
    let since = world.handle.now().saturating_sub(3_000_000_000);
    let past = world.past.lock().unwrap_or_else(PoisonError::into_inner);
    past.get(&id)?.iter().find(|(at, _)| *at >= since).map(|(_, reading)| reading.clone())
}

/// The entry before it was erased.
fn unerased(world: &World, id: CommandId) -> Option<Reading> {
    let outcome = |reading: &Reading| match reading.record().map(Record::state) {
        Some(State::Succeeded { outcome, .. } | State::FailedReplayable { outcome, .. }) => {
            Some(outcome.body != Body::NotRetained)
        }
        _ => None,
    };
    let current = stored_entry(world, id);
    if outcome(&current) != Some(false) {
        return None;
    }
    let is_it = |past: &&Reading| {
        outcome(past) == Some(true) && past.record().map(Record::token) == current.record().map(Record::token)
    };
    let past = world.past.lock().unwrap_or_else(PoisonError::into_inner);
    past.get(&id)?.iter().map(|(_, reading)| reading).rev().find(is_it).cloned()
}

fn forget_dead(world: &World, id: CommandId) {
    let reading = stored_entry(world, id);
    let Some(record) = reading.record() else { return };
    let live = matches!(record.state_name(), StateName::Claimed | StateName::Processing);
    if live && record.due_at().is_some_and(|due_at| due_at <= world.store_now()) {
        drop(at_once(world.store.write(id, Change::Remove(Unchanged::of(record)))));
    }
}

/// The memory store answers without waiting.
pub(crate) fn at_once<T>(answer: Pending<'_, T>) -> Result<T, Error> {
    answer.now_or_never().expect("the memory store answers at once")
}

impl Store for Network {
    fn name(&self) -> String {
        self.world.store.name()
    }

    fn capabilities(&self) -> Capabilities {
        let shared = Sharing::Machines;
        let clock = if self.world.plan.contradicts { ClockSource::EachMachine } else { ClockSource::One };
        Capabilities { durable: true, shared, clock, ..self.world.store.capabilities() }
    }

    fn hazards(&self) -> Pending<'_, Vec<Hazard>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn write<'a>(&'a self, id: CommandId, change: Change<&'a Record>) -> Pending<'a, Written> {
        let what = match change {
            Change::Insert(_) | Change::InsertMarker => "insert",
            Change::Replace(..) => "swap",
            Change::Remove(_) => "remove",
            Change::RemoveMarker => "remove marker",
        };
        let change = change.map(Record::clone);
        if is_on_the_side(id) {
            let write = || at_once(self.world.store.write(id, change.as_ref()));
            let is_out = self.world.is_out();
            let out = || Err(Error::new(Kind::Unavailable, what));
            let written = if is_out { out() } else { self.world.on_machine_of(self.node, write) };
            return Box::pin(std::future::ready(written));
        }
        let sabotage = self.world.sabotage;
        self.carry(what, Some(id), true, move |store| {
            let current = at_once(store.get(id))?;
            let done = Ok(Written::Done { now: current.now });
            let is_lost = || change.is_met_by(current.found()) && lost(id, current.now);
            match (sabotage, &change) {
                (Some(Sabotage::BlindInsert), Change::Insert(record)) if current.entry.is_some() => {
                    store.overwrite(id, codec::encode_record(record))?;
                    done
                }
                (Some(Sabotage::UnreadableAsAbsent), Change::Insert(record))
                    if current.found() == Found::Unreadable =>
                {
                    store.overwrite(id, codec::encode_record(record))?;
                    done
                }
                (
                    Some(Sabotage::LostWrites),
                    Change::Insert(_) | Change::InsertMarker | Change::Replace(..),
                ) if is_lost() => done,
                (Some(Sabotage::BlindSwap), Change::Replace(_, next)) => match current.record() {
                    Some(record) => at_once(store.write(id, Change::Replace(Unchanged::of(record), next))),
                    None => at_once(store.write(id, change.as_ref())),
                },
                _ => at_once(store.write(id, change.as_ref())),
            }
        })
    }

    fn get(&self, id: CommandId) -> Pending<'_, Reading> {
        let world = Arc::clone(&self.world);
        self.carry("get", Some(id), false, move |store| {
            let now = at_once(store.get(id))?.now;
            if world.is_sabotaged(Sabotage::BlankReads) && lost(id, now) {
                return Ok(Reading::nothing(now));
            }
            if let Some(shown) =
                world.is_sabotaged(Sabotage::ErasedShown).then(|| unerased(&world, id)).flatten()
            {
                return Ok(Reading { now, ..shown });
            }
            match world.is_sabotaged(Sabotage::StaleReads).then(|| stale(&world, id)).flatten() {
                Some(stale) => Ok(Reading { now, ..stale }),
                None => at_once(store.get(id)),
            }
        })
    }

    fn find(&self, operation_id: OperationId) -> Pending<'_, (Time, Option<Item>)> {
        self.carry("find", None, false, move |store| at_once(store.find(operation_id)))
    }

    fn page<'a>(&'a self, filter: &'a Filter, after: Option<&'a Cursor>, limit: usize) -> Pending<'a, Page> {
        let (filter, after) = (filter.clone(), after.cloned());
        self.carry("page", None, false, move |store| at_once(store.page(&filter, after.as_ref(), limit)))
    }

    fn due<'a>(&'a self, after: Option<&'a Cursor>, limit: usize) -> Pending<'a, Page> {
        let after = after.cloned();
        self.carry("due", None, false, move |store| at_once(store.due(after.as_ref(), limit)))
    }

    fn markers<'a>(&'a self, after: Option<&'a Cursor>, limit: usize) -> Pending<'a, Page> {
        let after = after.cloned();
        self.carry("markers", None, false, move |store| at_once(store.markers(after.as_ref(), limit)))
    }

    fn count(&self, what: Count, at_most: u64) -> Pending<'_, Counted> {
        let miscounts = self.world.is_sabotaged(Sabotage::Miscounted);
        self.carry("count", None, false, move |store| {
            let counted = at_once(store.count(what, at_most))?;
            Ok(if miscounts { Counted { count: 0, ..counted } } else { counted })
        })
    }

    fn settings(&self) -> Pending<'_, Vec<(String, Bytes)>> {
        let (world, node) = (Arc::clone(&self.world), self.node);
        self.carry("settings", None, false, move |store| {
            let mut settings = at_once(store.settings())?;
            if let Some(old) = old_mark(&world, node) {
                settings.retain(|(name, _)| name != "clock");
                settings.push(("clock".to_owned(), old));
            }
            Ok(settings)
        })
    }

    fn set<'a>(
        &'a self,
        name: &'a str,
        expect: Option<&'a [u8]>,
        next: Option<&'a [u8]>,
    ) -> Pending<'a, Setting> {
        let name = name.to_owned();
        let (expect, next) = (expect.map(<[u8]>::to_vec), next.map(<[u8]>::to_vec));
        let (world, node) = (Arc::clone(&self.world), self.node);
        self.carry("set", None, true, move |store| {
            if name == "clock" && old_mark(&world, node).is_some() {
                return at_once(store.set(&name, mark(&world).as_deref(), next.as_deref()));
            }
            at_once(store.set(&name, expect.as_deref(), next.as_deref()))
        })
    }
}

/// Whether it is one of the entries by which a node finds out whether all parts of the store accept writes. One of them
/// meets faults like every other entry; the rest are parts of the store that work, unless all of it is out. With faults in
/// each of them, a history would consist of little else.
fn is_on_the_side(id: CommandId) -> bool {
    let is_probe = id.as_bytes().starts_with(b"semel: does the store write now");
    is_probe && id.as_bytes()[31] > 0
}

/// Whether a sabotaged store loses this write: one in eight, by its content.
fn lost(id: CommandId, now: Time) -> bool {
    (u64::from(id.as_bytes()[0]) + now.as_millis()).is_multiple_of(8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::chance::Chance;
    use crate::history::executor::{Executor, Stopped};
    use crate::history::plan::{Faults, Plan, millis};

    #[test]
    fn every_answer_shows_the_clock_of_the_machine_that_asks() {
        let plan = Plan { nodes: 2, faults: Faults::default(), ..Plan::draw(&mut Chance::new(1)) };
        let mut executor = Executor::new(1);
        let world = World::new(plan, Chance::new(1), Arc::clone(executor.handle()), None);
        world.set_clock_of(1, 40_000);
        let asking = Arc::clone(&world);
        world.spawn(TaskOwner::Outside, async move {
            for (node, ahead) in [(0, millis(0)), (1, millis(40_000))] {
                let store = Network::new(Arc::clone(&asking), node);
                let (id, filter) = (CommandId::from_bytes([7; 32]), Filter::default());
                let written = store.write(id, Change::RemoveMarker).await.expect("an answer").now();
                let shown = [
                    ("write", written),
                    ("get", store.get(id).await.expect("an entry").now),
                    ("find", store.find(OperationId::from_bytes([7; 16])).await.expect("an item").0),
                    ("page", store.page(&filter, None, 1).await.expect("a page").now),
                    ("due", store.due(None, 1).await.expect("a page").now),
                    ("markers", store.markers(None, 1).await.expect("a page").now),
                    ("count", store.count(Count::Records, 1).await.expect("a count").now),
                ];
                for (call, shown) in shown {
                    let now = asking.store_now() + ahead;
                    // All calls together take a fraction of a second.
                    let is_its_own = shown <= now && now.since(shown) < millis(1_000);
                    assert!(is_its_own, "{call} of node {node} shows {shown:?} at {now:?}");
                }
            }
            asking.end();
        });
        let ended = Arc::clone(&world);
        assert_eq!(executor.run(1_000, || ended.is_over()), Stopped::Asked);
    }
}
