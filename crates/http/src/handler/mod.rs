//! What a handler gets with a protected request, and what it can report about its effect.

mod forwarded;
mod handle;
pub(crate) mod outcome_hint;

pub(crate) use forwarded::request_for_handler;
pub use handle::Handle;
pub use outcome_hint::OutcomeHint;
