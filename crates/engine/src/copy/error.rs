//! Why a copy was not made.

use crate::secrets;
use semel_core::id::OperationId;
use semel_core::store;
use std::fmt;

/// Why a copy was not made. The source is as it was, and no node starts on the target.
#[derive(Debug)]
pub enum Error {
    /// The source did not answer.
    Source(store::Error),
    /// The target did not answer, or refused a write.
    Target(store::Error),
    /// No node has worked on the source yet.
    NothingToCopy,
    /// What the source knows about its hashing secret cannot be used.
    Secret(secrets::Error),
    /// These nodes work on the source.
    InUse(Vec<String>),
    /// Of these nodes it cannot be told whether they work on the source.
    MayBeInUse(Vec<String>),
    /// The source was changed while it was copied.
    SourceChanged,
    /// The target has records or settings of its own.
    TargetUsed,
    /// The target holds an unfinished copy of something else.
    OtherCopy,
    /// These entries of the source cannot be read.
    Unreadable {
        /// The first of them.
        operation_ids: Vec<OperationId>,
        /// Why the first one cannot be.
        why: String,
    },
    /// Something else is in the target where this record should be.
    Differs(OperationId),
    /// The target has another number of records than the source.
    Miscounted {
        /// How many the source has.
        source: u64,
        /// How many the target has.
        target: u64,
    },
}

impl Error {
    /// Whether nothing was begun: the stores are not in a condition to be copied.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::NothingToCopy
                | Self::Secret(_)
                | Self::InUse(_)
                | Self::MayBeInUse(_)
                | Self::TargetUsed
                | Self::OtherCopy
        )
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Source(error) => write!(f, "the source did not answer: {error}"),
            Self::Target(error) => write!(f, "the target did not answer: {error}"),
            Self::NothingToCopy => f.write_str("no gateway has worked on the source yet: there is nothing to copy"),
            Self::Secret(error) => write!(f, "the source cannot be copied: {error}"),
            Self::InUse(nodes) => write!(f, "the source is in use by {}: stop it first", nodes.join(", ")),
            Self::MayBeInUse(nodes) => write!(
                f,
                "it cannot be told whether {} still works on the source: make sure that it has ended",
                nodes.join(", ")
            ),
            Self::SourceChanged => f.write_str(
                "the source was changed while it was copied: a gateway works on it. Stop it, empty the target and copy again",
            ),
            Self::TargetUsed => f.write_str(
                "the target has records or settings of its own: gateways have worked on it, or a copy into it was completed. \
                 Choose an empty one",
            ),
            Self::OtherCopy => f.write_str(
                "the target holds an unfinished copy of another store, or of this one before gateways worked on it again. \
                 Empty it, or choose another one",
            ),
            Self::Unreadable { operation_ids, why } => {
                let ids: Vec<_> = operation_ids.iter().map(ToString::to_string).collect();
                write!(
                    f,
                    "records of the source cannot be read, and were not copied ({}): {why}. Without them their keys would \
                     count as new; upgrade this program, or restore them from a backup, and copy again",
                    ids.join(", ")
                )
            }
            Self::Differs(operation_id) => write!(
                f,
                "the target holds something else than the source under {operation_id}. Empty the target and copy again"
            ),
            Self::Miscounted { source, target } => write!(
                f,
                "the source has {source} records and the target {target}. Empty the target and copy again"
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Source(error) | Self::Target(error) => Some(error),
            Self::Secret(error) => Some(error),
            _ => None,
        }
    }
}
