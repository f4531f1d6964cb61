//! The service: one request's way through the layer.
//!
//! What lives here: the order of things. What must never: a call of the inner service for a keyed request that the engine
//! did not ask for.

use crate::body::{self, Body, BoxError, Read, Whole};
use crate::clean::Clean;
use crate::failure::Failure;
use crate::layer::Shared;
use crate::payload::Asked;
use crate::problem::{Code, Form, Problem};
use crate::request::{self, Keyed};
use crate::response::{self, Local};
use crate::route::Ready;
use crate::telling::{self, Speaker};
use crate::terms::KeyRule;
use crate::{names, prefer, published};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use semel::core::id::OperationId;
use semel::core::key::Key;
use semel::core::scope::{Operation, Scope};
use semel::{Answer, Attempt, Ended, Intent, Told};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::oneshot;

/// A service under a [`Layer`](crate::Layer).
#[derive(Clone)]
pub struct Service<S> {
    pub(crate) inner: S,
    pub(crate) shared: Arc<Shared>,
}

impl<S, B, R> tower_service::Service<Request<B>> for Service<S>
where
    S: tower_service::Service<Request<Body>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
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
        // The one that said it was ready goes with the request; its clone has to be asked anew.
        let next = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, next);
        let shared = Arc::clone(&self.shared);
        let (mut parts, body) = request.into_parts();
        names::strip(&mut parts.headers);
        let is_head = parts.method == Method::HEAD;
        let served = serve(shared, inner, parts, body);
        Box::pin(async move {
            let mut response = served.await?;
            if is_head {
                response::to_head(&mut response);
            }
            Ok(response)
        })
    }
}

async fn serve<S, B, R>(
    shared: Arc<Shared>,
    inner: S,
    parts: Parts,
    body: B,
) -> Result<Response<Body>, S::Error>
where
    S: tower_service::Service<Request<Body>, Response = Response<R>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let target = shared.target(&parts);
    if let Some(response) = published::answer(&shared, &parts, target.path()).await {
        return Ok(response);
    }
    let ready =
        shared.routes.of(&parts.method, target.path()).filter(|ready| ready.terms.key != KeyRule::Off);
    let Some(ready) = ready.map(Arc::clone) else {
        return pass(inner, parts, body, Clean::Outcome).await;
    };
    let key = match request::keyed(&parts.headers, &ready) {
        Keyed::Unprotected => return pass(inner, parts, body, Clean::All).await,
        Keyed::Protected(key) => key,
        Keyed::Refused(problem) => {
            return Ok(problem.into_response(Form::of(&parts.headers), shared.prefix()));
        }
    };
    let form = Form::of(&parts.headers);
    let asking = Asking { shared: Arc::clone(&shared), ready, key, target, form };
    Ok(match asking.once(inner, parts, body).await {
        Ok(response) => response,
        Err(problem) => problem.into_response(form, shared.prefix()),
    })
}

/// Hands a request on that nothing is promised about. `clean`: what its response must not say.
async fn pass<S, B, R>(mut inner: S, parts: Parts, body: B, clean: Clean) -> Result<Response<Body>, S::Error>
where
    S: tower_service::Service<Request<Body>, Response = Response<R>>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let request = Request::from_parts(parts, Body::cleaned(body, Clean::All));
    let mut response = inner.call(request).await?;
    clean.from(response.headers_mut());
    Ok(response.map(|body| Body::cleaned(body, clean)))
}

/// A request with a key, on a route that protects it.
struct Asking {
    shared: Arc<Shared>,
    ready: Arc<Ready>,
    key: Key,
    target: Uri,
    form: Form,
}

impl Asking {
    /// Does what is asked for, once, and tells what came of it.
    async fn once<S, B, R>(self, inner: S, mut parts: Parts, body: B) -> Result<Response<Body>, Problem>
    where
        S: tower_service::Service<Request<Body>, Response = Response<R>> + Send + 'static,
        S::Future: Send + 'static,
        S::Error: Into<BoxError>,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
        R: http_body::Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        request::refuse_streams(&parts)?;
        // gRPC knows no answer that says "later".
        let may_defer = self.shared.published.is_some() && self.form == Form::Json;
        let is_async = may_defer && prefer::takes_async(&mut parts.headers);
        let operation = self.ready.operation(&parts.method, self.target.path());
        let scope = self.shared.scope(&parts, operation.clone())?;
        let whole = self.read(body).await?;
        let intent = self.intent(&parts, scope, &operation, &whole, is_async).await?;

