//! Operators resolve unknown outcomes and release keys. Each action needs a reason, and the machine can refuse it.

use super::Shared;
use super::answer::GivenResponse;
use super::gate::Principal;
use super::input::{Id, Json, whole_number};
use super::output::json;
use super::problem::{Document, Problem};
use super::records::not_shown;
use super::refusals;
use super::response_limits::{ResponseAuthor, ResponseLimits};
use super::view::FullRecord;
use crate::options::Role;
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use semel::OperatorError;
use semel::archive::rfc3339;
use semel::core::id::OperationId;
use semel::core::machine::Verdict;
use semel::core::record::Record;
use semel::core::time::Time;
use serde::Deserialize;
use std::sync::Arc;
use utoipa::ToSchema;

/// What an operator found out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ResolvedOutcome {
    /// It happened. Without a response, later requests learn that it did and that its response is not retained.
    Applied,
    /// It did not happen: the next request with the key is the next attempt.
    NotApplied,
    /// It was refused for good, with this response (with a status of 400 or more).
    Failed,
}

impl ResolvedOutcome {
    const fn name(self) -> &'static str {
        match self {
            Self::Applied => "resolve-applied",
            Self::NotApplied => "resolve-not-applied",
            Self::Failed => "resolve-failed",
        }
    }
}

/// Resolves an outcome in doubt.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Resolve)]
pub(super) struct ResolveRequest {
    /// The outcome.
    outcome: ResolvedOutcome,
    /// The response to every later request with the key.
    response: Option<GivenResponse>,
    /// The `fence` of the attempt that this is about, as the record showed it. If another attempt has begun since, nothing
    /// is changed (409); the same if no attempt of the record has had it yet. Without it, the verdict is about the record's
    /// current attempt.
    #[serde(default, deserialize_with = "whole_number")]
    #[schema(value_type = Option<u64>)]
    fence: Option<u64>,
    /// How this was found out, in at most 256 bytes. It is stored in the record's history.
    #[schema(min_length = 1, max_length = 256)]
    reason: String,
}

/// Releases a key.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Release)]
pub(super) struct ReleaseRequest {
    /// Why, in at most 256 bytes. It is stored in the record's history.
    #[schema(min_length = 1, max_length = 256)]
    reason: String,
}

/// Resolves an unknown outcome, or an attempt whose owner's lease is dead.
///
/// If the owner did not finish the attempt itself, `not-applied` and `failed` are refused until the quiet period is
/// over, because the owner may still act.
#[utoipa::path(post, path = "/v1/records/{id}/resolve", operation_id = "resolveRecord", tag = "records",
    params(("id" = String, Path, format = "uuid", description = "The operation id")), request_body = ResolveRequest, responses(
    (status = 200, description = "Settled; the record as it is now", body = FullRecord),
    (status = 404, description = "No such operation", body = Document, content_type = "application/problem+json"),
    (status = 409, description = "The record does not allow it, or not yet (Retry-After)", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "The store did not answer, or the clock is not trusted", body = Document, content_type = "application/problem+json"),
))]
pub(super) async fn resolve(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Id(id): Id,
    Json(resolution, _memory): Json<ResolveRequest>,
) -> Result<Response, Problem> {
    let reason = checked_reason(resolution.reason)?;
    let truth = resolution.outcome;
    let limits = match &resolution.response {
        Some(_) => {
            let found_record = shared.engine.look_up(id).await.map_err(|error| not_shown(&error, id))?;
            shared.response_limits(found_record.record.operation())
        }
        None => ResponseLimits::default(),
    };
    let (verdict, fence) = (verdict(truth, resolution.response, limits)?, resolution.fence);
    let settled = match fence {
        Some(fence) => shared.engine.resolve_attempt(id, fence, verdict, &who.name, &reason).await,
        None => shared.engine.resolve(id, verdict, &who.name, &reason).await,
    };
    apply(&shared, &who, id, Action { name: truth.name(), fence }, &reason, settled).await
}

