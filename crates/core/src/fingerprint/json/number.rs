//! JSON numbers, written by their exact decimal value.
//!
//! One canonical form per value, computed from the decimal digits, without binary numbers for the mantissa and without
//! expanded zeros.
//!
//! A number is its digits, without the zeros at either end, times a power of ten. So `100` is `1e2`, `0.50` is
//! `5e-1`, and every zero is `0`. The exponent may have any number of digits; it is then added up as text.

use super::super::sink::Sink;
use super::Problem;

/// Checks the number at `start` and returns the position after it.
#[inline]
pub(super) fn check(bytes: &[u8], start: usize) -> Result<usize, Problem> {
    let mut at = start;
    if bytes.get(at) == Some(&b'-') {
        at += 1;
    }
    match bytes.get(at) {
        Some(b'0') => at += 1,
        Some(b'1'..=b'9') => at = digits_end(bytes, at + 1),
        _ => return Err(Problem("a number needs a digit here", at)),
    }
    match bytes.get(at) {
        Some(b'.') => at = some_digits(bytes, at + 1)?,
        Some(b'0'..=b'9') => return Err(Problem("a number must not have leading zeros", at)),
        Some(b'e' | b'E') => {}
        _ => return Ok(at),
    }
    if matches!(bytes.get(at), Some(b'e' | b'E')) {
        at += 1;
        if matches!(bytes.get(at), Some(b'+' | b'-')) {
            at += 1;
        }
        at = some_digits(bytes, at)?;
    }
    Ok(at)
}

#[inline]
fn digits_end(bytes: &[u8], mut at: usize) -> usize {
    while bytes.get(at).is_some_and(u8::is_ascii_digit) {
        at += 1;
    }
    at
}

fn some_digits(bytes: &[u8], at: usize) -> Result<usize, Problem> {
    match digits_end(bytes, at) {
        end if end == at => Err(Problem("a number needs a digit here", at)),
        end => Ok(end),
    }
}

/// Writes the checked number at `start` and returns the position after it.
#[inline]
pub(super) fn write<S: Sink>(bytes: &[u8], start: usize, sink: &mut S) -> usize {
    let first = start + usize::from(bytes[start] == b'-');
    let end = digits_end(bytes, first + 1);
    // Most numbers are short integers that end in another digit than zero: they are written unchanged.
    if !matches!(bytes.get(end), Some(b'.' | b'e' | b'E')) && bytes[end - 1] != b'0' {
        sink.write(&bytes[start..end]);
        return end;
    }
    write_any(bytes, start, end, sink)
}

fn write_any<S: Sink>(bytes: &[u8], start: usize, whole_end: usize, sink: &mut S) -> usize {
    let negative = bytes[start] == b'-';
    let whole = &bytes[start + usize::from(negative)..whole_end];
    let (fraction, fraction_end) = match bytes.get(whole_end) {
        Some(b'.') => {
            let end = digits_end(bytes, whole_end + 1);
            (&bytes[whole_end + 1..end], end)
        }
        _ => (&bytes[..0], whole_end),
    };
    let (exponent, end) = match bytes.get(fraction_end) {
        Some(b'e' | b'E') => {
            let sign = bytes[fraction_end + 1];
            let digits_start = fraction_end + 1 + usize::from(matches!(sign, b'+' | b'-'));
            let end = digits_end(bytes, digits_start);
            (Exponent { negative: sign == b'-', digits: trim_start(&bytes[digits_start..end]) }, end)
        }
        _ => (Exponent { negative: false, digits: b"" }, fraction_end),
    };

    // Remove zeros from both ends of the digits, across the point.
    let mut whole = trim_start(whole);
    let mut fraction = trim_end(fraction);
    // The distance of the last remaining digit from the units: added to the exponent.
    let mut shift = -to_i64(fraction.len());
    if fraction.is_empty() {
        let trimmed = trim_end(whole);
        shift = to_i64(whole.len() - trimmed.len());
        whole = trimmed;
    }
    if whole.is_empty() {
        fraction = trim_start(fraction);
    }
    if whole.is_empty() && fraction.is_empty() {
        sink.push(b'0');
        return end;
    }
    if negative {
        sink.push(b'-');
    }
    sink.write(whole);
    sink.write(fraction);
    exponent.write_shifted(shift, sink);
    end
}

