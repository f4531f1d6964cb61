//! What a worker does with its attempt: renew, begin, finish, look up.
//!
//! Each step is identified by the attempt's token and can be repeated if its response was lost. There is no state
//! between requests: the lease is in the store, so any node can take the next step.

use super::Shared;
use super::answer::GivenResponse;
use super::claim_owner;
use super::gate::Principal;
use super::input::{Id, Json};
use super::lost::{lost, not_stored};
use super::output::json;
use super::problem::{Document, Problem, Situation};
use super::records::not_shown;
use super::response_limits::{ResponseAuthor, ResponseLimits};
use super::view::ApiState;
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use hex::FromHex as _;
use http::StatusCode;
use semel::archive::rfc3339;
use semel::core::classify::Ending;
use semel::core::id::OperationId;
use semel::core::outcome::{Body, Outcome};
use semel::core::record::{Doubt, Record, State as RecordState, StateName, Token};
use semel::{FoundRecord, Lease, LeaseError, Stored};
use semel_http::Code;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use utoipa::ToSchema;

/// How long a worker waits for its outcome to be stored. The engine keeps trying.
const STORED_WITHIN: Duration = Duration::from_secs(5);
/// When a worker should ask again whose outcome was not stored in time.
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// Renews a lease.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Renew)]
pub(super) struct RenewRequest {
    /// The token from the response to the claim.
    #[schema(pattern = "^[0-9a-fA-F]{32}$")]
    token: String,
    /// The effect of a reserved attempt is about to begin.
    begin: Option<bool>,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum AttemptResult {
    /// The effect happened. The response is replayed from now on; without one, an empty response of status 204.
    Succeeded,
    /// It was refused for good. The response (with a status of 400 or more) is replayed from now on.
    Failed,
    /// Nothing took effect: the next claim is the next attempt.
    NotApplied,
    /// It is not known whether it happened.
    Unknown,
}

/// The outcome of an attempt.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Outcome)]
pub(super) struct OutcomeRequest {
    /// The token from the response to the claim.
    #[schema(pattern = "^[0-9a-fA-F]{32}$")]
    token: String,
    /// How it ended.
    outcome: AttemptResult,
    /// The response to every later claim of the command.
    response: Option<GivenResponse>,
}

/// The status of an attempt.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Attempt)]
pub(super) struct AttemptStatus {
    /// The command's operation ID.
    operation_id: String,
    /// The operation's name.
    operation: String,
    /// The state.
    state: ApiState,
    /// How many attempts have begun.
    attempt: u32,
    /// Grows with every attempt.
    fence: u64,
    /// Until when the owner counts as alive.
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_expires_at: Option<String>,
    /// Until when the outcome is replayed.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
}

impl AttemptStatus {
    /// After its end.
    fn ended(record: &Record, stored: Stored) -> Self {
        let expires_at = stored.expires_at.map(rfc3339::text);
        Self { state: stored.state.into(), lease_expires_at: None, expires_at, ..Self::of(record) }
    }

    fn of(record: &Record) -> Self {
        Self {
            operation_id: record.operation_id().to_string(),
            operation: claimed(record.operation()).to_owned(),
            state: record.state_name().into(),
            attempt: record.attempt(),
            fence: record.fence(),
            lease_expires_at: record.lease_until().map(rfc3339::text),
            expires_at: record.expires_at().map(rfc3339::text),
        }
    }
}

/// The operation's name in the claim.
fn claimed(operation: &str) -> &str {
    let named = operation.strip_prefix(super::claims::CLAIM).and_then(|rest| rest.strip_prefix(' '));
    named.unwrap_or(operation)
}

/// Shows the status of a command to the token that claimed it. To get the stored response, claim the command again
/// with its key and payload.
#[utoipa::path(get, path = "/v1/claims/{id}", operation_id = "showClaim", tag = "claims",
    params(("id" = String, Path, format = "uuid", description = "The operation id")), responses(
    (status = 200, body = AttemptStatus),
    (status = 404, description = "No such claim, or another token's", body = Document, content_type = "application/problem+json"),
    (status = 409, description = "It cannot be read", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "The store did not answer", body = Document, content_type = "application/problem+json"),
))]
pub(super) async fn show(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Id(id): Id,
) -> Result<Response, Problem> {
    let found_record = look_up(&shared, id).await?;
    if !claim_owner::is_visible(&shared, &who, &found_record.record) {
        return Err(Problem::no_such_operation());
    }
    Ok(json(StatusCode::OK, &AttemptStatus::of(&found_record.record)))
}