/// Releases a key whose attempts had no effect: the next request with it is the next attempt, with any payload.
#[utoipa::path(post, path = "/v1/records/{id}/release", operation_id = "releaseRecord", tag = "records",
    params(("id" = String, Path, format = "uuid", description = "The operation id")), request_body = ReleaseRequest, responses(
    (status = 200, description = "Released; the record as it is now", body = FullRecord),
    (status = 404, description = "No such operation", body = Document, content_type = "application/problem+json"),
    (status = 409, description = "The record does not allow it, or not yet (Retry-After)", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "The store did not answer, or the clock is not trusted", body = Document, content_type = "application/problem+json"),
))]
pub(super) async fn release(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Id(id): Id,
    Json(letting, _memory): Json<ReleaseRequest>,
) -> Result<Response, Problem> {
    let reason = checked_reason(letting.reason)?;
    let released = shared.engine.release(id, &who.name, &reason).await;
    apply(&shared, &who, id, Action { name: "release", fence: None }, &reason, released).await
}

/// A reason that fits into a history and on one line of a log.
pub(super) fn checked_reason(reason: String) -> Result<String, Problem> {
    crate::reason::check(&reason).map_err(|error| Problem::invalid(error.to_string()))?;
    Ok(reason)
}

fn verdict(
    truth: ResolvedOutcome,
    response: Option<GivenResponse>,
    limits: ResponseLimits,
) -> Result<Verdict, Problem> {
    let entered = |response: GivenResponse| response.into_outcome(ResponseAuthor::Operator, limits);
    match (truth, response) {
        (ResolvedOutcome::Applied, response) => Ok(Verdict::Applied(response.map(entered).transpose()?)),
        (ResolvedOutcome::Failed, Some(response)) if response.is_refusal() => {
            Ok(Verdict::Failed(entered(response)?))
        }
        (ResolvedOutcome::Failed, _) => Err(Problem::invalid(
            "`failed` needs a response with a status of 400 or more: it is what every retry gets.",
        )),
        (ResolvedOutcome::NotApplied, Some(_)) => {
            Err(Problem::invalid("`not-applied` takes no response: the next request with the key runs."))
        }
        // The operator says that it is not there now, whenever the store receives that.
        (ResolvedOutcome::NotApplied, None) => Ok(Verdict::NotApplied { asked_at: Time::MAX }),
    }
}

/// What an operator wants: the action by its name, and the attempt that it is about, if that was named.
#[derive(Clone, Copy)]
struct Action {
    name: &'static str,
    fence: Option<u64>,
}

async fn apply(
    shared: &Shared,
    who: &Principal,
    id: OperationId,
    Action { name: action, fence }: Action,
    reason: &str,
    done: Result<Record, OperatorError>,
) -> Result<Response, Problem> {
    let name = &*who.name;
    match done {
        Ok(record) => {
            let (operation, state) =
                ((shared.sources.label)(record.operation()), record.state_name().as_str());
            tracing::info!(target: "semel::audit", who = name, action, operation_id = %id, operation, state, reason, "an operator changed a record");
            let now = shared.engine.now();
            // The record was found by its operation ID; only its state is needed here.
            let found_record =
                shared.engine.look_up(id).await.ok().filter(|found_record| found_record.record == record);
            let outcome = found_record.and_then(|found_record| shared.engine.outcome(&found_record));
            let has_probe = shared.has_probe(record.operation());
            let shown = FullRecord::of(&record, now, has_probe, outcome.as_ref(), who.has(Role::Bodies));
            Ok(json(StatusCode::OK, &shown))
        }
        Err(OperatorError::Refused(refusal)) => {
            let found_record = shared.engine.look_up(id).await.map_err(|error| not_shown(&error, id))?;
            let (operation, state) = (
                (shared.sources.label)(found_record.record.operation()),
                found_record.record.state_name().as_str(),
            );
            let allowed_from = refusal.retry_at().map(rfc3339::text);
            tracing::info!(target: "semel::audit", who = name, action, operation_id = %id, operation, state, %refusal, allowed_from, "an operator's action was refused");
            Err(refusals::problem(action, refusal, &found_record, fence))
        }
        Err(error) => Err(not_shown(&error, id)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_compulsory_and_can_be_kept_whole() {
        assert!(checked_reason("the provider's ledger shows it".into()).is_ok());
        assert!(checked_reason("é".repeat(128)).is_ok());
        assert!(checked_reason("\u{200b}✓".into()).is_ok(), "one character can be seen");
        for bad in
            ["", " \t", "two\nlines", &"é".repeat(129), "\u{200b}\u{a0}\u{2060}", "\u{3164}\u{2800}\u{e0020}"]
        {
            assert!(checked_reason(bad.into()).is_err(), "{bad}");
        }
    }
}
