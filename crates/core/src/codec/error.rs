//! Why stored bytes cannot be read.

use super::FORMAT;
use std::fmt;

/// Why stored bytes cannot be read. Either way they are left as they are, and the outcome counts as unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Error {
    /// They are whole, but written by a newer node that relied on being understood.
    Newer(Newer),
    /// They are not what any node would have written.
    Damaged {
        /// The position of the first byte that cannot be right.
        at: usize,
        /// What is wrong there.
        what: &'static str,
    },
}

/// What a newer node wrote that this one would have to understand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Newer {
    /// A format with this number.
    Format(u8),
    /// An extension with this odd tag.
    Extension(u64),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Newer(Newer::Format(format)) => write!(
                f,
                "the record is in format {format} and this node reads up to {FORMAT}; it was left as it is: \
                 upgrade this node"
            ),
            Self::Newer(Newer::Extension(tag)) => write!(
                f,
                "the record has extension {tag}, which must be understood and this node does not know; it was \
                 left as it is: upgrade this node"
            ),
            Self::Damaged { at, what } => write!(
                f,
                "the record is damaged at byte {at}: {what}; it was left as it is and its outcome counts as \
                 unknown: restore it from a backup, or find out what the command did and remove it by hand"
            ),
        }
    }
}

impl std::error::Error for Error {}
