//! What a layer publishes: its specification, and each caller's own operations.
//!
//! Which requests are meant, and an operation as its caller sees it. It reveals nothing about operations of other
//! callers, and takes no path of the application.

use super::specification;
use crate::body::Body;
use crate::layer_state::{LayerState, not_identified};
use crate::names;
use crate::problem::{Code, Form, Problem, SPECIFICATION};
use crate::response::ending;
use crate::route::{Callers, NotIdentified, Target};
use crate::stored::rebuild;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderValue, Method, Response};
use semel::archive::rfc3339;
use semel::core::id::OperationId;
use semel::core::key::{Key, Rules, Treatment};
use semel::core::outcome::{self, Outcome, Status};
use semel::core::record::StateName;
use semel::core::scope::{Caller, Operation, Scope};
use semel::{CallerOperation, OperatorError};
use serde_json::{Value, json};
use std::time::Duration;

/// A published resource.
pub(crate) enum PublishedResource {
    Specification,
    Operation(OperationId),
}

/// The published resource that a request asks for; `None` if there is none.
pub(crate) fn resource_of(state: &LayerState, target: &Target) -> Option<PublishedResource> {
    let path = target.path().strip_prefix(state.published.as_deref()?)?;
    if *target.method() != Method::GET && *target.method() != Method::HEAD {
        return None;
    }
    if path == SPECIFICATION {
        return Some(PublishedResource::Specification);
    }
    path.strip_prefix("/operations/")?.parse().ok().map(PublishedResource::Operation)
}

/// The response.
pub(crate) async fn answer(state: &LayerState, parts: &Parts, resource: PublishedResource) -> Response<Body> {
    let mut response = match resource {
        PublishedResource::Specification => specification::response(state, &parts.headers),
        PublishedResource::Operation(id) => {
            let response = operation(state, parts, id).await;
            response.unwrap_or_else(|problem| {
                // No event reports this refusal; whoever counts them finds its code here.
                let code = problem.code();
                let mut refused = problem.into_response(Form::Json, state.prefix());
                refused.extensions_mut().insert(code);
                refused
            })
        }
    };
    // Compare the exact spelling, as servers do.
    if parts.method == Method::HEAD {
        ending::omit_body(&mut response);
    }
    response
}

async fn operation(state: &LayerState, parts: &Parts, id: OperationId) -> Result<Response<Body>, Problem> {
    let callers_by_rule = KnownCallers::of(state, parts)?;
    let key = key(parts);
    let whose = |operation: &str| callers_by_rule.of_record(operation).cloned();
    let own = state.engine.look_up_own_by(id, key.as_ref(), whose).await;
    let own = own.map_err(|not_done| refused(&not_done, id, &callers_by_rule))?;
    let route = state.routes.of_record(own.record.operation());
    // Anonymous callers share a scope; only the key identifies the sender.
    let scope = callers_by_rule.of_record(own.record.operation());
    let is_known = own.is_key || scope.is_some_and(|scope| *scope.caller() != Caller::Anonymous);
    // If replays need authorization, this must not bypass it.
    let requires_authorization =
        route.map_or(state.routes.requires_authorization(), |route| route.settings.authorize.is_some());
    let may_see = is_known && !requires_authorization;
    let mut memory = state.response_budget.memory(state.client_of(parts));
    if let (Some(outcome), true) = (&own.outcome, may_see)
        && let outcome::Body::Kept(data) = &outcome.body
    {
        // Stored bytes, JSON value and text.
        let bytes = data.len().saturating_mul(3);
        memory.try_grow_to(bytes).map_err(|_| Problem::no_memory_for_response().about(id))?;
    }
    let body = described(&own, may_see).to_string();
    let body = Body::from(Bytes::from(body))
        .held_in(memory)
        .map_err(|_| Problem::no_memory_for_response().about(id))?;
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(names::OPERATION_ID, names::operation_id(id));
    Ok(response)
}

/// The caller by each rule. A record is judged only by the rule of its own operation: under two rules, the same name
/// may be two callers, and only the one who could get the replay may see it.
struct KnownCallers<'s> {
    state: &'s LayerState,
    by: Vec<(&'s Callers, Result<Scope, NotIdentified>)>,
}

