//! What a run of histories has been through.
//!
//! What lives here: one counter for everything that must happen in some history. A simulation that never meets a
//! crash proves nothing about crashes. What must never: a judgement.

macro_rules! exercised {
    ($($name:ident = $text:literal,)+) => {
        /// Something that a history can go through.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[expect(missing_docs, reason = "each is named by its text")]
        pub enum Exercised { $($name,)+ }

        impl Exercised {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// What it is, in words.
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }
        }
    };
}

exercised! {
    Request = "requests",
    Effect = "effects",
    Claim = "claims",
    Replay = "replays",
    Waited = "replays to a waiting twin",
    Mismatch = "mismatches",
    InProgress = "told in progress",
    Unknown = "told unknown",
    Expired = "told expired",
    Exhausted = "told that attempts are used up",
    Unreadable = "told unreadable",
    Failed = "told of an error",
    Quota = "told of a quota",
    GivenUp = "attempts given up",
    Unstored = "outcomes told before they were stored",
    Crash = "crashes",
    Pause = "pauses",
    Shutdown = "shutdowns",
    CutOff = "attempts cut off by a shutdown",
    Outage = "outages of the store",
    ClockJump = "jumps of the store's clock",
    WrongAhead = "clocks far ahead",
    WrongBehind = "clocks far behind",
    ClockNotTrusted = "told that the clock is not trusted",
    Damage = "damaged records",
    LostThere = "questions lost",
    LostBack = "answers lost",
    Late = "questions delivered late",
    Twice = "questions delivered twice",
    Full = "writes refused for want of room",
    LostEffect = "effects lost on their way",
    LateEffect = "effects that arrived late",
    ProviderDoubt = "answers in doubt",
    ProviderRefusal = "refusals",
    Deduplicated = "effects deduplicated by the provider",
    Cancelled = "callers that hung up",
    Panic = "panics",
    Overrun = "works over their deadline",
    ByHand = "leases by hand",
    ByToken = "leases taken up again by their token",
    Reserved = "claims that were started later",
    TakeOver = "take-overs of an attempt in doubt",
    LateFinish = "finishes over one's own unknown",
    Lapsed = "leases that lapsed into unknown",
    Reconciled = "unknowns settled",
    NotApplied = "unknowns settled as not applied",
    Resolved = "unknowns settled by an operator",
    ErasedResponse = "responses erased",
    ErasedRecord = "records erased up to a tombstone",
    Barred = "operation ids barred by the provider",
    Tombstone = "outcomes that expired",
    Removed = "records removed",
    Reuse = "keys used again",
    Sealed = "outcomes sealed",
    RingChanged = "nodes with another ring of keys",
    OldRing = "replays of what an earlier ring had sealed",
    Local = "local commands committed",
    CommitInDoubt = "commits of local commands in doubt",
}

/// How often each was gone through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tally([u64; Exercised::ALL.len()]);

impl Default for Tally {
    fn default() -> Self {
        Self([0; Exercised::ALL.len()])
    }
}

impl Tally {
    pub(crate) fn count(&mut self, what: Exercised) {
        self.0[what as usize] += 1;
    }

    /// How often.
    pub fn of(&self, what: Exercised) -> u64 {
        self.0[what as usize]
    }

    /// Adds another run.
    pub fn add(&mut self, other: &Self) {
        for (own, more) in self.0.iter_mut().zip(other.0) {
            *own += more;
        }
    }

    /// What was never gone through.
    pub fn blind_spots(&self) -> Vec<Exercised> {
        Exercised::ALL.iter().copied().filter(|what| self.of(*what) == 0).collect()
    }
}
