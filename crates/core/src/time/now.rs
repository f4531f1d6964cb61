//! The current time, and what may be concluded from it.

use super::Time;
use std::time::Duration;

/// What may be concluded from the current time. Each level also allows what the earlier ones allow.
///
/// A wrong clock can lead to a second effect. The less is known about a clock, the less a node concludes from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Trust {
    /// The clock contradicts the store. Nothing is claimed, and nothing is judged to be over.
    Untrusted,
    /// The clock is plausible, but may have had a gap, and another node may still use another time. New commands are
    /// claimed; no lease is judged expired and no quiet period over.
    Starting,
    /// Leases and quiet periods are judged. Nothing is expired, reused or purged yet.
    Settling,
    /// Everything is judged.
    Trusted,
}

/// The current time, as a node uses it to judge.
///
/// ```
/// use semel_core::time::{Now, Time, Trust};
///
/// let now = Now::from(Time::from_millis(1_000));
/// assert_eq!((now.at.as_millis(), now.trust), (1_000, Trust::Trusted));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Now {
    /// The earliest moment that it can be, so that nothing ends too early.
    pub at: Time,
    /// The latest moment that it can be. Only a date after this is from a wrong clock.
    pub latest: Time,
    /// What may be concluded from it.
    pub trust: Trust,
    /// How much the clock that dated a record may differ from this one. A larger value in the record's policy takes
    /// precedence.
    pub skew: Duration,
    /// Since when time has passed without a gap; `None` if no gap is known. An earlier date may be wrong by any
    /// amount, so leases and quiet periods count from here at the earliest.
    pub steady_since: Option<Time>,
    /// When an operator last replaced the time; `None` if it never was. An outcome with an earlier date is kept for
    /// its full ttl from here, because its real age is not known.
    pub replaced_at: Option<Time>,
    /// The latest date given by the replaced time, while records with such dates may exist; `None` if none are. A
    /// first attempt with a date up to here may have happened much earlier.
    pub replaced_up_to: Option<Time>,
    /// Whether a lease with a date in the future is known to be wrong while other leases cannot be judged yet: an
    /// operator confirmed this time, and other nodes have heard of it.
    pub is_ahead_wrong: bool,
}

impl Now {
    /// Whether new work may be claimed.
    pub fn can_claim(&self) -> bool {
        self.trust >= Trust::Starting
    }

    /// Whether a lease may be judged expired, and a quiet period over.
    pub fn can_judge_leases(&self) -> bool {
        self.trust >= Trust::Settling
    }

    /// Whether retention may be judged to be over.
    pub fn can_expire(&self) -> bool {
        self.trust == Trust::Trusted
    }

    /// Whether `moment` is further ahead than clocks may differ: only a wrong clock can have given that date.
    pub(crate) fn is_before(&self, moment: Time, skew: Duration) -> bool {
        moment > self.latest + self.skew.max(skew)
    }
}

/// A fully trusted moment, of a clock that never jumps and that all nodes share.
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
            is_ahead_wrong: false,
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
