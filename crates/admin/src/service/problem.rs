//! Problems that only the admin address has; the others are [`semel_http::Code`]'s. A problem contains no key, no
//! stored body, and no details about the store.

use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use semel::core::id::OperationId;
use semel::core::record::StateName;
use semel_http::{Code, Form, SPECIFICATION};
use serde::Serialize;
use std::borrow::Cow;
use std::time::Duration;
use utoipa::ToSchema;

/// The target of log lines, which stays the same wherever this code stands.
const LOG: &str = "semel_gateway::admin::problem";
/// When to retry after the store did not answer.
const STORE_RETRY_AFTER: Duration = Duration::from_secs(1);

macro_rules! situations {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $status:literal, $title:literal;)*) => {
        /// The situations that only the admin address knows.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Situation { $($(#[$doc])* $name,)* }

        impl Situation {
            pub(super) const ALL: &[Self] = &[$(Self::$name,)*];

            pub(super) const fn code(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            pub(super) const fn status(self) -> u16 {
                match self { $(Self::$name => $status,)* }
            }

            pub(super) const fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)* }
            }
        }
    };
}

situations! {
    /// Malformed, or not allowed in this form.
    Invalid = "INVALID_REQUEST", 400, "The request is not valid";
    /// No token, or an unknown one.
    Unauthenticated = "UNAUTHENTICATED", 401, "A token is needed";
    /// The token does not allow this.
    Forbidden = "FORBIDDEN", 403, "The token does not allow this";
    /// No such page.
    NoSuchPath = "PATH_NOT_FOUND", 404, "There is nothing at this path";
    /// The store has none.
    NoInboxes = "NO_INBOXES", 404, "The store has no inboxes";
    /// Not by this method.
    Method = "METHOD_NOT_ALLOWED", 405, "The method is not allowed at this path";
    /// The record does not allow it, now or ever.
    Refused = "RECORD_STATE_CONFLICT", 409, "The record does not allow this";
    /// The record belongs to another attempt by now.
    ClaimLost = "CLAIM_LOST", 409, "The attempt is no longer the token's";
    /// It is not said which clock is right.
    ClocksDiffer = "CLOCKS_DIFFER", 409, "Two clocks show different times";
    /// The record exists and cannot be read.
    Unreadable = "RECORD_UNREADABLE", 409, "The record cannot be read";
    /// The body is too long.
    TooLarge = "REQUEST_TOO_LARGE", 413, "The request body is too large";
    /// Not JSON.
    MediaType = "UNSUPPORTED_MEDIA_TYPE", 415, "The request body has to be application/json";
    /// Sent to another name.
    Misdirected = "HOST_NOT_ALLOWED", 421, "The request was sent to another host";
    /// Too often.
    TooMany = "TOO_MANY_REQUESTS", 429, "Too many requests";
    /// The engine keeps trying.
    NotStoredYet = "OUTCOME_NOT_STORED_YET", 503, "The outcome is not stored yet";
}

/// A refusal.
#[derive(Debug)]
pub(super) enum Problem {
    Admin(AdminProblem),
    Shared(semel_http::Problem),
}

/// A problem of the admin address, for one request.
#[derive(Debug)]
pub(super) struct AdminProblem {
    situation: Situation,
    detail: Cow<'static, str>,
    retry_after: Option<Duration>,
    operation_id: Option<OperationId>,
    state: Option<StateName>,
    challenge: Option<&'static str>,
}

impl Problem {
    pub(super) fn new(situation: Situation, detail: impl Into<Cow<'static, str>>) -> Self {
        let detail = detail.into();
        let (retry_after, operation_id, state, challenge) = (None, None, None, None);
        Self::Admin(AdminProblem { situation, detail, retry_after, operation_id, state, challenge })
    }

