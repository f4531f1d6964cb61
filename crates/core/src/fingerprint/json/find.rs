//! Finding a value in a checked JSON body.
//!
//! Skips values and follows a pointer. Only for bodies that were checked.

use super::super::pointer::Pointer;
use super::string;

#[inline]
pub(super) fn white_space(bytes: &[u8], mut at: usize) -> usize {
    while bytes.get(at).is_some_and(|byte| *byte <= b' ') {
        at += 1;
    }
    at
}

/// The position after the value at `at`.
pub(super) fn skip(bytes: &[u8], mut at: usize) -> usize {
    let mut depth = 0_usize;
    loop {
        match bytes[at] {
            b'"' => at = string::end(bytes, at),
            b'{' | b'[' => {
                depth += 1;
                at += 1;
            }
            b'}' | b']' => {
                depth -= 1;
                at += 1;
            }
            b',' | b':' | b' ' | b'\t' | b'\n' | b'\r' => at += 1,
            _ => {
                while bytes.get(at).is_some_and(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte))
                {
                    at += 1;
                }
            }
        }
        if depth == 0 {
            return at;
        }
    }
}

/// Where the value that `pointer` names starts, if there is one.
pub(super) fn find(bytes: &[u8], pointer: &Pointer) -> Option<usize> {
    let mut at = white_space(bytes, 0);
    for step in pointer.steps() {
        at = match bytes[at] {
            b'{' => member(bytes, at, step)?,
            b'[' => element(bytes, at, step)?,
            _ => return None,
        };
    }
    Some(at)
}

fn member(bytes: &[u8], object: usize, step: &str) -> Option<usize> {
    let mut at = white_space(bytes, object + 1);
    while bytes[at] == b'"' {
        let colon = white_space(bytes, string::end(bytes, at));
        let value = white_space(bytes, colon + 1);
        if string::compare_with(bytes, at, step).is_eq() {
            return Some(value);
        }
        at = next(bytes, skip(bytes, value));
    }
    None
}

fn element(bytes: &[u8], array: usize, step: &str) -> Option<usize> {
    let plain = step == "0" || (!step.starts_with('0') && step.bytes().all(|byte| byte.is_ascii_digit()));
    let mut left: usize = if plain { step.parse().ok()? } else { return None };
    let mut at = white_space(bytes, array + 1);
    while bytes[at] != b']' {
        if left == 0 {
            return Some(at);
        }
        left -= 1;
        at = next(bytes, skip(bytes, at));
    }
    None
}

/// From the end of a value to the next member or element, or to the closing bracket.
pub(super) fn next(bytes: &[u8], at: usize) -> usize {
    let at = white_space(bytes, at);
    if bytes[at] == b',' { white_space(bytes, at + 1) } else { at }
}
