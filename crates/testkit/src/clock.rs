//! A fake clock.
//!
//! Wall time that can be set both ways, uptime that only grows, and sleeps that end when the test advances the time.
//! The machine's own time is never used.

use semel::Sleep;
use semel_core::store;
use semel_core::time::Time;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// A clock that only moves when the test sets or advances it. Clones are the same clock.
///
/// ```
/// use semel_core::store::Clock as _;
/// use semel_core::time::Time;
/// use semel_testkit::FakeClock;
/// use std::time::Duration;
///
/// let clock = FakeClock::at(Time::from_millis(1_000));
/// clock.advance(Duration::from_secs(2));
/// assert_eq!(clock.now(), Time::from_millis(3_000));
/// clock.set(Time::from_millis(500)); // an administrator sets it back
/// assert_eq!(clock.now(), Time::from_millis(500));
/// ```
#[derive(Debug, Clone, Default)]
pub struct FakeClock(Arc<Mutex<ClockState>>);

#[derive(Debug, Default)]
struct ClockState {
    wall: Time,
    uptime: Duration,
    naps_begun: u64,
    /// The sleepers by number: they are woken in the order in which they started.
    naps: BTreeMap<u64, (Duration, Waker)>,
}

impl FakeClock {
    /// A clock that shows `wall`.
    pub fn at(wall: Time) -> Self {
        Self(Arc::new(Mutex::new(ClockState { wall, ..ClockState::default() })))
    }

    /// Sets the wall time, forwards or back, like an administrator or a time server. The uptime does not change.
    pub fn set(&self, wall: Time) {
        self.hands().wall = wall;
    }

    /// Advances both clocks by `span`, and wakes the sleepers that are due.
    pub fn advance(&self, span: Duration) {
        let mut hands = self.hands();
        hands.wall = hands.wall + span;
        hands.uptime = hands.uptime.saturating_add(span);
        let uptime = hands.uptime;
        let rested = hands.naps.extract_if(.., |_, (until, _)| *until <= uptime);
        let wakers: Vec<Waker> = rested.map(|(_, (_, waker))| waker).collect();
        // A sleeper may read the time as soon as it is woken.
        drop(hands);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// How long until the next sleeper wakes; `None` if there is none.
    pub fn next_wake(&self) -> Option<Duration> {
        let hands = self.hands();
        hands.naps.values().map(|(until, _)| until.saturating_sub(hands.uptime)).min()
    }

    fn hands(&self) -> MutexGuard<'_, ClockState> {
        // Every change is complete, so the state is consistent even after a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl store::Clock for FakeClock {
    fn now(&self) -> Time {
        self.hands().wall
    }
}

impl semel::Clock for FakeClock {
    fn uptime(&self) -> Duration {
        self.hands().uptime
    }

    /// All users of this clock share its uptime.
    fn boot(&self) -> Option<String> {
        Some(format!("{:p}", Arc::as_ptr(&self.0)))
    }

    /// Completes when the clock has advanced by `span` from now.
    fn sleep(&self, span: Duration) -> Sleep {
        let mut hands = self.hands();
        hands.naps_begun += 1;
        let until = hands.uptime.saturating_add(span);
        Box::pin(SleepFuture { clock: self.clone(), number: hands.naps_begun, until })
    }
}

struct SleepFuture {
    clock: FakeClock,
    number: u64,
    until: Duration,
}

impl Future for SleepFuture {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut hands = self.clock.hands();
        if hands.uptime >= self.until {
            return Poll::Ready(());
        }
        hands.naps.insert(self.number, (self.until, context.waker().clone()));
        Poll::Pending
    }
}

impl Drop for SleepFuture {
    fn drop(&mut self) {
        self.clock.hands().naps.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use semel::Clock as _;
    use semel_core::store::Clock as _;

    fn is_over(nap: &mut Sleep) -> bool {
        nap.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn a_sleep_ends_exactly_when_its_time_has_passed() {
        let clock = FakeClock::default();
        let mut nap = clock.sleep(Duration::from_secs(10));
        assert!(!is_over(&mut nap));
        clock.advance(Duration::from_millis(9_999));
        assert!(!is_over(&mut nap));
        assert_eq!(clock.next_wake(), Some(Duration::from_millis(1)));
        clock.advance(Duration::from_millis(1));
        assert_eq!(clock.next_wake(), None, "it was woken");
        assert!(is_over(&mut nap));
    }

    #[test]
    fn setting_the_wall_time_fires_no_timer() {
        let clock = FakeClock::at(Time::from_millis(5));
        let mut nap = clock.sleep(Duration::from_secs(1));
        clock.set(Time::MAX);
        assert_eq!((clock.now(), clock.uptime()), (Time::MAX, Duration::ZERO));
        assert!(!is_over(&mut nap));
    }

    #[test]
    fn a_dropped_timer_is_removed() {
        let clock = FakeClock::default();
        let mut nap = clock.sleep(Duration::from_secs(1));
        assert!(!is_over(&mut nap));
        drop(nap);
        assert_eq!(clock.next_wake(), None);
    }
}
