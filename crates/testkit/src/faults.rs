//! A store that fails on demand.
//!
//! A wrapper that applies a plan to each call: a failure before or after it, a pause, a second delivery. It has no
//! threads, timers or randomness: the same plan over the same calls has the same result, so a simulation can repeat a
//! run from its seed.

mod plan;

pub use plan::{Call, Fault, FaultRates, Gate, Pause, Plan, Question, Script, Seeded};

use bytes::Bytes;
use semel_core::id::{CommandId, OperationId};
use semel_core::record::{Record, StateName};
use semel_core::store::{
    Capabilities, Change, Count, Counted, Cursor, Error, Filter, Hazard, Item, Kind, Page, Pending, Reading,
    RemainingCopies, Setting, Store, Tally, Written,
};
use semel_core::time::Time;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Any store, behind a simulated network that follows a [`Plan`].
///
/// ```
/// use semel_core::store::{Kind, Store};
/// use semel_testkit::Subject;
/// use semel_testkit::faults::{Fault, Faulty, Script};
/// # use semel_core::id::CommandId;
/// # use std::task::{Context, Poll, Waker};
///
/// let store = Faulty::new(Subject::memory().store().clone(), Script::new([Fault::FailBefore]));
/// let mut answer = store.get(CommandId::from_bytes([7; 32]));
/// # let Poll::Ready(answer) = answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) else { panic!() };
/// assert_eq!(answer.unwrap_err().kind(), Kind::Unavailable);
/// ```
pub struct Faulty {
    inner: Arc<dyn Store>,
    plan: Box<dyn Plan>,
    calls: AtomicU64,
    in_flight: Mutex<VecDeque<Delivery>>,
}

/// A write that is still in flight.
#[derive(Debug, Clone)]
enum Delivery {
    Change(CommandId, Change<Box<Record>>),
    Set(String, Option<Bytes>, Option<Bytes>),
}

/// The result of a write that arrived late.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LateResult {
    /// To an entry.
    Entry(Written),
    /// To a setting.
    Setting(Setting),
}

impl Faulty {
    /// Wraps `inner` with `plan`.
    pub fn new(inner: Arc<dyn Store>, plan: impl Plan) -> Self {
        Self { inner, plan: Box::new(plan), calls: AtomicU64::new(0), in_flight: Mutex::default() }
    }

    /// How many calls were made so far.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// How many writes are still in flight: late ones, and the second copies of those delivered twice.
    pub fn in_flight(&self) -> usize {
        self.queue().len()
    }

    /// Delivers the oldest write in flight; `None` if there is none.
    pub async fn deliver(&self) -> Option<Result<LateResult, Error>> {
        let delivery = self.queue().pop_front()?;
        let entry = |answer: Result<Written, Error>| answer.map(LateResult::Entry);
        Some(match delivery {
            Delivery::Change(id, change) => {
                entry(self.inner.write(id, change.as_ref().map(Box::as_ref)).await)
            }
            Delivery::Set(name, expect, next) => {
                self.inner.set(&name, expect.as_deref(), next.as_deref()).await.map(LateResult::Setting)
            }
        })
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<Delivery>> {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fate(&self, question: Question, id: Option<CommandId>) -> Fault {
        let number = self.calls.fetch_add(1, Ordering::SeqCst);
        self.plan.fate(&Call { number, question, id })
    }

    async fn reading<T>(
        &self,
        question: Question,
        id: Option<CommandId>,
        ask: Pending<'_, T>,
    ) -> Result<T, Error> {
        match self.fate(question, id) {
            Fault::Pass | Fault::Twice => ask.await,
            // A failed read changes nothing, wherever it failed.
            Fault::FailBefore | Fault::Late => Err(unreachable(question)),
            Fault::FailAfter => {
                ask.await?;
                Err(unreachable(question))
            }
            Fault::DelayBefore(pause) => {
                pause.over().await;
                ask.await
            }
            Fault::DelayAfter(pause) => {
                let answer = ask.await;
                pause.over().await;
                answer
            }
        }
    }

    async fn writing<T>(
        &self,
        question: Question,
        id: Option<CommandId>,
        copy: impl FnOnce() -> Delivery + Send,
        write: Pending<'_, T>,
    ) -> Result<T, Error> {
        match self.fate(question, id) {
            Fault::Pass => write.await,
            Fault::FailBefore => Err(unreachable(question)),
            Fault::FailAfter => {
                write.await?;
                Err(lost(question))
            }
            Fault::Late => {
                self.queue().push_back(copy());
                Err(lost(question))
            }
            Fault::Twice => {
                let answer = write.await;
                self.queue().push_back(copy());
                answer
            }
            Fault::DelayBefore(pause) => {
                pause.over().await;
                write.await
            }
            Fault::DelayAfter(pause) => {
                let answer = write.await;
                pause.over().await;
                answer
            }
        }
    }
}

fn unreachable(question: Question) -> Error {
    Error::new(Kind::Unavailable, format!("{question:?}, on a network that fails by plan"))
}

fn lost(question: Question) -> Error {
    Error::new(Kind::Ambiguous, format!("{question:?}, on a network that fails by plan"))
}

impl Store for Faulty {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn scrub(&self) -> Pending<'_, RemainingCopies> {
        self.inner.scrub()
    }

    fn hazards(&self) -> Pending<'_, Vec<Hazard>> {
        Box::pin(self.reading(Question::Hazards, None, self.inner.hazards()))
    }

