//! Durations as people write them: `500ms`, `30s`, `5m`, `24h`, `30d`. A number without a unit is refused.

use std::fmt;
use std::time::Duration;

const UNITS: &[(&str, u64)] = &[("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Reads a duration.
///
/// ```
/// use semel_text::duration;
/// use std::time::Duration;
///
/// assert_eq!(duration::parse("90s"), Ok(Duration::from_secs(90)));
/// assert!(duration::parse("90").is_err());
/// ```
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    let malformed = || DurationError::Malformed(text.to_owned());
    let at = text.find(|letter: char| !letter.is_ascii_digit()).ok_or_else(malformed)?;
    let (digits, unit) = text.split_at(at);
    let (_, millis) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(malformed)?;
    let number: u64 = digits.parse().map_err(|_| malformed())?;
    let millis = number.checked_mul(*millis).ok_or_else(|| DurationError::TooLong(text.to_owned()))?;
    Ok(Duration::from_millis(millis))
}

/// Reads a duration within which something has to be done: not zero.
pub fn parse_limit(text: &str) -> Result<Duration, DurationError> {
    match parse(text)? {
        Duration::ZERO => Err(DurationError::Zero),
        duration => Ok(duration),
    }
}

/// Why a text is not a duration that can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DurationError {
    /// This text is not a whole number with a unit.
    Malformed(String),
    /// This text means more milliseconds than can be counted.
    TooLong(String),
    /// Zero, where [something has to be done](parse_limit) within the time.
    Zero,
}

impl fmt::Display for DurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(text) => {
                write!(f, "`{text}` is not a duration: write a whole number with ms, s, m, h or d")
            }
            Self::TooLong(text) => write!(f, "`{text}` is too long"),
            Self::Zero => f.write_str("it must not be zero: nothing could be done within it"),
        }
    }
}

impl std::error::Error for DurationError {}

/// Prints a duration in the largest unit without a remainder.
pub fn text(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let fits = |(_, unit): &&(&str, u64)| millis.is_multiple_of(*unit);
    let (name, unit) = UNITS.iter().rev().find(fits).unwrap_or(&UNITS[0]);
    if millis == 0 { "0s".to_owned() } else { format!("{}{name}", millis / unit) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_duration_is_read_back() {
        for written in ["1ms", "1500ms", "2s", "90s", "5m", "24h", "30d", "0s"] {
            let duration = parse(written).expect("a duration");
            assert_eq!(parse(&text(duration)), Ok(duration), "{written}");
        }
        assert_eq!(text(Duration::from_hours(24)), "1d");
        assert_eq!(text(Duration::from_millis(1_500)), "1500ms");
    }

    #[test]
    fn ambiguous_numbers_are_refused() {
        for bad in
            ["", "5", "s", "-1s", "1.5s", "1 s", "1S", "1min", "99999999999999999999s", "213503982335d"]
        {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_refusal_says_what_is_wrong() {
        for (text, error, shown) in [
            (
                "5",
                DurationError::Malformed("5".to_owned()),
                "`5` is not a duration: write a whole number with ms, s, m, h or d",
            ),
            (
                "213503982335d",
                DurationError::TooLong("213503982335d".to_owned()),
                "`213503982335d` is too long",
            ),
            ("0s", DurationError::Zero, "it must not be zero: nothing could be done within it"),
        ] {
            assert_eq!(error.to_string(), shown);
            assert_eq!(parse_limit(text), Err(error));
        }
    }
}
