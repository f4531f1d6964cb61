//! Seeded protocol bugs: common mistakes, added to the real machine one at a time.

/// A protocol bug that the model checker must catch; [`sentence`](Self::sentence) describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "described by its sentence")]
pub enum Bug {
    TokenLeftOutOfSwap,
    VersionLeftOutOfSwap,
    StateLeftOutOfSwap,
    EffectOutsideTransaction,
    SuccessTakenForDoubt,
    VerdictsNeverCount,
    OperatorNeedNotWait,
    RefusalNeverTriedAgain,
    ReleaseOn5xx,
    LeaseAsTtl,
    AnswerBeforeDurable,
    NotFoundAsProof,
    NotFoundJudgedWhenAnswered,
    OwnerRefusedOnItsOwnUnknown,
    OwnerAllowedOverSuccessor,
    MismatchAfterInProgress,
    FingerprintSkippedOnReplay,
    TakeOverOfExternalProcessing,
    UnreadableAsAbsent,
    LookUnderBothOnSecretChange,
    FenceRestartsAfterPurge,
    StillRunningStoredAsOutcome,
    EarlierDoubtForgotten,
    DedupWindowIgnored,
    OwnFinishRecognisedByTokenAlone,
    TokenIsTheWorker,
    UnknownPurged,
    OutcomeForgottenWithoutTombstone,
    EffectBeforeStart,
    LeaseNotCheckedBeforeSending,
    FailOpenOnLostClaim,
    FinishOverFinal,
    QuietWithoutSkew,
    QuietWithoutDeadline,
    LeaseDeadWithoutSkew,
    SentWithinSkew,
    WindowWithoutSkew,
    RenewalShortensLease,
    DoubtForgottenOnStart,
    DoubtForgottenOnRenewal,
    UnreadablePassedBy,
    SelectionKeptOnRelease,
    ResolvedWhileOwned,
    OutcomeWithoutStart,
    ReleasedWhileOwned,
    TrustIgnored,
    GapForgotten,
    LeaseHeldByItsDate,
    ReplacedTimeForgotten,
    ReplacedTombstoneForgotten,
    TombstoneExtendedBackwards,
    ErasedByOldDates,
    OldDatesBelieved,
    LocalConflictIgnored,
    DoubtSettledWithoutLock,
    DoubtSettledByContent,
    DoubtSettledAfterRetention,
    ErasedByRemoval,
    ErasedTombstoneShortened,
    ErasedUnsettled,
}

impl Bug {
    /// Every bug.
    pub const ALL: [Self; 60] = [
        Self::TokenLeftOutOfSwap,
        Self::VersionLeftOutOfSwap,
        Self::StateLeftOutOfSwap,
        Self::EffectOutsideTransaction,
        Self::SuccessTakenForDoubt,
        Self::VerdictsNeverCount,
        Self::OperatorNeedNotWait,
        Self::RefusalNeverTriedAgain,
        Self::ReleaseOn5xx,
        Self::LeaseAsTtl,
        Self::AnswerBeforeDurable,
        Self::NotFoundAsProof,
        Self::NotFoundJudgedWhenAnswered,
        Self::OwnerRefusedOnItsOwnUnknown,
        Self::OwnerAllowedOverSuccessor,
        Self::MismatchAfterInProgress,
        Self::FingerprintSkippedOnReplay,
        Self::TakeOverOfExternalProcessing,
        Self::UnreadableAsAbsent,
        Self::LookUnderBothOnSecretChange,
        Self::FenceRestartsAfterPurge,
        Self::StillRunningStoredAsOutcome,
        Self::EarlierDoubtForgotten,
        Self::DedupWindowIgnored,
        Self::OwnFinishRecognisedByTokenAlone,
        Self::TokenIsTheWorker,
        Self::UnknownPurged,
        Self::OutcomeForgottenWithoutTombstone,
        Self::EffectBeforeStart,
        Self::LeaseNotCheckedBeforeSending,
        Self::FailOpenOnLostClaim,
        Self::FinishOverFinal,
        Self::QuietWithoutSkew,
        Self::QuietWithoutDeadline,
        Self::LeaseDeadWithoutSkew,
        Self::SentWithinSkew,
        Self::WindowWithoutSkew,
        Self::RenewalShortensLease,
        Self::DoubtForgottenOnStart,
        Self::DoubtForgottenOnRenewal,
        Self::UnreadablePassedBy,
        Self::SelectionKeptOnRelease,
        Self::ResolvedWhileOwned,
        Self::OutcomeWithoutStart,
        Self::ReleasedWhileOwned,
        Self::TrustIgnored,
        Self::GapForgotten,
        Self::LeaseHeldByItsDate,
        Self::ReplacedTimeForgotten,
        Self::ReplacedTombstoneForgotten,
        Self::TombstoneExtendedBackwards,
        Self::ErasedByOldDates,
        Self::OldDatesBelieved,
        Self::LocalConflictIgnored,
        Self::DoubtSettledWithoutLock,
        Self::DoubtSettledByContent,
        Self::DoubtSettledAfterRetention,
        Self::ErasedByRemoval,
        Self::ErasedTombstoneShortened,
        Self::ErasedUnsettled,
    ];

