//! A log line for each request that matters.
//!
//! What lives here: which do, how loud, and by what they can be found again: operation, what became of it, operation id, the
//! first digits of the key's and the caller's hashes, trace. What must never: a key, a path, a header or a body.

use crate::trace;
use semel::core::record::StateName;
use semel_http::{Code, Event, EventKind, Observer};
use tracing::{Span, debug, info, warn};

/// Writes the lines, and tells the request's span what became of it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Lines;

/// How loud a line is.
enum Loud {
    Warn,
    Info,
    Debug,
}

/// What became of a request in a word, and how loud it is told.
fn told(what: EventKind) -> Option<(&'static str, Loud)> {
    Some(match what {
        EventKind::Ran(Some(StateName::Unknown)) => ("unknown", Loud::Warn),
        EventKind::Ran(None) => ("ran, not stored yet", Loud::Warn),
        EventKind::Ran(Some(_)) => ("ran", Loud::Debug),
        EventKind::Replayed => ("replayed", Loud::Debug),
        EventKind::Rebuilt => ("rebuilt", Loud::Debug),
        EventKind::Accepted => ("accepted", Loud::Debug),
        EventKind::Unprotected => ("unprotected", Loud::Debug),
        EventKind::Refused {
            code:
                code @ (Code::Unknown
                | Code::StoreUnavailable
                | Code::Unreachable
                | Code::UpstreamFailed
                | Code::UpstreamTimeout),
            ..
        } => (code.as_str(), Loud::Warn),
        EventKind::Refused { code, .. } => (code.as_str(), Loud::Info),
        EventKind::Unread(_) => ("unread", Loud::Info),
        EventKind::NotAuthorized => ("not authorized", Loud::Info),
        // Told by others: failing open by the layer, shadow mode and odd words by the alarms.
        _ => return None,
    })
}

impl Observer for Lines {
    fn observe(&self, event: &Event<'_>) {
        let Some((outcome, loud)) = told(event.what) else { return };
        let operation = event.operation;
        let span = Span::current();
        if !span.is_disabled() {
            span.record("semel.operation", operation).record("semel.outcome", outcome);
        }
        let is_wanted = match loud {
            Loud::Warn => tracing::enabled!(tracing::Level::WARN),
            Loud::Info => tracing::enabled!(tracing::Level::INFO),
            Loud::Debug => tracing::enabled!(tracing::Level::DEBUG),
        };
        if !is_wanted {
            return;
        }
        let id = event.operation_id.map(|id| id.to_string());
        let key = event.key.map(|key| key.prefix());
        let caller = match event.what {
            EventKind::Refused { caller, .. } => caller.map(|caller| caller.prefix()),
            _ => None,
        };
        let trace = trace::current().map(|context| format!("{:032x}", context.trace));
        let (id, key, caller, trace) = (id.as_deref(), key.as_deref(), caller.as_deref(), trace.as_deref());
        match loud {
            Loud::Warn => {
                warn!(operation, outcome, operation_id = id, key, caller, trace_id = trace, "request");
            }
            Loud::Info => {
                info!(operation, outcome, operation_id = id, key, caller, trace_id = trace, "request");
            }
            Loud::Debug => {
                debug!(operation, outcome, operation_id = id, key, caller, trace_id = trace, "request");
            }
        }
    }
}
