//! The promises that every history must keep.

use std::fmt;

/// Something that must hold in every history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// At most one effect per key and retention period.
    OneEffect,
    /// No effect before its claim is stored.
    ClaimBeforeEffect,
    /// A caller who is answered that nothing happened has caused nothing, and never will.
    TruthfulRefusal,
    /// An outcome is stored before anybody gets it.
    DurableBeforeTold,
    /// An answered outcome is the answer until it expires.
    SameAnswer,
    /// A final outcome changes only when it expires or is erased.
    FinalIsFinal,
    /// An erased outcome is given to nobody, at the latest after a minute, and at once if no node caches outcomes.
    ErasedIsGone,
    /// Every answered success has an effect, and every refusal has none.
    TrueOutcome,
    /// Nobody is given the outcome of another payload.
    OwnPayload,
    /// A mismatch is answered only if another payload is bound.
    HonestMismatch,
    /// An outcome is replayed until it expires, and answered as expired only afterwards.
    HonestExpiry,
    /// Unknown is answered only after a fault, unreadable only after damage.
    DoubtNeedsAFault,
    /// Unfinished, unknown, unreadable and unexpired records are neither removed nor overwritten.
    NothingForgotten,
    /// Fences grow from attempt to attempt, versions from write to write.
    FenceGrows,
    /// When faults have ended, every key gets an answer.
    NoWedge,
    /// When faults have ended, expired records are removed.
    SweptClean,
    /// A quota refuses only new keys, never a retry.
    OnlyNewKeys,
    /// There are never more records than a cap allows, if one node counts them and nothing fails.
    CapHolds,
    /// If outcomes are sealed, none is stored unsealed, and each can be opened.
    Sealed,
    /// Nothing is dated far from when it happened, whatever the clock shows.
    TrueDates,
    /// A node that starts with another time than a live one gives way, also after a restart and when it is alone.
    NewcomerGivesWay,
    /// The engine does not panic and does not spin.
    Steady,
}

impl Promise {
    /// The promise in a sentence.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::OneEffect => "a key has at most one effect in a retention period",
            Self::ClaimBeforeEffect => "no effect begins before its claim is stored",
            Self::TruthfulRefusal => "a caller who is answered that nothing happened has caused nothing",
            Self::DurableBeforeTold => "an outcome is stored before anybody gets it",
            Self::SameAnswer => "an answered outcome is the answer until it expires",
            Self::FinalIsFinal => "a final outcome changes only when it expires or is erased",
            Self::ErasedIsGone => "an erased outcome is given to nobody, after a minute at most",
            Self::TrueOutcome => "every answered success has an effect, and every refusal has none",
            Self::OwnPayload => "nobody is given the outcome of another payload",
            Self::HonestMismatch => "a mismatch is answered only if another payload is bound",
            Self::HonestExpiry => "an outcome is replayed until it expires, and not afterwards",
            Self::DoubtNeedsAFault => "a doubt is answered only after a fault",
            Self::NothingForgotten => "an unexpired record is neither removed nor overwritten",
            Self::FenceGrows => "fences grow from attempt to attempt, versions from write to write",
            Self::NoWedge => "when faults have ended, every key gets an answer",
            Self::SweptClean => "when faults have ended, expired records are removed",
            Self::OnlyNewKeys => "a quota refuses new keys and never a retry",
            Self::CapHolds => "one node lets in no more records than its cap",
            Self::Sealed => "if outcomes are sealed, none is stored unsealed and each can be opened",
            Self::TrueDates => "nothing is dated far from when it happened, whatever the clock shows",
            Self::NewcomerGivesWay => "a node that starts with another time than a live one gives way",
            Self::Steady => "the engine neither panics nor spins",
        }
    }
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}
