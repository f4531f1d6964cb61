//! From an inner service's response to the ending of its attempt, and from the engine's answer to the response for the
//! client.

pub(crate) mod answer;
pub(crate) mod ending;
mod standalone;

pub(crate) use answer::Responder;
pub use ending::is_endless;
pub(crate) use ending::{AttemptResponse, Statement};
pub use standalone::{response_of, response_of_refusal};
