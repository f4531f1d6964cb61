//! Dates of the Gregorian calendar as days after 1970-01-01, in UTC.
//!
//! Counts in eras of 400 years, which all have the same number of days, and in years from March on, so that a leap day
//! is the last day of a year.

const ERA: u64 = 146_097;
/// The days from 1 March of the year 0 to 1970-01-01.
const SINCE_YEAR_0: u64 = 719_468;

/// Year, month and day.
///
/// ```
/// use semel_text::calendar;
///
/// assert_eq!(calendar::date(11_016), (2000, 2, 29));
/// assert_eq!(calendar::days(2000, 2, 29), Some(11_016));
/// assert_eq!(calendar::days(2001, 2, 29), None);
/// ```
pub fn date(days: u64) -> (u64, u64, u64) {
    let since_year_0 = days + SINCE_YEAR_0;
    let (era, of_era) = (since_year_0 / ERA, since_year_0 % ERA);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (400 * era + year_of_era + u64::from(month <= 2), month, day)
}

/// The number of days, if the date exists and is not before 1970. The inverse of [`date`].
pub fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    let (year_from_march, month_from_march) =
        if month > 2 { (year, month.checked_sub(3)?) } else { (year.checked_sub(1)?, month + 9) };
    let (era, year_of_era) = (year_from_march / 400, year_from_march % 400);
    let day_of_year = (153 * month_from_march + 2) / 5 + day.checked_sub(1)?;
    let of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = (era * ERA + of_era).checked_sub(SINCE_YEAR_0)?;
    // A date that does not exist, such as 30 February, converts back to another date.
    (date(days) == (year, month, day)).then_some(days)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_follows_the_one_before_it() {
        let leap =
            |year: u64| (year.is_multiple_of(4) && !year.is_multiple_of(100)) || year.is_multiple_of(400);
        let (mut year, mut month, mut day) = (1970, 1, 1);
        for number in 0..400 * 366 {
            assert_eq!(date(number), (year, month, day));
            assert_eq!(days(year, month, day), Some(number));
            let last = match month {
                2 => 28 + u64::from(leap(year)),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            assert_eq!(days(year, month, last + 1), None);
            day += 1;
            if day > last {
                (day, month) = (1, month + 1);
            }
            if month > 12 {
                (month, year) = (1, year + 1);
            }
        }
    }

    #[test]
    fn a_date_that_does_not_exist_or_is_before_1970_is_refused() {
        for (year, month, day) in [(1969, 12, 31), (2026, 0, 1), (2026, 13, 1), (2026, 1, 0), (0, 0, 0)] {
            assert_eq!(days(year, month, day), None, "{year}-{month}-{day}");
        }
    }
}
