//! From a request to an intent.
//!
//! Everything about a request before the engine is called. The inner service is not called here.

use super::deadline::Deadline;
use super::key::NoKey;
use super::payload::{self, FingerprintedPayload, ParsedRequest, RequestPayload};
use super::{prefer, streams};
use crate::body::{self, Body, BoxError, CompleteBody, Read};
use crate::layer_state::LayerState;
use crate::memory::BudgetExhausted;
use crate::observe::EventKind;
use crate::problem::{Code, Form, Malformed, Problem, TooSlow, UnreadReason};
use crate::route::{CompiledRoute, KeyRule, Target};
use bytes::Bytes;
use http::request::Parts;
use semel::Intent;
use semel::core::key::{Key, Parsed};
use semel::core::policy::Class;
use semel::core::scope::{Operation, Scope};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// A request on a protected route.
pub(crate) struct ProtectedRequest {
    pub(crate) state: Arc<LayerState>,
    pub(crate) route: Arc<CompiledRoute>,
    pub(crate) target: Target,
    pub(crate) form: Form,
    /// When the client no longer waits. None in shadow mode, which changes nothing.
    pub(crate) deadline: Option<Deadline>,
}

/// A request that is ready for the engine.
pub(crate) struct PreparedRequest {
    pub(crate) intent: Intent,
    pub(crate) scope: Arc<Scope>,
    pub(crate) operation: Operation,
    pub(crate) key: Key,
    pub(crate) complete: CompleteBody,
    /// The client prefers an asynchronous response.
    pub(crate) is_async: bool,
}

/// What the head of a request says about its key.
pub(crate) enum HeadKey {
    Key(Parsed),
    /// The key is in the body.
    InBody,
    /// There is none, and none is required.
    Unkeyed,
}

/// Why the engine is not called.
pub(crate) enum NotExecuted {
    Refused(Problem),
    /// Its body did not arrive, or there was no memory for it.
    Unread(UnreadReason),
    /// It has no key and needs none; contains the unread part of its body.
    Unprotected(Body),
}

impl From<Problem> for NotExecuted {
    fn from(problem: Problem) -> Self {
        Self::Refused(problem)
    }
}

