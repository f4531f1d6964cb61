//! What an operation was promised: its guarantee class and its durations.
//!
//! A record keeps the policy it is claimed under: an upgrade or a changed configuration does not alter the promise to a
//! client that is still retrying. Settings of a single node (how long a duplicate waits, how large a body may be) do
//! not belong here.

use crate::fingerprint::Selection;
use std::fmt;
use std::ops::Deref;
use std::time::Duration;

/// How the effect happens, and therefore what can be promised about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// The effect commits in the same database transaction as the record: exactly once, always. Only for code that
    /// writes both in that transaction, as the crate `semel-tx` does. The engine, the HTTP layer, the claims API and
    /// the gateway refuse this class.
    Local,
    /// The effect happens in a system that deduplicates by the operation ID or the key we pass on: exactly once, as
    /// long as that system deduplicates. That means: for [`PolicySettings::dedup_window`], it answers a second
    /// request with the first answer, also if that was a refusal.
    Downstream,
    /// The effect happens anywhere else: at most once per key within its retention. An attempt that ended in doubt
    /// becomes unknown and waits for a verdict.
    External,
}

impl Class {
    /// The name in configuration, documentation and dashboards.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Downstream => "downstream",
            Self::External => "external",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What happens to a key after its outcome has expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AfterExpiry {
    /// A tombstone is kept, and a late retry is refused as expired.
    Refuse,
    /// The key is free again: a late retry runs the command a second time. For effects where that is harmless.
    RunAsNew,
}

/// The policy that a record is claimed under. Valid by construction.
///
/// ```
/// use semel_core::policy::{Class, Policy, PolicyError};
/// use std::time::Duration;
///
/// let week = Duration::from_hours(7 * 24);
/// let policy = Policy::new(Class::External).with(|policy| policy.ttl = week)?;
/// // "Not found" proves nothing until this long after the owner's last write:
/// assert_eq!(policy.quiet(), policy.lease + policy.work_deadline + policy.skew);
///
/// let forgetful = policy.with(|policy| policy.ttl = Duration::from_secs(1));
/// assert_eq!(forgetful, Err(PolicyError::TtlWithinLease));
/// # Ok::<(), PolicyError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Policy(PolicySettings);

/// The settings of a policy, not yet validated. [`Policy::with`] changes them, and [`Policy::try_from`] validates
/// them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PolicySettings {
    /// How the effect happens.
    pub class: Class,
    /// How long a claim is valid without renewal. Far shorter than `ttl`: after a crash, the key is blocked for this
    /// long.
    pub lease: Duration,
    /// The longest time that an effect can still be in flight after it was sent.
    pub work_deadline: Duration,
    /// How much clocks may differ. Zero if the store's own clock judges every lease.
    pub skew: Duration,
    /// How long a stored outcome is replayed, counted from when it became final.
    pub ttl: Duration,
    /// How long a denial of permission is stored. Short, because the client may log in and retry.
    pub denied_ttl: Duration,
    /// How long after `ttl` a late retry is still recognised and refused.
    pub tombstone: Duration,
    /// How long the downstream system deduplicates. Only used in [`Class::Downstream`].
    pub dedup_window: Duration,
    /// The maximum number of attempts without effect; more are refused. `None`: no limit.
    pub attempts_max: Option<u32>,
    /// What happens to the key after its outcome has expired.
    pub after_expiry: AfterExpiry,
    /// How many history entries a record keeps.
    pub history_entries_max: u8,
    /// Which parts of a payload are fingerprinted.
    pub selection: Selection,
}

impl Policy {
    /// The defaults for a class: lease 30 s, work deadline 65 s (5 s to connect, 60 s to answer), ttl 24 h,
    /// tombstones 30 days, deduplication window 24 h, any number of attempts, 16 history entries.
    pub fn new(class: Class) -> Self {
        const DAY: Duration = Duration::from_hours(24);
        Self(PolicySettings {
            class,
            lease: Duration::from_secs(30),
            work_deadline: Duration::from_secs(65),
            skew: Duration::ZERO,
            ttl: DAY,
            denied_ttl: Duration::from_mins(5),
            tombstone: 30 * DAY,
            dedup_window: DAY,
            attempts_max: None,
            after_expiry: AfterExpiry::Refuse,
            history_entries_max: 16,
            selection: Selection::default(),
        })
    }

    /// The same policy with changes. Fails if the result is invalid.
    pub fn with(self, change: impl FnOnce(&mut PolicySettings)) -> Result<Self, PolicyError> {
        let mut settings = self.0;
        change(&mut settings);
        settings.try_into()
    }

    /// How many bytes of memory it uses, including what it refers to.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.selection.memory_bytes()
    }

    /// The policy of a stored record. It was validated when it was claimed, perhaps by an older version's rules.
    #[doc(hidden)]
    pub const fn as_stored(settings: PolicySettings) -> Self {
        Self(settings)
    }

    /// How long an owner must be silent before the absence of its effect proves anything. A paused owner may send
    /// until its lease expires, and the effect may be in flight until its deadline.
    pub fn quiet(&self) -> Duration {
        self.lease.saturating_add(self.work_deadline).saturating_add(self.skew)
    }
}

impl Deref for Policy {
    type Target = PolicySettings;

    fn deref(&self) -> &PolicySettings {
        &self.0
    }
}

impl From<Policy> for PolicySettings {
    fn from(policy: Policy) -> Self {
        policy.0
    }
}

impl TryFrom<PolicySettings> for Policy {
    type Error = PolicyError;

    fn try_from(settings: PolicySettings) -> Result<Self, PolicyError> {
        settings.check().map(|()| Self(settings))
    }
}

