//! Stored responses in JSON: those that workers and operators send, and those that are shown. Headers that would make
//! a replay wrong about its length are dropped.

use super::input::whole_number;
use super::problem::Problem;
use super::response_limits::{ResponseAuthor, ResponseLimits};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use http::header::{ETAG, LOCATION, SET_COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue};
use semel::core::outcome::{Body, Fields, Outcome, Status};
use semel_http::StoredHeaders;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

/// A response to store and replay. Not `Debug`: it contains a body.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = GivenResponse)]
pub(super) struct GivenResponse {
    /// The HTTP status.
    #[serde(deserialize_with = "status")]
    #[schema(minimum = 200, maximum = 599)]
    status: u16,
    /// Headers in order, each as name and value: at most 256, and together at most as long as the upstream's may be. Headers
    /// of a single delivery are not stored.
    #[serde(default)]
    #[schema(value_type = Option<Vec<HeaderPair>>)]
    headers: Option<Vec<GivenHeader>>,
    /// The body, if it is text. At most as long as the operation's longest stored response.
    body: Option<String>,
    /// The body in base64, if it is not text.
    #[serde(rename = "bodyBase64")]
    body_base64: Option<String>,
    /// The old name of `bodyBase64`, which is still accepted.
    #[serde(rename = "body_base64")]
    #[schema(deprecated)]
    body_base64_old: Option<String>,
}

/// A field by its name or its old name, but not both.
pub(super) fn one_of(
    name: &str,
    value: Option<String>,
    old_name: &str,
    old: Option<String>,
) -> Result<Option<String>, Problem> {
    if value.is_some() && old.is_some() {
        let detail = format!("{old_name} is the old name of {name}: send one of them, not both.");
        return Err(Problem::invalid(detail));
    }
    Ok(value.or(old))
}

fn status<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u16, D::Error> {
    let status = whole_number(deserializer)?.and_then(|status| status.try_into().ok());
    status.ok_or_else(|| D::Error::custom("not a status"))
}

/// A header, as it was sent. A list of another length has to be read as a whole: a reader of pairs would stop inside it, and
/// call the rest a mistake in the JSON.
#[derive(Deserialize)]
#[serde(try_from = "Vec<String>")]
struct GivenHeader(String, String);

impl TryFrom<Vec<String>> for GivenHeader {
    type Error = &'static str;

    fn try_from(texts: Vec<String>) -> Result<Self, Self::Error> {
        let [name, value] = <[String; 2]>::try_from(texts).map_err(|_| "not a pair of name and value")?;
        Ok(Self(name, value))
    }
}

/// A header: its name, then its value.
#[derive(ToSchema)]
#[schema(as = Header, min_items = 2, max_items = 2)]
#[expect(dead_code, reason = "describes two texts in a row to those who read the description")]
pub(super) struct HeaderPair(Vec<String>);

impl GivenResponse {
    /// Whether the response is a refusal.
    pub(super) fn is_refusal(&self) -> bool {
        self.status >= 400
    }

    /// The part that is stored. An operator's response that no client could read, or that would not be replayed as it is, is
    /// refused. A worker's response that is too long is stored without body and headers: its effect has happened.
    pub(super) fn into_outcome(
        self,
        author: ResponseAuthor,
        limits: ResponseLimits,
    ) -> Result<Outcome, Problem> {
        if !(200..600).contains(&self.status) {
            return Err(Problem::invalid("The status of the response must be from 200 to 599."));
        }
        let encoded = one_of("bodyBase64", self.body_base64, "body_base64", self.body_base64_old)?;
        let body = match (self.body, encoded) {
            (Some(_), Some(_)) => {
                return Err(Problem::invalid("The response has either body or bodyBase64, not both."));
            }
            (Some(text), None) => text.into_bytes(),
            (None, Some(text)) => {
                BASE64_STANDARD.decode(&text).map_err(|_| Problem::invalid("bodyBase64 is not base64."))?
            }
            (None, None) => Vec::new(),
        };
        let too_long = |problem| match author {
            ResponseAuthor::Operator => Err(problem),
            ResponseAuthor::Worker => Ok(Outcome::not_retained(Status::Http(self.status))),
        };
        let given = self.headers.unwrap_or_default();
        if let Err(problem) = limits.check_count(given.len()) {
            return too_long(problem);
        }
        let mut headers = HeaderMap::new();
        for GivenHeader(name, value) in given {
            let name = HeaderName::from_bytes(name.as_bytes());
            let value = HeaderValue::from_bytes(value.as_bytes());
            let (Ok(name), Ok(value)) = (name, value) else {
                return Err(Problem::invalid("A header of the response is not valid in HTTP."));
            };
            headers
                .try_append(name, value)
                .map_err(|_| Problem::invalid("The response has too many headers."))?;
        }
        if let Err(problem) = limits.check(&headers, body.len()) {
            return too_long(problem);
        }
        if author == ResponseAuthor::Operator {
            check_is_replayed(self.status, &headers, &body)?;
        }
        if limits.is_minimal {
            return minimal(self.status, &headers, &body);
        }
        let kept = StoredHeaders::default().of(&headers, body.len(), false);
        Ok(Outcome::http(self.status, kept, body))
    }
}

