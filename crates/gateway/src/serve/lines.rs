//! Logs each request that needs attention: operation, outcome, operation ID, trace, and the first digits of the hashes
//! of key and caller. It never logs a key, a path, a header or a body.

use semel::core::record::StateName;
use semel_http::{Code, Event, EventKind, Observer};
use semel_telemetry::trace;
use tracing::{Span, debug, info, warn};

/// Writes the lines, and adds the outcome to the request's span.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RequestLog;

/// The level of a line.
enum Severity {
    Warn,
    Info,
    Debug,
}

/// A request's outcome in one word, and the level of its line.
fn describe(kind: EventKind) -> Option<(&'static str, Severity)> {
    Some(match kind {
        EventKind::Ran(Some(StateName::Unknown)) => ("unknown", Severity::Warn),
        EventKind::Ran(None) => ("ran, not stored yet", Severity::Warn),
        EventKind::Ran(Some(_)) => ("ran", Severity::Debug),
        EventKind::Replayed => ("replayed", Severity::Debug),
        EventKind::Rebuilt => ("rebuilt", Severity::Debug),
        EventKind::Accepted => ("accepted", Severity::Debug),
        EventKind::Unprotected => ("unprotected", Severity::Debug),
        EventKind::Refused {
            code:
                code @ (Code::Unknown
                | Code::StoreUnavailable
                | Code::NotRecorded
                | Code::Unreachable
                | Code::UpstreamFailed
                | Code::UpstreamTimeout),
            ..
        } => (code.as_str(), Severity::Warn),
        EventKind::Refused { code, .. } => (code.as_str(), Severity::Info),
        EventKind::Unread(_) => ("unread", Severity::Info),
        EventKind::NotAuthorized => ("not authorized", Severity::Info),
        // Others log these: the layer logs requests that pass a failed store, the alarms log shadow mode and odd
        // headers.
        _ => return None,
    })
}

impl Observer for RequestLog {
    fn observe(&self, event: &Event<'_>) {
        let Some((outcome, severity)) = describe(event.what) else { return };
        let operation = event.operation;
        let span = Span::current();
        if !span.is_disabled() {
            span.record("semel.operation", operation).record("semel.outcome", outcome);
        }
        let is_wanted = match severity {
            Severity::Warn => tracing::enabled!(tracing::Level::WARN),
            Severity::Info => tracing::enabled!(tracing::Level::INFO),
            Severity::Debug => tracing::enabled!(tracing::Level::DEBUG),
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
        match severity {
            Severity::Warn => {
                warn!(operation, outcome, operation_id = id, key, caller, trace_id = trace, "request");
            }
            Severity::Info => {
                info!(operation, outcome, operation_id = id, key, caller, trace_id = trace, "request");
            }
            Severity::Debug => {
                debug!(operation, outcome, operation_id = id, key, caller, trace_id = trace, "request");
            }
        }
    }
}
