//! Faults that no promise survives, one at a time: the proof that the audit can see.
//!
//! What lives here: their names, and the promise that each must be caught by. What must never: a switch in the engine;
//! each is a part of the simulated world that does what the engine's contract forbids.

use super::promise::Promise;

/// Something around the engine that breaks its word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sabotage {
    /// A node's uptime does not count the time that it stood still.
    StoppedClock,
    /// The store answers reads with what stood there a few seconds ago.
    StaleReads,
    /// The store swaps without comparing.
    BlindSwap,
    /// The store inserts where something stands already.
    BlindInsert,
    /// The store forgets an entry once its lease is over.
    LeaseAsTtl,
    /// The store takes what it cannot read for absent.
    UnreadableAsAbsent,
    /// The store acknowledges writes that it then loses.
    LostWrites,
    /// The work calls an answer in doubt "not applied".
    ReleaseOn5xx,
    /// A reconciler's "not there" is taken for "and never will be".
    NotFoundAtOnce,
    /// An engine's tasks end with the caller that hangs up.
    CancelledWithCaller,
    /// The work begins its effect without asking whether it still may.
    UncheckedSend,
    /// A node that was restarted draws the same tokens as before.
    RepeatedTokens,
    /// The key that outcomes were sealed with is taken off the ring as soon as there is a new one.
    RingCutShort,
    /// An operator's verdict is stored as it is where outcomes are sealed.
    UnsealedVerdict,
    /// The store shows nothing where something stands, now and then.
    BlankReads,
    /// The store counts no records.
    Miscounted,
    /// Whoever is refused by a quota sends all the same.
    SentWhenRefused,
    /// A worker that comes back to an attempt that is no longer its own sends all the same.
    SentByTheLate,
    /// What the application wrote is committed although its record was not: another one was there first.
    TornCommit,
    /// Whoever is asked to erase a record deletes it.
    DeletedNotErased,
    /// The store answers reads with what stood there before it was erased.
    ErasedShown,
}

impl Sabotage {
    /// All of them.
    pub const ALL: [Self; 21] = [
        Self::StoppedClock,
        Self::StaleReads,
        Self::BlindSwap,
        Self::BlindInsert,
        Self::LeaseAsTtl,
        Self::UnreadableAsAbsent,
        Self::LostWrites,
        Self::ReleaseOn5xx,
        Self::NotFoundAtOnce,
        Self::CancelledWithCaller,
        Self::UncheckedSend,
        Self::RepeatedTokens,
        Self::RingCutShort,
        Self::UnsealedVerdict,
        Self::BlankReads,
        Self::Miscounted,
        Self::SentWhenRefused,
        Self::SentByTheLate,
        Self::TornCommit,
        Self::DeletedNotErased,
        Self::ErasedShown,
    ];

    /// The promise that it breaks.
    pub const fn breaks(self) -> Promise {
        match self {
            Self::StoppedClock
            | Self::NotFoundAtOnce
            | Self::UncheckedSend
            | Self::SentByTheLate
            | Self::TornCommit => Promise::OneEffect,
            Self::ReleaseOn5xx | Self::SentWhenRefused => Promise::TruthfulRefusal,
            Self::StaleReads | Self::RingCutShort => Promise::SameAnswer,
            Self::UnsealedVerdict => Promise::Sealed,
            Self::BlankReads => Promise::OnlyNewKeys,
            Self::Miscounted => Promise::CapHolds,
            Self::BlindSwap => Promise::FinalIsFinal,
            Self::BlindInsert | Self::LeaseAsTtl | Self::UnreadableAsAbsent | Self::DeletedNotErased => {
                Promise::NothingForgotten
            }
            Self::ErasedShown => Promise::ErasedIsGone,
            Self::LostWrites => Promise::DurableBeforeTold,
            // The machine refuses a second attempt with the first one's token, and its record is answered as unreadable.
            Self::CancelledWithCaller | Self::RepeatedTokens => Promise::DoubtNeedsAFault,
        }
    }

    /// By its name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|sabotage| format!("{sabotage:?}") == name)
    }
}