fn trim_start(digits: &[u8]) -> &[u8] {
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    &digits[zeros..]
}

fn trim_end(digits: &[u8]) -> &[u8] {
    let zeros = digits.iter().rev().take_while(|digit| **digit == b'0').count();
    &digits[..digits.len() - zeros]
}

fn to_i64(len: usize) -> i64 {
    i64::try_from(len).unwrap_or(i64::MAX)
}

/// The digits of an exponent, without leading zeros.
struct Exponent<'a> {
    negative: bool,
    digits: &'a [u8],
}

/// Digits that a machine word adds; one more could overflow.
const WORD_DIGITS: usize = 18;
const WORD_END: i64 = 1_000_000_000_000_000_000;

impl Exponent<'_> {
    /// Writes `e` and the sum of exponent and shift, or nothing if that is zero.
    fn write_shifted<S: Sink>(&self, shift: i64, sink: &mut S) {
        if self.digits.len() > WORD_DIGITS {
            return self.write_shifted_long(shift, sink);
        }
        let exponent = word(self.digits);
        let sum = if self.negative { shift - exponent } else { shift + exponent };
        if sum != 0 {
            sink.push(b'e');
            write_integer(sum, sink);
        }
    }

    /// The same where the exponent has more digits than a word: the sum keeps the exponent's sign, since no body
    /// is long enough for a shift of that size, and only a carry of one can reach the leading digits.
    fn write_shifted_long<S: Sink>(&self, shift: i64, sink: &mut S) {
        sink.push(b'e');
        if self.negative {
            sink.push(b'-');
        }
        let (head, tail) = self.digits.split_at(self.digits.len() - WORD_DIGITS);
        let tail = word(tail) + if self.negative { -shift } else { shift };
        if tail >= WORD_END {
            write_head_plus_one(head, sink);
        } else if tail < 0 {
            write_head_minus_one(head, sink);
        } else {
            sink.write(head);
        }
        let mut digits = [b'0'; WORD_DIGITS];
        fill(&mut digits, tail.rem_euclid(WORD_END).unsigned_abs());
        sink.write(&digits);
    }
}

/// `head` has no leading zero; every 9 at its end turns into 0 and the digit before grows.
fn write_head_plus_one<S: Sink>(head: &[u8], sink: &mut S) {
    let nines = head.iter().rev().take_while(|digit| **digit == b'9').count();
    match head[..head.len() - nines].split_last() {
        Some((last, before)) => {
            sink.write(before);
            sink.push(last + 1);
        }
        None => sink.push(b'1'),
    }
    (0..nines).for_each(|_| sink.push(b'0'));
}

/// `head` starts with a digit above zero; every 0 at its end turns into 9 and the digit before shrinks.
fn write_head_minus_one<S: Sink>(head: &[u8], sink: &mut S) {
    let stem = trim_end(head);
    match stem.split_last() {
        // The leading digit would become a leading zero.
        Some((b'1', [])) | None => {}
        Some((last, before)) => {
            sink.write(before);
            sink.push(last - 1);
        }
    }
    (stem.len()..head.len()).for_each(|_| sink.push(b'9'));
}

/// At most [`WORD_DIGITS`] digits as a number.
fn word(digits: &[u8]) -> i64 {
    digits.iter().fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'))
}

/// Writes `value` right-aligned and returns how many digits it took.
fn fill(digits: &mut [u8], mut value: u64) -> usize {
    let mut used = 0;
    for digit in digits.iter_mut().rev() {
        if value == 0 {
            break;
        }
        *digit = b"0123456789"[(value % 10) as usize];
        value /= 10;
        used += 1;
    }
    used
}

