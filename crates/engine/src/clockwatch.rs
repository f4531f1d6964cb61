//! Whether wall time can be trusted.
//!
//! What lives here: a watch over the store's time, held against an uptime that nobody can set. What must never: reading
//! either clock, or deciding what stops: the sweeper asks, and deletes nothing while the alarm is on.
//!
//! Retention is judged by wall time. A clock set a year ahead makes every outcome look expired, and a sweep would delete
//! what clients are still promised. The uptime counts the time that the machine was suspended, so that waking up is not
//! taken for a jump.

use semel_core::time::Time;
use std::time::Duration;

/// The fastest that a clock is turned to bring it right without a jump: 500 parts in a million.
const SLEW_PPM: u32 = 500;

/// What the watch says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Wall time goes with uptime.
    Steady,
    /// Wall time is ahead of where it should be, or was not long ago.
    MovedForward(Duration),
    /// Wall time is behind where it should be, or was not long ago.
    MovedBack(Duration),
}

impl Verdict {
    /// Whether nothing may be deleted now.
    pub const fn is_alarm(self) -> bool {
        !matches!(self, Self::Steady)
    }
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    /// Wall time less uptime, in milliseconds: the same as long as both go at one pace.
    offset: i128,
    uptime: Duration,
}

/// Wall time was off, and is not trusted yet.
#[derive(Debug, Clone, Copy)]
struct Alarm {
    /// By how much it was off at the worst.
    worst: i128,
    /// Since when it has been back within the allowance; `None` while it is off.
    back_since: Option<Duration>,
}

/// Holds the store's time against uptime.
///
/// Slow drift (a clock that is being slewed into place) is followed; whatever is faster adds up, in however many small
/// steps it comes, until it is more than the allowance. Then the alarm is on, and goes off in two ways only:
///
/// - wall time comes *back* to where it should be and stays there for the time that was asked for;
/// - somebody looks, and [`acknowledge`](Self::acknowledge)s the new time.
///
/// A clock that *stays* where it was set to is never trusted by waiting: an hour later its year ahead is no less wrong,
/// and a sweep that believed it could not be undone.
///
/// A watch knows nothing of the time before its first sample: a node that is started while the clock is wrong takes it
/// for right.
///
/// ```
/// use semel::clockwatch::{ClockWatch, Verdict};
/// use semel::core::time::Time;
/// use std::time::Duration;
///
/// let mut watch = ClockWatch::new(Duration::from_secs(5), Duration::from_mins(10));
/// let (noon, started) = (Time::from_millis(1_800_000_000_000), Duration::from_secs(60));
/// assert_eq!(watch.feed(noon, started), Verdict::Steady);
/// let day = Duration::from_hours(24);
/// assert_eq!(watch.feed(noon + day, started), Verdict::MovedForward(day));
/// ```
#[derive(Debug, Clone)]
pub struct ClockWatch {
    allowance: Duration,
    steady_for: Duration,
    /// Where wall time should be.
    base: Option<Sample>,
    last: Option<Sample>,
    alarm: Option<Alarm>,
}

impl ClockWatch {
    /// A watch that lets wall time be off by `allowance` (longer than an answer of the store can be under way), and that
    /// trusts it again once it has been back in its place for `steady_for`.
    pub fn new(allowance: Duration, steady_for: Duration) -> Self {
        Self { allowance, steady_for, base: None, last: None, alarm: None }
    }

    /// Takes the store's time and the uptime when it was answered, and says how things stand.
    pub fn feed(&mut self, store: Time, uptime: Duration) -> Verdict {
        let offset = i128::from(store.as_millis()) - millis(uptime);
        let sample = Sample { offset, uptime };
        self.last = Some(sample);
        let base = *self.base.get_or_insert(sample);
        let off = offset - base.offset;
        let drift = drift_max(base.uptime, uptime);
        if off.abs() > millis(self.allowance) + drift {
            let worst = self.alarm.map_or(0, |alarm| alarm.worst);
            let worst = if off.abs() > worst.abs() { off } else { worst };
            self.alarm = Some(Alarm { worst, back_since: None });
            // What cannot be trusted is not followed, nor let drift into trust.
            self.base = Some(Sample { uptime, ..base });
            return self.verdict();
        }
        if drift > 0 {
            self.base = Some(Sample { offset: base.offset + off.clamp(-drift, drift), uptime });
        }
        if let Some(alarm) = &mut self.alarm {
            let since = *alarm.back_since.get_or_insert(uptime);
            if uptime.saturating_sub(since) >= self.steady_for {
                self.alarm = None;
            }
        }
        self.verdict()
    }

    /// How things stood at the last sample. While the alarm is on: by how much wall time was off at the worst.
    pub fn verdict(&self) -> Verdict {
        let Some(Alarm { worst, .. }) = self.alarm else { return Verdict::Steady };
        let by = Duration::from_millis(u64::try_from(worst.unsigned_abs()).unwrap_or(u64::MAX));
        if worst > 0 { Verdict::MovedForward(by) } else { Verdict::MovedBack(by) }
    }

    /// Somebody has looked: the time of the last sample is right, and the alarm is off.
    pub fn acknowledge(&mut self) {
        self.base = self.last;
        self.alarm = None;
    }
}

/// How far a clock that is being slewed may have come, in whole milliseconds. Zero where it is too soon for one: then the
/// base stays, and what has passed goes on adding up.
fn drift_max(from: Duration, to: Duration) -> i128 {
    millis(to.saturating_sub(from).saturating_mul(SLEW_PPM) / 1_000_000)
}

