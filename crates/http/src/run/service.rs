//! The service: how a request goes through the layer.
//!
//! Requests with a key are passed on from here only in shadow mode.

use crate::body::{Body, BoxError, Clean};
use crate::layer_state::LayerState;
use crate::names;
use crate::observe::EventKind;
use crate::problem::Form;
use crate::publish::resource;
use crate::request::{Deadline, NotExecuted, ProtectedRequest};
use crate::response::ending;
use crate::route::{KeyRule, Mode, Target};
use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, Response};
use semel::core::policy::Class;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A service under a [`Layer`](crate::Layer).
#[derive(Clone)]
pub struct Service<S> {
    pub(crate) inner: S,
    pub(crate) state: Arc<LayerState>,
}

impl<S, B, R> tower_service::Service<Request<B>> for Service<S>
where
    S: tower_service::Service<Request<Body>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError> + 'static,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The instance that was polled ready gets the request; its clone has to be polled again.
        let next = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, next);
        let state = Arc::clone(&self.state);
        let (mut parts, body) = request.into_parts();
        names::strip(&mut parts.headers);
        let target = Target::new(&parts.method, state.target_of(&parts));
        if let Some(resource) = resource::resource_of(&state, &target) {
            return Box::pin(async move { Ok(resource::answer(&state, &parts, resource).await) });
        }
        let route = state.routes.of(target.method(), target.path());
        if let Some(route) = route {
            state.observer.routed(&route.label, route.settings.mode);
        }
        let Some(route) = route.filter(|route| route.settings.key != KeyRule::Off).map(Arc::clone) else {
            // Keep this future small: unprotected requests should not pay for protected ones.
            return Box::pin(forward_unprotected(inner, parts, Body::live(body), Clean::Outcome));
        };
        let form = Form::of(&parts.headers);
        let deadline = match route.settings.mode {
            Mode::Enforce => {
                Deadline::of(&route.settings.deadlines, &parts.headers, form, state.engine.uptime())
            }
            Mode::Shadow => None,
        };
        Box::pin(serve(ProtectedRequest { state, route, target, form, deadline }, inner, parts, body))
    }
}

async fn serve<S, B, R>(
    request: ProtectedRequest,
    inner: S,
    mut parts: Parts,
    body: B,
) -> Result<Response<Body>, S::Error>
where
    S: tower_service::Service<Request<Body>, Response = Response<R>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError> + 'static,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    // Compare the exact spelling, as servers do: a client that sends `head` expects a body.
    let is_head = parts.method == Method::HEAD;
    // Rare paths are boxed, because a future is as large as its largest path.
    let mut response = if request.route.settings.mode == Mode::Shadow {
        Box::pin(request.forward_in_shadow(inner, parts, body)).await?
    } else {
        match request.prepare(&mut parts, body).await {
            Ok(prepared) if request.route.policy.class == Class::Local => {
                Box::pin(request.execute_local(prepared, inner, parts)).await?
            }
            Ok(prepared) => request.execute(prepared, inner, parts).await?,
            Err(NotExecuted::Refused(problem)) => request.refuse(problem, None),
            Err(NotExecuted::Unread(why)) => {
                request.state.report(&request.route, EventKind::Unread(why));
                why.response(request.form)
            }
            Err(NotExecuted::Unprotected(body)) => {
                request.state.report(&request.route, EventKind::Unprotected);
                forward_unprotected(inner, parts, body, Clean::All).await?
            }
        }
    };
    if is_head {
        ending::omit_body(&mut response);
    }
    Ok(response)
}

/// Passes on an unprotected request. `clean`: what to remove from its response.
pub(crate) async fn forward_unprotected<S, R>(
    mut inner: S,
    parts: Parts,
    body: Body,
    clean: Clean,
) -> Result<Response<Body>, S::Error>
where
    S: tower_service::Service<Request<Body>, Response = Response<R>>,
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let request = Request::from_parts(parts, body.cleaned(Clean::All));
    let mut response = inner.call(request).await?;
    clean.strip(response.headers_mut());
    Ok(response.map(|body| Body::live(body).cleaned(clean)))
}
