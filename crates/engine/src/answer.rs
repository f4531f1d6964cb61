//! What a caller is told.
//!
//! Contents: the answer to one call, and why there may be none. Never here: how it is said over HTTP.

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

/// What one call came to. `L` is whatever the work handed out besides its ending, for the call that ran it.
#[derive(Debug, Clone)]
pub struct Answer<L = ()> {
    /// The public name of the command.
    pub operation_id: OperationId,
    /// What the caller is told.
    pub told: Told<L>,
}

/// What a caller is told.
#[derive(Debug, Clone)]
pub enum Told<L = ()> {
    /// This call ran the attempt, and this is how it ended.
    Ran(Ran<L>),
    /// The stored outcome of the attempt that ran before, or that this call waited for.
    Replayed(Replayed),
    /// Another attempt is under way.
    InProgress {
        /// When it is worth asking again: not before this long.
        retry_after: Duration,
    },
    /// Nobody can prove whether the effect happened.
    Unknown {
        /// Whether a retry may settle it, because it may be the next attempt: by the record's own class, and as long
        /// as its window is open. Not where only a reconciler or an operator can.
        repeatable: bool,
    },
    /// The key is bound to another payload.
    Mismatch,
    /// There was an outcome, and it is past its time.
    Expired,
    /// Every attempt that the policy allows took no effect.
    AttemptsExhausted,
    /// What is in the store cannot be read by this node. To be answered like [`Told::Unknown`].
    Unreadable,
    /// What the call needs depends on the time, and the clock is not trusted. Nothing was run.
    ClockNotTrusted {
        /// When it is worth asking again: not before this long.
        retry_after: Duration,
    },
}

/// An attempt that this call ran.
#[derive(Debug, Clone)]
pub struct Ran<L = ()> {
    /// How it ended.
    pub ending: Ending,
    /// Whether that is stored. If it is not, nothing is acknowledged: the engine goes on trying, and a crash before
    /// it succeeds leaves the outcome unknown.
    pub stored: Option<Stored>,
    /// Which attempt it was.
    pub attempt: u32,
    /// Whether another attempt may follow, should this one have ended in doubt; see [`Told::Unknown`].
    pub repeatable: bool,
    /// What else the work handed out.
    pub local: L,
}

/// What was stored of an ending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    /// The state that it led to.
    pub state: StateName,
    /// Until when it is replayed, where it is final.
    pub expires_at: Option<Time>,
}

/// A stored outcome, once more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replayed {
    /// The outcome, byte for byte as it was stored.
    pub outcome: Outcome,
    /// What the record says about it.
    pub stored: Stored,
}

/// Why a call got no answer. It has had no effect.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The payload cannot be fingerprinted.
    Fingerprint(fingerprint::Error),
    /// The policy is not fit for use.
    Policy(PolicyError),
    /// The policy's class is `local`, which an effect has only inside of the transaction that stores its record. The
    /// engine runs work outside of every transaction, so that a crash between the two would run it again.
    LocalClass,
    /// The command has a record of class `local` that the next attempt would follow: one that was claimed inside of a
    /// transaction, or by a version that still took that class. Whether its effect happened is not known here; an
    /// operator has to settle it.
    LocalRecord(OperationId),
    /// The policy's class is not `local`, and the command was to run in a transaction with its record.
    NotLocalClass(Class),
    /// The command has a record of another class than `local` that the next attempt would follow: an earlier attempt
    /// had its effect, if any, outside of the transaction.
    NotLocalRecord(OperationId),
    /// The engine was called from inside the work of a local command, on the thread that it would have to wait for.
    InsideLocalWork,
    /// The handler that the command was handed to has returned, and its caller has been answered: nobody can join it
    /// any more.
    HandlerReturned,
    /// The store did not answer. Failing closed: without a claim nothing runs.
    Store(store::Error),
    /// The store stopped answering after it had shown another attempt at the same command, which may be running, or
    /// have taken effect; or after it was sent a claim of this very call, which may be there. Nothing runs under such
    /// a claim, and it is given back as soon as the store answers again.
    LostSight(store::Error),
    /// The attempt was given up before its effect began, and its claim given back. Trying again may help.
    GivenUp(GivenUp),
    /// The hashing secret is not to be had, or this node may be behind in its replacement. Failing closed.
    Secrets(secrets::Error),
    /// The caller mints too many new keys.
    Quota(Exceeded),
    /// Its outcome [must be sealed](crate::sealing::Seal::Required), and the engine has no key to seal it with.
    NoSealingKey,
    /// The engine is shutting down.
    Closing,
}

/// Why an attempt was given up before its effect began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GivenUp {
    /// Storing the claim took longer than its lease holds.
    Lapsed,
    /// The work panicked before it had started.
    Panicked,
    /// The work had not started within its deadline.
    Overran,
    /// The engine shut down before the work had started.
    Closing,
}

impl GivenUp {
    /// The reason in a few words.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Lapsed => "the lease lapsed before the effect began",
            Self::Panicked => "the work panicked before the effect began",
            Self::Overran => "the effect had not begun by the work's deadline",
            Self::Closing => "the process was shut down before the effect began",
        }
    }
}

impl Error {
    /// The same error, where another attempt is known to have begun.
    pub(crate) fn after_another(self) -> Self {
        match self {
            Self::Store(error) => Self::LostSight(error),
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
            Self::Store(error) | Self::LostSight(error) => error.is_retryable(),
            Self::Secrets(error) => error.is_retryable(),
            Self::GivenUp(_) | Self::Quota(_) | Self::Closing => true,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fingerprint(error) => write!(f, "the payload cannot be fingerprinted: {error}"),
            Self::Policy(error) => write!(f, "the policy is not fit for use: {error}"),
            Self::LocalClass => f.write_str(
                "nothing was run: class `local` is for an effect that commits in the same transaction as its record, and the \
                 engine runs work outside of every transaction. The crate `semel-tx` joins yours; without it use class \
                 `downstream` where the effect happens in a system that deduplicates by the operation ID, otherwise `external`",
            ),
            Self::LocalRecord(operation_id) => write!(
                f,
                "nothing was run: the record of operation {operation_id} has class `local`, so another attempt is safe only \
                 inside of its own transaction. Find out whether the effect happened, then resolve the record \
                 (Engine::resolve, `semel records resolve`)"
            ),
            Self::NotLocalClass(class) => write!(
                f,
                "nothing was run: the policy's class is `{class}`, and only a command of class `local` runs in the transaction \
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
            Self::Store(error) => write!(f, "nothing was run, since the store did not answer: {error}"),
            Self::LostSight(error) => {
                write!(
                    f,
                    "nothing was run, and what became of an earlier attempt the store does not tell: {error}"
                )
            }
            Self::GivenUp(why) => {
                write!(f, "nothing took effect, and the key can be tried again: {}", why.reason())
            }
            Self::Secrets(error) => write!(f, "nothing was run: {error}"),
            Self::Quota(exceeded) => write!(f, "nothing was run: {exceeded}"),
            Self::NoSealingKey => f.write_str(
                "nothing was run: the outcome is to be sealed, and the engine has no key: give it one by Builder::sealing",
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
            Self::Store(error) | Self::LostSight(error) => Some(error),
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