fn write_integer<S: Sink>(value: i64, sink: &mut S) {
    if value < 0 {
        sink.push(b'-');
    }
    let mut digits = [b'0'; 20];
    let used = fill(&mut digits, value.unsigned_abs());
    sink.write(&digits[20 - used.max(1)..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(text: &str) -> String {
        assert_eq!(check(text.as_bytes(), 0), Ok(text.len()), "{text}");
        let mut out = Vec::new();
        assert_eq!(write(text.as_bytes(), 0, &mut out), text.len());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn one_value_has_one_spelling() {
        for (spellings, expected) in [
            (&["1", "1.0", "10e-1", "0.1e1", "1E0", "1e+0", "1e-0", "1.000e00", "100e-2"][..], "1"),
            (&["0", "-0", "0.0", "0e5", "-0.000e-99999999999999999999999", "0E+7"], "0"),
            (&["100", "1e2", "1E+02", "0.01e4", "100.0"], "1e2"),
            (&["0.5", "5e-1", "0.50", "50e-2"], "5e-1"),
            (&["-120.340", "-12034e-2", "-0.12034e3"], "-12034e-2"),
            (&["1.5e1", "15", "150e-1"], "15"),
            (&["1e999999999999"], "1e999999999999"),
            (&["9007199254740993"], "9007199254740993"),
        ] {
            for text in spellings {
                assert_eq!(canonical(text), expected, "{text}");
            }
        }
    }

    #[test]
    fn exponents_of_any_length_are_added_exactly() {
        for (text, expected) in [
            ("1e999999999999999999", "1e999999999999999999"),
            ("10e999999999999999999", "1e1000000000000000000"),
            ("10e9999999999999999999", "1e10000000000000000000"),
            ("10e12999999999999999999999", "1e13000000000000000000000"),
            ("10e00001999999999999999999999", "1e2000000000000000000000"),
            ("1e1000000000000000000", "1e1000000000000000000"),
            ("1e-20000000000000000000", "1e-20000000000000000000"),
            ("0.1e100000000000000000", "1e99999999999999999"),
            ("10e-100000000000000000", "1e-99999999999999999"),
            ("0.1e1000000000000000000", "1e999999999999999999"),
            ("0.1e10000000000000000000", "1e9999999999999999999"),
            ("0.1e20000000000000000000", "1e19999999999999999999"),
            ("0.1e1000000000000000000000", "1e999999999999999999999"),
            ("0.1e-999999999999999999", "1e-1000000000000000000"),
            ("0.1e-9999999999999999999", "1e-10000000000000000000"),
            ("10e-1000000000000000000", "1e-999999999999999999"),
            ("10e-30000000000000000000", "1e-29999999999999999999"),
            ("1.5e123456789012345678901234567890", "15e123456789012345678901234567889"),
        ] {
            assert_eq!(canonical(text), expected, "{text}");
        }
    }

    #[test]
    fn carries_and_borrows_are_right_around_every_power_of_ten() {
        for (power, near) in (0..37).flat_map(|power| (-12..=12).map(move |near| (10_i128.pow(power), near)))
        {
            for exponent in [power + near, -power - near] {
                for (mantissa, shift) in [("1", 0), ("10", 1), ("0.1", -1), ("1000", 3), ("0.001", -3)] {
                    let text = format!("{mantissa}e{exponent}");
                    let expected = match exponent + shift {
                        0 => "1".to_owned(),
                        sum => format!("1e{sum}"),
                    };
                    assert_eq!(canonical(&text), expected, "{text}");
                }
            }
        }
    }

    #[test]
    fn an_invalid_number_is_refused_at_its_offset() {
        for (text, position) in
            [("-", 1), ("01", 1), ("1.", 2), ("1.e1", 2), ("1e", 2), ("1e+", 3), ("-a", 1)]
        {
            assert_eq!(check(text.as_bytes(), 0).map_err(|problem| problem.1), Err(position), "{text}");
        }
    }
}