impl ProtectedRequest {
    /// Determines operation, caller, key and payload.
    pub(crate) async fn prepare<B>(&self, parts: &mut Parts, body: B) -> Result<PreparedRequest, NotExecuted>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let head_key = match self.head_key(parts)? {
            HeadKey::Key(parsed) => Some(parsed),
            HeadKey::InBody => None,
            HeadKey::Unkeyed => return Err(NotExecuted::Unprotected(Body::live(body))),
        };
        let operation = self.route.operation(&self.target);
        let mut scope = None;
        if head_key.is_some() {
            streams::refuse_streams(parts)?;
            // Before its body is read: a caller that cannot be identified need not send it.
            scope = Some(Arc::new(self.state.scope(&self.route, parts, operation.clone())?));
        } else {
            streams::refuse_tunnels(parts)?;
        }
        let is_async = head_key.is_some() && self.prefers_async(parts);
        let complete = self.read_body(self.state.client_of(parts), body).await?;
        let (known, key) = match self.parse_payload(parts, &operation, &complete, head_key.is_none()).await? {
            ParsedRequest::Payload(known, body_key) => (known, body_key.or(head_key)),
            ParsedRequest::NoKey(no_key) => {
                self.refuse_unless_optional(no_key)?;
                return Err(NotExecuted::Unprotected(Body::complete(complete)));
            }
        };
        let Some(Parsed { key, warning }) = key else {
            return Err(NotExecuted::Unprotected(Body::complete(complete)));
        };
        if let Some(weakness) = warning {
            self.state.report(&self.route, EventKind::WeakKey(weakness));
        }
        streams::refuse_streams(parts)?;
        let is_async = is_async || self.prefers_async(parts);
        let scope = match scope {
            Some(scope) => scope,
            None => Arc::new(self.state.scope(&self.route, parts, operation.clone())?),
        };
        let uptime = self.state.engine.uptime();
        if self.deadline.as_ref().is_some_and(|deadline| deadline.is_too_short(uptime)) {
            return Err(Problem::deadline_exceeded().into());
        }
        let intent = self.build_intent(parts, &scope, &key, known, is_async);
        Ok(PreparedRequest { intent, scope, operation, key, complete, is_async })
    }

    /// What the head says about the key.
    pub(crate) fn head_key(&self, parts: &Parts) -> Result<HeadKey, Problem> {
        let settings = &self.route.settings;
        if settings.key_source.reads_body() {
            return Ok(HeadKey::InBody);
        }
        match settings.key_source.read(&parts.headers, None, settings) {
            Ok(parsed) => Ok(HeadKey::Key(parsed)),
            Err(no_key) => self.refuse_unless_optional(no_key).map(|()| HeadKey::Unkeyed),
        }
    }

    /// Refuses a request without a key, unless the key is optional and simply absent.
    pub(crate) fn refuse_unless_optional(&self, no_key: NoKey) -> Result<(), Problem> {
        let settings = &self.route.settings;
        match no_key {
            NoKey::Absent if settings.key == KeyRule::Optional => Ok(()),
            NoKey::Absent => {
                let detail = format!(
                    "Nothing was run. Send one key per operation, and the same key on retries: {}.",
                    settings.key_source
                );
                Err(Problem::new(Code::Missing, detail))
            }
            NoKey::Invalid(error) => Err(Problem::new(Code::Invalid, error.to_string())),
            NoKey::NoText => {
                let detail = format!("The key must be a string or a number: {}.", settings.key_source);
                Err(Problem::new(Code::Invalid, detail))
            }
            NoKey::Unreadable(error) => Err(Problem::of_fingerprint_error(&error)),
        }
    }

    pub(crate) async fn parse_payload(
        &self,
        parts: &Parts,
        operation: &Operation,
        complete: &CompleteBody,
        for_key: bool,
    ) -> Result<ParsedRequest, Problem> {
        let max = self.route.settings.request_bytes_max;
        let mut tried = payload::tried_first(&parts.headers, &complete.data, max);
        loop {
            let payload = RequestPayload::new(parts, &self.target, operation, complete, tried);
            let permit = match payload.decoding_bytes_max() {
                Some(bytes) => {
                    let client = self.state.client_of(parts);
                    Some(
                        self.state
                            .body_budget
                            .decode_permit(client, bytes)
                            .await
                            .map_err(|_| Problem::no_memory_for_body())?,
                    )
                }
                None => None,
            };
            let parsed = payload.parse_payload(&self.route, for_key, permit).await;
            if tried < max && payload::is_too_large(&parsed) {
                tried = max;
                continue;
            }
            return parsed.map_err(|error| Problem::of_fingerprint_error(&error));
        }
    }

    fn prefers_async(&self, parts: &mut Parts) -> bool {
        // gRPC has no response for "later".
        let may_defer = self.state.published.is_some() && self.form == Form::Json;
        // The response of a local handler is what it commits.
        let may_defer = may_defer && self.route.policy.class != Class::Local;
        may_defer && prefer::take_respond_async(&mut parts.headers)
    }

    async fn read_body<B>(&self, client: Option<IpAddr>, body: B) -> Result<CompleteBody, NotExecuted>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let max = self.route.settings.request_bytes_max;
        // If the declared length is too large, nothing has to be read.
        if body.size_hint().lower() > max as u64 {
            return Err(Problem::body_too_large(max).into());
        }
        let read = body::read(body, max, Some(self.state.body_budget.memory(client)));
        let Ok(read) = timeout(self.state.body_time_max, read).await else {
            return Err(NotExecuted::Unread(UnreadReason::TooSlow));
        };
        Err(match read {
            Read::Complete(complete) => return Ok(complete),
            Read::Over => Problem::body_too_large(max).into(),
            Read::Broken(error) => {
                if error.is::<BudgetExhausted>() {
                    return Err(Problem::no_memory_for_body().into());
                }
                if TooSlow::is_cause_of(&*error) {
                    return Err(NotExecuted::Unread(UnreadReason::TooSlow));
                }
                if let Some(Malformed(what)) = Malformed::in_cause_of(&*error) {
                    let detail = format!("{what} Nothing was run.");
                    return Err(Problem::new(Code::Malformed, detail).into());
                }
                let detail = "The request's body is incomplete. Nothing was run.";
                Problem::new(Code::Unfingerprintable, detail).into()
            }
        })
    }

    fn build_intent(
        &self,
        parts: &Parts,
        scope: &Arc<Scope>,
        key: &Key,
        known: FingerprintedPayload,
        is_async: bool,
    ) -> Intent {
        let CompiledRoute { settings, policy, .. } = &*self.route;
        let intent = Intent::new(Arc::clone(scope), key.clone(), Arc::clone(policy), known);
        let mut intent = intent.sealed(settings.seal);
        if let Some(rates) = &settings.rates {
            intent = intent.limited_by(rates.clone());
        }
        let mut wait = if is_async { Some(Duration::ZERO) } else { settings.wait };
        // A client that prefers an asynchronous response waits only for the 202.
        if let Some(deadline) = self.deadline.as_ref().filter(|_| !is_async) {
            let left = deadline.left(self.state.engine.uptime());
            wait = Some(wait.unwrap_or_else(|| self.state.engine.wait()).min(left));
            intent = intent.beginning_within(left);
        }
        if let Some(wait) = wait {
            intent = intent.waiting(wait);
        }
        if let Some(address) = self.state.address_of(parts) {
            intent = intent.from_address(address);
        }
        intent
    }
}
