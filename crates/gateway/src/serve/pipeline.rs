//! The entry point for requests, which can be replaced while requests run. A request runs under one configuration from
//! start to end.

use super::requests::{Requests, Timed};
use crate::caller_rules::CallerRules;
use http::{HeaderValue, Request, Response};
use semel_http::Body;
use semel_proxy::forward::Inbound;
use semel_proxy::forward::Outbound;
use semel_proxy::listen;
use semel_telemetry::trace::{Context as Trace, InTrace, SampledTrace, Traced, Tracer};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll};
use tower_service::Service;
use tracing::Instrument as _;

/// Everything between the listener and the upstream, under one configuration.
pub(super) type Pipeline = Inbound<WithCallerRules<semel_http::Service<Timed<Traced<Outbound>>>>>;

/// Outside Semel's layer: records where each request came from, before its headers are read.
#[derive(Debug, Clone)]
pub(super) struct WithCallerRules<S> {
    inner: S,
    caller_rules: CallerRules,
}

impl<S> WithCallerRules<S> {
    pub(super) fn new(inner: S, caller_rules: CallerRules) -> Self {
        Self { inner, caller_rules }
    }
}

impl<S, B> Service<Request<B>> for WithCallerRules<S>
where
    S: Service<Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> S::Future {
        let (mut parts, body) = request.into_parts();
        self.caller_rules.prepare(&mut parts.headers, &mut parts.extensions);
        self.inner.call(Request::from_parts(parts, body))
    }
}

/// The entry point for requests. Clones share it.
#[derive(Clone)]
pub(super) struct PipelineHandle {
    pipeline: Arc<RwLock<Pipeline>>,
    tracer: Option<Tracer>,
    requests: Requests,
}

impl PipelineHandle {
    pub(super) fn new(pipeline: Pipeline, tracer: Option<Tracer>, requests: Requests) -> Self {
        Self { pipeline: Arc::new(RwLock::new(pipeline)), tracer, requests }
    }

    /// New requests use this pipeline. Running ones finish on the old one.
    pub(super) fn replace(&self, pipeline: Pipeline) {
        *self.pipeline.write().unwrap_or_else(PoisonError::into_inner) = pipeline;
    }

    fn current(&self) -> Pipeline {
        self.pipeline.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Service<Request<listen::Body>> for PipelineHandle {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<listen::Body>) -> Self::Future {
        // Always ready: readiness is checked for each request.
        let (mut pipeline, requests) = (self.current(), self.requests.clone());
        let (method, watch) = (request.method().clone(), request.body().watch());
        let Some(tracer) = &self.tracer else {
            // A trace that passes through is not changed, but log lines can name it.
            let trace = Trace::of(request.headers());
            let pending_response = requests.follow(method, watch, pipeline.call(request));
            return match trace {
                None => Box::pin(pending_response),
                Some(context) => Box::pin(InTrace::new(context, pending_response)),
            };
        };
        let (context, span) = tracer.begin(&method, request.headers_mut());
        request.extensions_mut().insert(SampledTrace(context));
        let recorded = span.clone();
        let pending_response = async move {
            let Ok(response) = requests.follow(method, watch, pipeline.call(request)).await;
            if let Some(Ok(id)) =
                response.headers().get(semel_http::names::OPERATION_ID).map(HeaderValue::to_str)
            {
                recorded.record("semel.operation_id", id);
            }
            recorded.record("http.response.status_code", u64::from(response.status().as_u16()));
            Ok(response)
        };
        Box::pin(InTrace::new(context, pending_response.instrument(span)))
    }
}
