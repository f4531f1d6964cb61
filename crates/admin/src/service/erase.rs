//! Erases what a record stores. Nothing is deleted, so an erased key still cannot run again.

use super::Shared;
use super::gate::Principal;
use super::input::{Id, Json};
use super::output::json;
use super::problem::{Document, Problem, Situation};
use super::records::not_shown;
use super::refusals;
use super::settle::checked_reason;
use super::view::FullRecord;
use crate::options::Role;
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use semel::core::id::OperationId;
use semel::core::machine::{Erasure, Refusal};
use semel::core::record::StateName;
use semel::core::store::RemainingCopies;
use semel::{Erased, OperatorError};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use utoipa::ToSchema;

/// How much is erased.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
#[schema(as = Erasure)]
pub(super) enum Extent {
    /// The stored response and its labels. The state and its expiry stay; retries learn that the response is not
    /// retained.
    Response,
    /// Everything except a tombstone: retries get 410 until the key would have become free anyway.
    Record,
}

impl Extent {
    const fn action(self) -> &'static str {
        match self {
            Self::Response => "erase-response",
            Self::Record => "erase-record",
        }
    }
}

impl From<Extent> for Erasure {
    fn from(extent: Extent) -> Self {
        match extent {
            Extent::Response => Self::Response,
            Extent::Record => Self::Record,
        }
    }
}

/// What to erase, and why.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Erase)]
pub(super) struct EraseRequest {
    /// How much.
    what: Extent,
    /// Why, in at most 256 bytes. It stays in the record's history, so write nothing that would have to be erased.
    #[schema(min_length = 1, max_length = 256)]
    reason: String,
}

/// An erased record.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ErasedRecord)]
pub(super) struct EraseResponse {
    #[serde(flatten)]
    record: FullRecord,
    /// Where copies may remain, and until when. Absent if the store has none; backups and archives are never included.
    #[serde(skip_serializing_if = "Option::is_none")]
    may_remain: Option<String>,
}

/// Erases a stored response, or a whole record except its tombstone. Nothing runs again because of it.
///
/// Works on `SUCCEEDED`, `FAILED_REPLAYABLE` and `FAILED_NOT_REPLAYABLE`. Other gateways on the store can replay
/// responses from memory for up to a minute. Archives and backups are not changed.
#[utoipa::path(post, path = "/v1/records/{id}/erase", operation_id = "eraseRecord", tag = "records",
    params(("id" = String, Path, format = "uuid", description = "The operation id")), request_body = EraseRequest, responses(
    (status = 200, description = "Erased; the record as it is now", body = EraseResponse),
    (status = 404, description = "No such operation", body = Document, content_type = "application/problem+json"),
    (status = 409, description = "The record does not allow it", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "The store did not answer, or the clock is not trusted", body = Document, content_type = "application/problem+json"),
))]
pub(super) async fn erase(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Id(id): Id,
    Json(request, _memory): Json<EraseRequest>,
) -> Result<Response, Problem> {
    let (reason, action) = (checked_reason(request.reason)?, request.what.action());
    let name = &*who.name;
    match shared.engine.erase(id, request.what.into(), name, &reason).await {
        Ok(Erased { record, remnants }) => {
            let (operation, state) = (&**record.operation(), record.state_name().as_str());
            tracing::info!(target: "semel::audit", who = name, action, operation_id = %id, operation, state, reason, "an operator erased a record");
            let may_remain = match remnants {
                RemainingCopies::None => None,
                RemainingCopies::MayRemain(places) => Some(places),
            };
            let outcome = shared
                .engine
                .look_up(id)
                .await
                .ok()
                .and_then(|found_record| shared.engine.outcome(&found_record));
            let has_probe = shared.has_probe(record.operation());
            let now = shared.engine.now();
            let record = FullRecord::of(&record, now, has_probe, outcome.as_ref(), who.has(Role::Bodies));
            Ok(json(StatusCode::OK, &EraseResponse { record, may_remain }))
        }
        Err(OperatorError::Refused(refusal)) => {
            tracing::info!(target: "semel::audit", who = name, action, operation_id = %id, %refusal, "an erasure was refused");
            let found_record = shared.engine.look_up(id).await.map_err(|error| not_shown(&error, id))?;
            Err(match refusal {
                Refusal::ClockNotTrusted => refusals::problem(action, refusal, &found_record, None),
                _ => refused(found_record.record.state_name(), id),
            })
        }
        Err(error) => Err(not_shown(&error, id)),
    }
}

/// Why a record in this state cannot be erased.
fn refused(state: StateName, id: OperationId) -> Problem {
    let detail = match state {
        StateName::Expired => {
            "The record is EXPIRED: only its tombstone is left. It was not changed. If an earlier erasure said that copies may \
             remain, the store has been told to remove them again; it keeps trying while another program reads its file."
                .to_owned()
        }
        StateName::Unknown => {
            "The record is UNKNOWN. Resolve it first: without it, the request could run again. Nothing was changed."
                .to_owned()
        }
        state => format!(
            "The record is {state}. Only a record with an outcome can be erased: SUCCEEDED, FAILED_REPLAYABLE or \
             FAILED_NOT_REPLAYABLE. Nothing was changed."
        ),
    };
    Problem::new(Situation::Refused, detail).about(id, Some(state))
}
