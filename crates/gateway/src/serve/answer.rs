//! What a client is told where nothing stood between it and a failing upstream.
//!
//! What lives here: failures of unprotected requests, as problems. What must never: a word about protected ones; the layer has
//! answered those.

use bytes::Bytes;
use http::{Request, Response};
use semel_http::{Body, BoxError, Code, Failure, Form, Problem};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A service that has an answer to everything.
#[derive(Debug, Clone)]
pub(super) struct Answering<S>(pub(super) S);

impl<S, B> tower_service::Service<Request<B>> for Answering<S>
where
    S: tower_service::Service<Request<B>, Response = Response<Body>, Error = Failure>,
    S::Future: Send + 'static,
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // An upstream is always ready to be tried.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let form = Form::of(request.headers());
        let answer = self.0.call(request);
        Box::pin(async move { Ok(answer.await.unwrap_or_else(|failure| told(failure, form))) })
    }
}

fn told(failure: Failure, form: Form) -> Response<Body> {
    let problem = match failure {
        Failure::Unreachable => {
            Problem::new(Code::Unreachable, "The service could not be reached. Nothing was sent.")
                .retryable(true)
        }
        Failure::ConnectTimeout => {
            Problem::new(Code::Unreachable, "The service could not be reached in time. Nothing was sent.")
                .with_status(504)
                .retryable(true)
        }
        Failure::Broken => Problem::new(
            Code::UpstreamFailed,
            "The service failed while it processed the request. It had no idempotency key, so nothing is known about it.",
        ),
        Failure::TimedOut => Problem::new(
            Code::UpstreamTimeout,
            "The service did not answer in time. The request had no idempotency key, so nothing is known about it.",
        ),
    };
    problem.into_response(form, "")
}
