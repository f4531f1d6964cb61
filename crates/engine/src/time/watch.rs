//! Detects jumps of a clock.
//!
//! Compares the store's time with an uptime that nobody can set. Both are arguments.

use super::span::{drift_max, millis, moment};
use semel_core::time::Time;
use std::time::Duration;

/// A jump forward of at most this is followed after a steady period.
const FORWARD_MAX: Duration = Duration::from_hours(1);

/// A change that an answer showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WatchEvent {
    /// The clock jumped by this many milliseconds.
    Moved(i128),
    /// It is right again.
    Back,
    /// It stayed after the jump, and is followed from now on.
    Followed(i128),
}

/// A jump: how far, and since when.
#[derive(Debug, Clone, Copy)]
struct Jump {
    offset: i128,
    since: Duration,
}

/// Compares the store's time with the uptime.
///
/// Slow drift (a clock that is being slewed) is followed. Faster changes add up, however small the steps, until they
/// exceed the allowance. From then on the clock is not trusted: time continues without the jump until the clock
/// returns, an operator confirms it, or it has stayed at most an hour ahead for long enough.
///
/// A clock that was set far ahead is never trusted just by waiting: a year ahead is still wrong an hour later.
#[derive(Debug, Clone)]
pub(super) struct ClockWatch {
    allowance: Duration,
    steady_for: Duration,
    /// A lower bound of wall time minus uptime in milliseconds, which is constant while both run at the same speed.
    offset: i128,
    /// The uncertainty: the duration of the call that it is known from.
    unsure: i128,
    /// Up to when drift has been followed.
    followed: Duration,
    away: Option<Jump>,
}

impl ClockWatch {
    /// A watch over a clock that showed `at` somewhere between the uptimes `asked` and `received`.
    pub(super) fn new(
        allowance: Duration,
        steady_for: Duration,
        at: Time,
        asked: Duration,
        received: Duration,
    ) -> Self {
        let offset = i128::from(at.as_millis()) - millis(received);
        let unsure = millis(received.saturating_sub(asked));
        Self { allowance, steady_for, offset, unsure, followed: received, away: None }
    }

    /// Adds the store's time from an answer to a call at `asked`. Returns the time to use, and a change if there is
    /// one.
    pub(super) fn feed(
        &mut self,
        shown: Time,
        asked: Duration,
        received: Duration,
    ) -> (Time, Option<WatchEvent>) {
        let clock = i128::from(shown.as_millis());
        // The store read its clock somewhere between the call and the answer.
        let (earliest, latest) = (self.offset + millis(asked), self.offset + self.unsure + millis(received));
        let off = if clock > latest { clock - latest } else { (clock - earliest).min(0) };
        let drift = drift_max(self.followed, received);
        if off.abs() <= millis(self.allowance) + drift {
            self.narrow(clock - millis(received), clock - millis(asked));
            if drift > 0 {
                self.offset += off.clamp(-drift, drift);
                self.followed = received;
            }
            return (shown, self.away.take().map(|_| WatchEvent::Back));
        }
        // A clock that is not trusted is not followed, and drift must not make it trusted.
        self.followed = received;
        let offset = clock - millis(received);
        let took = millis(received.saturating_sub(asked));
        let stays = |away: &Jump| (offset - away.offset).abs() <= millis(self.allowance) + took;
        let Some(away) = self.away.filter(stays) else {
            self.away = Some(Jump { offset, since: received });
            return (moment(earliest), Some(WatchEvent::Moved(off)));
        };
        let is_steady = received.saturating_sub(away.since) >= self.steady_for;
        if is_steady && off > 0 && off <= millis(FORWARD_MAX) {
            self.accept(shown, asked, received);
            return (shown, Some(WatchEvent::Followed(off)));
        }
        (moment(earliest), None)
    }

    /// From now on, the clock counts as right.
    pub(super) fn accept(&mut self, shown: Time, asked: Duration, received: Duration) {
        *self = Self::new(self.allowance, self.steady_for, shown, asked, received);
    }

    /// Another answer shows that the offset is between `low` and `high`.
    fn narrow(&mut self, low: i128, high: i128) {
        let upper = (self.offset + self.unsure).min(high).max(self.offset);
        self.offset = self.offset.max(low).min(upper);
        self.unsure = upper - self.offset;
    }

