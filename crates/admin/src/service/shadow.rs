//! The counts of shadow mode as JSON.

use super::Shared;
use super::output::json;
use crate::shadow::Summary;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use std::sync::Arc;

/// Reports what protection would have done with requests in shadow mode, by route, since the process started.
#[utoipa::path(get, path = "/v1/shadow", operation_id = "showShadow", tag = "shadow", responses(
    (status = 200, body = Summary),
))]
pub(super) async fn show(State(shared): State<Arc<Shared>>) -> Response {
    json(StatusCode::OK, &shared.sources.shadow.summary())
}
