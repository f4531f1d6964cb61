//! Numbers that count every operation once.

#[cfg(feature = "sqlite")]
mod blocking;
mod bucket;
mod event;
mod exact;
mod operations;

pub use bucket::BucketCounter;
pub use event::EventCounter;
pub use exact::Counter;

/// What came of counting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// The sum, with this operation.
    pub value: i64,
    /// Whether this call has counted it. Otherwise it was counted before, and nothing was changed.
    pub is_new: bool,
}
