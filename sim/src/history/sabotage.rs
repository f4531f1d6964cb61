//! Deliberate faults that break a promise, one at a time: they prove that the audit works.
//!
//! Each is a part of the simulated world that violates the engine's contract. The engine itself has no switches for
//! them.

use super::promise::Promise;

/// A part around the engine that violates its contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sabotage {
    /// A node's uptime does not include the time while it was paused.
    StoppedClock,
    /// The store answers reads with the entry of a few seconds ago.
    StaleReads,
    /// The store swaps without comparing.
    BlindSwap,
    /// The store inserts over an existing entry.
    BlindInsert,
    /// The store drops an entry when its lease ends.
    LeaseAsTtl,
    /// The store treats an unreadable entry as absent.
    UnreadableAsAbsent,
    /// The store loses acknowledged writes.
    LostWrites,
    /// The work reports an uncertain answer as "not applied".
    ReleaseOn5xx,
    /// A reconciler's "not found" counts as "refused for good".
    NotFoundAtOnce,
    /// An engine's tasks end when the caller disconnects.
    CancelledWithCaller,
    /// The work sends its effect without checking that it still may.
    UncheckedSend,
    /// A restarted node generates the same tokens as before.
    RepeatedTokens,
    /// The old sealing key is removed from the ring as soon as there is a new one.
    RingCutShort,
    /// An operator's verdict is stored unsealed although outcomes are sealed.
    UnsealedVerdict,
    /// The store sometimes shows nothing where an entry exists.
    BlankReads,
    /// The store counts no records.
    Miscounted,
    /// A client that a quota refused sends its effect anyway.
    SentWhenRefused,
    /// A worker that returns to an attempt that is no longer its own sends anyway.
    SentByTheLate,
    /// The application's writes are committed although the record was refused, because another one was first.
    TornCommit,
    /// A node that is asked to erase a record deletes it.
    DeletedNotErased,
    /// The store answers reads with the entry before it was erased.
    ErasedShown,
    /// The store shows a node that starts with another clock an old mark, and swaps marks without comparing.
    UnseenMarks,
}

impl Sabotage {
    /// All kinds of sabotage.
    pub const ALL: [Self; 22] = [
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
        Self::UnseenMarks,
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
            Self::UnseenMarks => Promise::NewcomerGivesWay,
            Self::ErasedShown => Promise::ErasedIsGone,
            Self::LostWrites => Promise::DurableBeforeTold,
            // The machine refuses a second attempt with the first one's token, and its record is answered as
            // unreadable.
            Self::CancelledWithCaller | Self::RepeatedTokens => Promise::DoubtNeedsAFault,
        }
    }

    /// Finds one by name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|sabotage| format!("{sabotage:?}") == name)
    }
}
