//! Seeded protocol bugs: what people get wrong, put into the real machine's mouth one at a time.

/// A protocol bug that the model checker must catch; [`sentence`](Self::sentence) says what each is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "each has its sentence")]
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
    OldDatesBelieved,
    LocalConflictIgnored,
    DoubtSettledWithoutLock,
}

impl Bug {
    /// Every one of them.
    pub const ALL: [Self; 52] = [
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
        Self::OldDatesBelieved,
        Self::LocalConflictIgnored,
        Self::DoubtSettledWithoutLock,
    ];

    /// What the bug is, in a sentence.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::TokenLeftOutOfSwap => "the swap does not compare the token",
            Self::VersionLeftOutOfSwap => "the swap does not compare the version",
            Self::StateLeftOutOfSwap => "the swap does not compare the state",
            Self::EffectOutsideTransaction => "a local effect is committed apart from its record",
            Self::SuccessTakenForDoubt => "a plain success is taken for doubt",
            Self::VerdictsNeverCount => "no verdict of a reconciler is ever accepted",
            Self::OperatorNeedNotWait => "an operator's \"not applied\" counts while the owner may still act",
            Self::RefusalNeverTriedAgain => "an attempt without effect blocks the key for its retention",
            Self::ReleaseOn5xx => "a 500 releases the key for another attempt",
            Self::LeaseAsTtl => "the record goes when its lease does",
            Self::AnswerBeforeDurable => "the client is answered before the outcome is stored",
            Self::NotFoundAsProof => "\"not found\" is taken for proof at once",
            Self::NotFoundJudgedWhenAnswered => "\"not found\" counts from the answer, not from the question",
            Self::OwnerRefusedOnItsOwnUnknown => "an owner may not finish over its own UNKNOWN",
            Self::OwnerAllowedOverSuccessor => "an owner may finish whatever attempt the record is at",
            Self::MismatchAfterInProgress => "in progress is answered before the payload is compared",
            Self::FingerprintSkippedOnReplay => "a stored outcome is replayed without comparing the payload",
            Self::TakeOverOfExternalProcessing => {
                "a dead PROCESSING is taken over although nobody deduplicates"
            }
            Self::UnreadableAsAbsent => "a record that cannot be read counts as none",
            Self::LookUnderBothOnSecretChange => {
                "on a secret change both ids are looked under and then one inserted"
            }
            Self::FenceRestartsAfterPurge => "the fence starts again at 1 after a purge",
            Self::StillRunningStoredAsOutcome => {
                "a provider's 409 \"still running\" is stored as the outcome"
            }
            Self::EarlierDoubtForgotten => "the doubt of an earlier attempt is forgotten on taking over",
            Self::DedupWindowIgnored => "an attempt in doubt is repeated after the provider's memory ends",
            Self::OwnFinishRecognisedByTokenAlone => {
                "a lost finish is taken for stored when the token matches"
            }
            Self::TokenIsTheWorker => "the token is the worker's name instead of random bits",
            Self::UnknownPurged => "UNKNOWN records are purged like any other",
            Self::OutcomeForgottenWithoutTombstone => "an expired outcome is removed without a tombstone",
            Self::EffectBeforeStart => "the effect is sent while the record still says CLAIMED",
            Self::LeaseNotCheckedBeforeSending => "the lease is not checked right before sending",
            Self::FailOpenOnLostClaim => "a claim whose acknowledgement was lost runs all the same",
            Self::FinishOverFinal => "a finish is stored over a final outcome",
            Self::QuietWithoutSkew => "the quiet period leaves out the clocks' skew",
            Self::QuietWithoutDeadline => "the quiet period leaves out the work's deadline",
            Self::LeaseDeadWithoutSkew => "a lease is dead to others without regard to the clocks' skew",
            Self::SentWithinSkew => "an owner sends within the skew after its lease",
            Self::WindowWithoutSkew => "an attempt in doubt is repeated without regard to the clocks' skew",
            Self::RenewalShortensLease => {
                "a renewal by a clock that went back takes back what was promised before"
            }
            Self::DoubtForgottenOnStart => "the doubt of an earlier attempt is forgotten on starting",
            Self::DoubtForgottenOnRenewal => "the doubt of an earlier attempt is forgotten on renewing",
            Self::UnreadablePassedBy => {
                "on a secret change an unreadable record under the old id is passed by"
            }
            Self::SelectionKeptOnRelease => {
                "a released key keeps the selection of fingerprinted fields that it had"
            }
            Self::ResolvedWhileOwned => "an operator settles an attempt whose owner may still act",
            Self::OutcomeWithoutStart => "an owner reports an outcome of an attempt that it never started",
            Self::ReleasedWhileOwned => "an operator releases a claim whose owner may still start",
            Self::TrustIgnored => "nodes that start with a clock far off go by it all the same",
            Self::GapForgotten => "leases of before a change of time are judged by the new one at once",
            Self::LeaseHeldByItsDate => "an owner goes by its lease's date after the clock was set back",
            Self::ReplacedTimeForgotten => {
                "outcomes of before a change of time expire by the new one at once"
            }
            Self::OldDatesBelieved => {
                "a first attempt that an earlier time dated ahead counts as made on that date"
            }
            Self::LocalConflictIgnored => {
                "a local command's transaction commits although its record was refused (DO NOTHING)"
            }
            Self::DoubtSettledWithoutLock => {
                "a local commit in doubt is settled by reading without its lock, while it may still arrive"
            }
        }
    }
}
