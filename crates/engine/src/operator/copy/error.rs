//! Why a copy failed.

use crate::secrets;
use semel_core::id::OperationId;
use semel_core::store;
use std::fmt;

/// Why a copy failed. The source is unchanged, and no node can start on the target.
#[derive(Debug)]
pub enum Error {
    /// The source did not answer.
    Source(store::Error),
    /// The target did not answer, or refused a write.
    Target(store::Error),
    /// No node has used the source yet.
    NothingToCopy,
    /// The state of the source's hashing secret is invalid.
    Secret(secrets::Error),
    /// These nodes use the source.
    InUse(Vec<String>),
    /// These nodes may be using the source.
    MayBeInUse(Vec<String>),
    /// The source was changed while it was copied.
    SourceChanged,
    /// The target has records or settings of its own.
    TargetUsed,
    /// The target is an unfinished copy of something else.
    OtherCopy,
    /// These entries of the source cannot be read.
    Unreadable {
        /// The first of them.
        operation_ids: Vec<OperationId>,
        /// Why the first one cannot be read.
        why: String,
    },
    /// The target has another entry for this operation.
    Differs(OperationId),
    /// This table of the target has other rows under keys of the source.
    TableDiffers(&'static str),
    /// The target has another number of records than the source.
    Miscounted {
        /// How many the source has.
        source: u64,
        /// How many the target has.
        target: u64,
    },
}

impl Error {
    /// Whether the copy was refused before it began.
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
            Self::NothingToCopy => f.write_str("no gateway has used the source yet; there is nothing to copy"),
            Self::Secret(error) => write!(f, "the source cannot be copied: {error}"),
            Self::InUse(nodes) => write!(f, "the source is in use by {}; stop it first", nodes.join(", ")),
            Self::MayBeInUse(nodes) => write!(
                f,
                "{} may still be using the source; make sure that it has stopped",
                nodes.join(", ")
            ),
            Self::SourceChanged => f.write_str(
                "the source was changed during the copy: a gateway is using it. Stop it, empty the target and copy again",
            ),
            Self::TargetUsed => f.write_str(
                "the target is not empty: gateways have used it, or a copy into it was completed. \
                 Choose an empty one",
            ),
            Self::OtherCopy => f.write_str(
                "the target is an unfinished copy of another store, or of an earlier state of this one. \
                 Empty it, or choose another one",
            ),
            Self::Unreadable { operation_ids, why } => {
                let ids: Vec<_> = operation_ids.iter().map(ToString::to_string).collect();
                write!(
                    f,
                    "records of the source cannot be read, and were not copied ({}): {why}. Without them, their keys would \
                     count as new; upgrade this program, or restore them from a backup, and copy again",
                    ids.join(", ")
                )
            }
            Self::Differs(operation_id) => write!(
                f,
                "the target and the source have different records for operation {operation_id}. Empty the target and copy again"
            ),
            Self::TableDiffers(table) => write!(
                f,
                "the target and the source have different rows in {table}, which applications use: they were changed \
                 during the copy, or after an earlier one. Stop the applications, empty the target and copy again"
            ),
            Self::Miscounted { source, target } => write!(
                f,
                "the source has {source} records, and the target has {target}. Empty the target and copy again"
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
