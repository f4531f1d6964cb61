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
}

impl Sabotage {
    /// All of them.
    pub const ALL: [Self; 12] = [
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
    ];

    /// The promise that it breaks.
    pub const fn breaks(self) -> Promise {
        match self {
            Self::StoppedClock | Self::NotFoundAtOnce | Self::UncheckedSend => Promise::OneEffect,
            Self::ReleaseOn5xx => Promise::TruthfulRefusal,
            Self::StaleReads => Promise::SameAnswer,
            Self::BlindSwap => Promise::FinalIsFinal,
            Self::RepeatedTokens => Promise::FenceGrows,
            Self::BlindInsert | Self::LeaseAsTtl | Self::UnreadableAsAbsent => Promise::NothingForgotten,
            Self::LostWrites => Promise::DurableBeforeTold,
            Self::CancelledWithCaller => Promise::DoubtNeedsAFault,
        }
    }

    /// By its name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|sabotage| format!("{sabotage:?}") == name)
    }
}
