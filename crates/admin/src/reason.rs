//! The reason for what an operator does: one rule for the admin address and the command line.

use semel::REASON_BYTES_MAX;
use semel_text::printable::is_visible;
use thiserror::Error;

/// Why a text is not a reason. Its text is one for the answer: a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ReasonError {
    /// Nothing in it can be seen.
    #[error("A reason is required. It is stored in the record's history, with your name.")]
    Missing,
    /// It does not fit into a history or on one line.
    #[error("A reason has at most {REASON_BYTES_MAX} bytes, and no control characters.")]
    Unfit,
}

/// A reason that fits into a history and on one line of a log. At least one of its characters can be seen: invisible ones
/// explain nothing.
pub fn check(reason: &str) -> Result<(), ReasonError> {
    if !reason.chars().any(is_visible) {
        return Err(ReasonError::Missing);
    }
    if reason.len() > REASON_BYTES_MAX || reason.chars().any(char::is_control) {
        return Err(ReasonError::Unfit);
    }
    Ok(())
}

/// A reason on the command line, refused before anything is sent.
pub fn parse(reason: &str) -> Result<String, ReasonError> {
    check(reason).map(|()| reason.to_owned())
}
