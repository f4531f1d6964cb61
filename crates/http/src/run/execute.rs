//! A protected request: runs once, and gets its result.
//!
//! The call of the engine, the attempt within it, and the authorization before a replay. The inner service is called
//! only by the engine, except if the store is unavailable and the settings allow it.

use super::running_work::RunningWork;
use super::service::forward_unprotected;
use crate::body::{Body, BoxError, Clean, CompleteBody};
use crate::handler::{Handle, request_for_handler};
use crate::memory::{BudgetExhausted, ResponseMemory};
use crate::names;
use crate::observe::EventKind;
use crate::problem::{Code, Failure, Problem};
use crate::request::{Deadline, PreparedRequest, ProtectedRequest, forward_deadline};
use crate::response::{AttemptResponse, Responder, answer, ending};
use crate::route::StoreDown;
use crate::stored::rebuild;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use semel::core::id::OperationId;
use semel::core::key::Key;
use semel::core::outcome;
use semel::core::record::StateName;
use semel::core::scope::{Operation, Scope};
use semel::core::store::Kind;
use semel::{Attempt, Engine, Error, ExecuteResponse, Replayed, RequestOutcome, WorkResult};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tracing::Instrument;

/// The call of the handler, as long as nobody has made it. It can be taken only once, so a request is passed on at most
/// once.
struct PendingCall<S>(Arc<Mutex<Option<HandlerCall<S>>>>);

struct HandlerCall<S> {
    inner: S,
    parts: Parts,
    complete: CompleteBody,
    /// For the response.
    memory: ResponseMemory,
}

impl<S> PendingCall<S> {
    fn take(&self) -> Option<HandlerCall<S>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl ProtectedRequest {
    /// Runs the request once, and returns its response.
    pub(crate) async fn execute<S, R>(
        self,
        prepared: PreparedRequest,
        inner: S,
        parts: Parts,
    ) -> Result<Response<Body>, S::Error>
    where
        S: tower_service::Service<Request<Body>, Response = Response<R>> + Send + 'static,
        S::Future: Send + 'static,
        S::Error: Into<BoxError>,
        R: http_body::Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        let PreparedRequest { intent, scope, operation, key, complete, is_async } = prepared;
        let client = self.state.client_of(&parts);
        let Ok(memory) = self.state.response_budget.reserve(client).await else {
            return Ok(self.refuse(Problem::no_memory_for_response(), None));
        };
        let settings = &self.route.settings;
        let is_asked_about = settings.authorize.is_some() || settings.retain.rebuild().is_some();
        let retry = is_asked_about.then(|| parts.clone());
        let pending_call =
            PendingCall(Arc::new(Mutex::new(Some(HandlerCall { inner, parts, complete, memory }))));
        let (begun, began) = oneshot::channel();
        // A client that gets a 202 waits no longer, and its request still runs.
        let deadline = self.deadline.clone().filter(|_| !is_async);
        let asked_with = key.clone();
        let work = {
            let pending_call = PendingCall(Arc::clone(&pending_call.0));
            let (state, route) = (Arc::clone(&self.state), Arc::clone(&self.route));
            let (form, operation) = (self.form, operation.clone());
            // The handler runs in another task, but belongs to the trace of the request.
            let span = tracing::Span::current();
            move |attempt: Attempt| {
                let work = async move {
                    let _running_work = RunningWork::new(&state, &route);
                    let _ = begun.send(attempt.clone());
                    let responder = Responder { state: &state, route: &route, form, operation };
                    match pending_call.take() {
                        Some(call) => run_attempt(call, &key, attempt, deadline.as_ref(), &responder).await,
                        // It was already passed on, or never will be: this attempt sends nothing.
                        None => responder.unsent(attempt.operation_id()),
                    }
                };
                work.instrument(span)
            }
        };
        let answered = self.state.engine.execute(intent, work);
        let answered = if is_async {
            tokio::select! {
                biased;
                Ok(attempt) = began => return Ok(self.accepted(attempt.operation_id())),
                answered = answered => match answered {
                    Ok(ExecuteResponse { operation_id, outcome: RequestOutcome::InProgress { .. } }) => {
                        return Ok(self.accepted(operation_id));
                    }
                    answered => answered,
                },
            }
        } else if let Some(deadline) = &self.deadline {
            tokio::select! {
                biased;
                answered = answered => answered,
                attempt = begun_until(deadline, began, &self.state.engine) => {
                    return Ok(self.still_running(attempt.operation_id(), &asked_with, operation));
                }
            }
        } else {
            answered.await
        };
        let answer = match answered {
            Ok(answer) => answer,
            Err(error) => {
                if is_out_of_reach(&error)
                    && settings.store_down == StoreDown::PassUnprotected
                    && let Some(HandlerCall { inner, parts, complete, .. }) = pending_call.take()
                {
                    return Box::pin(self.fail_open(inner, parts, complete)).await;
                }
                return Ok(self.refuse_about(Problem::of_error(&error), None, None, Some(&asked_with)));
            }
        };
        // The attempt has taken it, if this call ran one.
        let memory =
            pending_call.take().map_or_else(|| self.state.response_budget.memory(client), |call| call.memory);
        Ok(self.respond_to(answer, retry, memory, &scope, &asked_with, operation).await)
    }