/// The outcome of a response whose operation stores only its minimal form. Anything else is refused: it would be dropped
/// although an operator entered it on purpose.
fn minimal(status: u16, headers: &HeaderMap, body: &[u8]) -> Result<Outcome, Problem> {
    if !body.is_empty() || headers.keys().any(|name| ![LOCATION, ETAG].contains(name)) {
        return Err(Problem::invalid(
            "Only the status, Location and ETag are stored of this operation's responses (`kept = \"minimal\"`). Leave out the \
             body and all other headers. Nothing was changed.",
        ));
    }
    let headers = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    Ok(Outcome { headers, ..Outcome::not_retained(Status::Http(status)) })
}

/// Refuses what would be dropped although an operator entered it on purpose.
fn check_is_replayed(status: u16, headers: &HeaderMap, body: &[u8]) -> Result<(), Problem> {
    if headers.contains_key(SET_COOKIE) {
        return Err(Problem::invalid(
            "The response has a Set-Cookie header, which would not be replayed: a cookie belongs to one session. Leave it out.",
        ));
    }
    if matches!(status, 204 | 304) && !body.is_empty() {
        return Err(Problem::invalid(format!(
            "A response of status {status} has no body in HTTP, so no retry would get it. Leave the body out, or enter another status."
        )));
    }
    Ok(())
}

/// A stored response.
#[derive(Serialize, ToSchema)]
#[schema(as = StoredResponse)]
pub(super) struct StoredResponse {
    /// The kind of status: `http`, `grpc` or `value`.
    protocol: &'static str,
    /// The status; a value has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u32>,
    /// Whether its bytes were stored, and can be read here.
    retained: bool,
    /// Its bytes are stored sealed, and no key here opens them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    unopened: bool,
    /// Headers in order, each as name and value.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<HeaderPair>>)]
    headers: Option<Vec<(String, String)>>,
    /// The body, if it is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    /// The body in base64, if it is not text.
    #[serde(rename = "bodyBase64", skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
    /// The same under its old name.
    #[serde(rename = "body_base64", skip_serializing_if = "Option::is_none")]
    #[schema(deprecated)]
    body_base64_old: Option<String>,
    /// Trailers in order (gRPC).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<HeaderPair>>)]
    trailers: Option<Vec<(String, String)>>,
}

impl StoredResponse {
    /// The whole response, for those who may see it.
    pub(super) fn with_body(outcome: &Outcome) -> Self {
        let trailers = (!outcome.trailers.is_empty()).then(|| pairs(&outcome.trailers));
        let mut stored = Self { headers: Some(pairs(&outcome.headers)), trailers, ..Self::outside(outcome) };
        if let Body::Kept(bytes) = &outcome.body {
            if let Ok(text) = str::from_utf8(bytes) {
                stored.body = Some(text.to_owned());
            } else {
                stored.body_base64 = Some(BASE64_STANDARD.encode(bytes));
                stored.body_base64_old.clone_from(&stored.body_base64);
            }
        }
        stored
    }

    /// The response without headers and body.
    pub(super) fn outside(outcome: &Outcome) -> Self {
        let (protocol, status) = match outcome.status {
            Status::Http(status) => ("http", Some(u32::from(status))),
            Status::Grpc(status) => ("grpc", Some(status)),
            Status::Value => ("value", None),
        };
        let retained = outcome.body != Body::NotRetained;
        let (headers, body, trailers) = (None, None, None);
        let (body_base64, body_base64_old) = (None, None);
        let unopened = false;
        Self { protocol, status, retained, unopened, headers, body, body_base64, body_base64_old, trailers }
    }

    /// Says that it is stored sealed, and cannot be opened here.
    pub(super) fn unopened(self, unopened: bool) -> Self {
        Self { unopened, ..self }
    }
}

