//! The parts of a command's way, for anyone who traces it.
//!
//! Contents: the name that these spans go by. Never here: a field with anything of the command in it.

/// The target of the engine's own spans: `claim`, `wait` for a duplicate, and `finish`, each within the span that was
/// current where the command was executed. They are at the level `TRACE`: nobody pays for them who has not asked for
/// them.
pub const SPANS: &str = "semel::span";

/// A part of a command's way.
macro_rules! span {
    ($name:literal) => {
        tracing::trace_span!(target: $crate::SPANS, $name)
    };
}

pub(crate) use span;
