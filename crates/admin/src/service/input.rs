//! Reads bodies, IDs and queries strictly: unknown fields are errors, and a web form cannot send a valid request.

use super::Shared;
use super::gate::Principal;
use super::memory::{Budget, PIECE, Pieces};
use super::problem::{Problem, Situation};
use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::request::Parts;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use semel::core::id::OperationId;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::Number;
use std::sync::Arc;

/// The maximum length of a parser's message that is passed on: all names of a query fit.
const WORDS_MAX: usize = 300;

/// Memory for the bodies that are being read or handled.
pub(super) struct Bodies(Budget);

/// The memory of one body, until this is dropped.
pub(super) struct BodyMemory {
    pieces: Pieces,
}

impl BodyMemory {
    /// Whether the body is a short one, of at most 256 KiB.
    pub(super) fn is_one_piece(&self) -> bool {
        self.pieces.count() == 1
    }
}

impl Bodies {
    /// For bodies of at most `longest` bytes.
    pub(super) fn new(longest: usize) -> Self {
        Self(Budget::for_bodies_of(longest))
    }

    /// Reads `body`, and takes its memory as it arrives. `holder` is the token that it was sent with.
    async fn read(
        &self,
        body: Body,
        limit: usize,
        holder: Option<&Arc<str>>,
    ) -> Result<(Bytes, BodyMemory), Problem> {
        let mut pieces = self.0.first(holder).await?;
        let (mut body, mut bytes) = (Limited::new(body, limit), BytesMut::new());
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|error| unread(&*error, limit))?.into_data() else { continue };
            while bytes.len() + data.len() > pieces.count() * PIECE {
                self.0.next(&mut pieces).await?;
            }
            bytes.extend_from_slice(&data);
        }
        Ok((bytes.freeze(), BodyMemory { pieces }))
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
        // Without tokens, all requests are from the same machine and nobody is distinguished.
        let who = request.extensions().get::<Principal>().filter(|_| !shared.options.tokens.is_empty());
        let holder = who.map(|who| Arc::clone(&who.name));
        let (bytes, memory) = shared.bodies.read(request.into_body(), limit, holder.as_ref()).await?;
        parse(&bytes).map(|value| Self(value, memory))
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

/// A body of JSON.
fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    // Otherwise a list would be read as the members in the order of the Rust type.
    if bytes.trim_ascii_start().starts_with(b"[") {
        let detail = "The body does not fit: the body is of another type: expected an object, found a list.";
        return Err(Problem::invalid(detail));
    }
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let member = error.path().to_string();
        malformed(&member, error.inner())
    })?;
    json.end().map_err(|error| malformed(".", &error))?;
    Ok(value)
}

/// The member, or the position in the text. Never the value: it may be a key.
fn malformed(member: &str, error: &serde_json::Error) -> Problem {
    let (line, column) = (error.line(), error.column());
    if !error.is_data() {
        return Problem::invalid(format!("The body is not JSON: line {line}, column {column}."));
    }
    let text = error.to_string();
    // The position is of no use beside the member's name.
    let text = text.rsplit_once(" at line ").map_or(&*text, |(text, _)| text);
    let is_about_a_name =
        ["unknown field", "missing field", "duplicate field"].iter().any(|start| text.starts_with(start));
    let detail = if is_about_a_name {
        text.chars().take(WORDS_MAX).collect()
    } else {
        format!("{} {}", name_of(member), mismatch(text))
    };
    Problem::invalid(format!("The body does not fit: {detail}."))
}

/// A member of a body, by its path.
fn name_of(member: &str) -> String {
    if member == "." { "the body".to_owned() } else { format!("`{member}`") }
}

