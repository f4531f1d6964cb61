//! The reason for what an operator does: one rule for the admin address and the command line.

use semel::REASON_BYTES_MAX;
use semel_text::printable::is_visible;

/// A reason that fits into a history and on one line of a log. At least one of its characters can be seen: invisible ones
/// explain nothing. An error says what is wrong, as a sentence.
pub fn check(reason: &str) -> Result<(), String> {
    if !reason.chars().any(is_visible) {
        return Err("A reason is required. It is stored in the record's history, with your name.".to_owned());
    }
    if reason.len() > REASON_BYTES_MAX || reason.chars().any(char::is_control) {
        return Err(format!("A reason has at most {REASON_BYTES_MAX} bytes, and no control characters."));
    }
    Ok(())
}

/// A reason on the command line, refused before anything is sent.
pub fn parse(reason: &str) -> Result<String, String> {
    check(reason).map(|()| reason.to_owned())
}
