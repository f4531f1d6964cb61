//! The engine's clock.
//!
//! Contents: the one place of this crate that reads a clock or sleeps. Never here: a decision.

use crate::alarm;
use semel_core::store;
use semel_core::time::Time;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

/// A nap, as a future.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Time, as the engine needs it: wall time for stores that have none, and a clock that never stands still to measure
/// how old an answer is.
pub trait Clock: store::Clock {
    /// Time since some fixed moment, never set back, *counting the time that the machine was suspended*: a laptop lid
    /// closed for an hour must not look like a live lease.
    fn uptime(&self) -> Duration;

    /// What the uptime counts from, where other processes on the machine count from it too: two clocks of one boot
    /// show the same uptime at the same moment, so that a process that starts knows how long another one has been
    /// gone. `None` if that is not known.
    fn boot(&self) -> Option<String> {
        None
    }

    /// Ends after `span`.
    fn sleep(&self, span: Duration) -> Sleep;

    /// Ends after `span`, also while threads of the runtime are held up by work that blocks, as long as one is left.
    /// Leases are renewed by it. A plain [nap](Self::sleep), unless the clock knows better.
    fn alarm(&self, span: Duration) -> Sleep {
        self.sleep(span)
    }
}

/// What `future` yields, unless that takes longer than `span`. Sets a timer only for what is not ready at once.
pub(crate) async fn within<T>(
    clock: &dyn Clock,
    span: Duration,
    future: impl Future<Output = T>,
) -> Option<T> {
    let mut future = pin!(future);
    let at_once = poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await;
    if let Poll::Ready(value) = at_once {
        return Some(value);
    }
    tokio::select! {
        biased;
        value = future => Some(value),
        () = clock.sleep(span) => None,
    }
}

/// The machine's own clocks, and tokio's timer.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl store::Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the file that reads the clock")]
    fn now(&self) -> Time {
        let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Time::from_millis(0) + since_epoch.unwrap_or_default()
    }
}

impl Clock for SystemClock {
    fn uptime(&self) -> Duration {
        #[cfg(target_os = "linux")]
        let clock = rustix::time::ClockId::Boottime;
        #[cfg(not(target_os = "linux"))]
        let clock = rustix::time::ClockId::Monotonic;
        let now = rustix::time::clock_gettime(clock);
        Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
    }

    #[cfg(target_os = "linux")]
    fn boot(&self) -> Option<String> {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        // A container may have a time of its own.
        let namespace = std::fs::read_link("/proc/self/ns/time").unwrap_or_default();
        Some(format!("{} {}", boot.trim(), namespace.display()))
    }

    fn sleep(&self, span: Duration) -> Sleep {
        Box::pin(tokio::time::sleep(span))
    }

    fn alarm(&self, span: Duration) -> Sleep {
        match alarm::Nap::of(span) {
            Some(nap) => Box::pin(nap),
            // Better than none; the next one tries again.
            None => self.sleep(span),
        }
    }
}
