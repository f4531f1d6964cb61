//! Shadow mode: every request is passed on, and the observer gets what would have happened.
//!
//! Watches requests, judges them in the background, and reports. No request is refuseded, changed or delayed,
//! and no record can ever be replayed.
//!
//! The engine itself judges requests, against records in a scope that no enforced request can have, because requests
//! in shadow mode run as often as they are sent. The work of such a record only waits for the service's response. It
//! is marked as having no effect, so that a crash leaves no unknown outcome.

use super::service::forward_unprotected;
use crate::body::{Body, BoxError, Clean, CompleteBody, End, Watch, Watched};
use crate::layer_state::LayerState;
use crate::observe::{ShadowDetails, ShadowOutcome};
use crate::problem::{Code, Failure, Problem, is_grpc};
use crate::request::{HeadKey, NoKey, ParsedRequest, ProtectedRequest, streams};
use crate::response::{Statement, is_endless};
use crate::route::shadow_operation::{SHADOW, UNKEYED};
use crate::route::{CompiledRoute, Target, template};
use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http::{Method, Request, Response, response};
use semel::core::classify::Ending;
use semel::core::key::{Key, Parsed};
use semel::core::outcome::{Fields, Outcome, Status};
use semel::core::policy::{AfterExpiry, Class, PolicySettings};
use semel::core::scope::{Operation, Scope};
use semel::quota::Measure;
use semel::{Attempt, Intent, RequestOutcome, WorkResult};
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// How long a request without a key is remembered by its payload. Intentional repeats take longer.
const REPEATED_WITHIN: Duration = Duration::from_mins(10);

impl ProtectedRequest {
    /// Passes a request on as if there were no layer, and judges it in the background.
    pub(crate) async fn forward_in_shadow<S, B, R>(
        self,
        mut inner: S,
        parts: Parts,
        body: B,
    ) -> Result<Response<Body>, S::Error>
    where
        S: tower_service::Service<Request<Body>, Response = Response<R>>,
        S::Error: 'static,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
        R: http_body::Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        let (state, route) = (Arc::clone(&self.state), Arc::clone(&self.route));
        let mut details = RequestDetails::of(&self.target);
        let head_key = match self.checked_head_key(&parts, &mut details) {
            Ok(head_key) => head_key,
            Err(problem) => {
                details.report(&state, &route, ShadowOutcome::Refuse(problem.code()));
                return forward_unprotected(inner, parts, Body::live(body), Clean::All).await;
            }
        };
        let max = self.route.settings.request_bytes_max;
        let Ok(permit) = Arc::clone(&state.judging).try_acquire_many_owned(REQUEST_KIB) else {
            details.report(&state, &route, ShadowOutcome::NotJudged);
            return forward_unprotected(inner, parts, Body::live(body), Clean::All).await;
        };
        let (ending, ended) = oneshot::channel();
        let judge = Judge { request: self, head: parts.clone(), head_key, ended, permit, details };
        let request_watch = RequestWatch { judge: Some(judge), received: BytesMut::new(), max };
        let body = Body::live(Watched::new(Box::pin(body), request_watch)).cleaned(Clean::All);
        let mut response = match inner.call(Request::from_parts(parts, body)).await {
            Ok(response) => response,
            Err(error) => {
                let failure = (&error as &dyn Any).downcast_ref::<Failure>();
                let nothing_was_sent = failure.is_some_and(|failure| failure.nothing_was_sent());
                let end = if nothing_was_sent { Ending::NotApplied(None) } else { Ending::InDoubt };
                drop(ending.send(end));
                return Err(error);
            }
        };
        let response_watch = ResponseWatch::new(&route, &mut response, ending);
        Clean::All.strip(response.headers_mut());
        let watched = |body| Watched::new(Box::pin(body), response_watch);
        Ok(response.map(|body| Body::live(watched(body)).cleaned(Clean::All)))
    }

    /// The key, if it is in the head, or why the request would be refused because of its head.
    fn checked_head_key(&self, parts: &Parts, details: &mut RequestDetails) -> Result<HeadKey, Problem> {
        let head_key = match self.head_key(parts) {
            // It may still be a repeat, which a key would have prevented.
            Err(problem) if problem.code() == Code::Missing => {
                details.refused = Some(Code::Missing);
                HeadKey::Unkeyed
            }
            head_key => {
                details.has_key = !matches!(head_key, Ok(HeadKey::Unkeyed | HeadKey::InBody));
                head_key?
            }
        };
        match head_key {
            HeadKey::Key(_) => streams::refuse_streams(parts)?,
            HeadKey::InBody => streams::refuse_tunnels(parts)?,
            HeadKey::Unkeyed => {}
        }
        Ok(head_key)
    }
}

