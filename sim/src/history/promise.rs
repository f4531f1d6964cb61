//! What every history is held to.
//!
//! What lives here: the promises in words. What must never: how they are checked.

use std::fmt;

/// Something that must hold in every history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// At most one effect for a key in one retention period.
    OneEffect,
    /// No effect before its claim is stored.
    ClaimBeforeEffect,
    /// Whoever is told that nothing happened has caused nothing, and never will.
    TruthfulRefusal,
    /// An outcome is stored before anybody is told.
    DurableBeforeTold,
    /// Once told, an outcome is the answer until it expires.
    SameAnswer,
    /// What is stored as final changes only when its time is over, or where somebody asked to erase it.
    FinalIsFinal,
    /// A minute after it was erased at the latest, and at once where no node keeps outcomes in memory, nobody is given it.
    ErasedIsGone,
    /// Behind a success that was told stands an effect, behind a refusal none.
    TrueOutcome,
    /// Nobody is given the outcome of another payload.
    OwnPayload,
    /// A mismatch is told only where another payload is bound.
    HonestMismatch,
    /// An outcome is replayed before its time is over, and called expired only after.
    HonestExpiry,
    /// Unknown is told only where a fault left a doubt, unreadable only where there is damage.
    DoubtNeedsAFault,
    /// What is unfinished, unknown, unreadable or not past its time is neither removed nor written over.
    NothingForgotten,
    /// Fences grow from attempt to attempt, versions from write to write.
    FenceGrows,
    /// Once nothing fails any more, every key comes to an answer.
    NoWedge,
    /// Once nothing fails any more, what is past its time goes.
    SweptClean,
    /// A quota refuses new keys only, and never a retry.
    OnlyNewKeys,
    /// There are never more records than a cap allows, where one node counts them and nothing fails.
    CapHolds,
    /// Where outcomes are sealed, none is stored in the clear, and each can be opened.
    Sealed,
    /// Whatever its clock shows, nothing is dated far from when it happened.
    TrueDates,
    /// The engine does not panic and does not spin.
    Steady,
}

impl Promise {
    /// The promise in a sentence.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::OneEffect => "a key has at most one effect in a retention period",
            Self::ClaimBeforeEffect => "no effect begins before its claim is stored",
            Self::TruthfulRefusal => "whoever is told that nothing happened has caused nothing",
            Self::DurableBeforeTold => "an outcome is stored before anybody is told",
            Self::SameAnswer => "an outcome that was told is the answer until it expires",
            Self::FinalIsFinal => {
                "what is stored as final changes only when its time is over or it is erased"
            }
            Self::ErasedIsGone => "what was erased is given to nobody, after a minute at most",
            Self::TrueOutcome => "behind a success that was told stands an effect, behind a refusal none",
            Self::OwnPayload => "nobody is given the outcome of another payload",
            Self::HonestMismatch => "a mismatch is told only where another payload is bound",
            Self::HonestExpiry => "an outcome is replayed before its time is over, and expired only after",
            Self::DoubtNeedsAFault => "a doubt is told only where a fault left one",
            Self::NothingForgotten => "what is not past its time is neither removed nor written over",
            Self::FenceGrows => "fences grow from attempt to attempt, versions from write to write",
            Self::NoWedge => "once nothing fails any more, every key comes to an answer",
            Self::SweptClean => "once nothing fails any more, what is past its time goes",
            Self::OnlyNewKeys => "a quota refuses new keys and never a retry",
            Self::CapHolds => "one node lets in no more records than its cap",
            Self::Sealed => "where outcomes are sealed, none is stored in the clear and each can be opened",
            Self::TrueDates => "nothing is dated far from when it happened, whatever the clock shows",
            Self::Steady => "the engine neither panics nor spins",
        }
    }
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}
