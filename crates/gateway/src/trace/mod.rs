//! Traces: who asked for what, and which part of the way took how long.
//!
//! **What lives here**: the W3C context of a request, the spans of its way through the gateway, and their export as OTLP.
//! **What must never**: a request that waits for a span, a key or a body in one, or anything that a request's fingerprint or its
//! stored outcome depends on.
//!
//! Where nothing is configured, a client's `traceparent` passes as it came. Where something is, the gateway takes part: its span
//! for the request is the child of the client's, and what the upstream sees is the child of the gateway's. Spans `claim`, `wait`
//! and `finish` are the engine's ([`semel::SPANS`]); `upstream` is the gateway's own.

mod context;
mod current;
mod export;
mod otlp;
mod spans;
mod tracer;
mod upstream;

pub use context::Context;
pub(crate) use current::{Within, current};
pub use spans::Spans;
pub use tracer::{Counts, Options, Tracer};
pub(crate) use upstream::{Followed, Traced};
