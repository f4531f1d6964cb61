//! The store's time between its answers.
//!
//! What lives here: what time it is in the store, as far as this node can tell from the last answer and the time that
//! has passed since. What must never: this node's wall clock.

use semel_core::time::Time;
use std::sync::Mutex;
use std::time::Duration;

/// The last answer's time, and when by this node's uptime the question was put and answered.
#[derive(Debug, Clone, Copy)]
struct Sample {
    told: Time,
    asked: Duration,
    received: Duration,
}

/// What time it is in the store.
///
/// The store read its clock somewhere between question and answer. So its time *now* lies between what it told plus
/// the time since the answer, and what it told plus the time since the question.
#[derive(Debug)]
pub(crate) struct Timeline(Mutex<Sample>);

impl Timeline {
    pub(crate) fn new(told: Time, asked: Duration, received: Duration) -> Self {
        Self(Mutex::new(Sample { told, asked, received }))
    }

    /// Takes note of an answer. An answer to an older question than the last one noted says nothing new.
    pub(crate) fn note(&self, told: Time, asked: Duration, received: Duration) {
        let mut last = self.last();
        if asked >= last.asked {
            *last = Sample { told, asked, received };
        }
    }

    /// The earliest that it can be now: what is written with this time claims no lease that the store would not grant.
    pub(crate) fn earliest(&self, uptime: Duration) -> Time {
        let last = self.last();
        last.told + uptime.saturating_sub(last.received)
    }

    /// The latest that it can be now: a lease that is alive at this time is alive.
    pub(crate) fn latest(&self, uptime: Duration) -> Time {
        let last = self.last();
        // One more, since every clock here tells whole milliseconds and the truth may lie just above.
        last.told + uptime.saturating_sub(last.asked) + Duration::from_millis(1)
    }

    fn last(&self) -> std::sync::MutexGuard<'_, Sample> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn the_stores_time_lies_between_two_bounds() {
        let timeline = Timeline::new(Time::from_millis(1_000), ms(10), ms(14));
        assert_eq!(timeline.earliest(ms(20)).as_millis(), 1_006);
        assert_eq!(timeline.latest(ms(20)).as_millis(), 1_011);
    }

    #[test]
    fn an_answer_to_an_older_question_does_not_turn_time_back() {
        let timeline = Timeline::new(Time::from_millis(1_000), ms(10), ms(14));
        timeline.note(Time::from_millis(995), ms(5), ms(16));
        assert_eq!(timeline.earliest(ms(16)).as_millis(), 1_002);
        timeline.note(Time::from_millis(900), ms(20), ms(21));
        assert_eq!(timeline.earliest(ms(21)).as_millis(), 900, "a clock that was set back is followed");
    }
}
