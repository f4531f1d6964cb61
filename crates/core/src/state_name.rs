//! The names and numbers of a record's states, for the record, its history and what stores them.

use std::fmt;

/// The name of a state in APIs, metrics, history and indexes.
///
/// The discriminants are the numbers by which the codec and every store's columns store states. A number never
/// changes its meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "documented at the variants of record::State")]
#[repr(u8)]
pub enum StateName {
    Claimed = 0,
    Processing = 1,
    Succeeded = 2,
    FailedReplayable = 3,
    FailedNotReplayable = 4,
    Unknown = 5,
    Expired = 6,
}

impl StateName {
    /// Every state.
    pub const ALL: [Self; 7] = [
        Self::Claimed,
        Self::Processing,
        Self::Succeeded,
        Self::FailedReplayable,
        Self::FailedNotReplayable,
        Self::Unknown,
        Self::Expired,
    ];

    /// The number of this state in stores.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The state with this number; `None` if this version does not know it.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|name| name.number() == number)
    }

    /// The name in capitals, as APIs and metrics show it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Claimed => "CLAIMED",
            Self::Processing => "PROCESSING",
            Self::Succeeded => "SUCCEEDED",
            Self::FailedReplayable => "FAILED_REPLAYABLE",
            Self::FailedNotReplayable => "FAILED_NOT_REPLAYABLE",
            Self::Unknown => "UNKNOWN",
            Self::Expired => "EXPIRED",
        }
    }
}

impl fmt::Display for StateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_called_the_same_everywhere() {
        let names = StateName::ALL.map(StateName::as_str);
        let expected = [
            "CLAIMED",
            "PROCESSING",
            "SUCCEEDED",
            "FAILED_REPLAYABLE",
            "FAILED_NOT_REPLAYABLE",
            "UNKNOWN",
            "EXPIRED",
        ];
        assert_eq!(names, expected);
        assert_eq!(format!("[{:<8}]", StateName::Claimed), "[CLAIMED ]");
    }

    #[test]
    fn the_stored_numbers_of_states_never_change() {
        let numbers = [
            (StateName::Claimed, 0),
            (StateName::Processing, 1),
            (StateName::Succeeded, 2),
            (StateName::FailedReplayable, 3),
            (StateName::FailedNotReplayable, 4),
            (StateName::Unknown, 5),
            (StateName::Expired, 6),
        ];
        assert_eq!(numbers.map(|(name, _)| name), StateName::ALL);
        for (name, number) in numbers {
            assert_eq!((name.number(), StateName::from_number(number)), (number, Some(name)));
        }
        assert!((7..=u8::MAX).all(|number| StateName::from_number(number).is_none()));
    }
}
