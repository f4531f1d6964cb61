//! The published specification, for machines and people.
//!
//! Keys, operations, retention, waiting and errors, all from the layer's settings.

use super::page;
use crate::body::Body;
use crate::layer_state::LayerState;
use crate::problem::Code;
use crate::route::{Callers, KeyRule, MismatchStatus, Mode, RouteSettings, StoreDown};
use crate::stored::Retain;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, VARY};
use http::{HeaderMap, HeaderValue, Response};
use semel::core::machine;
use semel::core::outcome::Status;
use semel::core::policy::AfterExpiry;
use semel::core::time::Now;
use serde_json::{Value, json};
use std::time::Duration;

/// The specification: JSON, or HTML if requested.
pub(crate) fn response(state: &LayerState, headers: &HeaderMap) -> Response<Body> {
    let accepts_html = |value: &HeaderValue| value.to_str().is_ok_and(|text| text.contains("text/html"));
    let (kind, text) = if headers.get_all(ACCEPT).iter().any(accepts_html) {
        ("text/html; charset=utf-8", page::html(&document(state)))
    } else {
        ("application/json", document(state).to_string())
    };
    let mut response = Response::new(Body::from(Bytes::from(text)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(VARY, HeaderValue::from_static("accept"));
    response
}

fn document(state: &LayerState) -> Value {
    let operations: Vec<_> = state
        .routes
        .all()
        .map(|(route, settings)| {
            let mut document = operation(route, settings);
            if settings.mode == Mode::Shadow {
                return observed(document);
            }
            document["waitMilliseconds"] =
                milliseconds(settings.wait.unwrap_or_else(|| state.engine.wait())).into();
            document["unknownOutcome"] =
                unknown(settings, state.engine.now(), is_looked_up(state, route, settings));
            document
        })
        .collect();
    let errors: Vec<_> = Code::ALL
        .iter()
        .map(|code| {
            json!({
                "code": code.as_str(),
                "status": code.status(),
                "statuses": code.statuses(),
                "title": code.title(),
                "advice": code.advice(),
            })
        })
        .collect();
    json!({
        "operations": operations,
        "errors": errors,
        "callers": state.callers.description(),
        "status": format!("{}/operations/{{id}}", state.prefix()),
    })
}

/// What an operation in shadow mode would promise under enforcement. Every request is passed on as it came.
const PROMISED: [&str; 11] = [
    "notAppliedStatuses",
    "retained",
    "retentionSeconds",
    "tombstoneSeconds",
    "attemptsMax",
    "deadline",
    "requestBytesMax",
    "keptResponseBytesMax",
    "mismatchStatus",
    "waitMilliseconds",
    "unknownOutcome",
];

/// Instead of a guarantee.
const OBSERVED: &str = "observed only";

/// An operation in shadow mode, without a promise.
fn observed(mut operation: Value) -> Value {
    for promised in PROMISED {
        operation[promised] = Value::Null;
    }
    for stated in ["class", "whileStoreIsDown"] {
        operation[stated] = OBSERVED.into();
    }
    operation
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn operation(route: Option<&str>, settings: &RouteSettings) -> Value {
    let policy = &settings.policy;
    let key = match settings.key {
        KeyRule::Required => "required",
        KeyRule::Optional => "optional",
        KeyRule::Off => "off",
    };
    let rules = settings.key_source.rules(settings);
    json!({
        "name": settings.name,
        "route": route,
        "methods": settings.methods.iter().map(http::Method::as_str).collect::<Vec<_>>(),
        "class": policy.class.name(),
        "notAppliedStatuses": {
            "http": statuses(settings, |status| if let Status::Http(code) = status { Some(code.into()) } else { None }),
            "grpc": statuses(settings, |status| if let Status::Grpc(code) = status { Some(code) } else { None }),
            "assumption": "given only where nothing took effect; 503 counts with Retry-After only",
        },
        "key": {
            "rule": key,
            "source": settings.key_source.described(),
            "charactersMin": rules.map(|rules| rules.min()),
            "charactersMax": rules.map(|rules| rules.max()),
        },
        "callers": settings.callers.as_ref().map(Callers::description),
        "mode": match settings.mode {
            Mode::Enforce => "enforce",
            Mode::Shadow => "shadow",
        },
        "retained": match settings.retain {
            Retain::Whole => "whole",
            Retain::Minimal(_) => "minimal",
        },
        "whileStoreIsDown": match settings.store_down {
            StoreDown::Refuse => "refused",
            StoreDown::PassUnprotected => "passed on unprotected",
        },
        "retentionSeconds": policy.ttl.as_secs(),
        "tombstoneSeconds": match policy.after_expiry {
            AfterExpiry::Refuse => policy.tombstone.as_secs(),
            AfterExpiry::RunAsNew => 0,
        },
        "attemptsMax": policy.attempts_max,
        "deadline": settings.deadlines.header.as_ref().map(|header| json!({
            "header": header.as_str(),
            "millisecondsMin": milliseconds(settings.deadlines.min),
            "forwarded": settings.deadlines.are_forwarded,
        })),
        "requestBytesMax": settings.request_bytes_max,
        "keptResponseBytesMax": settings.response_bytes_max,
        "mismatchStatus": match settings.mismatch {
            MismatchStatus::UnprocessableContent => 422,
            MismatchStatus::Conflict => 409,
        },
    })
}

/// Whether unknown outcomes have a reconciler, as known to the engine. For requests without a route, reconcilers of
/// single methods and paths are not considered.
fn is_looked_up(state: &LayerState, route: Option<&str>, settings: &RouteSettings) -> bool {
    let operations = state.routes.operations_like(route, settings);
    operations.iter().any(|operation| state.engine.has_reconciler(operation.as_str()))
}

/// How an unknown outcome is resolved, in the order in which that is tried, and whether a retry helps.
fn unknown(settings: &RouteSettings, now: Now, is_looked_up: bool) -> Value {
    let repeat_within = machine::repeat_within(&settings.policy, now);
    let is_repeated = repeat_within.is_some();
    let ways = [(is_repeated, "repeat"), (is_looked_up, "look-up"), (true, "operator")];
    let ways: Vec<_> = ways.into_iter().filter_map(|(is_taken, way)| is_taken.then_some(way)).collect();
    json!({
        "settledBy": ways,
        "repeatSeconds": repeat_within.map(|within| within.as_secs()),
        "retryable": is_repeated || is_looked_up,
    })
}

/// The statuses that count as "nothing took effect", on which the guarantee depends.
fn statuses(settings: &RouteSettings, of: fn(Status) -> Option<u32>) -> Vec<u32> {
    settings.rules.not_applied.iter().copied().filter_map(of).collect()
}