impl PolicySettings {
    /// Validates the settings.
    pub fn check(&self) -> Result<(), PolicyError> {
        let longest_attempt = self.work_deadline.saturating_add(self.skew);
        let spans = [
            self.lease,
            self.work_deadline,
            self.skew,
            self.ttl,
            self.denied_ttl,
            self.tombstone,
            self.dedup_window,
        ];
        if spans.iter().any(|span| span.subsec_nanos() % 1_000_000 != 0) {
            Err(PolicyError::FinerThanMilliseconds)
        } else if self.lease.is_zero() {
            Err(PolicyError::NoLease)
        } else if self.work_deadline.is_zero() {
            Err(PolicyError::NoWorkDeadline)
        } else if self.ttl <= self.lease {
            Err(PolicyError::TtlWithinLease)
        } else if self.denied_ttl <= self.lease {
            Err(PolicyError::DeniedTtlWithinLease)
        } else if self.attempts_max == Some(0) {
            Err(PolicyError::NoAttempts)
        } else if self.class == Class::Downstream && self.dedup_window <= longest_attempt {
            Err(PolicyError::WindowWithinAttempt)
        } else {
            Ok(())
        }
    }
}

/// Why a policy is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyError {
    /// A duration is not a whole number of milliseconds, the resolution of store clocks.
    FinerThanMilliseconds,
    /// There is no lease.
    NoLease,
    /// The work has no deadline, so the absence of its effect could never prove anything.
    NoWorkDeadline,
    /// Outcomes would expire before a claim's lease.
    TtlWithinLease,
    /// A denial of permission would expire before a claim's lease: an older, long-running claim could follow it with
    /// a lower fence.
    DeniedTtlWithinLease,
    /// No attempt would be allowed at all.
    NoAttempts,
    /// The downstream system forgets an effect before one attempt is over.
    WindowWithinAttempt,
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FinerThanMilliseconds => {
                "every duration must be a whole number of milliseconds, the resolution of store clocks"
            }
            Self::NoLease => "the lease must be at least one millisecond",
            Self::NoWorkDeadline => {
                "the work deadline must be longer than zero; without it, \"not found\" could never resolve \
                 an unknown outcome"
            }
            Self::TtlWithinLease => {
                "the ttl must be longer than the lease; otherwise an outcome could expire during its own attempt"
            }
            Self::DeniedTtlWithinLease => {
                "the denied ttl must be longer than the lease; otherwise a slow claim could outlive the denial \
                 that followed it"
            }
            Self::NoAttempts => "attempts_max must be at least 1; leave it out for no limit",
            Self::WindowWithinAttempt => {
                "dedup_window must be longer than the work deadline plus the clock skew; otherwise the \
                 downstream system may forget an effect before a second attempt reaches it"
            }
        })
    }
}

impl std::error::Error for PolicyError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(change: impl FnOnce(&mut PolicySettings)) -> Result<(), PolicyError> {
        Policy::new(Class::Downstream).with(change).map(drop)
    }

    #[test]
    fn the_defaults_of_every_class_are_valid() {
        for class in [Class::Local, Class::Downstream, Class::External] {
            assert_eq!(Policy::new(class).check(), Ok(()), "{class}");
        }
    }

    #[test]
    fn a_class_is_called_the_same_everywhere() {
        let classes = [Class::Local, Class::Downstream, Class::External];
        assert_eq!(classes.map(Class::name), ["local", "downstream", "external"]);
        assert_eq!(classes.map(|class| class.to_string()), ["local", "downstream", "external"]);
    }

    #[test]
    fn each_invalid_policy_has_its_own_error() {
        let ms = Duration::from_millis;
        let fine = Duration::from_micros(5_000_999);
        let spans: [fn(&mut PolicySettings) -> &mut Duration; 7] = [
            |p| &mut p.lease,
            |p| &mut p.work_deadline,
            |p| &mut p.skew,
            |p| &mut p.ttl,
            |p| &mut p.denied_ttl,
            |p| &mut p.tombstone,
            |p| &mut p.dedup_window,
        ];
        for span in spans {
            assert_eq!(with(|p| *span(p) = fine), Err(PolicyError::FinerThanMilliseconds));
        }
        assert_eq!(with(|p| p.lease = Duration::ZERO), Err(PolicyError::NoLease));
        assert_eq!(with(|p| p.lease = ms(1)), Ok(()));
        assert_eq!(with(|p| p.work_deadline = Duration::ZERO), Err(PolicyError::NoWorkDeadline));
        assert_eq!(with(|p| p.ttl = p.lease), Err(PolicyError::TtlWithinLease));
        assert_eq!(with(|p| p.ttl = p.lease + ms(1)), Ok(()));
        assert_eq!(with(|p| p.denied_ttl = p.lease), Err(PolicyError::DeniedTtlWithinLease));
        assert_eq!(with(|p| p.denied_ttl = p.lease + ms(1)), Ok(()));
        assert_eq!(with(|p| p.attempts_max = Some(0)), Err(PolicyError::NoAttempts));
        assert_eq!(with(|p| p.attempts_max = Some(1)), Ok(()));
        let tight = |p: &mut PolicySettings| {
            p.skew = ms(10);
            p.dedup_window = p.work_deadline + p.skew;
        };
        assert_eq!(with(tight), Err(PolicyError::WindowWithinAttempt));
        assert_eq!(with(|p| (tight(p), p.dedup_window += ms(1)).0), Ok(()));
        assert_eq!(with(|p| (tight(p), p.class = Class::External).0), Ok(()), "only downstream has a window");
    }
}