fn millis(span: Duration) -> i128 {
    i128::try_from(span.as_millis()).unwrap_or(i128::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;
    const START: Time = Time::from_millis(1_800_000_000_000);

    fn watch() -> ClockWatch {
        let mut watch = ClockWatch::new(S(5), S(600));
        assert_eq!(watch.feed(START, S(100)), Verdict::Steady);
        watch
    }

    #[test]
    fn time_that_goes_on_is_steady_also_across_a_suspend() {
        let mut watch = watch();
        for passed in [1, 2, 60, 3_600, 90_000_000] {
            assert_eq!(watch.feed(START + S(passed), S(100 + passed)), Verdict::Steady, "{passed}");
        }
    }

    #[test]
    fn a_jump_beyond_the_allowance_is_told_in_both_directions() {
        let tick = Duration::from_millis(1);
        assert_eq!(watch().feed(START + S(6), S(101)), Verdict::Steady);
        let past = watch().feed(START + S(6) + tick, S(101));
        assert_eq!(past, Verdict::MovedForward(S(5) + tick));
        assert_eq!(watch().feed(START - S(4), S(101)), Verdict::Steady);
        assert_eq!(watch().feed(START - S(4) - tick, S(101)), Verdict::MovedBack(S(5) + tick));
        assert_eq!(watch().feed(START - S(3_600), S(160)), Verdict::MovedBack(S(3_660)));
        assert!(past.is_alarm() && !Verdict::Steady.is_alarm());
    }

    #[test]
    fn slow_drift_is_followed_however_far_it_goes() {
        for ppm in [-500_i64, -100, 100, 500] {
            let mut watch = watch();
            for minute in 1..=100_000_i64 {
                let wall = minute * 60_000 + minute * 60_000 * ppm / 1_000_000;
                let store = START + Duration::from_millis(wall.unsigned_abs());
                let uptime = S(100 + 60 * minute.unsigned_abs());
                assert_eq!(watch.feed(store, uptime), Verdict::Steady, "{ppm} {minute}");
            }
        }
    }

    #[test]
    fn what_drifted_while_nobody_looked_is_no_jump() {
        let day = 86_400;
        assert_eq!(watch().feed(START + S(day + 43), S(100 + day)), Verdict::Steady);
        assert_eq!(watch().feed(START + S(day + 49), S(100 + day)), Verdict::MovedForward(S(49)));
    }

    #[test]
    fn samples_in_quick_succession_follow_a_drift_too() {
        let mut watch = watch();
        for tick in 1..=1_000_000_u64 {
            let wall = tick * 100 + tick * 100 * 400 / 1_000_000;
            let store = START + Duration::from_millis(wall);
            assert_eq!(
                watch.feed(store, S(100) + Duration::from_millis(tick * 100)),
                Verdict::Steady,
                "{tick}"
            );
        }
    }

    #[test]
    fn small_steps_that_add_up_are_one_large_one() {
        let mut watch = watch();
        let verdicts: Vec<_> =
            (1..=10).map(|step| watch.feed(START + S(10 * step + 2 * step), S(100 + 10 * step))).collect();
        assert_eq!(verdicts[1], Verdict::Steady);
        assert!(verdicts[2].is_alarm(), "{verdicts:?}");
    }

    #[test]
    fn a_clock_that_stays_where_it_was_set_is_not_trusted_by_waiting() {
        let mut watch = watch();
        for passed in 0..10_000 {
            let verdict = watch.feed(START + S(10 + 60 * passed), S(100 + 60 * passed));
            assert_eq!(verdict, Verdict::MovedForward(S(10)));
        }
    }

    #[test]
    fn somebody_who_looked_can_say_that_the_new_time_is_right() {
        let mut watch = watch();
        watch.feed(START + S(86_400), S(100));
        watch.acknowledge();
        assert_eq!(watch.verdict(), Verdict::Steady);
        assert_eq!(watch.feed(START + S(86_401), S(101)), Verdict::Steady);
        assert_eq!(watch.feed(START + S(2), S(102)), Verdict::MovedBack(S(86_400)));
    }

    #[test]
    fn a_clock_that_came_back_is_trusted_once_it_stayed() {
        let mut watch = watch();
        let at = |watch: &mut ClockWatch, passed: u64, off: u64| {
            watch.feed(START + S(passed + off), S(100 + passed))
        };
        assert_eq!(at(&mut watch, 10, 3_600), Verdict::MovedForward(S(3_600)));
        assert_eq!(at(&mut watch, 20, 1_800), Verdict::MovedForward(S(3_600)), "at the worst");
        assert_eq!(at(&mut watch, 30, 0), Verdict::MovedForward(S(3_600)));
        assert_eq!(at(&mut watch, 629, 0), Verdict::MovedForward(S(3_600)));
        assert_eq!(at(&mut watch, 630, 0), Verdict::Steady);
    }

    #[test]
    fn leaving_its_place_again_starts_the_wait_anew() {
        let mut watch = watch();
        let at = |watch: &mut ClockWatch, passed: u64, off: u64| {
            watch.feed(START + S(passed + off), S(100 + passed))
        };
        at(&mut watch, 10, 3_600);
        at(&mut watch, 30, 0);
        at(&mut watch, 600, 60);
        assert!(at(&mut watch, 610, 0).is_alarm());
        assert!(at(&mut watch, 700, 0).is_alarm());
        assert!(at(&mut watch, 1_209, 0).is_alarm());
        assert!(!at(&mut watch, 1_210, 0).is_alarm());
    }

    #[test]
    fn a_watch_that_was_never_fed_has_nothing_to_say() {
        let mut watch = ClockWatch::new(S(5), S(600));
        assert_eq!(watch.verdict(), Verdict::Steady);
        watch.acknowledge();
        assert_eq!(watch.feed(START, S(1)), Verdict::Steady);
    }
}
