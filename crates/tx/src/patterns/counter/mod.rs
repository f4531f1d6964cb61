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

/// The result of counting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// The sum, including this operation.
    pub value: i64,
    /// Whether this call has counted it. Otherwise it was already counted, and nothing was changed.
    pub is_new: bool,
}
