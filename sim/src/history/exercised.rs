//! What a run of histories has exercised.
//!
//! One counter for each event that must happen in some history: a simulation without a crash proves nothing about
//! crashes.

macro_rules! exercised {
    ($($name:ident = $text:literal,)+) => {
        /// An event that a history can exercise.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[expect(missing_docs, reason = "described by their texts")]
        pub enum Exercised { $($name,)+ }

        impl Exercised {
            /// All events.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// A description of the event.
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
    Waited = "replays to a waiting duplicate",
    Mismatch = "mismatches",
    InProgress = "answers \"in progress\"",
    Unknown = "answers \"unknown\"",
    Expired = "answers \"expired\"",
    Exhausted = "answers \"attempts used up\"",
    Unreadable = "answers \"unreadable\"",
    Failed = "answers with an error",
    Quota = "refusals by a quota",
    GivenUp = "attempts given up",
    Unstored = "outcomes answered before being stored",
    Crash = "crashes",
    Pause = "pauses",
    Shutdown = "shutdowns",
    CutOff = "attempts cut off by a shutdown",
    Outage = "outages of the store",
    ClockJump = "jumps of the store's clock",
    WrongAhead = "clocks far ahead",
    WrongBehind = "clocks far behind",
    OtherClock = "starts with another clock than a live node's",
    GaveWay = "nodes that gave way to another clock",
    ClockNotTrusted = "answers \"clock not trusted\"",
    Damage = "damaged records",
    LostThere = "calls lost",
    LostBack = "answers lost",
    Late = "calls delivered late",
    Twice = "calls delivered twice",
    Full = "writes refused by a full store",
    LostEffect = "effects lost in flight",
    LateEffect = "effects that arrived late",
    ProviderDoubt = "answers in doubt",
    ProviderRefusal = "refusals",
    Deduplicated = "effects deduplicated by the provider",
    Cancelled = "callers that hung up",
    Panic = "panics",
    Overrun = "work past its deadline",
    ByHand = "leases held by workers",
    ByToken = "leases resumed by their token",
    Reserved = "claims started later",
    TakeOver = "takeovers of an attempt in doubt",
    LateFinish = "finishes over the owner's own unknown",
    Lapsed = "leases that lapsed into unknown",
    Reconciled = "unknowns settled",
    NotApplied = "unknowns settled as not applied",
    Resolved = "unknowns settled by an operator",
    ErasedResponse = "responses erased",
    ErasedRecord = "records erased except a tombstone",
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

/// How often each event happened.
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

    /// The events that never happened.
    pub fn blind_spots(&self) -> Vec<Exercised> {
        Exercised::ALL.iter().copied().filter(|what| self.of(*what) == 0).collect()
    }
}
