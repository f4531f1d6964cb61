//! An operator's confirmation that the clock is right.

use super::Shared;
use super::gate::Principal;
use super::input::Json;
use super::output::json;
use super::problem::{Document, Problem};
use super::settle::checked_reason;
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use semel::archive::rfc3339;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use utoipa::ToSchema;

/// Why the clock is right.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ConfirmClock {
    /// At most 256 bytes. Stored with the time, and logged.
    #[schema(
        min_length = 1,
        max_length = 256,
        pattern = r"^[^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890-\u0891\u08e2\u115f-\u1160\u17b4-\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb][^\x00-\x1f\x7f-\x9f]*$"
    )]
    reason: String,
}

/// The confirmed time.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClockConfirmed {
    /// The time of the store's clock (RFC 3339).
    confirmed_at: String,
}

/// Confirms that the store's clock is right. Every node on the store uses it within a heartbeat.
///
/// For a clock that jumped, or that contradicted what the store remembers when a node started. Check the clock first:
/// records that are expired by it are removed a few minutes later, and their keys can run again.
#[utoipa::path(post, path = "/v1/clock/confirm", operation_id = "confirmClock", tag = "clock",
    request_body = ConfirmClock, responses(
    (status = 200, description = "Confirmed", body = ClockConfirmed),
    (status = 503, description = "The store did not answer", body = Document, content_type = "application/problem+json"),
))]
pub(super) async fn confirm(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Json(confirm, _memory): Json<ConfirmClock>,
) -> Result<Response, Problem> {
    let reason = checked_reason(confirm.reason)?;
    let name = &*who.name;
    let confirmed =
        shared.engine.confirm_clock(name, &reason).await.map_err(|error| Problem::store(&error))?;
    let confirmed_at = rfc3339::text(confirmed);
    tracing::warn!(target: "semel::audit", who = name, action = "confirm-clock", confirmed_at, reason, "an operator confirmed the clock");
    Ok(json(StatusCode::OK, &ClockConfirmed { confirmed_at }))
}