/// Details of a request for the report.
struct RequestDetails {
    method: Method,
    path: String,
    has_key: bool,
    /// Why it would have been refused in any case.
    refused: Option<Code>,
}

impl RequestDetails {
    fn of(target: &Target) -> Self {
        let (method, path) = (target.method().clone(), template::of(target.path()));
        Self { method, path, has_key: false, refused: None }
    }

    /// There is no key. If one is required, it would have been refused; still find out whether it is a repeat.
    fn without_key(&mut self, request: &ProtectedRequest) -> Result<(), Problem> {
        match request.refuse_unless_optional(NoKey::Absent) {
            Err(problem) if problem.code() == Code::Missing => {
                self.refused = Some(Code::Missing);
                Ok(())
            }
            optional => optional,
        }
    }

    fn report(&self, state: &LayerState, route: &CompiledRoute, shadowed: ShadowOutcome) {
        let is_repeat = shadowed == ShadowOutcome::RunAgain;
        let shadowed = self.refused.map_or(shadowed, ShadowOutcome::Refuse);
        let (method, path) = (self.method.as_str(), self.path.as_str());
        state.report_shadow(
            route,
            shadowed,
            ShadowDetails { method, path, has_key: self.has_key, is_repeat },
        );
    }
}

/// Judges a request after its body has passed.
struct Judge {
    request: ProtectedRequest,
    head: Parts,
    head_key: HeadKey,
    ended: oneshot::Receiver<Ending>,
    /// The memory of the request.
    permit: OwnedSemaphorePermit,
    details: RequestDetails,
}

/// The assumed size of a request without a body.
const REQUEST_KIB: u32 = 16;

impl Judge {
    fn report(&self, shadowed: ShadowOutcome) {
        self.details.report(&self.request.state, &self.request.route, shadowed);
    }

