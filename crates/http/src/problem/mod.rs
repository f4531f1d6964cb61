//! What a client gets if there is no outcome: problem documents, and the reasons that a body or a service gives for
//! them.
//!
//! A problem depends on no route and on no request.

mod advice;
mod code;
mod document;
mod engine;
mod failure;
mod limits;
mod malformed;
mod unread;

pub use code::Code;
pub use document::{Form, Problem, SPECIFICATION};
pub(crate) use document::{GRPC_STATUS, is_grpc};
pub use failure::Failure;
pub use malformed::Malformed;
pub use unread::{TooSlow, UnreadReason};
