//! Liveness, readiness and metrics. The store's answers are cached briefly, so that frequent probes do not load it.

use super::Shared;
use super::output::json;
use super::problem::Situation;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use semel::WriteRefusal;
use semel::core::store::{Count, Kind};
use semel_http::Code;
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;
use utoipa::ToSchema;

/// How long the store may accept no write before the node is not ready.
const REFUSING_MAX: Duration = Duration::from_secs(3);
/// How long the store may take to answer a readiness check.
const READY_WITHIN: Duration = Duration::from_secs(2);
/// How long an answer of the store is reused.
const GOOD_FOR: Duration = Duration::from_millis(250);

/// The process is alive.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Alive {
    /// Always true.
    alive: bool,
}

/// Whether the node is ready for requests.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct Ready {
    /// Whether it is ready.
    ready: bool,
    /// Why not.
    reasons: Vec<String>,
}

/// The last answer of the store, and its uptime.
#[derive(Default)]
pub(super) struct CachedReadiness(tokio::sync::Mutex<Option<(Duration, Option<String>)>>);

/// Reports that the process is alive. Does not ask the store.
#[utoipa::path(get, path = "/healthz", tag = "health", security(()), responses(
    (status = 200, body = Alive),
))]
pub(super) async fn healthz() -> Response {
    json(StatusCode::OK, &Alive { alive: true })
}

/// Reports whether the node is ready: the store answers and has accepted a write recently, and the process is not
/// shutting down.
#[utoipa::path(get, path = "/readyz", tag = "health", security(()), responses(
    (status = 200, description = "Ready", body = Ready),
    (status = 503, description = "Not ready, and why", body = Ready),
))]
pub(super) async fn readyz(State(shared): State<Arc<Shared>>) -> Response {
    let mut reasons = Vec::new();
    if (shared.sources.is_draining)() {
        reasons.push("the process is shutting down and takes no new requests".to_owned());
    }
    reasons.extend(shared.ready.ask(&shared).await);
    // Known from earlier writes: a check writes nothing.
    if let Some(WriteRefusal { lasts, kind }) = shared.engine.refuses_writes()
        && lasts >= REFUSING_MAX
    {
        reasons.push(format!("the store has taken no write for {} s: {kind}", lasts.as_secs()));
    }
    let ready = reasons.is_empty();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    json(status, &Ready { ready, reasons })
}

impl CachedReadiness {
    /// Why the store cannot be used, if it cannot. One check at a time, however many requests there are.
    async fn ask(&self, shared: &Shared) -> Option<String> {
        let mut last = self.0.lock().await;
        let now = shared.clock.uptime();
        if let Some((asked_at, reason)) = &*last
            && now.saturating_sub(*asked_at) < GOOD_FOR
        {
            return reason.clone();
        }
        let answer = tokio::time::timeout(READY_WITHIN, shared.engine.store().count(Count::Records, 1)).await;
        let reason = match answer {
            Ok(Ok(_)) => None,
            // The error's text contains paths, and this address is open to everybody.
            Ok(Err(error)) if error.kind() == Kind::Unfit => {
                Some("the store is not fit for use until an operator acts; the log says why".to_owned())
            }
            Ok(Err(error)) => Some(format!("the store does not answer: {}", error.kind())),
            Err(_) => Some(format!("the store has not answered within {} s", READY_WITHIN.as_secs())),
        };
        *last = Some((shared.clock.uptime(), reason.clone()));
        reason
    }
}

/// The metrics of this process, in Prometheus format.
#[utoipa::path(get, path = "/metrics", tag = "health", responses(
    (status = 200, body = String, content_type = "text/plain; version=0.0.4; charset=utf-8"),
))]
pub(super) async fn metrics(State(shared): State<Arc<Shared>>) -> Response {
    let text = (shared.sources.metrics)();
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

/// One kind of problem.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ProblemDescription {
    /// The code, for programs.
    code: &'static str,
    /// The HTTP status.
    status: u16,
    /// A short title.
    title: &'static str,
}

/// Every kind of problem: where a problem's `type` leads.
#[utoipa::path(get, path = "/.well-known/idempotency", tag = "description", responses(
    (status = 200, body = Vec<ProblemDescription>),
))]
pub(super) async fn situations() -> Response {
    let admin_problems = Situation::ALL.iter().map(|situation| ProblemDescription {
        code: situation.code(),
        status: situation.status(),
        title: situation.title(),
    });
    let shared = Code::ALL.iter().map(|code| ProblemDescription {
        code: code.as_str(),
        status: code.status(),
        title: code.title(),
    });
    json(StatusCode::OK, &shared.chain(admin_problems).collect::<Vec<_>>())
}