    /// Reserves memory for this many more bytes.
    fn may_hold(&mut self, bytes: usize) -> bool {
        let kib = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX);
        let more = Arc::clone(&self.request.state.judging).try_acquire_many_owned(kib);
        more.map(|more| self.permit.merge(more)).is_ok()
    }

    /// Reports what would have happened to the request.
    async fn judge(mut self, data: Bytes) {
        let shadowed =
            self.outcome_of(data).await.unwrap_or_else(|problem| ShadowOutcome::Refuse(problem.code()));
        self.report(shadowed);
    }

    async fn outcome_of(&mut self, data: Bytes) -> Result<ShadowOutcome, Problem> {
        let ProtectedRequest { state, route, target, .. } = &self.request;
        let operation = route.operation(target);
        let complete = CompleteBody { data, ..CompleteBody::default() };
        let for_key = matches!(self.head_key, HeadKey::InBody);
        let taken = self.request.parse_payload(&self.head, &operation, &complete, for_key).await;
        let head_key = std::mem::replace(&mut self.head_key, HeadKey::Unkeyed);
        let (known, key) = match (taken, head_key) {
            (Ok(ParsedRequest::Payload(known, Some(body_key))), _) => (known, Some(body_key)),
            (Ok(ParsedRequest::Payload(known, None)), HeadKey::Key(head_key)) => (known, Some(head_key)),
            (Ok(ParsedRequest::Payload(known, None)), _) => (known, None),
            (Ok(ParsedRequest::NoKey(NoKey::Absent)), _) => {
                self.details.without_key(&self.request)?;
                // Its payload may still show that it is a repeat.
                match self.request.parse_payload(&self.head, &operation, &complete, false).await {
                    Ok(ParsedRequest::Payload(known, _)) => (known, None),
                    _ => return Ok(ShadowOutcome::Run),
                }
            }
            (Ok(ParsedRequest::NoKey(no_key)), _) => {
                self.details.has_key = true;
                self.request.refuse_unless_optional(no_key)?;
                return Ok(ShadowOutcome::Run);
            }
            // Without a key, it need not be comparable.
            (Err(_), HeadKey::Unkeyed) => return Ok(ShadowOutcome::Run),
            (Err(problem), _) => return Err(problem),
        };
        if key.is_some() {
            self.details.has_key = true;
            streams::refuse_streams(&self.head)?;
        }
        let scope = match (state.scope(route, &self.head, operation), &key) {
            (Ok(scope), _) => scope,
            (Err(_), None) => return Ok(ShadowOutcome::Run),
            (Err(problem), Some(_)) => return Err(problem),
        };
        let (marker, key) = match key {
            Some(Parsed { key, .. }) => (SHADOW, key),
            None => (UNKEYED, Key::from_fingerprint(known.fingerprint())),
        };
        let mut policy = route.settings.policy.clone();
        if marker == UNKEYED {
            let for_so_long = REPEATED_WITHIN.max(policy.lease * 2);
            let remembering = |policy: &mut PolicySettings| {
                policy.ttl = for_so_long;
                policy.after_expiry = AfterExpiry::RunAsNew;
            };
            policy = policy.with(remembering).expect("longer than the lease");
        }
        // Shadow mode must not use up rates of enforced requests, and requests without a key use no new key.
        let measure = if marker == SHADOW { Measure::Apart } else { Measure::CapsOnly };
        let mut intent = Intent::new(scope_in_shadow(&scope, marker), key, policy, known)
            .measured(measure)
            .without_effect();
        if let Some(rates) = route.settings.rates.as_ref().filter(|_| marker == SHADOW) {
            intent = intent.limited_by(rates.clone());
        }
        if let Some(address) = state.address_of(&self.head).filter(|_| marker == SHADOW) {
            intent = intent.from_address(address);
        }
        // Wait like a duplicate; the request itself was passed on long ago.
        if let Some(wait) = route.settings.wait {
            intent = intent.waiting(wait);
        }
        let (_, gone) = oneshot::channel();
        let ended = std::mem::replace(&mut self.ended, gone);
        let class = route.settings.policy.class;
        let work = move |_: Attempt| async move { WorkResult::from(ending_to_store(ended.await, class)) };
        Ok(match state.engine.execute(intent, work).await {
            Ok(answer) if marker == UNKEYED => match answer.outcome {
                RequestOutcome::Replayed(_) | RequestOutcome::InProgress { .. } => ShadowOutcome::RunAgain,
                _ => ShadowOutcome::Run,
            },
            Ok(answer) => shadow_outcome(&answer.outcome, route),
            Err(_) if marker == UNKEYED => ShadowOutcome::NotJudged,
            Err(semel::Error::Closing) => ShadowOutcome::NotJudged,
            Err(error) => ShadowOutcome::Refuse(Problem::of_error(&error).code()),
        })
    }
}

/// The same caller and operation in a separate scope, which no enforced request has, and whose records do not count
/// as the caller's.
fn scope_in_shadow(scope: &Scope, marker: &str) -> Scope {
    let operation = Operation::route(marker, scope.operation().to_string());
    let mut tenant = marker.as_bytes().to_vec();
    if let Some(own) = scope.tenant() {
        tenant.push(b' ');
        tenant.extend_from_slice(own);
    }
    Scope::new(scope.caller().clone(), operation).in_tenant(tenant)
}

/// Marks an outcome that would have been in doubt.
const IN_DOUBT: &str = ":in-doubt";

/// An ending without a replayable outcome and without doubt.
fn ending_to_store(ended: Result<Ending, oneshot::error::RecvError>, class: Class) -> Ending {
    let status = Status::Http(200);
    match ended {
        Ok(Ending::InDoubt) if class == Class::Downstream => Ending::NotApplied(None),
        Ok(Ending::InDoubt) => {
            let headers = Fields::from_iter([(IN_DOUBT, "")]);
            Ending::FailedReplayable(Outcome { headers, ..Outcome::not_retained(status) })
        }
        Ok(ending) => ending,
        // The client disconnected. With enforcement that would have cancelled nothing, and a retry would get the
        // outcome.
        Err(_) => Ending::Succeeded(Outcome::not_retained(status)),
    }
}

