//! Reads bodies, IDs and queries strictly: unknown fields are errors, and a web form cannot send a valid request.

use super::Shared;
use super::problem::{Problem, Situation};
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::request::Parts;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use semel::core::id::OperationId;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::Number;
use std::sync::Arc;

/// The maximum length of a parser's message that is passed on.
const WORDS_MAX: usize = 200;

/// A body of `application/json`.
pub(super) struct Json<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<Arc<Shared>> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, shared: &Arc<Shared>) -> Result<Self, Problem> {
        if !is_json(request.headers()) {
            let detail = "Send Content-Type: application/json, and no Content-Encoding.";
            return Err(Problem::new(Situation::MediaType, detail));
        }
        let limit = shared.options.body_bytes_max;
        let body = Limited::new(request.into_body(), limit).collect().await;
        let bytes = body.map_err(|error| unread(&*error, limit))?.to_bytes();
        serde_json::from_slice(&bytes).map(Self).map_err(|error| malformed(&error))
    }
}

fn unread(error: &(dyn std::error::Error + 'static), limit: usize) -> Problem {
    if error.is::<LengthLimitError>() {
        Problem::new(Situation::TooLarge, format!("The body is longer than {limit} bytes."))
    } else {
        Problem::invalid("The body was cut off.")
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let mut lines = headers.get_all(CONTENT_TYPE).iter();
    let (Some(line), None) = (lines.next(), lines.next()) else { return false };
    let kind = line.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
    kind.trim_ascii().eq_ignore_ascii_case(b"application/json") && !headers.contains_key(CONTENT_ENCODING)
}

/// The field, or the position in the text. A parser's message about a value would repeat the value.
fn malformed(error: &serde_json::Error) -> Problem {
    let (line, column) = (error.line(), error.column());
    if !error.is_data() {
        return Problem::invalid(format!("The body is not JSON: line {line}, column {column}."));
    }
    let words = error.to_string();
    let is_about_a_name =
        ["unknown field", "missing field", "duplicate field"].iter().any(|start| words.starts_with(start));
    if is_about_a_name {
        let words: String = words.chars().take(WORDS_MAX).collect();
        return Problem::invalid(format!("The body does not fit: {words}."));
    }
    let detail = format!(
        "The body does not fit: the value that ends at line {line}, column {column} is of another type, or \
         none of those that are allowed."
    );
    Problem::invalid(detail)
}

/// A non-negative whole number in any notation: in JSON, `5.0` is 5, and some languages write it so.
pub(super) fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let Some(number) = Option::<Number>::deserialize(deserializer)? else { return Ok(None) };
    let written = number.to_string();
    let digits = written.strip_suffix(".0").unwrap_or(&written);
    digits.parse().map(Some).map_err(|_| D::Error::custom("not a whole number"))
}

/// The operation ID in a path.
pub(super) struct Id(pub(super) OperationId);

impl FromRequestParts<Arc<Shared>> for Id {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<Self, Problem> {
        let path = Path::<String>::from_request_parts(parts, shared).await;
        let id = path.ok().and_then(|Path(text)| text.parse().ok());
        id.map(Self).ok_or_else(Problem::no_such_operation)
    }
}

/// The parameters of a query.
pub(super) struct Query<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequestParts<Arc<Shared>> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<Self, Problem> {
        let query = axum::extract::Query::<T>::from_request_parts(parts, shared).await;
        let detail = "A query parameter is unknown, given twice, or of the wrong type.";
        query.map(|axum::extract::Query(query)| Self(query)).map_err(|_| Problem::invalid(detail))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn a_web_forms_body_is_not_accepted_as_json() {
        let is = |value: &'static str| {
            is_json(&[(CONTENT_TYPE, HeaderValue::from_static(value))].into_iter().collect())
        };
        assert!(is("application/json") && is("Application/JSON; charset=utf-8"));
        for other in ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", "", "text/json"]
        {
            assert!(!is(other), "{other}");
        }
        assert!(!is_json(&HeaderMap::new()));
    }

    #[test]
    fn a_whole_number_may_be_written_with_a_point() {
        let read = |text| whole(&mut serde_json::Deserializer::from_str(text)).ok();
        assert_eq!(
            ["5", "5.0", "0", "null"].map(read),
            [Some(Some(5)), Some(Some(5)), Some(Some(0)), Some(None)]
        );
        assert_eq!(["5.5", "-1", "1e30", "\"5\"", "true", "[]"].map(read), [None; 6]);
    }

    #[test]
    fn a_refusal_names_the_field_and_never_repeats_a_value() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Body {
            #[expect(dead_code, reason = "only parsed")]
            key: String,
        }
        let detail =
            |text: &str| format!("{:?}", malformed(&serde_json::from_str::<Body>(text).expect_err("bad")));
        assert!(detail(r#"{"kex": 1}"#).contains("unknown field `kex`"));
        assert!(detail("{}").contains("missing field `key`"));
        assert!(detail("{").contains("not JSON"));
        let value = detail(r#"{"key": 4711}"#);
        assert!(!value.contains("4711") && value.contains("another type"), "{value}");
    }
}