        let operation = operation.to_string();
        let (begun, began) = oneshot::channel();
        let (shared, ready, key, form) =
            (Arc::clone(&self.shared), Arc::clone(&self.ready), self.key.clone(), self.form);
        let named = operation.clone();
        let work = move |attempt: Attempt| async move {
            let _ = begun.send(attempt.operation_id());
            let speaker = Speaker { shared: &shared, ready: &ready, form, operation: named };
            run(inner, parts, whole, &key, &attempt, &speaker).await
        };
        let speaker = Speaker { shared: &self.shared, ready: &self.ready, form: self.form, operation };
        let answered = self.shared.engine.execute(intent, work);
        if is_async {
            tokio::select! {
                biased;
                Ok(id) = began => return Ok(accepted(&self.shared, id)),
                answered = answered => return Ok(match answered {
                    Ok(Answer { operation_id, told: Told::InProgress { .. } }) => accepted(&self.shared, operation_id),
                    Ok(answer) => speaker.answer(answer),
                    Err(error) => speaker.error(&error),
                }),
            }
        }
        Ok(match answered.await {
            Ok(answer) => speaker.answer(answer),
            Err(error) => speaker.error(&error),
        })
    }

    async fn read<B>(&self, body: B) -> Result<Whole, Problem>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let max = self.ready.terms.request_bytes_max;
        // By what it says about itself, where that is enough: nothing of it need be read.
        if body.size_hint().lower() > max as u64 {
            return Err(too_large(max));
        }
        match body::read(body, max).await {
            Read::Whole(whole) => Ok(whole),
            Read::Over(_) => Err(too_large(max)),
            Read::Broken => {
                let detail = "The request's body broke off before its end. Nothing was run.";
                Err(Problem::new(Code::Unfingerprintable, detail))
            }
        }
    }

    async fn intent(
        &self,
        parts: &Parts,
        scope: Scope,
        operation: &Operation,
        whole: &Whole,
        is_async: bool,
    ) -> Result<Intent, Problem> {
        let Ready { terms, policy } = &*self.ready;
        let asked = Asked::new(parts, &self.target, operation, whole.data.clone(), terms.request_bytes_max);
        let known = asked.read(&policy.selection).await.map_err(|error| telling::fingerprint(&error))?;
        let mut intent = Intent::new(scope, self.key.clone(), Arc::clone(policy), known);
        if let Some(wait) = if is_async { Some(Duration::ZERO) } else { terms.wait } {
            intent = intent.waiting(wait);
        }
        if let Some(address) = self.shared.address.as_ref().and_then(|address| address(parts)) {
            intent = intent.from_address(address);
        }
        Ok(intent)
    }
}

fn too_large(max: usize) -> Problem {
    let detail =
        format!("Nothing was run. With an idempotency key a body may have at most {max} bytes here.");
    Problem::new(Code::TooLarge, detail)
}

/// One attempt: the inner service's call, and what its response means.
async fn run<S, R>(
    mut inner: S,
    parts: Parts,
    whole: Whole,
    key: &Key,
    attempt: &Attempt,
    speaker: &Speaker<'_>,
) -> Ended<Local>
where
    S: tower_service::Service<Request<Body>, Response = Response<R>>,
    S::Error: Into<BoxError>,
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let terms = &speaker.ready.terms;
    let method = parts.method.clone();
    let request = request::hand_on(parts, whole, key, terms.policy.class, attempt);
    let called = inner.call(request).await.map_err(|error| Failure::told_by(&*error.into()));
    match called {
        Ok(response) => response::ended(response, &method, terms).await,
        Err(failure) if failure.nothing_was_sent() => {
            let ending = speaker.unreachable(failure, attempt.operation_id());
            Ended { ending, local: Local::Failed(failure) }
        }
        Err(failure) => response::failed(failure),
    }
}

const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

/// It runs; where to ask for what comes of it.
fn accepted(shared: &Shared, id: OperationId) -> Response<Body> {
    let mut response = Response::new(Body::from(Bytes::new()));
    *response.status_mut() = StatusCode::ACCEPTED;
    let headers = response.headers_mut();
    headers.insert(names::OPERATION_ID, names::operation_id(id));
    headers.insert(PREFERENCE_APPLIED, HeaderValue::from_static("respond-async"));
    if let Some(path) = shared.status_at(id) {
        headers.insert(http::header::LOCATION, names::text(&path));
    }
    response
}
