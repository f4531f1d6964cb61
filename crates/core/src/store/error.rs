//! Why a store call failed, and whether anything was written.

use std::error::Error as StdError;
use std::fmt;

/// Whether anything was written, and whether a retry may help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The store cannot be reached or is overloaded. Nothing was written; trying again may help.
    Unavailable,
    /// The answer was lost: the write may have been applied, or may be applied later. Read again to find out.
    Ambiguous,
    /// The store is full. Nothing was written; somebody has to make room.
    Full,
    /// The store takes no writes: a read-only file, a replica. Nothing was written.
    ReadOnly,
    /// This entry is larger than the store can hold. Nothing was written, and never will be.
    TooLarge,
    /// The store cannot be used: another schema, a damaged file, an unsafe version. An operator has to act.
    Unfit,
    /// The store has lost records that it had acknowledged: it was emptied, or a part of it is gone. Nothing was
    /// written, because commands whose records are lost would run again. Waiting helps only if the data comes back;
    /// otherwise an operator has to accept the loss.
    DataLost,
    /// The store was closed by its own process. Nothing was written.
    Closed,
}

impl Kind {
    /// The name in logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unavailable => "unavailable",
            Self::Ambiguous => "ambiguous",
            Self::Full => "full",
            Self::ReadOnly => "read-only",
            Self::TooLarge => "too large",
            Self::Unfit => "unfit",
            Self::DataLost => "data lost",
            Self::Closed => "closed",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A store's error: its kind, the operation that failed, and the cause.
///
/// ```
/// use semel_core::store::{Error, Kind};
///
/// let error = Error::new(Kind::Ambiguous, "committing 12 writes").because(std::io::Error::other("disk error"));
/// assert!(error.is_ambiguous() && error.is_retryable());
/// assert_eq!(error.to_string(), "committing 12 writes: the answer was lost (ambiguous): disk error");
/// ```
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    context: String,
    is_entry_locked: bool,
    is_starting: bool,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error of `kind` during the operation that `context` describes.
    pub fn new(kind: Kind, context: impl Into<String>) -> Self {
        Self { kind, context: context.into(), is_entry_locked: false, is_starting: false, source: None }
    }

    /// Somebody else held a lock on the entry for too long. Nothing was written; a retry may help. Unlike other
    /// [`Unavailable`](Kind::Unavailable) errors, it says nothing about the store as a whole.
    pub fn entry_locked(context: impl Into<String>) -> Self {
        Self { is_entry_locked: true, ..Self::new(Kind::Unavailable, context) }
    }

    /// The server answers, but is not ready yet: it is still reading its data or recovering. Nothing was written; a
    /// retry helps as soon as it is ready.
    pub fn starting(context: impl Into<String>) -> Self {
        Self { is_starting: true, ..Self::new(Kind::Unavailable, context) }
    }

    /// Adds the cause.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The kind of error.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether it concerns a single entry that somebody else has [locked](Self::entry_locked).
    pub const fn is_entry_locked(&self) -> bool {
        self.is_entry_locked
    }

    /// Whether the server is [still starting](Self::starting).
    pub const fn is_starting(&self) -> bool {
        self.is_starting
    }

    /// Whether the write may have been applied.
    pub const fn is_ambiguous(&self) -> bool {
        matches!(self.kind, Kind::Ambiguous)
    }

    /// Whether the same call may succeed later.
    pub const fn is_retryable(&self) -> bool {
        matches!(
            self.kind,
            Kind::Unavailable | Kind::Ambiguous | Kind::Full | Kind::ReadOnly | Kind::DataLost
        )
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let meaning = match self.kind {
            Kind::Unavailable if self.is_entry_locked => {
                "somebody else has locked the entry; nothing was written"
            }
            Kind::Unavailable if self.is_starting => "the server is still starting; nothing was written",
            Kind::Unavailable => "the store cannot be reached; nothing was written",
            Kind::Ambiguous => "the answer was lost",
            Kind::Full => "the store is full; nothing was written",
            Kind::ReadOnly => "the store is read-only; nothing was written",
            Kind::TooLarge => "the entry is too large for this store; nothing was written",
            Kind::Unfit => "the store cannot be used",
            Kind::DataLost => "the store has lost data; nothing was written",
            Kind::Closed => "the store was closed; nothing was written",
        };
        write!(f, "{}: {meaning} ({})", self.context, self.kind)?;
        self.source.as_ref().map_or(Ok(()), |source| write!(f, ": {source}"))
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_ref().map(|source| &**source as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Kind; 8] = [
        Kind::Unavailable,
        Kind::Ambiguous,
        Kind::Full,
        Kind::ReadOnly,
        Kind::TooLarge,
        Kind::Unfit,
        Kind::DataLost,
        Kind::Closed,
    ];

    #[test]
    fn only_ambiguous_errors_may_have_written() {
        let ambiguous: Vec<_> = ALL.into_iter().filter(|kind| Error::new(*kind, "").is_ambiguous()).collect();
        assert_eq!(ambiguous, [Kind::Ambiguous]);
        let retryable: Vec<_> = ALL.into_iter().filter(|kind| Error::new(*kind, "").is_retryable()).collect();
        assert_eq!(
            retryable,
            [Kind::Unavailable, Kind::Ambiguous, Kind::Full, Kind::ReadOnly, Kind::DataLost]
        );
    }

    #[test]
    fn an_error_shows_operation_meaning_and_cause() {
        for kind in ALL {
            let text = Error::new(kind, "reading a page").because("a cause").to_string();
            assert!(
                text.starts_with("reading a page: ") && text.ends_with(&format!("({kind}): a cause")),
                "{text}"
            );
        }
        let starting = Error::starting("opening").because("a cause");
        assert!(starting.is_starting() && starting.is_retryable() && !starting.is_ambiguous());
        assert_eq!(
            starting.to_string(),
            "opening: the server is still starting; nothing was written (unavailable): a cause"
        );
        assert!(Error::new(Kind::Full, "x").because("a cause").source().is_some());
        assert!(Error::new(Kind::Full, "x").source().is_none());
    }
}