    fn check(&self) -> Pending<'_, ()> {
        self.inner.check()
    }

    fn write<'a>(&'a self, id: CommandId, change: Change<&'a Record>) -> Pending<'a, Written> {
        let copy = move || Delivery::Change(id, change.map(|record| Box::new(record.clone())));
        Box::pin(self.writing(Question::of(&change), Some(id), copy, self.inner.write(id, change)))
    }

    fn get(&self, id: CommandId) -> Pending<'_, Reading> {
        Box::pin(self.reading(Question::Get, Some(id), self.inner.get(id)))
    }

    fn find(&self, operation_id: OperationId) -> Pending<'_, (Time, Option<Item>)> {
        Box::pin(self.reading(Question::Find, None, self.inner.find(operation_id)))
    }

    fn page<'a>(&'a self, filter: &'a Filter, after: Option<&'a Cursor>, limit: usize) -> Pending<'a, Page> {
        Box::pin(self.reading(Question::Page, None, self.inner.page(filter, after, limit)))
    }

    fn due<'a>(&'a self, after: Option<&'a Cursor>, limit: usize) -> Pending<'a, Page> {
        Box::pin(self.reading(Question::Due, None, self.inner.due(after, limit)))
    }

    fn markers<'a>(&'a self, after: Option<&'a Cursor>, limit: usize) -> Pending<'a, Page> {
        Box::pin(self.reading(Question::Markers, None, self.inner.markers(after, limit)))
    }

    fn count(&self, what: Count, at_most: u64) -> Pending<'_, Counted> {
        Box::pin(self.reading(Question::Count, None, self.inner.count(what, at_most)))
    }

    fn tally<'a>(
        &'a self,
        state: Option<StateName>,
        after: Option<&'a Cursor>,
        limit: usize,
    ) -> Pending<'a, Tally> {
        Box::pin(self.reading(Question::Count, None, self.inner.tally(state, after, limit)))
    }

    fn settings(&self) -> Pending<'_, Vec<(String, Bytes)>> {
        Box::pin(self.reading(Question::Settings, None, self.inner.settings()))
    }

    fn set<'a>(
        &'a self,
        name: &'a str,
        expect: Option<&'a [u8]>,
        next: Option<&'a [u8]>,
    ) -> Pending<'a, Setting> {
        let copy = move || {
            let kept = |bytes: Option<&[u8]>| bytes.map(Bytes::copy_from_slice);
            Delivery::Set(name.to_owned(), kept(expect), kept(next))
        };
        Box::pin(self.writing(Question::Set, None, copy, self.inner.set(name, expect, next)))
    }

    fn changed(&self, id: CommandId) -> Option<Pin<Box<dyn Future<Output = ()> + Send + '_>>> {
        self.inner.changed(id)
    }
}