impl<'s> KnownCallers<'s> {
    /// Refuses a request whose caller no rule can identify.
    fn of(state: &'s LayerState, parts: &Parts) -> Result<Self, Problem> {
        // The caller does not depend on the operation.
        let identified = |callers| (callers, state.scope_by(callers, parts, Operation::named("")));
        let callers_by_rule = Self { state, by: state.all_callers().into_iter().map(identified).collect() };
        let is_anybody = callers_by_rule.by.iter().any(|(_, scope)| scope.is_ok());
        match callers_by_rule.refusal() {
            Some(why) if !is_anybody => Err(not_identified(why)),
            _ => Ok(callers_by_rule),
        }
    }

    /// The caller by the rule of this operation. `None` if its route no longer exists and there are several rules: it
    /// may have been claimed under any of them.
    fn of_record(&self, operation: &str) -> Option<&Scope> {
        let route = self.state.routes.of_record(operation);
        let is_hidden = self.state.hidden.as_ref().is_some_and(|hidden| hidden(operation));
        if is_hidden || (route.is_none() && self.by.len() > 1) {
            return None;
        }
        let callers = self.state.callers_under(route.map(|route| &**route));
        let (_, scope) = self.by.iter().find(|(known, _)| known.is_same(callers))?;
        scope.as_ref().ok()
    }

    /// Why a rule cannot identify the caller: the first that rejects a credential, otherwise the first that finds
    /// none.
    fn refusal(&self) -> Option<&NotIdentified> {
        let refusals = || self.by.iter().filter_map(|(_, scope)| scope.as_ref().err());
        refusals().find(|why| why.is_rejection()).or_else(|| refusals().next())
    }

    /// The response for every operation that is not theirs, whether it exists or not: always the same, so that it
    /// reveals nothing. A client with an expired token must learn this, so that it does not think that its operation
    /// never existed.
    fn not_theirs(&self) -> Problem {
        let mut detail = "You have no such operation.".to_owned();
        match self.refusal() {
            Some(why) if why.is_rejection() => return not_identified(why),
            Some(why) => {
                detail.push_str(" It may belong to a caller that cannot be identified by this request: ");
                detail.push_str(&why.to_string());
            }
            None => {}
        }
        Problem::new(Code::NotFound, detail)
    }
}

fn refused(not_done: &OperatorError, id: OperationId, callers_by_rule: &KnownCallers<'_>) -> Problem {
    match not_done {
        OperatorError::Store(_) => {
            Problem::new(Code::StoreUnavailable, "The operation cannot be looked up at the moment.")
                .retryable_after(Duration::from_secs(1))
        }
        OperatorError::Unreadable => {
            Problem::new(Code::Unknown, "The record of the operation cannot be read.").about(id)
        }
        _ => callers_by_rule.not_theirs(),
    }
}

/// The key of the request, under any rules.
fn key(parts: &Parts) -> Option<Key> {
    let rules = Rules::new(1, Rules::MAX).ok()?.with_weak(Treatment::Allow);
    let lines = parts.headers.get_all(names::KEY).iter().map(HeaderValue::as_bytes);
    Key::from_header(lines, &rules).ok().map(|parsed| parsed.key)
}

fn described(own: &CallerOperation, may_see: bool) -> Value {
    let record = &own.record;
    let expires_at = record.expires_at();
    let state = if own.is_expired { StateName::Expired } else { record.state_name() };
    let mut document = json!({
        "operationId": record.operation_id().to_string(),
        "state": state.as_str(),
        "attempt": record.attempt(),
        "createdAt": rfc3339::text(record.created_at()),
        "updatedAt": rfc3339::text(record.updated_at()),
    });
    if let Some(at) = expires_at {
        document["expiresAt"] = rfc3339::text(at).into();
    }
    if let Some(outcome) = own.outcome.as_ref().filter(|_| may_see) {
        document["result"] = result(outcome);
    }
    document
}

/// A header value as text: UTF-8 if valid, otherwise Latin-1. Both are lossless.
fn text(bytes: &[u8]) -> String {
    str::from_utf8(bytes).map_or_else(|_| bytes.iter().copied().map(char::from).collect(), str::to_owned)
}

fn result(outcome: &Outcome) -> Value {
    let headers = outcome.headers.iter().filter(|(name, _)| rebuild::is_header(name));
    let headers: Vec<_> = headers.map(|(name, value)| [text(name), text(value)]).collect();
    let status = match outcome.status {
        Status::Http(status) => status,
        Status::Grpc(_) | Status::Value => 200,
    };
    let mut result = json!({ "status": status, "headers": headers });
    if let outcome::Body::Kept(bytes) = &outcome.body {
        match str::from_utf8(bytes) {
            Ok(text) => result["body"] = text.into(),
            Err(_) => result["body_base64"] = BASE64_STANDARD.encode(bytes).into(),
        }
    }
    result
}