/// Extends the lease from now; with `begin`, also records that the effect of a reserved attempt is about to begin.
///
/// After any response but 200, begin nothing.
#[utoipa::path(post, path = "/v1/claims/{id}/renew", operation_id = "renewClaim", tag = "claims",
    params(("id" = String, Path, format = "uuid", description = "The operation id")), request_body = RenewRequest, responses(
    (status = 200, description = "Still yours", body = AttemptStatus),
    (status = 404, description = "No such claim, or another token's", body = Document, content_type = "application/problem+json"),
    (status = 409, description = "No longer yours, or over", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "The store did not answer: begin nothing", body = Document, content_type = "application/problem+json"),
))]
pub(super) async fn renew(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Id(id): Id,
    Json(renewal, _memory): Json<RenewRequest>,
) -> Result<Response, Problem> {
    let token = token(&renewal.token)?;
    let begin = renewal.begin.unwrap_or(false);
    let (found_record, mut lease) = leased(&shared, &who, id, token).await?;
    let written = if begin && found_record.record.state_name() == StateName::Claimed {
        lease.start().await
    } else {
        lease.renew().await
    };
    match written {
        Ok(()) => {}
        Err(LeaseError::Store(error)) => return Err(Problem::store(&error)),
        Err(LeaseError::ClockNotTrusted) => return Err(clock_not_trusted(id)),
        // A duplicate of this request may have taken the same step just before.
        Err(LeaseError::Lost) => {
            let found_record;
            (found_record, lease) = leased(&shared, &who, id, token).await?;
            let renewed = lease.renew().await;
            renewed.map_err(|error| match error {
                LeaseError::Store(error) => Problem::store(&error),
                LeaseError::ClockNotTrusted => clock_not_trusted(id),
                LeaseError::Lost => lost(&found_record.record, token),
            })?;
        }
    }
    let record = lease.record();
    let is_under_way = !begin || record.state_name() == StateName::Processing;
    if record.lease_until().is_none() || !is_under_way {
        return Err(lost(&record, token));
    }
    Ok(json(StatusCode::OK, &AttemptStatus::of(&record)))
}

/// Stores how an attempt ended. You can send it again until it is answered: the same outcome gets the same response.
#[utoipa::path(post, path = "/v1/claims/{id}/outcome", operation_id = "endClaim", tag = "claims",
    params(("id" = String, Path, format = "uuid", description = "The operation id")), request_body = OutcomeRequest, responses(
    (status = 200, description = "Stored; the attempt as it stands", body = AttemptStatus),
    (status = 404, description = "No such claim, or another token's", body = Document, content_type = "application/problem+json"),
    (status = 409, description = "No longer yours, or settled otherwise", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "Not stored yet, or the store did not answer: send it again", body = Document, content_type = "application/problem+json"),
))]
pub(super) async fn outcome(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Id(id): Id,
    Json(request, _memory): Json<OutcomeRequest>,
) -> Result<Response, Problem> {
    let token = token(&request.token)?;
    let ending = ending(request.outcome, request.response)?;
    let found_record = look_up(&shared, id).await?;
    let Some(lease) = lease_on(&shared, &who, &found_record, token)? else {
        return Err(superseded(&shared, &found_record, token, &ending));
    };
    if has_recorded(&shared, &found_record, token, &ending) {
        return Ok(json(StatusCode::OK, &AttemptStatus::of(&found_record.record)));
    }
    if found_record.record.state_name() == StateName::Claimed && !matches!(ending, Ending::NotApplied(_)) {
        // It was begun without a report. That is recorded now, while the record still belongs to this attempt.
        if let Err(LeaseError::Store(error)) = lease.start().await {
            return Err(Problem::store(&error));
        }
    }
    let finished = tokio::time::timeout(STORED_WITHIN, lease.finish(ending.clone())).await;
    let Ok(finished) = finished else {
        let detail = "The outcome is not stored yet; this node keeps trying. Send it again.";
        return Err(Problem::new(Situation::NotStoredYet, detail).after(ASK_AGAIN).about(id, None));
    };
    if let Ok(stored) = finished {
        return Ok(json(StatusCode::OK, &AttemptStatus::ended(&found_record.record, stored)));
    }
    let found_record = look_up(&shared, id).await?;
    if has_recorded(&shared, &found_record, token, &ending) {
        return Ok(json(StatusCode::OK, &AttemptStatus::of(&found_record.record)));
    }
    Err(if found_record.record.token() == token {
        already_finished(id, &found_record)
    } else {
        not_stored(&found_record.record, &ending)
    })
}

/// The report of a worker whose attempt another one followed.
fn superseded(shared: &Shared, found_record: &FoundRecord, token: Token, ending: &Ending) -> Problem {
    shared.engine.report_superseded(found_record, token, ending);
    not_stored(&found_record.record, ending)
}

