//! The answer to a call, and why there may be none, independent of any protocol.

use crate::quota::Exceeded;
use crate::secrets;
use semel_core::classify::Ending;
use semel_core::fingerprint;
use semel_core::id::OperationId;
use semel_core::outcome::Outcome;
use semel_core::policy::{Class, PolicyError};
use semel_core::record::StateName;
use semel_core::store;
use semel_core::time::Time;
use std::fmt;
use std::time::Duration;

/// The answer to one call. `L` is what the work returned besides its ending, for the call that ran it.
///
/// It is not always a success: a mismatch and a running duplicate are answers too. [`into_outcome`](Self::into_outcome)
/// makes everything but a success an error.
#[must_use = "it may be a mismatch, a running duplicate or an unknown outcome"]
#[derive(Debug, Clone)]
pub struct ExecuteResponse<L = ()> {
    /// The public name of the command.
    pub operation_id: OperationId,
    /// The outcome for the caller.
    pub outcome: RequestOutcome<L>,
}

/// The outcome of a call.
#[derive(Debug, Clone)]
pub enum RequestOutcome<L = ()> {
    /// This call ran the attempt.
    Ran(RanAttempt<L>),
    /// The stored outcome of an earlier attempt, or of one that this call waited for.
    Replayed(Replayed),
    /// Another attempt is running.
    InProgress {
        /// Wait at least this long before a retry.
        retry_after: Duration,
    },
    /// Nobody can prove whether the effect happened.
    Unknown {
        /// Whether a retry can resolve it, because it may be the next attempt (depends on the record's class and its
        /// window). `false` if only a reconciler or an operator can.
        repeatable: bool,
    },
    /// The key is bound to another payload.
    Mismatch,
    /// The outcome has expired.
    Expired,
    /// All attempts that the policy allows ended without effect.
    AttemptsExhausted,
    /// This node cannot read the record. Answer it like [`RequestOutcome::Unknown`].
    Unreadable,
    /// The decision depends on the time, and the clock is not trusted. Nothing was run.
    ClockNotTrusted {
        /// Wait at least this long before a retry.
        retry_after: Duration,
    },
}

/// An attempt that this call ran.
#[derive(Debug, Clone)]
pub struct RanAttempt<L = ()> {
    /// How it ended.
    pub ending: Ending,
    /// What was stored. `None` if it is not stored yet: the engine keeps trying, and a crash before it succeeds
    /// leaves the outcome unknown.
    pub stored: Option<Stored>,
    /// The number of the attempt.
    pub attempt: u32,
    /// Whether another attempt may follow if this one ended in doubt; see [`RequestOutcome::Unknown`].
    pub repeatable: bool,
    /// What else the work returned.
    pub local: L,
}

/// What was stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    /// The record's state.
    pub state: StateName,
    /// Until when it is replayed, if it is final.
    pub expires_at: Option<Time>,
}

/// A replayed outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replayed {
    /// The outcome, byte for byte as it was stored.
    pub outcome: Outcome,
    /// The record's state and expiry.
    pub stored: Stored,
}

/// Why a call got no answer. It had no effect.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The payload cannot be fingerprinted.
    Fingerprint(fingerprint::Error),
    /// The policy is invalid.
    Policy(PolicyError),
    /// The policy's class is `local`, but the engine runs work outside of any transaction. A crash between the effect
    /// and the record would run it again.
    LocalClass,
    /// The command has a record of class `local`, which only an attempt in its own transaction may follow. Whether
    /// its effect happened is not known here; an operator has to resolve it.
    LocalRecord(OperationId),
    /// The command should run in a transaction with its record, but the policy's class is not `local`.
    NotLocalClass(Class),
    /// The command has a record of another class than `local`: an earlier attempt may have had its effect outside of
    /// the transaction.
    NotLocalRecord(OperationId),
    /// The engine was called from inside the work of a local command, on the thread that it would wait for.
    InsideLocalWork,
    /// The handler of the command has returned, and its caller was answered: the command can no longer be joined.
    HandlerReturned,
    /// The store did not answer. Without a claim, nothing runs.
    Store(store::Error),
    /// The store stopped answering after it had shown another attempt of the same command, or after this call had
    /// sent a claim. The other attempt may be running or have taken effect. Nothing runs under this call's claim, and
    /// it is given back as soon as the store answers again.
    StoreLost(store::Error),
    /// The attempt was given up before its effect began, and its claim was given back. A retry may help.
    GivenUp(GivenUp),
    /// The hashing secret is not available, or this node may be behind in its rotation. Nothing runs.
    Secrets(secrets::Error),
    /// The caller uses too many new keys.
    Quota(Exceeded),
    /// The outcome [must be sealed](crate::sealing::Seal::Required), and the engine has no sealing key.
    NoSealingKey,
    /// The engine is shutting down.
    Closing,
}

