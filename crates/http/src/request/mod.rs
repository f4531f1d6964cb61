//! From a request to an intent: its key, caller, operation and payload.
//!
//! Neither the engine nor the inner service is called here.

mod deadline;
mod key;
mod payload;
mod prefer;
mod prepare;
pub(crate) mod streams;

pub(crate) use deadline::{Deadline, forward as forward_deadline};
pub(crate) use key::NoKey;
pub(crate) use payload::ParsedRequest;
pub(crate) use prepare::{HeadKey, NotExecuted, PreparedRequest, ProtectedRequest};
