//! Until when a certificate of our own is valid. For operators: clients and the TLS library check it themselves.

use super::der::{item, take};
use semel_core::time::Time;
use semel_text::calendar;

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// When `certificate` (DER) expires. `None` if that cannot be read.
pub fn expires_at(certificate: &[u8]) -> Option<Time> {
    let (certificate, _) = take(certificate, SEQUENCE)?;
    let (signed, _) = take(certificate, SEQUENCE)?;
    let rest = take(signed, VERSION).map_or(signed, |(_, rest)| rest);
    let (_serial, rest) = take(rest, INTEGER)?;
    let (_algorithm, rest) = take(rest, SEQUENCE)?;
    let (_issuer, rest) = take(rest, SEQUENCE)?;
    let (validity, _) = take(rest, SEQUENCE)?;
    let (_, _not_before, rest) = item(validity)?;
    let (tag, text, _) = item(rest)?;
    let (year, rest) = match tag {
        // Two digits: 1950 to 2049 (RFC 5280, 4.1.2.5.1).
        UTC_TIME => {
            let (year, rest) = number(text, 2)?;
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        GENERALIZED_TIME => number(text, 4)?,
        _ => return None,
    };
    let (month, rest) = number(rest, 2)?;
    let (day, rest) = number(rest, 2)?;
    let (hour, rest) = number(rest, 2)?;
    let (minute, rest) = number(rest, 2)?;
    let (second, rest) = number(rest, 2)?;
    if rest != b"Z" {
        return None;
    }
    let seconds = calendar::days(year, month, day)? * 86_400 + hour * 3_600 + minute * 60 + second;
    Some(Time::from_millis(seconds * 1_000))
}

/// The number in the first `digits` digits, and the rest.
fn number(text: &[u8], digits: usize) -> Option<(u64, &[u8])> {
    let (number, rest) = text.split_at_checked(digits)?;
    if !number.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = number.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    Some((number, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    #[test]
    fn the_end_is_read_in_both_notations() {
        let key = KeyPair::generate().expect("a key");
        for (date, seconds) in [
            ((2026, 11, 18), 1_794_960_000),
            ((2028, 2, 29), 1_835_395_200),
            ((2049, 12, 31), 2_524_521_600),
            ((2050, 1, 1), 2_524_608_000_u64),
            ((2400, 3, 1), 13_574_649_600),
        ] {
            let mut params = CertificateParams::default();
            params.not_after = date_time_ymd(date.0, date.1, date.2);
            let certificate = params.self_signed(&key).expect("a certificate").der().to_vec();
            assert_eq!(expires_at(&certificate), Some(Time::from_millis(seconds * 1_000)), "{date:?}");
            for end in 0..certificate.len() {
                // The end is in the first part; whatever is cut off, nothing else is read.
                assert!(expires_at(&certificate[..end]).is_none(), "{end}");
            }
        }
    }
}