/// Why an attempt was given up before its effect began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GivenUp {
    /// Storing the claim took longer than its lease.
    Lapsed,
    /// The work panicked before its effect began.
    Panicked,
    /// The effect had not begun at the deadline.
    Overran,
    /// The effect had not begun [within the caller's limit](crate::Intent::beginning_within).
    Late,
    /// The engine was shut down before the effect began.
    Closing,
}

impl GivenUp {
    /// The reason in a few words.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Lapsed => "the lease expired before the effect began",
            Self::Panicked => "the work panicked before the effect began",
            Self::Overran => "the effect had not begun by the work's deadline",
            Self::Late => "the effect had not begun within the caller's time limit",
            Self::Closing => "the process was shut down before the effect began",
        }
    }
}

impl Error {
    /// The same error if another attempt is known to have begun.
    pub(crate) fn after_another(self) -> Self {
        match self {
            Self::Store(error) => Self::StoreLost(error),
            error => error,
        }
    }

    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Fingerprint(_)
            | Self::Policy(_)
            | Self::LocalClass
            | Self::LocalRecord(_)
            | Self::NotLocalClass(_)
            | Self::NotLocalRecord(_)
            | Self::InsideLocalWork
            | Self::HandlerReturned
            | Self::NoSealingKey => false,
            Self::Store(error) | Self::StoreLost(error) => error.is_retryable(),
            Self::Secrets(error) => error.is_retryable(),
            Self::GivenUp(_) | Self::Quota(_) | Self::Closing => true,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fingerprint(error) => write!(f, "the payload cannot be fingerprinted: {error}"),
            Self::Policy(error) => write!(f, "the policy is invalid: {error}"),
            Self::LocalClass => f.write_str(
                "nothing was run: in class `local`, the effect commits in the same transaction as its record, and the \
                 engine runs work outside of every transaction. The crate `semel-tx` joins yours; without it use class \
                 `downstream` where the effect happens in a system that deduplicates by the operation ID, otherwise `external`",
            ),
            Self::LocalRecord(operation_id) => write!(
                f,
                "nothing was run: the record of operation {operation_id} has class `local`, so another attempt is safe only \
                 in its own transaction. Find out whether the effect happened, then resolve the record \
                 (Engine::resolve, `semel records resolve`)"
            ),
            Self::NotLocalClass(class) => write!(
                f,
                "nothing was run: the policy's class is `{class}`, and only commands of class `local` run in the transaction \
                 that its record is written in. Use Policy::new(Class::Local)"
            ),
            Self::NotLocalRecord(operation_id) => write!(
                f,
                "nothing was run: the record of operation {operation_id} was claimed under another class than `local`, and an \
                 earlier attempt may have had its effect elsewhere. Use a new key, or release the record \
                 (`semel records release`)"
            ),
            Self::InsideLocalWork => f.write_str(
                "nothing was run: the engine was called from inside the work of a local command, which holds the store's only \
                 writing thread. Call it before or after, or make both one command",
            ),
            Self::HandlerReturned => f.write_str(
                "nothing was run: the handler of this request has returned, and its client was answered. Join before the handler \
                 returns",
            ),
            Self::Store(error) => write!(f, "nothing was run, because the store did not answer: {error}"),
            Self::StoreLost(error) => {
                write!(
                    f,
                    "nothing was run; an earlier attempt may have taken effect, and the store did not answer: {error}"
                )
            }
            Self::GivenUp(why) => {
                write!(f, "nothing took effect, and you can retry with the same key: {}", why.reason())
            }
            Self::Secrets(error) => write!(f, "nothing was run: {error}"),
            Self::Quota(exceeded) => write!(f, "nothing was run: {exceeded}"),
            Self::NoSealingKey => f.write_str(
                "nothing was run: the outcome must be sealed, and the engine has no key; set one with Builder::sealing",
            ),
            Self::Closing => f.write_str("nothing was run: the engine is shutting down"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Fingerprint(error) => Some(error),
            Self::Policy(error) => Some(error),
            Self::Store(error) | Self::StoreLost(error) => Some(error),
            Self::Secrets(error) => Some(error),
            Self::Quota(exceeded) => Some(exceeded),
            Self::LocalClass
            | Self::LocalRecord(_)
            | Self::NotLocalClass(_)
            | Self::NotLocalRecord(_)
            | Self::InsideLocalWork
            | Self::HandlerReturned
            | Self::GivenUp(_)
            | Self::NoSealingKey
            | Self::Closing => None,
        }
    }
}

impl From<store::Error> for Error {
    fn from(error: store::Error) -> Self {
        Self::Store(error)
    }
}
