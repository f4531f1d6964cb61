//! Tracing spans of a command.
//!
//! Spans have no fields, so they contain no data of the command.

/// The target of the engine's own spans: `claim`, `wait` for a duplicate, and `finish`, each inside the span that was
/// current when the command was executed. Their level is `TRACE`, so they cost nothing unless enabled.
pub const SPANS: &str = "semel::span";

/// A tracing span of a command.
macro_rules! span {
    ($name:literal) => {
        tracing::trace_span!(target: $crate::SPANS, $name)
    };
}

pub(crate) use span;
