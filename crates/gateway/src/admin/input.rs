//! Reads bodies, IDs and queries strictly: unknown fields are errors, and a web form cannot send a valid request.

use super::Shared;
use super::problem::{Problem, Situation};
use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::request::Parts;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use semel::core::id::OperationId;
use semel_http::Code;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::Number;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// The maximum length of a parser's message that is passed on.
const WORDS_MAX: usize = 200;

/// The memory of all bodies at this address, in pieces of [`PIECE`]. Each body takes at least one, so this also limits
/// how many are being read at once.
const PIECES_MAX: usize = 256;
const PIECE: usize = 256 << 10;
/// How long a body waits for its next piece. Those that wait keep what they have, so they must not wait for each other
/// for long.
const WAIT: Duration = Duration::from_secs(2);

/// Memory for the bodies that are being read or handled.
pub(super) struct Bodies(Arc<Semaphore>);

/// The memory of one body, until this is dropped.
pub(super) struct BodyMemory {
    pieces: OwnedSemaphorePermit,
}

impl BodyMemory {
    /// Whether the body is a short one, of at most 256 KiB.
    pub(super) fn is_one_piece(&self) -> bool {
        self.pieces.num_permits() == 1
    }
}

impl Default for Bodies {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(PIECES_MAX)))
    }
}

impl Bodies {
    async fn piece(&self) -> Result<OwnedSemaphorePermit, Problem> {
        let piece = timeout(WAIT, Arc::clone(&self.0).acquire_owned()).await;
        piece.ok().and_then(Result::ok).ok_or_else(|| {
            let detail = "The bodies of other requests take all the memory for them. Nothing was done.";
            semel_http::Problem::new(Code::Busy, detail).retryable_after(WAIT).into()
        })
    }

    /// Reads `body`, and takes its memory as it arrives.
    async fn read(&self, body: Body, limit: usize) -> Result<(Bytes, BodyMemory), Problem> {
        let mut memory = self.piece().await?;
        let (mut body, mut bytes) = (Limited::new(body, limit), BytesMut::new());
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|error| unread(&*error, limit))?.into_data() else { continue };
            while bytes.len() + data.len() > memory.num_permits() * PIECE {
                memory.merge(self.piece().await?);
            }
            bytes.extend_from_slice(&data);
        }
        Ok((bytes.freeze(), BodyMemory { pieces: memory }))
    }
}

/// A body of `application/json`, and its memory.
pub(super) struct Json<T>(pub(super) T, pub(super) BodyMemory);

impl<T: DeserializeOwned> FromRequest<Arc<Shared>> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, shared: &Arc<Shared>) -> Result<Self, Problem> {
        if !is_json(request.headers()) {
            let detail = "Send Content-Type: application/json, and no Content-Encoding.";
            return Err(Problem::new(Situation::MediaType, detail));
        }
        let limit = shared.options.body_bytes_max;
        let (bytes, memory) = shared.bodies.read(request.into_body(), limit).await?;
        serde_json::from_slice(&bytes).map(|value| Self(value, memory)).map_err(|error| malformed(&error))
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

    #[tokio::test(start_paused = true)]
    async fn all_bodies_together_are_bounded() {
        let bodies = Bodies::default();
        let large = || Body::from(vec![b'x'; 16 << 20]);
        let mut kept = Vec::new();
        for _ in 0..4 {
            kept.push(bodies.read(large(), 16 << 20).await.unwrap_or_else(|_| panic!("64 MiB fit")));
        }
        assert!(bodies.read(Body::from("{}"), 10).await.is_err(), "not even a short one fits");
        kept.pop();
        let short = bodies.read(Body::from("{}"), 10).await;
        assert_eq!(short.map(|(bytes, _)| bytes).ok(), Some(Bytes::from("{}")));
        assert!(bodies.read(Body::from("too long"), 7).await.is_err());
    }

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
