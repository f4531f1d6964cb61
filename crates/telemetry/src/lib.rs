//! How a running gateway is observed.
//!
//! **What lives here**: the metrics and what adds to them, the spans of requests and their export as OTLP, and the log's
//! format. **What must never**: a decision about a request, a label without a bound, and a key, token or body in
//! anything that is shown.

pub mod logging;
pub mod metrics;
pub mod trace;
