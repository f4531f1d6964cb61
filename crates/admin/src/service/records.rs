//! Lists and shows records. Pages are bounded, and unreadable records are listed too.

#![expect(unused_qualifications, reason = "the description of a query is written out with whole paths")]

use super::Shared;
use super::gate::Principal;
use super::input::{Id, Query};
use super::output::json;
use super::problem::{Document, Problem, Situation};
use super::view::{ApiState, FullRecord, ListedRecord, is_unopened};
use crate::options::Role;
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use hex::FromHex;
use http::StatusCode;
use semel::OperatorError;
use semel::archive::rfc3339;
use semel::core::id::{KeyHash, OperationId};
use semel::core::key::Key;
use semel::core::scope::{normal_method, normal_path};
use semel::core::store::{Callers, Cursor, Filter, Kind, OperationIds, Page};
use semel::core::time::Time;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use utoipa::{IntoParams, ToSchema};

/// The number of records on a page, by default and at most.
const LIMIT: (usize, usize) = (50, 500);
/// How long the store may take for a page.
const PAGE_WITHIN: Duration = Duration::from_secs(10);

/// Which records to list. All filters must match.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub(super) struct RecordQuery {
    /// In this state.
    #[param(inline)]
    state: Option<ApiState>,
    /// Of this operation: its name, or method and path in any spelling.
    operation: Option<String>,
    /// Of the caller with this hash, or whose hash starts with it: at least 8 digits, as logs and metrics show them.
    #[param(pattern = "^[0-9a-fA-F]{8,64}$")]
    caller_hash: Option<String>,
    /// Of the key with this hash.
    #[param(pattern = "^[0-9a-fA-F]{64}$")]
    key_hash: Option<String>,
    /// Of this key. It is hashed here; if proxies log URLs, send its hash instead.
    #[param(min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$")]
    key: Option<String>,
    /// Last written at this time or later.
    #[param(format = DateTime)]
    updated_from: Option<String>,
    /// Last written before this time.
    #[param(format = DateTime)]
    updated_before: Option<String>,
    /// With an operation ID that starts with this: at least 4 digits, with or without hyphens.
    #[param(
        min_length = 4,
        max_length = 36,
        pattern = "^([0-9a-fA-F]{4,32}|[0-9a-fA-F]{8}-([0-9a-fA-F]{0,4}|[0-9a-fA-F]{4}-([0-9a-fA-F]{0,4}|[0-9a-fA-F]{4}-([0-9a-fA-F]{0,4}|[0-9a-fA-F]{4}-[0-9a-fA-F]{0,12}))))$"
    )]
    id: Option<String>,
    /// Whose outcome is about this type of resource, in the words of the service.
    resource_type: Option<String>,
    /// Whose outcome is about the resource with this ID.
    resource_id: Option<String>,
    /// Whose outcome has this error code.
    error_code: Option<String>,
    /// The newest first, if the store can do that; otherwise the oldest.
    newest_first: Option<bool>,
    /// Where the last page ended: its `next`. Leave it out to start at the beginning.
    #[param(min_length = 1)]
    after: Option<String>,
    /// The maximum number of records.
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<usize>,
}

