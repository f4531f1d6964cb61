//! The present, and what may be concluded from it.

use super::Time;
use std::time::Duration;

/// What may be concluded from the present time. Each level allows what the ones before it allow.
///
/// A clock can be wrong, and a conclusion drawn from a wrong clock can cost a second effect. The less is known
/// about a clock, the less a node concludes from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Trust {
    /// The clock contradicts what the store remembers. Nothing is claimed, and nothing is judged to be over.
    Untrusted,
    /// The clock is plausible, but time did not provably pass without a gap, and another node may still go by
    /// another time. New commands are claimed; no lease is judged dead and no quiet period over.
    Starting,
    /// Leases and quiet periods are judged. Nothing is expired, re-used or purged yet.
    Settling,
    /// Everything is judged.
    Trusted,
}

/// The present as a node judges by it.
///
/// ```
/// use semel_core::time::{Now, Time, Trust};
///
/// let now = Now::from(Time::from_millis(1_000));
/// assert_eq!((now.at.as_millis(), now.trust), (1_000, Trust::Trusted));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Now {
    /// The moment: the earliest that it can be, so that nothing is over before its time.
    pub at: Time,
    /// The latest that it can be. Only what is dated later than this was dated by a wrong clock.
    pub latest: Time,
    /// What may be concluded from it.
    pub trust: Trust,
    /// By how much the clock that dated a record may differ from this one. Where the record's own policy names
    /// more, that counts.
    pub skew: Duration,
    /// Since when time has passed without a gap; `None` where no gap is known. What was dated before this moment
    /// may be off by any amount, so its lease and its quiet period are counted from here at the earliest.
    pub steady_since: Option<Time>,
    /// When the time was last replaced by another one; `None` where it never was. An outcome that was dated before
    /// this moment is kept for its whole time from here: how old it really is, nobody knows.
    pub replaced_at: Option<Time>,
    /// The latest date that the replaced time gave, as long as records with such dates may be left; `None` where none
    /// are. A first attempt that is dated up to here may have been long before.
    pub replaced_up_to: Option<Time>,
}

impl Now {
    /// Whether new work may be claimed.
    pub fn can_claim(&self) -> bool {
        self.trust >= Trust::Starting
    }

    /// Whether a lease may be judged dead, and a quiet period over.
    pub fn can_judge_leases(&self) -> bool {
        self.trust >= Trust::Settling
    }

    /// Whether anything may be judged to be past its retention.
    pub fn can_expire(&self) -> bool {
        self.trust == Trust::Trusted
    }

    /// Whether `moment` lies further ahead than clocks may differ by: only a clock that was wrong can have made
    /// that date.
    pub(crate) fn is_before(&self, moment: Time, skew: Duration) -> bool {
        moment > self.latest + self.skew.max(skew)
    }
}

/// A moment that is trusted without reserve: a clock that never jumps and that everybody shares.
impl From<Time> for Now {
    fn from(at: Time) -> Self {
        let (steady_since, replaced_at, replaced_up_to) = (None, None, None);
        Self {
            at,
            latest: at,
            trust: Trust::Trusted,
            skew: Duration::ZERO,
            steady_since,
            replaced_at,
            replaced_up_to,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_level_of_trust_allows_what_the_one_before_allows() {
        let levels = [Trust::Untrusted, Trust::Starting, Trust::Settling, Trust::Trusted];
        let allowed = levels.map(|trust| {
            let now = Now { trust, ..Time::from_millis(5).into() };
            (now.can_claim(), now.can_judge_leases(), now.can_expire())
        });
        let (no, yes) = (false, true);
        assert_eq!(allowed, [(no, no, no), (yes, no, no), (yes, yes, no), (yes, yes, yes)]);
    }

    #[test]
    fn a_date_is_from_the_future_only_beyond_the_larger_skew() {
        let ms = Duration::from_millis;
        let now = Now { skew: ms(10), ..Time::from_millis(100).into() };
        assert!(!now.is_before(Time::from_millis(110), Duration::ZERO));
        assert!(now.is_before(Time::from_millis(111), Duration::ZERO));
        assert!(!now.is_before(Time::from_millis(130), ms(30)));
        assert!(now.is_before(Time::from_millis(131), ms(30)));
    }
}
