//! Counts and times each request, from its head to the head of its response, and logs it if that is configured. The
//! log never contains a key, a path, a query, a header or a body.

use http::{Method, Request, Response, StatusCode};
use semel::core::id::OperationId;
use semel::{Attempt, Clock as _, SystemClock};
use semel_admin::LineBudget;
use semel_http::{Body, Code, Event, Mode, Observer};
use semel_proxy::forward::RefusalWithoutCode;
use semel_proxy::listen::{BodyWatch, MessageRefusal, RefusalObserver};
use semel_telemetry::logging::REQUEST_LOG;
use semel_telemetry::metrics::{self, Metrics};
use semel_telemetry::trace;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tower_service::Service;

/// The outcome of requests that are refused without a code.
const REFUSED: &str = "refused";

/// The name for requests without settings.
const OTHER: &str = "other";

tokio::task_local! {
    static CURRENT: Arc<Current>;
}

/// The request that is being served, as far as the layer has reported about it.
#[derive(Debug, Default)]
struct Current(Mutex<RequestFacts>);

#[derive(Debug, Clone)]
struct RequestFacts {
    operation: String,
    outcome: &'static str,
    operation_id: Option<OperationId>,
}

impl Default for RequestFacts {
    /// Forwarded unchanged, or answered by the gateway itself.
    fn default() -> Self {
        Self { operation: OTHER.to_owned(), outcome: "passed", operation_id: None }
    }
}

impl Current {
    fn change(&self, change: impl FnOnce(&mut RequestFacts)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn facts(&self) -> RequestFacts {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Observes the layer, and stores its events with the current request.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct OutcomeRecorder;

impl Observer for OutcomeRecorder {
    fn observe(&self, event: &Event<'_>) {
        let Some(outcome) = metrics::outcome(event.what) else { return };
        // Later events, such as those of shadow mode, belong to no current request.
        let _ = CURRENT.try_with(|current| {
            current.change(|facts| (facts.outcome, facts.operation_id) = (outcome, event.operation_id));
        });
    }

    fn routed(&self, operation: &str, mode: Mode) {
        let _ = CURRENT.try_with(|current| {
            current.change(|facts| {
                operation.clone_into(&mut facts.operation);
                if mode == Mode::Shadow {
                    facts.outcome = "shadow";
                }
            });
        });
    }
}

/// Counts, times and logs requests.
#[derive(Debug, Clone)]
pub(super) struct Requests {
    metrics: Metrics,
    is_logged: bool,
    /// For requests that get no further than their connection: their senders need no route, no key and no valid HTTP.
    refused_lines: Arc<LineBudget>,
}

impl Requests {
    pub(super) fn new(metrics: Metrics, is_logged: bool) -> Self {
        Self { metrics, is_logged, refused_lines: Arc::default() }
    }

    /// Counts and logs what the listener refuses.
    pub(super) fn refusals(&self) -> RefusalObserver {
        let this = self.clone();
        RefusalObserver::new(move |refusal| this.refused(refusal))
    }

    fn refused(&self, refusal: MessageRefusal) {
        let (code, status) = (refusal.code(), status_of(refusal));
        self.metrics.refused_unrouted(code, status);
        if self.is_logged
            && let Some(left_out) = self.refused_lines.take(SystemClock.uptime())
        {
            let left_out = (left_out > 0).then_some(left_out);
            let outcome = code.map_or(REFUSED, Code::as_str);
            let (operation, status) = (OTHER, status.as_u16());
            tracing::info!(target: REQUEST_LOG, operation, status, outcome, reason = %refusal, left_out, "refused");
        }
    }

    /// Follows a request up to the head of its response.
    pub(super) async fn follow(
        self,
        method: Method,
        watch: BodyWatch,
        answering: impl Future<Output = Result<Response<Body>, Infallible>>,
    ) -> Result<Response<Body>, Infallible> {
        let begun = SystemClock.uptime();
        let current = Arc::new(Current::default());
        let Ok(response) = CURRENT.scope(Arc::clone(&current), answering).await;
        let mut facts = current.facts();
        let Sent { status, is_refusal, code } = Sent::of(&response, &watch);
        if is_refusal {
            self.metrics.refused(code);
            facts.outcome = code.map_or(REFUSED, Code::as_str);
        }
        let took = SystemClock.uptime().saturating_sub(begun);
        self.metrics.answered(&facts.operation, facts.outcome, status, took);
        if self.is_logged {
            log(&method, &facts, status, took);
        }
        Ok(response)
    }
}

/// What the client gets.
struct Sent {
    status: StatusCode,
    /// Whether it is a refusal that the layer has not reported, and its code, if it has one.
    is_refusal: bool,
    code: Option<Code>,
}

impl Sent {
    fn of(response: &Response<Body>, watch: &BodyWatch) -> Self {
        let status = response.status();
        if let Some(refusal) = watch.refusal_instead_of(status) {
            return Self { status: status_of(refusal), is_refusal: true, code: refusal.code() };
        }
        let code = response.extensions().get::<Code>().copied();
        let is_refusal = code.is_some() || response.extensions().get::<RefusalWithoutCode>().is_some();
        Self { status, is_refusal, code }
    }
}

fn status_of(refusal: MessageRefusal) -> StatusCode {
    StatusCode::from_u16(refusal.status()).unwrap_or(StatusCode::BAD_REQUEST)
}

fn log(method: &Method, facts: &RequestFacts, status: StatusCode, took: Duration) {
    let id = facts.operation_id.map(|id| id.to_string());
    let trace = trace::current().map(|context| format!("{:032x}", context.trace));
    tracing::info!(
        target: REQUEST_LOG,
        method = method.as_str(),
        operation = facts.operation,
        status = status.as_u16(),
        duration_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        outcome = facts.outcome,
        operation_id = id.as_deref(),
        trace_id = trace.as_deref(),
        "served"
    );
}

/// Times the inner service.
#[derive(Debug, Clone)]
pub(super) struct Timed<S> {
    inner: S,
    metrics: Metrics,
}

impl<S> Timed<S> {
    pub(super) fn new(inner: S, metrics: Metrics) -> Self {
        Self { inner, metrics }
    }
}

impl<S, B> Service<Request<B>> for Timed<S>
where
    S: Service<Request<B>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // An attempt runs in its own task, which serves no request.
        let attempted = request.extensions().get::<Attempt>().map(Attempt::operation);
        let operation = match attempted {
            Some(operation) => self.metrics.label_of(&operation),
            None => {
                CURRENT.try_with(|current| current.facts().operation).unwrap_or_else(|_| OTHER.to_owned())
            }
        };
        let (pending_response, metrics) = (self.inner.call(request), self.metrics.clone());
        let begun = SystemClock.uptime();
        Box::pin(async move {
            let answered = pending_response.await;
            metrics.upstream_took(&operation, SystemClock.uptime().saturating_sub(begun));
            answered
        })
    }
}