    /// The error of the clock in milliseconds, if it is not trusted.
    pub(super) fn off(&self) -> Option<i128> {
        self.away.map(|away| away.offset - self.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;
    const START: Time = Time::from_millis(1_800_000_000_000);

    fn watch() -> ClockWatch {
        ClockWatch::new(S(5), S(600), START, S(100), S(100))
    }

    fn feed(watch: &mut ClockWatch, store: Time, uptime: Duration) -> (Time, Option<WatchEvent>) {
        watch.feed(store, uptime, uptime)
    }

    #[test]
    fn steady_time_is_followed_also_across_a_suspend() {
        let mut watch = watch();
        for passed in [1, 2, 60, 3_600, 90_000_000] {
            let now = START + S(passed);
            assert_eq!(feed(&mut watch, now, S(100 + passed)), (now, None), "{passed}");
        }
    }

    #[test]
    fn a_jump_beyond_the_allowance_is_not_trusted() {
        let tick = Duration::from_millis(1);
        let right = START + S(1);
        for within in [START + S(6), START - S(4)] {
            assert_eq!(feed(&mut watch(), within, S(101)), (within, None));
        }
        assert_eq!(feed(&mut watch(), START + S(6) + tick, S(101)), (right, Some(WatchEvent::Moved(5_001))));
        assert_eq!(feed(&mut watch(), START - S(4) - tick, S(101)), (right, Some(WatchEvent::Moved(-5_001))));
    }

    #[test]
    fn a_slow_answer_is_not_a_jump() {
        let mut watch = watch();
        for shown in [S(0), S(20), S(40)] {
            assert_eq!(watch.feed(START + shown, S(100), S(140)), (START + shown, None));
        }
        let (now, news) = watch.feed(START + S(50), S(100), S(140));
        assert_eq!((now, news), (START, Some(WatchEvent::Moved(10_000))), "not earlier than the call");
    }

    #[test]
    fn a_slow_first_answer_makes_the_next_no_jump() {
        // Called at 60, answered at 100: the clock may have shown that at any moment in between.
        let first = || ClockWatch::new(S(5), S(600), START, S(60), S(100));
        for shown in [S(1), S(20), S(41)] {
            let mut watch = first();
            assert_eq!(feed(&mut watch, START + shown, S(101)), (START + shown, None));
            // From then on it is known.
            let ahead = START + shown + S(6) + Duration::from_millis(2);
            assert_eq!(feed(&mut watch, ahead, S(102)).1, Some(WatchEvent::Moved(5_002)), "{shown:?}");
        }
        assert!(matches!(feed(&mut first(), START + S(47), S(101)).1, Some(WatchEvent::Moved(6_000))));
    }

    #[test]
    fn slow_drift_is_followed_however_far_it_goes() {
        for ppm in [-500_i64, -100, 100, 500] {
            let mut watch = watch();
            for minute in 1..=100_000_i64 {
                let wall = minute * 60_000 + minute * 60_000 * ppm / 1_000_000;
                let store = START + Duration::from_millis(wall.unsigned_abs());
                let uptime = S(100 + 60 * minute.unsigned_abs());
                assert_eq!(feed(&mut watch, store, uptime), (store, None), "{ppm} {minute}");
            }
        }
    }

    #[test]
    fn drift_between_samples_is_not_a_jump() {
        let day = 86_400;
        assert_eq!(feed(&mut watch(), START + S(day + 43), S(100 + day)).1, None);
        assert_eq!(feed(&mut watch(), START + S(day + 49), S(100 + day)).1, Some(WatchEvent::Moved(49_000)));
    }

    #[test]
    fn samples_in_quick_succession_follow_a_drift_too() {
        let mut watch = watch();
        for tick in 1..=1_000_000_u64 {
            let store = START + Duration::from_millis(tick * 100 + tick * 100 * 400 / 1_000_000);
            let uptime = S(100) + Duration::from_millis(tick * 100);
            assert_eq!(feed(&mut watch, store, uptime).1, None, "{tick}");
        }
    }

    #[test]
    fn small_steps_add_up_to_a_large_one() {
        let mut watch = watch();
        let news: Vec<_> =
            (1..=10).map(|step| feed(&mut watch, START + S(12 * step), S(100 + 10 * step)).1).collect();
        assert_eq!(news[1], None);
        assert!(matches!(news[2], Some(WatchEvent::Moved(_))), "{news:?}");
    }

    #[test]
    fn waiting_never_makes_a_far_off_clock_trusted() {
        for away in [START + S(3_601), START - S(60)] {
            let mut watch = watch();
            assert!(matches!(feed(&mut watch, away, S(100)).1, Some(WatchEvent::Moved(_))));
            for passed in 1..10_000 {
                let (now, news) = feed(&mut watch, away + S(60 * passed), S(100 + 60 * passed));
                assert_eq!((now, news), (START + S(60 * passed), None));
            }
        }
    }

    #[test]
    fn a_clock_an_hour_ahead_is_followed_after_a_while() {
        let (mut watch, hour) = (watch(), S(3_600));
        let at = |watch: &mut ClockWatch, passed: u64, off: Duration| {
            feed(watch, START + S(passed) + off, S(100 + passed)).1
        };
        assert_eq!(at(&mut watch, 10, S(1_800)), Some(WatchEvent::Moved(1_800_000)));
        assert_eq!(at(&mut watch, 20, hour), Some(WatchEvent::Moved(3_600_000)), "moved again");
        assert_eq!(at(&mut watch, 619, hour), None);
        assert_eq!(at(&mut watch, 620, hour), Some(WatchEvent::Followed(3_600_000)));
        assert_eq!(at(&mut watch, 630, hour), None);
        assert_eq!(watch.off(), None);
        assert!(
            matches!(at(&mut watch, 640, S(0)), Some(WatchEvent::Moved(_))),
            "the way back is a jump too"
        );
    }

    #[test]
    fn a_clock_that_returns_is_trusted_at_once() {
        let mut watch = watch();
        assert!(feed(&mut watch, START + S(86_400), S(101)).1.is_some());
        assert_eq!(watch.off(), Some(86_399_000));
        assert_eq!(feed(&mut watch, START + S(2), S(102)), (START + S(2), Some(WatchEvent::Back)));
        assert_eq!((feed(&mut watch, START + S(3), S(103)).1, watch.off()), (None, None));
    }

    #[test]
    fn a_confirmed_clock_is_trusted() {
        let mut watch = watch();
        feed(&mut watch, START + S(86_400), S(100));
        watch.accept(START + S(86_400), S(100), S(100));
        let next = START + S(86_401);
        assert_eq!(feed(&mut watch, next, S(101)), (next, None));
        assert_eq!(feed(&mut watch, START + S(2), S(102)).1, Some(WatchEvent::Moved(-86_400_000)));
    }
}