/// A page of records, the oldest first by default.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RecordPage)]
pub(super) struct RecordPage {
    /// The records. A page may have few or none and still have a next one.
    records: Vec<ListedRecord>,
    /// Records that this node cannot read. They are left unchanged.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    unreadable: Vec<UnreadableRecord>,
    /// Where the next page begins; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// A record that cannot be read.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = UnreadableRecord)]
pub(super) struct UnreadableRecord {
    /// The command's operation ID.
    operation_id: String,
    /// Why it cannot be read.
    reason: String,
}

/// Lists records.
#[utoipa::path(get, path = "/v1/records", operation_id = "listRecords", tag = "records", params(RecordQuery), responses(
    (status = 200, body = RecordPage),
    (status = 503, description = "The store did not answer", body = Document, content_type = "application/problem+json"),
))]
pub(super) async fn list(
    State(shared): State<Arc<Shared>>,
    Query(parameters): Query<RecordQuery>,
) -> Result<Response, Problem> {
    let limit = parameters.limit.unwrap_or(LIMIT.0);
    if !(1..=LIMIT.1).contains(&limit) {
        return Err(Problem::unfit("limit", &limit.to_string(), format_args!("expected 1 to {}", LIMIT.1)));
    }
    let (keys, requested_cursor) = (keys(&shared, &parameters)?, parameters.after.clone());
    // Mistakes are reported even if no record can match.
    let mut filter = filter(parameters)?;
    if keys.is_empty() {
        return Ok(json(
            StatusCode::OK,
            &RecordPage { records: Vec::new(), unreadable: Vec::new(), next: None },
        ));
    }
    let (index, after) = match requested_cursor.as_deref() {
        None => (0, None),
        Some(text) => page_position(text, keys.len()).ok_or_else(|| invalid_cursor(text))?,
    };
    filter.key = keys[index];
    let query = shared.engine.store().page(&filter, after.as_ref(), limit);
    let page = match tokio::time::timeout(PAGE_WITHIN, query).await {
        Ok(Ok(page)) => page,
        Ok(Err(error)) if after.is_some() && error.kind() == Kind::Unfit => {
            return Err(invalid_cursor(requested_cursor.as_deref().unwrap_or_default()));
        }
        Ok(Err(error)) => return Err(Problem::store(&error)),
        Err(late) => return Err(Problem::store(&late)),
    };
    Ok(json(StatusCode::OK, &found(&shared, &page, index, keys.len())))
}

fn found(shared: &Shared, page: &Page, index: usize, keys: usize) -> RecordPage {
    let now = shared.engine.now();
    let mut found = RecordPage { records: Vec::new(), unreadable: Vec::new(), next: None };
    for item in &page.items {
        match (item.record(), &item.entry) {
            (Some(record), _) => {
                let has_probe = shared.has_probe(record.operation());
                found.records.push(ListedRecord::of(record, now, has_probe));
            }
            (None, Err(error)) => {
                let operation_id = OperationId::of(&item.id).to_string();
                found.unreadable.push(UnreadableRecord { operation_id, reason: error.to_string() });
            }
            // A marker is no record.
            (None, Ok(_)) => {}
        }
    }
    let of_the_next_key = || (index + 1 < keys).then(|| format!("{}-", index + 1));
    let next_cursor = page.next.as_ref().map(|next| format!("{index}-{}", hex::encode(next.as_bytes())));
    found.next = next_cursor.or_else(of_the_next_key);
    found
}

/// Which hash of the key a page belongs to, and the position in it.
fn page_position(text: &str, keys: usize) -> Option<(usize, Option<Cursor>)> {
    let (index, rest) = text.split_once('-')?;
    let index = index.parse().ok().filter(|index| *index < keys)?;
    let cursor = if rest.is_empty() { None } else { Some(Cursor::from_bytes(hex::decode(rest).ok()?)) };
    Some((index, cursor))
}

fn invalid_cursor(found: &str) -> Problem {
    Problem::unfit("after", found, "expected the `next` of an earlier page with the same filters")
}

/// The hashes by which the key can be found, limited to the given one; a dummy if no key is given. Empty if key and
/// hash do not match.
fn keys(shared: &Shared, parameters: &RecordQuery) -> Result<Vec<Option<KeyHash>>, Problem> {
    let named = parameters.key_hash.as_ref().map(|hash| hash_of("keyHash", hash)).transpose()?;
    let named = named.map(KeyHash::from_bytes);
    let Some(key) = &parameters.key else { return Ok(vec![named]) };
    let key =
        Key::from_source(key).map_err(|error| Problem::invalid(format!("`key` is not valid: {error}")))?;
    let mut hashes = shared.engine.key_hashes(&key).map_err(|error| Problem::store(&error))?;
    hashes.retain(|hash| named.is_none_or(|named| named == *hash));
    Ok(hashes.into_iter().map(Some).collect())
}

