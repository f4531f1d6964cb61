//! The rules for a client's key.
//!
//! The length bounds and the treatment of weak keys, checked when they are configured. Rules depend only on the key's
//! text.

use std::fmt;

use super::{Error, Weakness, weak};

/// What to do with a weak or personal key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Treatment {
    /// Refuse it with [`Error::Weak`].
    #[default]
    Refuse,
    /// Accept it, and report the [`Weakness`].
    Warn,
    /// Accept it without checking.
    Allow,
}

/// The bounds on a key's length and the treatment of weak keys.
///
/// The default is 16 to 255 characters, weak keys refused. Both bounds are inclusive. They count the key itself,
/// without quotes and escapes.
///
/// ```
/// use semel_core::key::{Key, Rules, Treatment};
///
/// let rules = Rules::new(8, 64)?.with_weak(Treatment::Warn);
/// let parsed = Key::from_text("retry-retry", &rules).unwrap();
/// assert!(parsed.warning.is_some());
/// assert!(Rules::new(0, 64).is_err());
/// # Ok::<(), semel_core::key::RulesError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    min: usize,
    max: usize,
    weak: Treatment,
}

impl Rules {
    /// The longest key that rules can allow. It limits what a store has to keep if raw keys are stored.
    pub const MAX: usize = 1024;

    /// Rules for keys of `min` to `max` characters, both included; weak keys are refused.
    pub const fn new(min: usize, max: usize) -> Result<Self, RulesError> {
        if min == 0 {
            Err(RulesError::ZeroMin)
        } else if max > Self::MAX {
            Err(RulesError::MaxTooLarge { max })
        } else if min > max {
            Err(RulesError::MinAboveMax { min, max })
        } else {
            Ok(Self { min, max, weak: Treatment::Refuse })
        }
    }

    /// Rules for a header other than `Idempotency-Key`, with IDs that somebody else chose (`webhook-id`): 1 to 255
    /// characters, weak or not.
    pub const fn other_header() -> Self {
        Self { min: 1, max: 255, weak: Treatment::Allow }
    }

    /// The same bounds with another treatment of weak keys.
    #[must_use]
    pub const fn with_weak(self, weak: Treatment) -> Self {
        Self { weak, ..self }
    }

    /// The minimum number of characters.
    pub const fn min(&self) -> usize {
        self.min
    }

    /// The maximum number of characters.
    pub const fn max(&self) -> usize {
        self.max
    }

    /// What happens to weak keys.
    pub const fn weak(&self) -> Treatment {
        self.weak
    }

    /// Checks visible ASCII text, where each byte is a character.
    pub(super) fn judge(&self, text: &str) -> Result<Option<Weakness>, Error> {
        let (length, Self { min, max, weak }) = (text.len(), *self);
        match length {
            0 => return Err(Error::Empty),
            _ if length < min => return Err(Error::TooShort { length, min }),
            _ if length > max => return Err(Error::TooLong { length, max }),
            _ => {}
        }
        match weak {
            Treatment::Allow => Ok(None),
            Treatment::Warn => Ok(weak::find(text)),
            Treatment::Refuse => weak::find(text).map_or(Ok(None), |weakness| Err(Error::Weak(weakness))),
        }
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self { min: 16, max: 255, weak: Treatment::Refuse }
    }
}

/// Why rules are invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RulesError {
    /// A minimum of zero would allow the empty key.
    ZeroMin,
    /// The minimum is above the maximum.
    MinAboveMax {
        /// The requested minimum.
        min: usize,
        /// The requested maximum.
        max: usize,
    },
    /// The maximum is over [`Rules::MAX`].
    MaxTooLarge {
        /// The requested maximum.
        max: usize,
    },
}

impl fmt::Display for RulesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroMin => f.write_str("the minimum key length is 0; it must be at least 1"),
            Self::MinAboveMax { min, max } => {
                write!(f, "the minimum key length ({min}) is above the maximum ({max}); no key could pass")
            }
            Self::MaxTooLarge { max } => {
                write!(f, "the maximum key length is {max}; at most {} is supported", Rules::MAX)
            }
        }
    }
}

impl std::error::Error for RulesError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unbounded_rules_and_rules_that_fit_no_key_are_refused() {
        assert_eq!(Rules::new(0, 10), Err(RulesError::ZeroMin));
        assert_eq!(Rules::new(11, 10), Err(RulesError::MinAboveMax { min: 11, max: 10 }));
        assert_eq!(Rules::new(1, 1025), Err(RulesError::MaxTooLarge { max: 1025 }));
        assert!(Rules::new(1, 1024).is_ok());
        assert!(Rules::new(7, 7).is_ok());
        assert_eq!(
            RulesError::MinAboveMax { min: 11, max: 10 }.to_string(),
            "the minimum key length (11) is above the maximum (10); no key could pass"
        );
        assert!(RulesError::MaxTooLarge { max: 1025 }.to_string().contains("is 1025; at most 1024"));
        assert!(RulesError::ZeroMin.to_string().contains("at least 1"));
    }

    #[test]
    fn the_defaults_are_the_published_ones() {
        let rules = Rules::default();
        assert_eq!((rules.min(), rules.max(), rules.weak()), (16, 255, Treatment::Refuse));
        let other = Rules::other_header();
        assert_eq!((other.min(), other.max(), other.weak()), (1, 255, Treatment::Allow));
        assert_eq!(Rules::new(16, 255), Ok(rules));
    }
}