    pub(super) fn invalid(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Situation::Invalid, detail)
    }

    /// A parameter or a member that does not fit: its name, what was found, and what is allowed.
    pub(super) fn unfit(name: &str, found: &str, allowed: impl std::fmt::Display) -> Self {
        Self::invalid(format!("`{name}` is {}; {allowed}.", quoted(found)))
    }

    /// The store did not answer. Its error is only logged.
    pub(super) fn store(error: &dyn std::error::Error) -> Self {
        tracing::warn!(target: LOG, %error, "the admin address could not reach the store");
        let detail = "The store did not answer. The action may or may not have been done; try again.";
        semel_http::Problem::new(Code::StoreUnavailable, detail).retryable_after(STORE_RETRY_AFTER).into()
    }

    /// No such operation.
    pub(super) fn no_such_operation() -> Self {
        semel_http::Problem::new(Code::NotFound, "There is no such operation.").into()
    }

    /// When the same request may succeed.
    #[must_use]
    pub(super) fn after(mut self, span: Duration) -> Self {
        match &mut self {
            Self::Admin(admin_problem) => admin_problem.retry_after = Some(span),
            Self::Shared(problem) => *problem = problem.clone().retryable_after(span),
        }
        self
    }

    /// The operation, and its state.
    #[must_use]
    pub(super) fn about(mut self, operation_id: OperationId, state: Option<StateName>) -> Self {
        match &mut self {
            Self::Admin(admin_problem) => {
                (admin_problem.operation_id, admin_problem.state) = (Some(operation_id), state);
            }
            Self::Shared(problem) => *problem = problem.clone().about(operation_id),
        }
        self
    }

    /// The challenge for a client without a token.
    #[must_use]
    pub(super) fn challenging(mut self, challenge: &'static str) -> Self {
        if let Self::Admin(admin_problem) = &mut self {
            admin_problem.challenge = Some(challenge);
        }
        self
    }
}

/// The longest text of a request that a problem repeats.
const FOUND_CHARACTERS_MAX: usize = 40;

/// A found text, without control characters and shortened.
fn quoted(found: &str) -> String {
    if found.is_empty() {
        return "empty".to_owned();
    }
    let mut characters = found.chars();
    let printable = |character: char| if character.is_control() { '\u{fffd}' } else { character };
    let text: String = characters.by_ref().take(FOUND_CHARACTERS_MAX).map(printable).collect();
    let more = characters.count();
    if more == 0 { format!("`{text}`") } else { format!("`{text}…` ({more} more characters)") }
}

impl From<semel_http::Problem> for Problem {
    fn from(problem: semel_http::Problem) -> Self {
        Self::Shared(problem)
    }
}

/// A problem (RFC 9457).
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Problem)]
pub(super) struct Document {
    /// Where the problem is described.
    #[serde(rename = "type")]
    kind: String,
    /// A short title, always the same.
    title: &'static str,
    /// The HTTP status.
    status: u16,
    /// The code, for programs.
    code: &'static str,
    /// What is wrong with this request.
    detail: Cow<'static, str>,
    /// Whether the same request may succeed later.
    retryable: bool,
    /// The operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    operation_id: Option<String>,
    /// The operation's state.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        match self {
            Self::Admin(admin_problem) => admin_problem.into_response(),
            Self::Shared(problem) => problem.into_response(Form::Json, "").map(axum::body::Body::new),
        }
    }
}

impl IntoResponse for AdminProblem {
    fn into_response(self) -> Response {
        let situation = self.situation;
        let document = Document {
            kind: format!("{SPECIFICATION}#{}", situation.code()),
            title: situation.title(),
            status: situation.status(),
            code: situation.code(),
            detail: self.detail,
            retryable: self.retry_after.is_some(),
            operation_id: self.operation_id.map(|id| id.to_string()),
            state: self.state.map(StateName::as_str),
        };
        let status = StatusCode::from_u16(situation.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = super::output::json(status, &document);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(span) = self.retry_after {
            let seconds = span.as_secs() + u64::from(span.subsec_nanos() > 0);
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds.max(1)));
        }
        if let Some(id) = self.operation_id
            && let Ok(id) = HeaderValue::from_str(&id.to_string())
        {
            headers.insert(semel_http::names::OPERATION_ID, id);
        }
        if let Some(challenge) = self.challenge {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        }
        response
    }
}
