//! The span around the upstream call, and the `traceparent` header that makes the upstream's spans its children.

use super::Context;
use super::context::TRACEPARENT;
use http::{Request, Response};
use semel::{Random as _, SystemRandom};
use std::pin::Pin;
use std::task::{self, Poll};
use tower_service::Service;
use tracing::Instrument as _;

/// Wraps the upstream service.
#[derive(Debug, Clone)]
pub struct Traced<S> {
    inner: S,
}

impl<S> Traced<S> {
    /// A span around each call of `inner`.
    pub fn new(inner: S) -> Self {
        Self { inner }
    }
}

/// A traced request's position in its trace.
#[derive(Debug, Clone, Copy)]
pub struct SampledTrace(pub Context);

impl<S, B, R> Service<Request<B>> for Traced<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Future: Send + 'static,
    R: 'static,
    S::Error: 'static,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut task::Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let Some(SampledTrace(context)) = request.extensions().get::<SampledTrace>().copied() else {
            return Box::pin(self.inner.call(request));
        };
        let span = u64::try_from(SystemRandom.bits() >> 64).unwrap_or(1).max(1);
        request.headers_mut().insert(TRACEPARENT, Context { span, ..context }.header());
        if !context.is_sampled {
            return Box::pin(self.inner.call(request));
        }
        let made = tracing::trace_span!(
            target: semel::SPANS,
            "upstream",
            otel.kind = "client",
            otel.span = span,
            http.request.method = request.method().as_str(),
            http.response.status_code = tracing::field::Empty,
            semel.failed = tracing::field::Empty,
        );
        let pending_response = made.in_scope(|| self.inner.call(request));
        let recorded = made.clone();
        let pending_response = async move {
            let answered = pending_response.await;
            match &answered {
                Ok(response) => {
                    recorded.record("http.response.status_code", u64::from(response.status().as_u16()));
                }
                Err(_) => {
                    recorded.record("semel.failed", true);
                }
            }
            answered
        };
        Box::pin(pending_response.instrument(made))
    }
}
