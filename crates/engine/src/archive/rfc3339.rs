//! Moments as text: RFC 3339, in UTC.

use semel_core::time::Time;

/// The last moment with a year of four digits.
const LAST: u64 = 253_402_300_799_999;

/// `time` as `2026-11-15T19:05:00.123Z`. Moments after the year 9999 are written as its last moment: they come from
/// durations that mean "never".
pub fn text(time: Time) -> String {
    let millis = time.as_millis().min(LAST);
    let (days, of_day) = (millis / 86_400_000, millis % 86_400_000);
    let (year, month, day) = date(days);
    let (hour, minute) = (of_day / 3_600_000, of_day / 60_000 % 60);
    let (second, milli) = (of_day / 1_000 % 60, of_day % 1_000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// Year, month and day, from days after 1970-01-01. Counts in eras of 400 years, which all have the same number of
/// days, and in years from March on, so that a leap day is the last day of a year.
fn date(days: u64) -> (u64, u64, u64) {
    const ERA: u64 = 146_097;
    let since_year_0 = days + 719_468;
    let (era, of_era) = (since_year_0 / ERA, since_year_0 % ERA);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (400 * era + year_of_era + u64::from(month <= 2), month, day)
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
    let days = days(year, month, day)?;
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

/// The number of days after 1970-01-01, if the date exists. The inverse of [`date`].
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    let (year_from_march, month_from_march) =
        if month > 2 { (year, month.checked_sub(3)?) } else { (year.checked_sub(1)?, month + 9) };
    let (era, year_of_era) = (year_from_march / 400, year_from_march % 400);
    let day_of_year = (153 * month_from_march + 2) / 5 + day.checked_sub(1)?;
    let of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = (era * 146_097 + of_era).checked_sub(719_468)?;
    // A date that does not exist, such as 30 February, converts back to another date.
    (date(days) == (year, month, day)).then_some(days)
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

    #[test]
    fn every_day_follows_the_one_before_it() {
        let leap =
            |year: u64| (year.is_multiple_of(4) && !year.is_multiple_of(100)) || year.is_multiple_of(400);
        let (mut year, mut month, mut day) = (1970, 1, 1);
        for days in 0..400 * 366 {
            assert_eq!(date(days), (year, month, day));
            let last = match month {
                2 => 28 + u64::from(leap(year)),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            day += 1;
            if day > last {
                (day, month) = (1, month + 1);
            }
            if month > 12 {
                (month, year) = (1, year + 1);
            }
        }
    }
}
