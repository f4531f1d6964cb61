//! Why the hashing secret is not to be had, or its replacement does not go on.

use super::Phase;
use semel_core::id::SecretId;
use semel_core::scope::SecretTooShort;
use semel_core::store;
use std::fmt;

/// Why the hashing secret is not to be had, or its replacement does not go on. Nothing was changed.
#[derive(Debug)]
pub enum Error {
    /// The store did not answer.
    Store(store::Error),
    /// A configured secret is too short.
    TooShort(SecretTooShort),
    /// The configured secret is none that this store's records were made with.
    Unknown {
        /// The configured one.
        given: SecretId,
        /// The store's.
        known: String,
    },
    /// The store's records need the secret of this id, and this node was not given it.
    Missing(String),
    /// The store has records, and the secret that they were made with is gone from its settings.
    Lost,
    /// What the store knows about its secret cannot be read.
    Damaged(&'static str),
    /// What the store knows about its secret was written by a newer version.
    Newer(u8),
    /// The store is being filled from another one, and is not complete.
    Copying,
    /// The store has forgotten its secret, or an earlier stage of its replacement has come back: an outdated backup
    /// or a fail-over that lost writes.
    WentBack,
    /// This node has not been able to look at the store for too long: another secret may be in use by now.
    Stale,
    /// Somebody else changed it at the same time; look again.
    Changed,
    /// The replacement is in a phase in which this cannot be done.
    Phase(Phase),
    /// The new secret is the one in use.
    Same,
    /// These nodes have not confirmed the present phase.
    NodesBehind(Vec<String>),
    /// So many records are still kept under the old secret (or cannot be read).
    RecordsLeft(u64),
    /// So many markers could not be removed.
    MarkersLeft(u64),
    /// A node's time limits do not fit together.
    Terms,
}

impl Error {
    /// Whether the same may succeed later without anybody changing a configuration.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Store(error) => error.is_retryable(),
            Self::Stale | Self::Changed => true,
            _ => false,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => write!(f, "the hashing secret could not be looked up: {error}"),
            Self::TooShort(error) => error.fmt(f),
            Self::Unknown { given, known } => write!(
                f,
                "the configured hashing secret ({given}) is not this store's ({known}): every key would count as new and \
                 its effect could happen twice; configure the store's secret, or rotate to the other one"
            ),
            Self::Missing(id) => write!(
                f,
                "this store uses the hashing secret {id}, which is configured elsewhere and not on this node: configure it"
            ),
            Self::Lost => f.write_str(
                "the store has records, but the hashing secret that they were made with is missing from its settings: with a new \
                 secret every key would count as new and its effect could happen twice; restore the settings from a backup, or \
                 empty the store if no client will repeat its commands",
            ),
            Self::Damaged(what) => write!(
                f,
                "what the store knows about its hashing secret is damaged ({what}): restore it from a backup; without the \
                 secret every key would count as new"
            ),
            Self::Newer(format) => write!(
                f,
                "what the store knows about its hashing secret is in format {format}, written by a newer version: upgrade \
                 this node"
            ),
            Self::Copying => f.write_str(
                "the store holds an unfinished copy of another store: its missing keys would count as new; run `semel records \
                 copy` again until it succeeds, or empty the store",
            ),
            Self::WentBack => f.write_str(
                "the store has gone back to an earlier state of its hashing secret: writes were lost; find out which before \
                 this node is started again",
            ),
            Self::Stale => f.write_str(
                "this node could not refresh its view of the hashing secret in time and claims nothing until it has",
            ),
            Self::Changed => f.write_str("somebody else changed the rotation at the same time; look again"),
            Self::Phase(phase) => write!(f, "this cannot be done while the rotation is {phase}"),
            Self::Same => f.write_str("the new hashing secret is the one in use"),
            Self::NodesBehind(nodes) => write!(
                f,
                "not every node has confirmed this phase yet ({}): wait for them, or end them; one that is gone is struck off \
                 once it has been silent for long enough",
                nodes.join(", ")
            ),
            Self::RecordsLeft(count) => write!(
                f,
                "{count} records are still kept under the old secret: wait until they have expired and been swept, and settle \
                 what is unknown"
            ),
            Self::MarkersLeft(count) => write!(f, "{count} markers could not be removed; try again"),
            Self::Terms => {
                f.write_str("a node must refresh its view more often than the view is valid, and none of it may be zero")
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Store(error) => Some(error),
            Self::TooShort(error) => Some(error),
            _ => None,
        }
    }
}

impl From<store::Error> for Error {
    fn from(error: store::Error) -> Self {
        Self::Store(error)
    }
}

impl From<SecretTooShort> for Error {
    fn from(error: SecretTooShort) -> Self {
        Self::TooShort(error)
    }
}
