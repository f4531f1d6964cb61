//! Sizes as people write them: `512B`, `64KiB`, `10MiB`, `1GiB`. `MB` is refused because it has two meanings.

use std::fmt;

const UNITS: &[(&str, usize)] = &[("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];

/// Reads a size in bytes.
///
/// ```
/// use semel_text::size;
///
/// assert_eq!(size::parse("10MiB"), Ok(10 * 1024 * 1024));
/// assert!(size::parse("10MB").is_err());
/// ```
pub fn parse(text: &str) -> Result<usize, SizeError> {
    let malformed = || SizeError::Malformed(text.to_owned());
    let at = text.find(|letter: char| !letter.is_ascii_digit()).ok_or_else(malformed)?;
    let (digits, unit) = text.split_at(at);
    let (_, bytes) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(malformed)?;
    let number: usize = digits.parse().map_err(|_| malformed())?;
    number.checked_mul(*bytes).ok_or_else(|| SizeError::TooLarge(text.to_owned()))
}

/// Why a text is not a size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SizeError {
    /// This text is not a whole number with a unit.
    Malformed(String),
    /// This text means more bytes than this machine can address.
    TooLarge(String),
}

impl fmt::Display for SizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(text) => {
                write!(f, "`{text}` is not a size: write a whole number with B, KiB, MiB or GiB")
            }
            Self::TooLarge(text) => write!(f, "`{text}` is too large"),
        }
    }
}

impl std::error::Error for SizeError {}

/// Prints a size in the largest unit without a remainder.
pub fn text(bytes: usize) -> String {
    let fits = |(_, unit): &&(&str, usize)| bytes.is_multiple_of(*unit);
    let (name, unit) = UNITS.iter().rev().find(fits).unwrap_or(&UNITS[0]);
    if bytes == 0 { "0B".to_owned() } else { format!("{}{name}", bytes / unit) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_size_is_read_back() {
        for written in ["0B", "1B", "1000B", "64KiB", "10MiB", "1GiB"] {
            let bytes = parse(written).expect("a size");
            assert_eq!(text(bytes), written);
        }
    }

    #[test]
    fn ambiguous_numbers_are_refused() {
        for bad in ["", "10", "10MB", "10M", "1.5MiB", "-1B", "10 MiB", "99999999999GiB"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        let too_large = parse("99999999999GiB").expect_err("too large");
        assert_eq!(too_large, SizeError::TooLarge("99999999999GiB".to_owned()));
        assert_eq!(too_large.to_string(), "`99999999999GiB` is too large");
        assert_eq!(
            parse("10MB").expect_err("two meanings").to_string(),
            "`10MB` is not a size: write a whole number with B, KiB, MiB or GiB"
        );
    }
}