/// A parser's message about a value, without the value.
fn mismatch(text: &str) -> String {
    let expected = text.split_once(", expected ").map(|(_, expected)| expected);
    let expected =
        expected.map(|expected| if expected.starts_with("struct ") { "an object" } else { expected });
    if let (Some(rest), Some(expected)) = (text.strip_prefix("invalid type: "), expected) {
        // Such as: string "abc", expected a map.
        let kind = rest.split([' ', ',']).next().unwrap_or_default();
        return format!("is of another type: expected {expected}, found {kind}");
    }
    match expected {
        Some(expected) => format!("has a value that is not allowed: expected {expected}"),
        // The messages of this crate's own types, which contain no value.
        None => format!("is {text}"),
    }
}

/// A non-negative whole number in any notation: in JSON, `5.0` is 5, and some languages write it so.
pub(super) fn whole_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
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
        query.map(|axum::extract::Query(query)| Self(query)).map_err(|rejection| {
            let source = std::error::Error::source(&rejection).map(ToString::to_string);
            let given = axum::extract::Query::try_from_uri(&parts.uri);
            let given = given.map_or_else(|_| Vec::new(), |axum::extract::Query(given)| given);
            unfit_query(source.as_deref().unwrap_or_default(), &given)
        })
    }
}

/// Which parameter does not fit, what was found, and what is allowed. `text` is the parser's message, mostly with the
/// parameter's name before it.
fn unfit_query(text: &str, given: &[(String, String)]) -> Problem {
    let (name, text) = text.split_once(": ").unwrap_or(("", text));
    let quoted = |start: &str| text.strip_prefix(start)?.split('`').nth(1);
    if let Some(unknown) = quoted("unknown field ") {
        let allowed = text.split_once(", expected ").map_or("none", |(_, allowed)| allowed);
        let allowed = allowed.trim_start_matches("one of ");
        return Problem::invalid(format!(
            "The query parameter `{unknown}` is unknown; allowed are {allowed}."
        ));
    }
    if let Some(twice) = quoted("duplicate field ") {
        return Problem::invalid(format!("The query parameter `{twice}` is given twice; give it once."));
    }
    let found = given.iter().find(|(known, _)| known == name);
    let Some((_, found)) = found else {
        return Problem::invalid("The query is not a list of parameters and their values.");
    };
    let allowed = match text.split_once(", expected ") {
        Some((_, expected)) => format!("expected {expected}"),
        None if text.contains("`true` or `false`") => "expected `true` or `false`".to_owned(),
        None => "expected a whole number".to_owned(),
    };
    Problem::unfit(name, found, allowed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[tokio::test(start_paused = true)]
    async fn all_bodies_together_are_bounded() {
        let bodies = Bodies::new(16 << 20);
        let large = || Body::from(vec![b'x'; 16 << 20]);
        let mut kept = Vec::new();
        for _ in 0..4 {
            kept.push(bodies.read(large(), 16 << 20, None).await.unwrap_or_else(|_| panic!("64 MiB fit")));
        }
        assert!(bodies.read(Body::from("{}"), 10, None).await.is_err(), "not even a short one fits");
        kept.pop();
        let short = bodies.read(Body::from("{}"), 10, None).await;
        assert_eq!(short.map(|(bytes, _)| bytes).ok(), Some(Bytes::from("{}")));
        assert!(bodies.read(Body::from("too long"), 7, None).await.is_err());
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
        let read = |text| whole_number(&mut serde_json::Deserializer::from_str(text)).ok();
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
        let detail = |text: &str| format!("{:?}", parse::<Body>(text.as_bytes()).expect_err("bad"));
        assert!(detail(r#"{"kex": 1}"#).contains("unknown field `kex`"));
        assert!(detail("{}").contains("missing field `key`"));
        assert!(detail("{").contains("not JSON"));
        let value = detail(r#"{"key": 4711}"#);
        assert!(!value.contains("4711"), "{value}");
        assert!(value.contains("`key` is of another type: expected a string, found integer"), "{value}");
        for list in ["[]", " [\"a\"]", "5"] {
            let detail = detail(list);
            assert!(detail.contains("the body is of another type: expected an object, found"), "{detail}");
        }
        assert!(detail(r#"{"key": "a"} b"#).contains("not JSON"));
    }
}
