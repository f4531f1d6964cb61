//! Traces: the W3C context of a request, the spans of its way through the gateway, and their export as OTLP.
//!
//! A request never waits for a span, and spans contain no keys and no bodies. Fingerprints and stored outcomes do not
//! depend on traces.
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
pub use current::{InTrace, current};
pub use spans::Spans;
pub use tracer::{Counts, Options, Tracer};
pub use upstream::{SampledTrace, Traced};
