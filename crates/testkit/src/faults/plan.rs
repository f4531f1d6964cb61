//! Which fault happens to which call.
//!
//! Faults, and the two kinds of plan: a script and a seed. Two runs of the same plan are identical.

use crate::chance::mixed;
use semel_core::id::CommandId;
use semel_core::store::Change;
use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// The kind of call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "named after the method of Store or the change")]
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
    /// The kind of a change.
    pub(super) const fn of<R>(change: &Change<R>) -> Self {
        match change {
            Change::Insert(_) | Change::InsertMarker => Self::Insert,
            Change::Replace(..) => Self::Swap,
            Change::Remove(_) => Self::Remove,
            Change::RemoveMarker => Self::RemoveMarker,
        }
    }

    /// Whether it is a write.
    pub const fn is_write(self) -> bool {
        matches!(self, Self::Insert | Self::Swap | Self::Remove | Self::RemoveMarker | Self::Set)
    }
}

/// One call, as a plan sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// How many calls were made before it.
    pub number: u64,
    /// The kind of call.
    pub question: Question,
    /// Its command ID, if it has one.
    pub id: Option<CommandId>,
}

/// A fault of a call.
#[derive(Debug)]
pub enum Fault {
    /// Nothing.
    Pass,
    /// It never reaches the store: nothing is written, and the error is `Unavailable`.
    FailBefore,
    /// The store does it, but the answer is lost: a write is `Ambiguous`, a read `Unavailable`.
    FailAfter,
    /// The caller gets `Ambiguous` before a write arrives; it stays in flight until
    /// [`deliver`](super::Faulty::deliver). A read is `Unavailable`.
    Late,
    /// The write is done and answered, and a second copy stays in flight until [`deliver`](super::Faulty::deliver). A
    /// read passes.
    Twice,
    /// It reaches the store after the pause.
    DelayBefore(Pause),
    /// Its answer arrives after the pause.
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

/// Faults for one call after the other; calls after the last one pass.
#[derive(Debug)]
pub struct Script {
    lines: Mutex<VecDeque<Fault>>,
    only: Option<Question>,
}

impl Script {
    /// Faults for the next calls of any kind.
    pub fn new(lines: impl IntoIterator<Item = Fault>) -> Self {
        Self { lines: Mutex::new(lines.into_iter().collect()), only: None }
    }

    /// Faults for the next calls of kind `question`; all others pass.
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

/// How often each fault happens per thousand calls. All other calls pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FaultRates {
    /// [`Fault::FailBefore`].
    pub fail_before: u16,
    /// [`Fault::FailAfter`].
    pub fail_after: u16,
    /// [`Fault::Late`].
    pub late: u16,
    /// [`Fault::Twice`].
    pub twice: u16,
}

/// Random faults by seed: the fault of a call depends on the seed and the call's number.
#[derive(Debug, Clone, Copy)]
pub struct Seeded {
    seed: u64,
    odds: FaultRates,
}

impl Seeded {
    /// Faults with these `odds`.
    pub const fn new(seed: u64, odds: FaultRates) -> Self {
        Self { seed, odds }
    }
}

impl Plan for Seeded {
    fn fate(&self, call: &Call) -> Fault {
        let FaultRates { fail_before, fail_after, late, twice } = self.odds;
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

/// How long a call is delayed.
pub struct Pause(Pin<Box<dyn Future<Output = ()> + Send>>);

impl Pause {
    /// Until `end` completes, such as the sleep of a fake clock.
    pub fn until(end: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(Box::pin(end))
    }

    /// For this duration on the machine's clock. Needs a tokio runtime with timers; prefer a [`Gate`].
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

/// Delays calls until the test opens it. Clones are the same gate.
#[derive(Debug, Clone, Default)]
pub struct Gate(Arc<Mutex<(bool, Vec<Waker>)>>);

impl Gate {
    /// A closed gate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets all calls through from now on.
    pub fn open(&self) {
        let mut gate = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        gate.0 = true;
        let waiting = std::mem::take(&mut gate.1);
        drop(gate);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Whether a call is waiting.
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