    /// The client's deadline is over, and the attempt goes on.
    fn still_running(&self, id: OperationId, key: &Key, operation: Operation) -> Response<Body> {
        let running: RequestOutcome = RequestOutcome::InProgress { retry_after: RUNNING_RETRY_AFTER };
        let problem = self.responder(operation).refusal(id, &running);
        self.refuse_about(problem, None, Some(id), Some(key))
    }

    fn responder(&self, operation: Operation) -> Responder<'_> {
        Responder { state: &self.state, route: &self.route, form: self.form, operation }
    }

    pub(crate) async fn respond_to(
        &self,
        answer: ExecuteResponse<AttemptResponse>,
        retry: Option<Parts>,
        memory: ResponseMemory,
        scope: &Scope,
        key: &Key,
        operation: Operation,
    ) -> Response<Body> {
        let (id, responder) = (answer.operation_id, self.responder(operation));
        match answer.outcome {
            RequestOutcome::Ran(ran) => {
                let state = ran.stored.map(|stored| stored.state);
                let what = match &ran.local {
                    AttemptResponse::Response(_) => EventKind::Ran(state),
                    AttemptResponse::Failed(failure) => {
                        EventKind::Refused { code: failure.code(), caller: None }
                    }
                    AttemptResponse::Late => {
                        EventKind::Refused { code: Code::DeadlineExceeded, caller: None }
                    }
                };
                let is_failed = !matches!(ran.local, AttemptResponse::Response(_));
                let is_in_doubt = state.is_none_or(|state| state == StateName::Unknown);
                let named = (is_failed || is_in_doubt).then_some(key);
                self.state.report_about(&self.route, what, Some(id), named);
                responder.ran(id, ran)
            }
            RequestOutcome::Replayed(replayed) => {
                match Box::pin(self.replayed(id, &replayed, retry, memory, &responder)).await {
                    Ok((response, what)) => {
                        self.state.report_about(&self.route, what, Some(id), None);
                        response
                    }
                    Err(BudgetExhausted) => self.refuse_about(
                        Problem::no_memory_for_response().about(id),
                        None,
                        Some(id),
                        Some(key),
                    ),
                }
            }
            request_outcome => {
                let problem = responder.refusal(id, &request_outcome);
                let is_mismatch = matches!(request_outcome, RequestOutcome::Mismatch);
                self.refuse_about(problem, is_mismatch.then_some(scope), Some(id), Some(key))
            }
        }
    }

    /// A stored outcome, if the caller is authorized and there is memory for it.
    async fn replayed(
        &self,
        id: OperationId,
        replayed: &Replayed,
        retry: Option<Parts>,
        mut memory: ResponseMemory,
        responder: &Responder<'_>,
    ) -> Result<(Response<Body>, EventKind), BudgetExhausted> {
        // Before the authorization, and without waiting: it is already in memory.
        if let outcome::Body::Kept(data) = &replayed.outcome.body {
            memory.try_grow_to(data.len())?;
        }
        let (response, what) = self.replayed_uncounted(id, replayed, retry, responder).await;
        let (parts, body) = response.into_parts();
        Ok((Response::from_parts(parts, body.held_in(memory)?), what))
    }

    async fn replayed_uncounted(
        &self,
        id: OperationId,
        replayed: &Replayed,
        retry: Option<Parts>,
        responder: &Responder<'_>,
    ) -> (Response<Body>, EventKind) {
        let settings = &self.route.settings;
        if let (Some(authorize), Some(retry)) = (&settings.authorize, &retry)
            && let Err(mut refusal) = authorize.ask(head_of_retry(id, retry)).await
        {
            names::strip(refusal.headers_mut());
            refusal.headers_mut().insert(names::OPERATION_ID, names::operation_id(id));
            return (refusal, EventKind::NotAuthorized);
        }
        if let Some(response) = answer::replayed(id, replayed) {
            let is_found = rebuild::is_found(&replayed.outcome);
            return (response, if is_found { EventKind::Rebuilt } else { EventKind::Replayed });
        }
        if let (Some(rebuild), Some(retry)) = (settings.retain.rebuild(), retry)
            && let Some(response) = rebuild::response(&**rebuild, id, &replayed.outcome, retry).await
        {
            return (answer::rebuilt(id, replayed, response), EventKind::Rebuilt);
        }
        let refused = EventKind::Refused { code: Code::NotRetained, caller: None };
        (responder.not_retained(id, replayed), refused)
    }

    /// Reports a refusal. `caller`: whose key was bound to another payload.
    pub(crate) fn refuse(&self, problem: Problem, caller: Option<&Scope>) -> Response<Body> {
        self.refuse_about(problem, caller, None, None)
    }

    pub(crate) fn refuse_about(
        &self,
        problem: Problem,
        caller: Option<&Scope>,
        id: Option<OperationId>,
        key: Option<&Key>,
    ) -> Response<Body> {
        let caller = caller.and_then(|scope| self.state.engine.caller_hash(scope));
        let what = EventKind::Refused { code: problem.code(), caller };
        self.state.report_about(&self.route, what, id, key);
        problem.into_response(self.form, self.state.prefix())
    }

    /// Passes a request on without protection. Its response says that nothing is stored.
    async fn fail_open<S, R>(
        &self,
        inner: S,
        parts: Parts,
        complete: CompleteBody,
    ) -> Result<Response<Body>, S::Error>
    where
        S: tower_service::Service<Request<Body>, Response = Response<R>>,
        R: http_body::Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        self.state.report(&self.route, EventKind::FailedOpen);
        let mut response = forward_unprotected(inner, parts, Body::complete(complete), Clean::All).await?;
        response.headers_mut().insert(names::STORED, HeaderValue::from_static("false"));
        Ok(response)
    }

    /// It is running; the response says where to ask for its result.
    fn accepted(&self, id: OperationId) -> Response<Body> {
        self.state.report(&self.route, EventKind::Accepted);
        let mut response = Response::new(Body::from(Bytes::new()));
        *response.status_mut() = StatusCode::ACCEPTED;
        let headers = response.headers_mut();
        headers.insert(names::OPERATION_ID, names::operation_id(id));
        headers.insert(PREFERENCE_APPLIED, HeaderValue::from_static("respond-async"));
        if let Some(path) = self.state.status_at(id) {
            headers.insert(http::header::LOCATION, names::text(path));
        }
        response
    }
}