fn pairs(fields: &Fields) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let fields = fields.iter().filter(|(name, _)| semel_http::is_header(name));
    fields.map(|(name, value)| (text(name), text(value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(text: &str) -> Result<Outcome, Problem> {
        let response = serde_json::from_str::<GivenResponse>(text).expect("a response");
        response.into_outcome(ResponseAuthor::Worker, ResponseLimits::default())
    }

    fn entered(text: &str, limits: ResponseLimits) -> Result<Outcome, String> {
        let response = serde_json::from_str::<GivenResponse>(text).expect("a response");
        response.into_outcome(ResponseAuthor::Operator, limits).map_err(|problem| format!("{problem:?}"))
    }

    #[test]
    fn what_no_client_could_read_is_refused_with_the_limit() {
        let limits = ResponseLimits {
            head_bytes_max: 20,
            headers_max: 2,
            body_bytes_max: 5,
            ..ResponseLimits::default()
        };
        let pair = r#"["a", "12345"]"#;
        let response = |headers: &[&str], body: &str| {
            format!(r#"{{"status": 200, "headers": [{}], "body": "{body}"}}"#, headers.join(", "))
        };
        assert!(entered(&response(&[pair, pair], "12345"), limits).is_ok());
        for (headers, body, named) in [
            (&[pair, pair, pair][..], "", "3 headers; at most 2"),
            (&[pair, r#"["a", "123456"]"#], "", "have 21 bytes; at most 20"),
            (&[], "123456", "has 6 bytes; at most 5"),
        ] {
            let refusal = entered(&response(headers, body), limits).expect_err("too long");
            assert!(refusal.contains(named), "{refusal}");
            let response =
                serde_json::from_str::<GivenResponse>(&response(headers, body)).expect("a response");
            let stored = response.into_outcome(ResponseAuthor::Worker, limits).expect("stored without it");
            assert_eq!(stored, Outcome::not_retained(Status::Http(200)), "{named}");
        }
    }

    #[test]
    fn what_would_be_dropped_silently_is_refused() {
        let entered = |text: &str| entered(text, ResponseLimits::default());
        let refusal =
            entered(r#"{"status": 200, "headers": [["set-cookie", "s=1"]]}"#).expect_err("a cookie");
        assert!(refusal.contains("not be replayed"), "{refusal}");
        for status in [204, 304] {
            let refusal = entered(&format!(r#"{{"status": {status}, "body": "x"}}"#)).expect_err("a body");
            assert!(refusal.contains(&format!("{status} has no body")), "{refusal}");
            assert!(entered(&format!(r#"{{"status": {status}, "body": ""}}"#)).is_ok());
        }
    }

    #[test]
    fn a_minimal_response_has_no_body_and_two_headers() {
        let minimal =
            |text: &str| entered(text, ResponseLimits { is_minimal: true, ..ResponseLimits::default() });
        for more in [r#""body": "x""#, r#""headers": [["location", "/a"], ["x-name", "Ada"]]"#] {
            let refusal = minimal(&format!(r#"{{"status": 201, {more}}}"#)).expect_err("more than minimal");
            assert!(refusal.contains("Only the status"), "{refusal}");
        }
        let stored = minimal(r#"{"status": 201, "headers": [["Location", "/a"], ["ETag", "\"1\""]]}"#);
        let headers = [("location", "/a"), ("etag", "\"1\"")].into_iter().collect();
        assert_eq!(stored, Ok(Outcome { headers, ..Outcome::not_retained(Status::Http(201)) }));
    }

    #[test]
    fn a_header_is_a_pair() {
        for bad in [r#"[["a", "b", "c"]]"#, r#"[["a"]]"#, "[[]]"] {
            let text = format!(r#"{{"status": 200, "headers": {bad}}}"#);
            let error = serde_json::from_str::<GivenResponse>(&text).err().expect("refused");
            assert!(error.is_data() && error.to_string().contains("not a pair"), "{error}");
        }
    }

    #[test]
    fn a_response_is_stored_without_its_delivery_headers() {
        let outcome = given(
            r#"{"status": 201, "headers": [["Link", "</a>"], ["Set-Cookie", "s=1"], ["link", "</b>"],
                ["Content-Length", "999"], ["Transfer-Encoding", "chunked"], ["Operation-Id", "x"]], "bodyBase64": "//4A"}"#,
        );
        let expected = Outcome::http(201, [("link", "</a>"), ("link", "</b>")], vec![0xff, 0xfe, 0]);
        assert_eq!(outcome.expect("fit"), expected);
        assert_eq!(given(r#"{"status": 204}"#).expect("fit"), Outcome::http::<&str, &str>(204, [], ""));
    }

    #[test]
    fn the_old_name_of_a_field_means_the_same() {
        let (new, old) =
            (r#"{"status": 200, "bodyBase64": "//4A"}"#, r#"{"status": 200, "body_base64": "//4A"}"#);
        assert_eq!(given(new).expect("fit"), given(old).expect("fit"));
    }

    #[test]
    fn an_impossible_response_is_refused() {
        for bad in [
            r#"{"status": 100}"#,
            r#"{"status": 600}"#,
            r#"{"status": 200, "body": "a", "bodyBase64": "YQ=="}"#,
            r#"{"status": 200, "body": "a", "body_base64": "YQ=="}"#,
            r#"{"status": 200, "bodyBase64": "YQ==", "body_base64": "YQ=="}"#,
            r#"{"status": 200, "bodyBase64": "YQ"}"#,
            r#"{"status": 200, "body_base64": "YQ"}"#,
            r#"{"status": 200, "bodyBase64": "YR=="}"#,
            r#"{"status": 200, "bodyBase64": "YWI=YQ=="}"#,
            r#"{"status": 200, "bodyBase64": "Y Q=="}"#,
            r#"{"status": 200, "bodyBase64": "_-4A"}"#,
            r#"{"status": 200, "headers": [["a b", "c"]]}"#,
            r#"{"status": 200, "headers": [["a", "b\r\nc: d"]]}"#,
        ] {
            assert!(given(bad).is_err(), "{bad}");
        }
    }
}
