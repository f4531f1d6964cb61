//! Moments as text: RFC 3339, in UTC.

use semel_core::time::Time;
use semel_text::calendar;

/// The last moment with a year of four digits.
const LAST: u64 = 253_402_300_799_999;

/// `time` as `2026-11-15T19:05:00.123Z`. Moments after the year 9999 are written as its last moment: they come from
/// durations that mean "never".
pub fn text(time: Time) -> String {
    let millis = time.as_millis().min(LAST);
    let (days, of_day) = (millis / 86_400_000, millis % 86_400_000);
    let (year, month, day) = calendar::date(days);
    let (hour, minute) = (of_day / 3_600_000, of_day / 60_000 % 60);
    let (second, milli) = (of_day / 1_000 % 60, of_day % 1_000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// Parses a moment: `2026-11-15T19:05:00Z`, with or without a fraction (of which milliseconds count), in UTC or with
/// an offset. `None` for anything else, for moments before 1970, and for leap seconds.
pub fn parse(text: &str) -> Option<Time> {
    let (date_text, rest) = text.split_at_checked(10)?;
    let rest = rest.strip_prefix(['T', 't'])?;
    let (clock, rest) = rest.split_at_checked(8)?;
    let [year, month, day] = numbers(date_text, b'-', [4, 2, 2])?;
    let [hour, minute, second] = numbers(clock, b':', [2, 2, 2])?;
    let (milli, offset) = fraction(rest)?;
    let days = calendar::days(year, month, day)?;
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let of_day = ((hour * 60 + minute) * 60 + second) * 1_000 + milli;
    let millis = i64::try_from(days * 86_400_000 + of_day).ok()?;
    u64::try_from(millis - offset_millis(offset)?).ok().map(Time::from_millis)
}

/// Digits of these lengths, with `between` between them.
fn numbers(text: &str, between: u8, lengths: [usize; 3]) -> Option<[u64; 3]> {
    let mut found = [0; 3];
    let mut rest = text.as_bytes();
    for (index, length) in lengths.into_iter().enumerate() {
        if index > 0 {
            rest = rest.strip_prefix(&[between])?;
        }
        let digits;
        (digits, rest) = rest.split_at_checked(length)?;
        for digit in digits {
            found[index] =
                found[index] * 10 + u64::from(digit.checked_sub(b'0').filter(|digit| *digit < 10)?);
        }
    }
    rest.is_empty().then_some(found)
}

/// The milliseconds of a fraction, if there is one, and the rest of the text.
fn fraction(text: &str) -> Option<(u64, &str)> {
    let Some(text) = text.strip_prefix('.') else { return Some((0, text)) };
    let length = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, rest) = text.split_at(length);
    let millis =
        digits.bytes().chain(*b"000").take(3).fold(0, |so_far, digit| so_far * 10 + u64::from(digit - b'0'));
    (length > 0).then_some((millis, rest))
}

/// How far a clock with this offset is ahead of UTC.
fn offset_millis(text: &str) -> Option<i64> {
    let (sign, text) = match text.as_bytes().first()? {
        b'Z' | b'z' => return (text.len() == 1).then_some(0),
        b'+' => (1, &text[1..]),
        b'-' => (-1, &text[1..]),
        _ => return None,
    };
    let [hour, minute, _] = numbers(&format!("{text}:00"), b':', [2, 2, 2])?;
    let ahead = i64::try_from((hour * 60 + minute) * 60_000).ok()?;
    (hour < 24 && minute < 60).then_some(sign * ahead)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_written_moment_can_be_read() {
        for millis in [0, 1, 951_782_400_000, 1_234_567_890_123, 4_107_542_400_000, LAST] {
            let time = Time::from_millis(millis);
            assert_eq!(parse(&text(time)), Some(time));
        }
        let read = |text| parse(text).map(Time::as_millis);
        assert_eq!(read("2009-02-13T23:31:30Z"), Some(1_234_567_890_000));
        assert_eq!(read("2009-02-14t01:31:30.12345+02:00"), Some(1_234_567_890_123));
        assert_eq!(read("2009-02-13T18:01:30.1-05:30"), Some(1_234_567_890_100));
    }

    #[test]
    fn an_invalid_moment_is_refused() {
        let none = [
            "",
            "2009-02-13",
            "2009-02-13 23:31:30Z",
            "2009-02-13T23:31:30",
            "2009-02-30T00:00:00Z",
            "2009-13-01T00:00:00Z",
            "2009-00-01T00:00:00Z",
            "2009-01-00T00:00:00Z",
            "2009-02-13T24:00:00Z",
            "2009-02-13T23:60:00Z",
            "2009-02-13T23:31:60Z",
            "2009-02-13T23:31:30.Z",
            "2009-02-13T23:31:30+2:00",
            "2009-02-13T23:31:30+24:00",
            "1969-12-31T23:59:59Z",
            "1970-01-01T00:00:00+00:01",
            "2009-02-13T23:31:30Zé",
            "+009-02-13T23:31:30Z",
            "20090213T233130Z",
            "2009-02-13T23:31:30ZZ",
            "0000-00-00T00:00:00Z",
            "é009-02-13T23:31:30Z",
        ];
        for bad in none {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn known_moments_are_written_as_they_are() {
        let known = [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_234_567_890_123, "2009-02-13T23:31:30.123Z"),
            (4_107_542_399_000, "2100-02-28T23:59:59.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        ];
        for (millis, written) in known {
            assert_eq!(text(Time::from_millis(millis)), written);
        }
        assert_eq!(text(Time::MAX), "9999-12-31T23:59:59.999Z");
    }
}
