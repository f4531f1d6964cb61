//! What a handler gets with a protected request, and what it can report about its effect.

mod handle;
pub(crate) mod outcome_hint;

pub use handle::Handle;