/// What would have happened with enforcement.
fn shadow_outcome(outcome: &RequestOutcome, route: &CompiledRoute) -> ShadowOutcome {
    match outcome {
        RequestOutcome::Ran(_) => ShadowOutcome::Run,
        RequestOutcome::Replayed(replayed) => {
            let is_in_doubt = replayed.outcome.headers.iter().any(|(name, _)| name == IN_DOUBT.as_bytes());
            if is_in_doubt { ShadowOutcome::Refuse(Code::Unknown) } else { ShadowOutcome::Replay }
        }
        RequestOutcome::InProgress { .. } => ShadowOutcome::Refuse(Code::InProgress),
        RequestOutcome::Mismatch => ShadowOutcome::Refuse(Code::Mismatch),
        RequestOutcome::Expired => ShadowOutcome::Refuse(Code::Expired),
        RequestOutcome::ClockNotTrusted { .. } => ShadowOutcome::Refuse(Code::ClockNotTrusted),
        RequestOutcome::AttemptsExhausted if route.settings.policy.attempts_max.is_some() => {
            ShadowOutcome::Refuse(Code::AttemptsExhausted)
        }
        RequestOutcome::AttemptsExhausted | RequestOutcome::Unknown { .. } | RequestOutcome::Unreadable => {
            ShadowOutcome::NotJudged
        }
    }
}

/// Collects a request's body while it passes, for the judge.
struct RequestWatch {
    judge: Option<Judge>,
    received: BytesMut,
    max: usize,
}

impl Watch for RequestWatch {
    fn data(&mut self, data: &Bytes) {
        if self.judge.is_none() {
            return;
        }
        let shadowed = if self.received.len() + data.len() > self.max {
            let is_unkeyed = matches!(self.judge, Some(Judge { head_key: HeadKey::Unkeyed, .. }));
            if is_unkeyed { ShadowOutcome::Run } else { ShadowOutcome::Refuse(Code::TooLarge) }
        } else if self.judge.as_mut().is_some_and(|judge| judge.may_hold(data.len())) {
            self.received.extend_from_slice(data);
            return;
        } else {
            ShadowOutcome::NotJudged
        };
        self.received = BytesMut::new();
        if let Some(judge) = self.judge.take() {
            judge.report(shadowed);
        }
    }

    fn end(&mut self, end: End<'_>) {
        let Some(judge) = self.judge.take() else { return };
        match end {
            End::Complete(_) => match tokio::runtime::Handle::try_current() {
                Ok(runtime) => drop(runtime.spawn(judge.judge(std::mem::take(&mut self.received).freeze()))),
                Err(_) => judge.report(ShadowOutcome::NotJudged),
            },
            End::Broken => judge.report(ShadowOutcome::NotJudged),
        }
    }
}

impl Drop for RequestWatch {
    fn drop(&mut self) {
        if let Some(judge) = self.judge.take() {
            judge.report(ShadowOutcome::NotJudged);
        }
    }
}

/// Watches a response for what it says about its effect.
struct ResponseWatch {
    route: Arc<CompiledRoute>,
    response: Option<(response::Parts, oneshot::Sender<Ending>)>,
    is_empty: bool,
}

impl ResponseWatch {
    fn new<R>(
        route: &Arc<CompiledRoute>,
        response: &mut Response<R>,
        ending: oneshot::Sender<Ending>,
    ) -> Self {
        let (mut parts, ()) = Response::new(()).into_parts();
        parts.status = response.status();
        parts.headers = response.headers().clone();
        parts.extensions = response.extensions().clone();
        let endless = is_endless(&parts.headers);
        let mut response_watch =
            Self { route: Arc::clone(route), response: Some((parts, ending)), is_empty: true };
        if endless {
            // It may never end, and its end would add nothing.
            response_watch.send_ending(None);
        }
        response_watch
    }

    fn send_ending(&mut self, end: Option<(bool, Option<&http::HeaderMap>)>) {
        let Some((parts, ending)) = self.response.take() else { return };
        let statement = Statement::of_end(&parts, end, None);
        let settings = &self.route.settings;
        drop(ending.send(statement.ending(settings.policy.class, settings, Outcome::not_retained)));
    }
}

impl Watch for ResponseWatch {
    fn data(&mut self, data: &Bytes) {
        self.is_empty &= data.is_empty();
    }

    fn end(&mut self, end: End<'_>) {
        match end {
            End::Complete(trailers) => self.send_ending(Some((self.is_empty, trailers))),
            End::Broken => {
                if let Some((_, ending)) = self.response.take() {
                    drop(ending.send(Ending::InDoubt));
                }
            }
        }
    }
}

impl Drop for ResponseWatch {
    fn drop(&mut self) {
        // Not read completely, such as the response to HEAD: its status still counts, except for gRPC.
        let has_responded = self.response.as_ref().is_some_and(|(parts, _)| !is_grpc(&parts.headers));
        if has_responded {
            self.send_ending(None);
        }
    }
}
