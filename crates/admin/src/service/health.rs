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
use semel::time::ClockStatus;
use semel_http::Code;
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;
use utoipa::ToSchema;

/// How long the store may accept no write before the node is not ready.
const REFUSING_MAX: Duration = Duration::from_secs(3);
/// How long the store may take to answer a readiness check.
const READY_WITHIN: Duration = Duration::from_secs(2);
/// Why the store cannot be used after a loss of data.
const LOST: &str = "the store has lost data, and commands could run again; the log says what to do";
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
#[schema(as = Ready)]
pub(super) struct Readiness {
    /// Whether it is ready.
    ready: bool,
    /// Why not.
    reasons: Vec<String>,
    /// What does not work although it is ready.
    degraded: Vec<String>,
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

/// Reports whether the node is ready: the store answers and accepts writes, the clock has been trusted since the start,
/// and the process is not shutting down.
///
/// A node that was ready and then loses the trust in its clock stays ready: all nodes lose it together, and stored
/// outcomes are still replayed. `degraded` says so.
#[utoipa::path(get, path = "/readyz", tag = "health", security(()), responses(
    (status = 200, description = "Ready", body = Readiness),
    (status = 503, description = "Not ready, and why", body = Readiness),
))]
pub(super) async fn readyz(State(shared): State<Arc<Shared>>) -> Response {
    let mut reasons = Vec::new();
    if (shared.sources.is_draining)() {
        reasons.push("the process is shutting down and takes no new requests".to_owned());
    }
    let unusable = shared.ready.ask(&shared).await;
    let is_lost = unusable.as_deref() == Some(LOST);
    reasons.extend(unusable);
    // Known from earlier writes: a check writes nothing.
    reasons.extend(shared.engine.refuses_writes().and_then(|refusal| refused(refusal, is_lost)));
    if !shared.engine.has_current_secret() {
        reasons.push("the state of the hashing secret cannot be read or renewed in the store".to_owned());
    }
    let mut degraded = Vec::new();
    match (clock(shared.engine.clock_status()), shared.engine.has_trusted_clock()) {
        (None, true) => {}
        (None, false) => reasons.push(
            "the clock is ahead of the last time in the store; the gateway waits to see whether another one still uses that time"
                .to_owned(),
        ),
        (Some(distrust), true) => degraded.push(distrust),
        (Some(distrust), false) => reasons.push(distrust),
    }
    let ready = reasons.is_empty();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    json(status, &Readiness { ready, reasons, degraded })
}

/// Why a store that refuses writes makes the node not ready, if it does. `is_lost`: a loss of data is reported already,
/// and is not a second reason.
fn refused(WriteRefusal { lasts, kind }: WriteRefusal, is_lost: bool) -> Option<String> {
    if lasts < REFUSING_MAX || (is_lost && kind == Kind::DataLost) {
        return None;
    }
    Some(format!("the store has taken no write for {} s: {kind}", lasts.as_secs()))
}

/// Why the clock is not trusted, if it is not.
fn clock(status: ClockStatus) -> Option<String> {
    match status {
        ClockStatus::Trusted => None,
        ClockStatus::Moved { by_ms } => {
            let by = Duration::from_millis(by_ms.unsigned_abs()).as_secs();
            let direction = if by_ms < 0 { "back" } else { "ahead" };
            Some(format!(
                "the clock jumped {direction} by {by} s; the gateway continues from the time before"
            ))
        }
        ClockStatus::Untrusted(why) => {
            Some(format!("the clock is not trusted, and new keys are refused: {why}"))
        }
    }
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
            Ok(Err(error)) if error.kind() == Kind::DataLost => Some(LOST.to_owned()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_of_data_is_one_reason() {
        let lasting = |kind| WriteRefusal { lasts: Duration::from_secs(4), kind };
        assert_eq!(refused(lasting(Kind::DataLost), true), None);
        for (kind, is_lost) in
            [(Kind::DataLost, false), (Kind::Unavailable, false), (Kind::Unavailable, true)]
        {
            let reason = refused(lasting(kind), is_lost).expect("a reason");
            assert_eq!(reason, format!("the store has taken no write for 4 s: {kind}"));
        }
        let brief = WriteRefusal { lasts: Duration::from_secs(1), kind: Kind::Unavailable };
        assert_eq!(refused(brief, false), None);
    }
}
