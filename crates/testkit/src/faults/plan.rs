//! What is to happen to which call.
//!
//! Contents: faults, and the two kinds of plan, a script and a seed. Never here: anything that differs between two
//! runs of the same plan.

use crate::chance::mixed;
use semel_core::id::CommandId;
use semel_core::store::Change;
use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// What was asked of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "each is named for the method of Store, or the change, that it stands for")]
pub enum Question {
    Hazards,
    Insert,
    Swap,
    Remove,
    RemoveMarker,
    Get,
    Find,
    Page,
    Due,
    Markers,
    Count,
    Settings,
    Set,
}

impl Question {
    /// What a change asks for.
    pub(super) const fn of<R>(change: &Change<R>) -> Self {
        match change {
            Change::Insert(_) | Change::InsertMarker => Self::Insert,
            Change::Replace(..) => Self::Swap,
            Change::Remove(_) => Self::Remove,
            Change::RemoveMarker => Self::RemoveMarker,
        }
    }

    /// Whether it asks for a change.
    pub const fn is_write(self) -> bool {
        matches!(self, Self::Insert | Self::Swap | Self::Remove | Self::RemoveMarker | Self::Set)
    }
}

/// One call, as a plan sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// How many calls were made before it.
    pub number: u64,
    /// What is asked.
    pub question: Question,
    /// The id that it is about, where it is about one.
    pub id: Option<CommandId>,
}

/// What happens to a call.
#[derive(Debug)]
pub enum Fault {
    /// Nothing.
    Pass,
    /// It never reaches the store: nothing is written, `Unavailable`.
    FailBefore,
    /// The store does it and the answer is lost: a write is `Ambiguous`, a reading `Unavailable`.
    FailAfter,
    /// The caller gives up (`Ambiguous`) before a write arrives; it is on its way still, until
    /// [`deliver`](super::Faulty::deliver). A reading is `Unavailable`.
    Late,
    /// The write is done and answered, and a second copy is on its way until [`deliver`](super::Faulty::deliver). A
    /// reading passes.
    Twice,
    /// It reaches the store as soon as the pause is over.
    DelayBefore(Pause),
    /// Its answer comes as soon as the pause is over.
    DelayAfter(Pause),
}

/// Decides what happens to each call.
pub trait Plan: Send + Sync + 'static {
    /// What happens to `call`.
    fn fate(&self, call: &Call) -> Fault;
}

impl<F: Fn(&Call) -> Fault + Send + Sync + 'static> Plan for F {
    fn fate(&self, call: &Call) -> Fault {
        self(call)
    }
}

/// What happens to one call after the other; whatever comes after the last line passes.
#[derive(Debug)]
pub struct Script {
    lines: Mutex<VecDeque<Fault>>,
    only: Option<Question>,
}

impl Script {
    /// These, to the next calls of whichever kind.
    pub fn new(lines: impl IntoIterator<Item = Fault>) -> Self {
        Self { lines: Mutex::new(lines.into_iter().collect()), only: None }
    }

    /// These, to the next calls that ask `question`; all others pass.
    pub fn of(question: Question, lines: impl IntoIterator<Item = Fault>) -> Self {
        Self { only: Some(question), ..Self::new(lines) }
    }
}

impl Plan for Script {
    fn fate(&self, call: &Call) -> Fault {
        if self.only.is_some_and(|only| only != call.question) {
            return Fault::Pass;
        }
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.pop_front().unwrap_or(Fault::Pass)
    }
}

/// How often each fault strikes, in a thousand calls. What is left passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Odds {
    /// [`Fault::FailBefore`].
    pub fail_before: u16,
    /// [`Fault::FailAfter`].
    pub fail_after: u16,
    /// [`Fault::Late`].
    pub late: u16,
    /// [`Fault::Twice`].
    pub twice: u16,
}

/// Faults by chance, the same for the same seed: what happens to a call depends on the seed and the call's number.
#[derive(Debug, Clone, Copy)]
pub struct Seeded {
    seed: u64,
    odds: Odds,
}

impl Seeded {
    /// Faults as often as `odds` say.
    pub const fn new(seed: u64, odds: Odds) -> Self {
        Self { seed, odds }
    }
}

impl Plan for Seeded {
    fn fate(&self, call: &Call) -> Fault {
        let Odds { fail_before, fail_after, late, twice } = self.odds;
        let mut roll = mixed(self.seed ^ mixed(call.number)) % 1_000;
        for (odds, fault) in [
            (fail_before, Fault::FailBefore),
            (fail_after, Fault::FailAfter),
            (late, Fault::Late),
            (twice, Fault::Twice),
        ] {
            match roll.checked_sub(u64::from(odds)) {
                None => return fault,
                Some(left) => roll = left,
            }
        }
        Fault::Pass
    }
}

/// How long a delayed call is held up.
pub struct Pause(Pin<Box<dyn Future<Output = ()> + Send>>);

impl Pause {
    /// Until `end` comes: the nap of a fake clock, for one.
    pub fn until(end: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(Box::pin(end))
    }

    /// For so long on the machine's clock. Needs a tokio runtime with timers; a test that can use a [`Gate`] should.
    pub fn of(duration: Duration) -> Self {
        Self::until(async move { tokio::time::sleep(duration).await })
    }

    pub(super) async fn over(self) {
        self.0.await;
    }
}

impl Future for Pause {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(context)
    }
}

impl fmt::Debug for Pause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pause(…)")
    }
}

/// Holds calls up until the test opens it. Clones are the same gate.
#[derive(Debug, Clone, Default)]
pub struct Gate(Arc<Mutex<(bool, Vec<Waker>)>>);

impl Gate {
    /// A closed gate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets everybody through, from now on.
    pub fn open(&self) {
        let mut gate = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        gate.0 = true;
        let waiting = std::mem::take(&mut gate.1);
        drop(gate);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Whether somebody is before it.
    pub fn is_waited_for(&self) -> bool {
        !self.0.lock().unwrap_or_else(PoisonError::into_inner).1.is_empty()
    }

    /// A pause until the gate is open.
    pub fn pause(&self) -> Pause {
        let gate = self.clone();
        Pause::until(std::future::poll_fn(move |context: &mut Context<'_>| {
            let mut gate = gate.0.lock().unwrap_or_else(PoisonError::into_inner);
            if gate.0 {
                return Poll::Ready(());
            }
            gate.1.push(context.waker().clone());
            Poll::Pending
        }))
    }
}
