//! An operator's confirmation that the clock is right.

use super::Shared;
use super::gate::Principal;
use super::input::Json;
use super::output::json;
use super::problem::{Document, Problem, Situation};
use super::settle::checked_reason;
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use semel::archive::rfc3339;
use semel::time::ClockComparison;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use utoipa::ToSchema;

/// Why the clock is right.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ConfirmClock {
    /// At most 256 bytes. Stored with the time, and logged.
    #[schema(min_length = 1, max_length = 256)]
    reason: String,
    /// Which clock is right. Required if this gateway's clock and the time that the gateways on the store last used
    /// differ.
    #[serde(default)]
    clock: Option<ConfirmedClock>,
}

/// A clock that can be confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ConfirmedClock {
    /// The clock of the store as this gateway reads it. Another gateway's clock is confirmed at that gateway.
    ThisGateway,
}

/// The confirmed time.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClockConfirmed {
    /// The time of the store's clock (RFC 3339).
    confirmed_at: String,
}

/// Confirms that the store's clock is right, as this gateway reads it. Every node on the store whose clock shows the same
/// uses it within a heartbeat; any other refuses new keys until its clock does.
///
/// If the time that the gateways last used differs from it, the answer is 409 with both times, until `clock` says which
/// one is right. For a clock that jumped, or that contradicted what the store remembers when a node started. Check the clock first:
/// records that are expired by it are removed a few minutes later, and their keys can run again.
#[utoipa::path(post, path = "/v1/clock/confirm", operation_id = "confirmClock", tag = "clock",
    request_body = ConfirmClock, responses(
    (status = 200, description = "Confirmed", body = ClockConfirmed),
    (status = 409, description = "Two clocks differ, and `clock` does not say which one is right. Nothing was confirmed", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "The store did not answer", body = Document, content_type = "application/problem+json"),
))]
pub(super) async fn confirm(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Json(confirm, _memory): Json<ConfirmClock>,
) -> Result<Response, Problem> {
    let reason = checked_reason(confirm.reason)?;
    if confirm.clock.is_none() {
        let clocks = shared.engine.compare_clocks().await.map_err(|error| Problem::store(&error))?;
        if !clocks.agrees(shared.engine.clock_settings()) {
            return Err(Problem::new(Situation::ClocksDiffer, two_clocks(&clocks)));
        }
    }
    let name = &*who.name;
    let confirmed =
        shared.engine.confirm_clock(name, &reason).await.map_err(|error| Problem::store(&error))?;
    let confirmed_at = rfc3339::text(confirmed);
    tracing::warn!(target: "semel::audit", who = name, action = "confirm-clock", confirmed_at, reason, "an operator confirmed the clock");
    Ok(json(StatusCode::OK, &ClockConfirmed { confirmed_at }))
}

/// Both clocks, and how to say which one is right.
fn two_clocks(clocks: &ClockComparison) -> String {
    let shown = rfc3339::text(clocks.shown);
    let Some(nodes) = clocks.nodes else {
        return format!(
            "The time that gateways on this store last used cannot be read, and the clock of this gateway shows {shown}. Nothing \
             was confirmed. If this clock is right, repeat the request with `\"clock\": \"this-gateway\"`."
        );
    };
    let theirs = match nodes.jumped_to() {
        Some(clock) => {
            format!("{}, on a machine whose clock shows {}", rfc3339::text(nodes.used), rfc3339::text(clock))
        }
        None => rfc3339::text(nodes.used),
    };
    format!(
        "The clock of this gateway shows {shown}, and gateways on this store last used {theirs}. Nothing was confirmed. If the \
         clock of this gateway is right, repeat the request with `\"clock\": \"this-gateway\"`. If another gateway's clock is \
         right, send the request to that gateway; if none is, set the clocks."
    )
}
