//! Timers that fire even if the threads of a runtime are blocked.
//!
//! One timer thread for the whole process. A runtime's own timer does not fire while the thread that drives it is
//! blocked, even if others are idle. The thread only wakes tasks.

use crate::runtime::clock::{Clock as _, SystemClock};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

static TIMERS: Timers = Timers { pending: Mutex::new(Pending::new()), sooner: Condvar::new() };

/// All pending timers, and a condition variable to notify the thread of an earlier one.
struct Timers {
    pending: Mutex<Pending>,
    sooner: Condvar,
}

struct Pending {
    /// By the uptime at which the timer fires, and by its number.
    by_end: BTreeMap<(Duration, u64), Waker>,
    started: u64,
    is_watched: bool,
}

impl Pending {
    const fn new() -> Self {
        Self { by_end: BTreeMap::new(), started: 0, is_watched: false }
    }
}

impl Timers {
    /// The data is consistent even after a panic: no waker runs under the lock.
    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(&self) {
        let mut pending = self.pending();
        loop {
            let now = SystemClock.uptime();
            let asleep = pending.by_end.split_off(&(now.saturating_add(Duration::from_nanos(1)), 0));
            let rested = std::mem::replace(&mut pending.by_end, asleep);
            if !rested.is_empty() {
                drop(pending);
                for waker in rested.into_values() {
                    // A waker is foreign code, and other timers still have to fire.
                    drop(catch_unwind(AssertUnwindSafe(|| waker.wake())));
                }
                pending = self.pending();
                continue;
            }
            let first = pending.by_end.keys().next().map(|(end, _)| end.saturating_sub(now));
            pending = match first {
                Some(span) => {
                    let waited = self.sooner.wait_timeout(pending, span);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.sooner.wait(pending).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

/// A timer by the machine's uptime.
pub(crate) struct Timer {
    end: Duration,
    number: u64,
}

impl Timer {
    /// A timer that fires after `span`. `None` if the timer thread could not be started.
    pub(crate) fn of(span: Duration) -> Option<Self> {
        let mut pending = TIMERS.pending();
        if !pending.is_watched {
            let thread = std::thread::Builder::new().name("semel-alarm".to_owned());
            drop(thread.spawn(|| TIMERS.watch()).ok()?);
            pending.is_watched = true;
        }
        pending.started += 1;
        Some(Self { end: SystemClock.uptime().saturating_add(span), number: pending.started })
    }
}

impl Future for Timer {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if SystemClock.uptime() >= self.end {
            return Poll::Ready(());
        }
        let key = (self.end, self.number);
        let mut pending = TIMERS.pending();
        pending.by_end.insert(key, context.waker().clone());
        if pending.by_end.keys().next() == Some(&key) {
            TIMERS.sooner.notify_one();
        }
        Poll::Pending
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        TIMERS.pending().by_end.remove(&(self.end, self.number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without a runtime's timer, and without a runtime thread that drives one.
    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime")
    }

    fn millis(span: u64) -> Timer {
        Timer::of(Duration::from_millis(span)).expect("a thread")
    }

    #[test]
    fn a_sleep_needs_no_runtime_timer_and_ends_on_time() {
        let started = SystemClock.uptime();
        runtime().block_on(millis(20));
        assert!(SystemClock.uptime() >= started + Duration::from_millis(20));
    }

    #[test]
    fn a_later_timer_with_an_earlier_deadline_fires_first() {
        runtime().block_on(async {
            tokio::select! {
                biased;
                () = millis(3_600_000) => panic!("an hour has not passed"),
                () = millis(5) => {}
            }
        });
    }

    #[test]
    fn a_dropped_timer_is_removed() {
        let mut timer = millis(3_600_000);
        let key = (timer.end, timer.number);
        assert!(Pin::new(&mut timer).poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert!(TIMERS.pending().by_end.contains_key(&key));
        drop(timer);
        assert!(!TIMERS.pending().by_end.contains_key(&key));
    }
}
