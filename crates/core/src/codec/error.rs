//! Why stored bytes cannot be read.

use super::FORMAT;
use std::fmt;

/// Why stored bytes cannot be read. They are left unchanged, and the outcome counts as unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Error {
    /// They are intact, but a newer node wrote something that must not be ignored.
    Newer(Newer),
    /// No node would have written them.
    Damaged {
        /// The offset of the first wrong byte.
        at: usize,
        /// What is wrong there.
        what: &'static str,
    },
}

/// What a newer node wrote that must not be ignored.
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
                "the record has format {format}, and this node reads up to format {FORMAT}; it was not changed; \
                 upgrade this node"
            ),
            Self::Newer(Newer::Extension(tag)) => write!(
                f,
                "the record has extension {tag}, which this node does not know and must not ignore; it was \
                 not changed; upgrade this node"
            ),
            Self::Damaged { at, what } => write!(
                f,
                "the record is damaged at byte {at}: {what}; it was not changed, and its outcome counts as \
                 unknown; restore it from a backup, or find out what the command did and remove it by hand"
            ),
        }
    }
}

impl std::error::Error for Error {}