fn filter(parameters: RecordQuery) -> Result<Filter, Problem> {
    let callers = |digits: String| {
        let unfit = || Problem::unfit("callerHash", &digits, "expected 8 to 64 hexadecimal digits");
        Callers::beginning(&digits).ok_or_else(unfit)
    };
    let caller = parameters.caller_hash.map(callers).transpose()?;
    Ok(Filter {
        state: parameters.state.map(Into::into),
        operation: parameters.operation.map(normal_operation),
        caller,
        key: None,
        updated_from: parameters.updated_from.map(|text| moment("updatedFrom", &text)).transpose()?,
        updated_before: parameters.updated_before.map(|text| moment("updatedBefore", &text)).transpose()?,
        ids: parameters.id.map(|text| ids(&text)).transpose()?,
        resource_type: parameters.resource_type,
        resource_id: parameters.resource_id,
        error_code: parameters.error_code,
        newest_first: parameters.newest_first.unwrap_or(false),
    })
}

/// The operation as records name it: a method and a path in their normal form, or a name as it is.
fn normal_operation(text: String) -> String {
    let route = text.split_once(' ').filter(|(method, path)| {
        path.starts_with('/') && method.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'-')
    });
    match route {
        Some((method, path)) => format!("{} {}", normal_method(method), normal_path(path)),
        None => text,
    }
}

fn ids(text: &str) -> Result<OperationIds, Problem> {
    let allowed = "expected an operation ID, or at least its first 4 hexadecimal digits";
    OperationIds::beginning(text).ok_or_else(|| Problem::unfit("id", text, allowed))
}

fn hash_of(name: &str, text: &str) -> Result<[u8; 32], Problem> {
    FromHex::from_hex(text).map_err(|_| Problem::unfit(name, text, "expected 64 hexadecimal digits"))
}

fn moment(name: &str, text: &str) -> Result<Time, Problem> {
    let expected = || Problem::unfit(name, text, "expected a time such as 2026-11-15T19:05:00Z");
    rfc3339::parse(text).ok_or_else(expected)
}

/// Shows a record with its history.
#[utoipa::path(get, path = "/v1/records/{id}", operation_id = "showRecord", tag = "records",
    params(("id" = String, Path, format = "uuid", description = "The operation id")), responses(
    (status = 200, body = FullRecord),
    (status = 404, description = "No such operation", body = Document, content_type = "application/problem+json"),
    (status = 409, description = "It cannot be read", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "The store did not answer", body = Document, content_type = "application/problem+json"),
))]
pub(super) async fn show(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Id(id): Id,
) -> Result<Response, Problem> {
    let found_record = shared.engine.look_up(id).await.map_err(|error| not_shown(&error, id))?;
    let outcome = shared.engine.outcome(&found_record);
    let with_bodies = who.has(Role::Bodies);
    if let Some(outcome) = outcome.as_ref().filter(|_| with_bodies) {
        if is_unopened(&found_record.record, outcome) {
            tracing::info!(target: "semel::audit", who = &*who.name, action = "body-not-opened", operation_id = %id, "a stored answer was requested; it is sealed, and no key here opens it");
        } else {
            tracing::info!(target: "semel::audit", who = &*who.name, action = "read-body", operation_id = %id, "a stored answer was read");
        }
    }
    let has_probe = shared.has_probe(found_record.record.operation());
    let shown =
        FullRecord::of(&found_record.record, found_record.now, has_probe, outcome.as_ref(), with_bodies);
    Ok(json(StatusCode::OK, &shown))
}

/// Why a record cannot be shown.
pub(super) fn not_shown(error: &OperatorError, id: OperationId) -> Problem {
    match error {
        OperatorError::NotFound => Problem::no_such_operation(),
        OperatorError::Unreadable => {
            let detail = "The record exists and cannot be read by this node: it is damaged, or a newer version wrote it. It was left \
                          unchanged.";
            Problem::new(Situation::Unreadable, detail).about(id, None)
        }
        error => Problem::store(error),
    }
}