    /// A description of the bug.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::TokenLeftOutOfSwap => "the swap does not compare the token",
            Self::VersionLeftOutOfSwap => "the swap does not compare the version",
            Self::StateLeftOutOfSwap => "the swap does not compare the state",
            Self::EffectOutsideTransaction => "a local effect is committed apart from its record",
            Self::SuccessTakenForDoubt => "a plain success is treated as doubt",
            Self::VerdictsNeverCount => "no verdict of a reconciler is ever accepted",
            Self::OperatorNeedNotWait => "an operator's \"not applied\" counts while the owner may still act",
            Self::RefusalNeverTriedAgain => "an attempt without effect blocks the key for its retention",
            Self::ReleaseOn5xx => "a 500 releases the key for another attempt",
            Self::LeaseAsTtl => "the record is removed when its lease ends",
            Self::AnswerBeforeDurable => "the client is answered before the outcome is stored",
            Self::NotFoundAsProof => "\"not found\" counts as proof at once",
            Self::NotFoundJudgedWhenAnswered => "\"not found\" counts from the answer, not from the question",
            Self::OwnerRefusedOnItsOwnUnknown => "an owner may not finish over its own UNKNOWN",
            Self::OwnerAllowedOverSuccessor => "an owner may finish whatever attempt the record is at",
            Self::MismatchAfterInProgress => "in progress is answered before the payload is compared",
            Self::FingerprintSkippedOnReplay => "a stored outcome is replayed without comparing the payload",
            Self::TakeOverOfExternalProcessing => {
                "a dead PROCESSING is taken over although no provider deduplicates"
            }
            Self::UnreadableAsAbsent => "an unreadable record counts as absent",
            Self::LookUnderBothOnSecretChange => {
                "during a secret change both IDs are read and then one is inserted"
            }
            Self::FenceRestartsAfterPurge => "the fence starts again at 1 after a purge",
            Self::StillRunningStoredAsOutcome => {
                "a provider's 409 \"still running\" is stored as the outcome"
            }
            Self::EarlierDoubtForgotten => "the doubt of an earlier attempt is forgotten by a takeover",
            Self::DedupWindowIgnored => "an attempt in doubt is repeated after the provider's memory ends",
            Self::OwnFinishRecognisedByTokenAlone => "a lost finish counts as stored if the token matches",
            Self::TokenIsTheWorker => "the token is the worker's name instead of random bits",
            Self::UnknownPurged => "UNKNOWN records are purged like any other",
            Self::OutcomeForgottenWithoutTombstone => "an expired outcome is removed without a tombstone",
            Self::EffectBeforeStart => "the effect is sent while the record still says CLAIMED",
            Self::LeaseNotCheckedBeforeSending => "the lease is not checked right before sending",
            Self::FailOpenOnLostClaim => "a claim whose acknowledgement was lost runs anyway",
            Self::FinishOverFinal => "a finish is stored over a final outcome",
            Self::QuietWithoutSkew => "the quiet period leaves out the clocks' skew",
            Self::QuietWithoutDeadline => "the quiet period leaves out the work's deadline",
            Self::LeaseDeadWithoutSkew => "others treat a lease as dead without adding the skew",
            Self::SentWithinSkew => "an owner sends within the skew after its lease",
            Self::WindowWithoutSkew => "an attempt in doubt is repeated without subtracting the skew",
            Self::RenewalShortensLease => "a renewal by a clock that went back shortens the lease",
            Self::DoubtForgottenOnStart => "the doubt of an earlier attempt is forgotten by a start",
            Self::DoubtForgottenOnRenewal => "the doubt of an earlier attempt is forgotten by a renewal",
            Self::UnreadablePassedBy => {
                "during a secret change an unreadable record under the old ID is ignored"
            }
            Self::SelectionKeptOnRelease => "a released key keeps its old selection of fingerprinted fields",
            Self::ResolvedWhileOwned => "an operator settles an attempt whose owner may still act",
            Self::OutcomeWithoutStart => "an owner reports an outcome of an attempt that it never started",
            Self::ReleasedWhileOwned => "an operator releases a claim whose owner may still start",
            Self::TrustIgnored => "nodes that start with a clock far off use it anyway",
            Self::GapForgotten => "leases from before a change of time are judged by the new time at once",
            Self::LeaseHeldByItsDate => "an owner relies on its lease's date after the clock was set back",
            Self::ReplacedTimeForgotten => {
                "outcomes from before a change of time expire by the new time at once"
            }
            Self::ReplacedTombstoneForgotten => {
                "tombstones from before a change of time end by the new time at once"
            }
            Self::TombstoneExtendedBackwards => "a new date for a tombstone moves its end earlier",
            Self::ErasedByOldDates => {
                "an outcome from before a change of time that is erased binds its key only until its old date"
            }
            Self::OldDatesBelieved => "a first attempt dated ahead by an earlier time counts from that date",
            Self::LocalConflictIgnored => {
                "a local command's transaction commits although its record was refused (DO NOTHING)"
            }
            Self::DoubtSettledWithoutLock => {
                "an uncertain local commit is settled by reading without its lock"
            }
            Self::DoubtSettledByContent => {
                "an uncertain local commit counts as rolled back if its record was erased since"
            }
            Self::DoubtSettledAfterRetention => {
                "an uncertain local commit counts as rolled back although its record may have expired since"
            }
            Self::ErasedByRemoval => "an erased record is removed instead of leaving a tombstone",
            Self::ErasedTombstoneShortened => "the tombstone of an erased record ends at once",
            Self::ErasedUnsettled => "a record can be erased while its attempt runs or is in doubt",
        }
    }
}