/// The head of a retry, with its operation ID.
fn head_of_retry(id: OperationId, retry: &Parts) -> Parts {
    let mut retry = retry.clone();
    retry.extensions.insert(id);
    retry
}

const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

/// Whether the store could not be reached and certainly has no claim of this request. A refusal or a shutdown is no
/// reason to continue without the store. A claim whose answer was lost is given back as "nothing was sent", which
/// must stay true.
fn is_out_of_reach(error: &Error) -> bool {
    match error {
        Error::Store(error) => error.kind() == Kind::Unavailable,
        Error::Secrets(error) => error.is_retryable(),
        // Not if another attempt may be running, or this one may have been claimed.
        _ => false,
    }
}

/// When to retry a request that was still running at its client's deadline.
const RUNNING_RETRY_AFTER: Duration = Duration::from_secs(1);

/// The pause between two looks at an attempt that the engine is about to give back.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Resolves if the effect has begun and the deadline is over. An attempt that has not begun by then is given back by the
/// engine, which answers the call.
async fn begun_until(deadline: &Deadline, began: oneshot::Receiver<Attempt>, engine: &Engine) -> Attempt {
    deadline.over(engine).await;
    let Ok(attempt) = began.await else { return std::future::pending().await };
    while !attempt.has_begun() {
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    attempt
}

/// One attempt: the call of the inner service, and what its response means.
async fn run_attempt<S, R>(
    call: HandlerCall<S>,
    key: &Key,
    attempt: Attempt,
    deadline: Option<&Deadline>,
    responder: &Responder<'_>,
) -> WorkResult<AttemptResponse>
where
    S: tower_service::Service<Request<Body>, Response = Response<R>>,
    S::Error: Into<BoxError>,
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let HandlerCall { mut inner, mut parts, complete, memory } = call;
    let settings = &responder.route.settings.deadlines;
    forward_deadline(settings, deadline, &mut parts.headers, responder.state.engine.uptime());
    let method = parts.method.clone();
    let id = attempt.operation_id();
    let class = attempt.class();
    let handle = Handle::new(attempt);
    let request = request_for_handler(parts, complete, key, class, &handle);
    let called = inner.call(request).await.map_err(|error| Failure::found_in(&*error.into()));
    match called {
        Ok(response) => ending::ending_of_response(response, &method, &handle, memory, responder).await,
        // Its own caller had too little time; the next one may have more.
        Err(failure)
            if failure.nothing_was_sent()
                && deadline.is_some_and(|deadline| deadline.is_over(responder.state.engine.uptime())) =>
        {
            ending::late()
        }
        Err(failure) if failure.nothing_was_sent() => responder.unreachable(failure, id),
        Err(failure) => ending::ending_of_failure(failure),
    }
}
