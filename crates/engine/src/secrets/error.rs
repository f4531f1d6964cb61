//! Errors of the hashing secret and its rotation.

use super::Phase;
use semel_core::id::SecretId;
use semel_core::scope::SecretTooShort;
use semel_core::store;
use std::fmt;

/// Why the hashing secret is not available, or its rotation cannot continue. Nothing was changed.
#[derive(Debug)]
pub enum Error {
    /// The store did not answer.
    Store(store::Error),
    /// A configured secret is too short.
    TooShort(SecretTooShort),
    /// This store's records were made with another secret than the configured one.
    Unknown {
        /// The ID of the configured secret.
        given: SecretId,
        /// The IDs that the store knows.
        known: String,
    },
    /// The store's records need the secret with this ID, and this node does not have it.
    Missing(String),
    /// The store has records, but its settings no longer contain their secret.
    Lost,
    /// The state of the store's secret cannot be read.
    Damaged(&'static str),
    /// The state of the store's secret was written by a newer version.
    Newer(u8),
    /// The store is an unfinished copy of another store.
    Copying,
    /// The store lost its secret, or went back to an earlier phase of the rotation: an outdated backup, or a failover
    /// that lost writes.
    WentBack,
    /// This node could not read the store for too long: another secret may be in use by now.
    Stale,
    /// Somebody else changed it at the same time; try again.
    Changed,
    /// The rotation is in the wrong phase for this step.
    Phase(Phase),
    /// The new secret is already in use.
    Same,
    /// These nodes have not confirmed the current phase.
    NodesBehind(Vec<String>),
    /// This many records are still stored under the old secret (or cannot be read).
    RecordsLeft(u64),
    /// This many markers could not be removed.
    MarkersLeft(u64),
    /// A node's time limits contradict each other.
    RefreshSettings,
}

impl Error {
    /// Whether the same may succeed later without a change of configuration.
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
            Self::Store(error) => write!(f, "the hashing secret could not be read: {error}"),
            Self::TooShort(error) => error.fmt(f),
            Self::Unknown { given, known } => write!(
                f,
                "the configured hashing secret ({given}) is not this store's ({known}): every key would count as new, and \
                 its effect could happen twice; configure the store's secret, or rotate to the other one"
            ),
            Self::Missing(id) => write!(
                f,
                "this store uses the hashing secret {id}, which is not configured on this node; configure it"
            ),
            Self::Lost => f.write_str(
                "the store has records, but the hashing secret that they were made with is missing from its settings: with a new \
                 secret, every key would count as new, and its effect could happen twice; restore the settings from a backup, or \
                 empty the store if no client will repeat its commands. For a Redis store, you can also accept the loss with semel \
                 doctor --store URL --accept-loss --reason TEXT",
            ),
            Self::Damaged(what) => write!(
                f,
                "the state of the store's hashing secret is damaged ({what}); restore it from a backup: without the \
                 secret, every key would count as new"
            ),
            Self::Newer(format) => write!(
                f,
                "the state of the store's hashing secret has format {format}, from a newer version; upgrade \
                 this node"
            ),
            Self::Copying => f.write_str(
                "the store is an unfinished copy of another store, and the missing keys would count as new; run `semel records \
                 copy` again until it succeeds, or empty the store",
            ),
            Self::WentBack => f.write_str(
                "the store went back to an earlier state of its hashing secret, so it lost writes; find out which ones before \
                 you start this node again",
            ),
            Self::Stale => f.write_str(
                "this node could not refresh its view of the hashing secret in time, and claims nothing until it has",
            ),
            Self::Changed => f.write_str("somebody else changed the rotation at the same time; try again"),
            Self::Phase(phase) => write!(f, "this step is not possible while the rotation is {phase}"),
            Self::Same => f.write_str("the new hashing secret is already in use"),
            Self::NodesBehind(nodes) => write!(
                f,
                "some nodes have not confirmed this phase yet ({}); wait for them, or stop them; a stopped node is removed \
                 when it has been silent for long enough",
                nodes.join(", ")
            ),
            Self::RecordsLeft(count) => write!(
                f,
                "{count} records are still stored under the old secret; wait until they have expired and been swept, and resolve \
                 unknown outcomes"
            ),
            Self::MarkersLeft(count) => write!(f, "{count} markers could not be removed; try again"),
            Self::RefreshSettings => {
                f.write_str("a node must refresh its view before it expires, and no time limit may be zero")
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