fn ending(result: AttemptResult, response: Option<GivenResponse>) -> Result<Ending, Problem> {
    let stored =
        |response: GivenResponse| response.into_outcome(ResponseAuthor::Worker, ResponseLimits::default());
    match (result, response) {
        (AttemptResult::Succeeded, None) => Ok(Ending::Succeeded(Outcome::http::<&str, &str>(204, [], ""))),
        (AttemptResult::Succeeded, Some(response)) => Ok(Ending::Succeeded(stored(response)?)),
        (AttemptResult::Failed, Some(response)) if response.is_refusal() => {
            Ok(Ending::FailedReplayable(stored(response)?))
        }
        (AttemptResult::Failed, _) => Err(Problem::invalid(
            "failed needs a response with a status of 400 or more: it is what every retry gets.",
        )),
        (AttemptResult::NotApplied, response) => Ok(Ending::NotApplied(response.map(stored).transpose()?)),
        (AttemptResult::Unknown, None) => Ok(Ending::InDoubt),
        (AttemptResult::Unknown, Some(_)) => Err(Problem::invalid("unknown takes no response.")),
    }
}

/// Whether the record already contains `ending`, for the same attempt.
fn has_recorded(shared: &Shared, found_record: &FoundRecord, token: Token, ending: &Ending) -> bool {
    let record = &found_record.record;
    if record.token() != token {
        return false;
    }
    let kept =
        |known: &Outcome| shared.engine.outcome(found_record).is_some_and(|kept| is_same(&kept, known));
    match (ending, record.state()) {
        (Ending::Succeeded(known), RecordState::Succeeded { .. })
        | (Ending::FailedReplayable(known), RecordState::FailedReplayable { .. }) => kept(known),
        (Ending::NotApplied(_), RecordState::FailedNotReplayable { .. })
        | (Ending::InDoubt, RecordState::Unknown { doubt: Doubt::Owner, .. }) => true,
        // This attempt had no effect; whether an earlier one did stays open.
        (Ending::NotApplied(_), RecordState::Unknown { doubt: Doubt::Owner, .. }) => record.earlier_doubt(),
        _ => false,
    }
}

/// Whether `kept` was stored from `known`: with its body, or without it if that was too long.
fn is_same(kept: &Outcome, known: &Outcome) -> bool {
    kept == known || (kept.body == Body::NotRetained && kept.status == known.status)
}

/// The worker's report cannot be dated.
fn clock_not_trusted(id: OperationId) -> Problem {
    let detail = "The clock is not trusted at the moment. Nothing was stored; send it again.";
    let problem = semel_http::Problem::new(Code::ClockNotTrusted, detail);
    problem.retryable_after(ASK_AGAIN).about(id).into()
}

/// The attempt already has another outcome.
fn already_finished(id: OperationId, found_record: &FoundRecord) -> Problem {
    let detail = "The attempt already has another outcome: from an operator, from an earlier report, or \
        because its time ran out. That outcome was left unchanged; somebody should check it.";
    Problem::new(Situation::Refused, detail).about(id, Some(found_record.record.state_name()))
}

async fn look_up(shared: &Shared, id: OperationId) -> Result<FoundRecord, Problem> {
    shared.engine.look_up(id).await.map_err(|error| not_shown(&error, id))
}

/// The record and the lease, if the token is the attempt's. A claim that `who` may not see does not exist for it.
async fn leased(
    shared: &Shared,
    who: &Principal,
    id: OperationId,
    token: Token,
) -> Result<(FoundRecord, Lease), Problem> {
    let found_record = look_up(shared, id).await?;
    match lease_on(shared, who, &found_record, token)? {
        Some(lease) => Ok((found_record, lease)),
        None => Err(lost(&found_record.record, token)),
    }
}

/// The lease, or `None` if the current attempt of a claim that `who` can see has another token.
fn lease_on(
    shared: &Shared,
    who: &Principal,
    found_record: &FoundRecord,
    token: Token,
) -> Result<Option<Lease>, Problem> {
    let record = &found_record.record;
    match shared.engine.lease_of(found_record, token) {
        Some(lease) if claim_owner::may_continue(shared, who, record) => Ok(Some(lease)),
        None if claim_owner::is_visible(shared, who, record) => Ok(None),
        _ => Err(Problem::no_such_operation()),
    }
}

fn token(text: &str) -> Result<Token, Problem> {
    let bits = <[u8; 16]>::from_hex(text).map(u128::from_be_bytes);
    let bits = bits.map_err(|_| {
        Problem::invalid("token must be the 32 hexadecimal digits from the response to the claim.")
    })?;
    Ok(Token::from_random(bits))
}
