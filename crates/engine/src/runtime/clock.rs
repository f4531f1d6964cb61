//! The engine's clock.
//!
//! The only place in this crate that reads a clock or sleeps.

use crate::runtime::alarm;
use semel_core::store;
use semel_core::time::Time;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

/// The future of a sleep.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The engine's clock: wall time for stores without a clock, and an uptime to measure the age of answers.
pub trait Clock: store::Clock {
    /// Time since some fixed moment, never set back, *including time while the machine was suspended*: after an hour
    /// of suspension, a lease must not look valid.
    fn uptime(&self) -> Duration;

    /// Identifies the start of the uptime, if processes of this machine share it: two clocks with the same boot show
    /// the same uptime, so a new process knows how long another one has been gone. `None` if not known.
    fn boot(&self) -> Option<String> {
        None
    }

    /// Completes after `span`.
    fn sleep(&self, span: Duration) -> Sleep;

    /// Completes after `span`, also while blocking work occupies threads of the runtime, as long as one thread is
    /// free. Used to renew leases. By default the same as [`sleep`](Self::sleep).
    fn alarm(&self, span: Duration) -> Sleep {
        self.sleep(span)
    }
}

/// The result of `future`, or `None` after `span`. Sets a timer only if the future is not ready immediately.
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
        // A container may have its own time namespace.
        let namespace = std::fs::read_link("/proc/self/ns/time").unwrap_or_default();
        Some(format!("{} {}", boot.trim(), namespace.display()))
    }

    fn sleep(&self, span: Duration) -> Sleep {
        Box::pin(tokio::time::sleep(span))
    }

    fn alarm(&self, span: Duration) -> Sleep {
        match alarm::Timer::of(span) {
            Some(sleep) => Box::pin(sleep),
            // Better than nothing; the next call tries again.
            None => self.sleep(span),
        }
    }
}
