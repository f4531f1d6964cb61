//! Counts the inboxes of applications, one count at a time.

#![expect(unused_qualifications, reason = "the description of a query is written out with whole paths")]

use super::Shared;
use super::input::Query;
use super::output::json;
use super::problem::{Document, Problem, Situation};
use crate::inboxes::{InboxStats, check_window};
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use semel::core::store::{Error, INBOX_WINDOW, Kind};
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use utoipa::IntoParams;

/// How long a count may take, including the wait for its turn. Clients wait for 30 s.
const COUNT_WITHIN: Duration = Duration::from_secs(25);
/// A count reads every mark: only one at a time in this process.
static TURN: Semaphore = Semaphore::const_new(1);

/// The age at which marks are overdue.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub(super) struct InboxQuery {
    /// After how many seconds a mark is overdue: the consumers' window, 7 days by default.
    #[param(minimum = 0, maximum = 3_153_600_000_u64, default = 604_800)]
    window_seconds: Option<u64>,
}

/// Counts the marks of every inbox in the store's database, by consumer group and topic. Duplicates are not included:
/// each consumer counts its own.
#[utoipa::path(get, path = "/v1/inboxes", operation_id = "countInboxes", tag = "inboxes", params(InboxQuery), responses(
    (status = 200, body = InboxStats),
    (status = 404, description = "The store has no inboxes", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "The store did not answer", body = Document, content_type = "application/problem+json"),
))]
pub(super) async fn count(
    State(shared): State<Arc<Shared>>,
    Query(query): Query<InboxQuery>,
) -> Result<Response, Problem> {
    let window = query.window_seconds.map_or(INBOX_WINDOW, Duration::from_secs);
    check_window(window).map_err(|why| Problem::invalid(format!("windowSeconds: {why}.")))?;
    let counting = async {
        // It is never closed.
        let _turn = TURN.acquire().await;
        shared.engine.store().inboxes(window).await
    };
    let late = |_| Err(Error::new(Kind::Unavailable, "counting the marks of inboxes"));
    let census = tokio::time::timeout(COUNT_WITHIN, counting).await.unwrap_or_else(late);
    match census.map_err(|error| Problem::store(&error))? {
        Some(census) => Ok(json(StatusCode::OK, &InboxStats::of(census, window))),
        None => Err(Problem::new(
            Situation::NoInboxes,
            "This kind of store has no inboxes: they are in SQLite and PostgreSQL.",
        )),
    }
}
