//! A request of class `local`: its handler joins it in a transaction, and the layer answers with what was recorded
//! there.
//!
//! Calls the handler, and builds the response if it recorded nothing. A success that was not recorded is never
//! returned, and neither is a refusal while the transaction may still commit.

use super::running_work::RunningWork;
use crate::body::{Body, BoxError, Clean, CompleteBody};
use crate::names;
use crate::observe::EventKind;
use crate::problem::{GRPC_STATUS, Problem, is_grpc};
use crate::request::{PreparedRequest, ProtectedRequest, forward_deadline};
use crate::response::AttemptResponse;
use crate::stored::replay;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Request, Response};
use semel::core::classify::Ending;
use semel::core::id::OperationId;
use semel::local::{HandoverOutcome, HandoverResult, Joinable};
use semel::{ExecuteResponse, RanAttempt, RequestOutcome};

impl ProtectedRequest {
    /// Answers a request of class `local`, or passes it on to be joined and answers with what was recorded.
    pub(crate) async fn execute_local<S, R>(
        self,
        prepared: PreparedRequest,
        inner: S,
        mut parts: Parts,
    ) -> Result<Response<Body>, S::Error>
    where
        S: tower_service::Service<Request<Body>, Response = Response<R>>,
        R: http_body::Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        let PreparedRequest { intent, scope, operation, key, complete, .. } = prepared;
        let client = self.state.client_of(&parts);
        let Ok(memory) = self.state.response_budget.reserve(client).await else {
            return Ok(self.refuse(Problem::no_memory_for_response(), None));
        };
        let retry = self.route.settings.authorize.is_some().then(|| parts.clone());
        let answer = match self.state.engine.hand_over(intent).await {
            Err(error) => return Ok(self.refuse_about(Problem::of_error(&error), None, None, Some(&key))),
            Ok(HandoverResult::Answered(answer)) => with_response(answer, None),
            Ok(HandoverResult::Owned(handover)) => {
                let id = handover.operation_id();
                if self.deadline.as_ref().is_some_and(|deadline| deadline.is_over(self.state.engine.uptime()))
                {
                    drop(handover.close(true));
                    return Ok(self.refuse_about(
                        Problem::deadline_exceeded().about(id),
                        None,
                        Some(id),
                        Some(&key),
                    ));
                }
                let settings = &self.route.settings.deadlines;
                forward_deadline(
                    settings,
                    self.deadline.as_ref(),
                    &mut parts.headers,
                    self.state.engine.uptime(),
                );
                let called = {
                    let _running_work = RunningWork::new(&self.state, &self.route);
                    call(inner, parts, complete, handover.joinable()).await
                };
                match (handover.close(called.as_ref().map_or(true, is_refusal)), called) {
                    (HandoverOutcome::Answered(answer), called) => with_response(answer, called.ok()),
                    (_, Err(error)) => return Err(error),
                    // Whatever the handler says: it may have given up the wait for a commit.
                    (HandoverOutcome::InDoubt, Ok(_)) => {
                        let problem = Problem::commit_in_doubt(id);
                        return Ok(self.refuse_about(problem, None, Some(id), Some(&key)));
                    }
                    // A refusal by the handler, or by an extractor before it. The next request with the key runs it.
                    (_, Ok(response)) if is_refusal(&response) => {
                        self.state.report_about(&self.route, EventKind::Ran(None), Some(id), Some(&key));
                        return Ok(unrecorded(id, response));
                    }
                    (HandoverOutcome::NotCommitted | HandoverOutcome::NeverJoined, Ok(_)) => {
                        let operation = self.route.label.as_str();
                        tracing::error!(
                            operation,
                            operation_id = %id,
                            "a handler of class local answered with a success that is not recorded: join its request (Joinable) and \
                             end it with succeed or refuse, or answer with a status of 400 or more"
                        );
                        return Ok(self.refuse_about(Problem::not_recorded(id), None, Some(id), Some(&key)));
                    }
                }
            }
        };
        Ok(self.respond_to(answer, retry, memory, &scope, &key, operation).await)
    }
}

/// The call of the handler. It gets a `Joinable` instead of an attempt: there is none before it joins.
async fn call<S, R>(
    mut inner: S,
    mut parts: Parts,
    mut complete: CompleteBody,
    joinable: Joinable,
) -> Result<Response<Body>, S::Error>
where
    S: tower_service::Service<Request<Body>, Response = Response<R>>,
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    parts.headers.insert(names::OPERATION_ID, names::operation_id(joinable.operation_id()));
    parts.extensions.insert(joinable);
    complete.clean(Clean::All);
    let mut response = inner.call(Request::from_parts(parts, Body::complete(complete))).await?;
    names::strip(response.headers_mut());
    Ok(response.map(|body| Body::live(body).cleaned(Clean::All)))
}

/// The answer with its response: the recorded one, so that a retry gets the same; the handler's own if the record has
/// none, because its body was too large.
fn with_response(
    answer: ExecuteResponse,
    handlers: Option<Response<Body>>,
) -> ExecuteResponse<AttemptResponse> {
    let ExecuteResponse { operation_id, outcome: request_outcome } = answer;
    let request_outcome = match request_outcome {
        RequestOutcome::Ran(RanAttempt { ending, stored, attempt, repeatable, .. }) => {
            let recorded = match &ending {
                Ending::Succeeded(outcome) | Ending::FailedReplayable(outcome) => replay::response(outcome),
                _ => None,
            };
            let mut response =
                recorded.or(handlers).unwrap_or_else(|| Response::new(Body::from(Bytes::new())));
            names::strip(response.headers_mut());
            RequestOutcome::Ran(RanAttempt {
                ending,
                stored,
                attempt,
                repeatable,
                local: AttemptResponse::Response(Box::new(response)),
            })
        }
        RequestOutcome::Replayed(replayed) => RequestOutcome::Replayed(replayed),
        RequestOutcome::InProgress { retry_after } => RequestOutcome::InProgress { retry_after },
        RequestOutcome::Unknown { repeatable } => RequestOutcome::Unknown { repeatable },
        RequestOutcome::Mismatch => RequestOutcome::Mismatch,
        RequestOutcome::Expired => RequestOutcome::Expired,
        RequestOutcome::AttemptsExhausted => RequestOutcome::AttemptsExhausted,
        RequestOutcome::Unreadable => RequestOutcome::Unreadable,
        RequestOutcome::ClockNotTrusted { retry_after } => RequestOutcome::ClockNotTrusted { retry_after },
    };
    ExecuteResponse { operation_id, outcome: request_outcome }
}

/// Whether a response says that nothing took effect: a status of 400 or more, or a gRPC error without a message.
fn is_refusal(response: &Response<Body>) -> bool {
    let is_grpc_error = || {
        is_grpc(response.headers()) && response.headers().get(GRPC_STATUS).is_some_and(|status| status != "0")
    };
    response.status().is_client_error() || response.status().is_server_error() || is_grpc_error()
}

/// A handler's response to a request without a record.
fn unrecorded(id: OperationId, mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert(names::OPERATION_ID, names::operation_id(id));
    response.headers_mut().insert(names::STORED, HeaderValue::from_static("false"));
    response
}
