//! Stored responses in JSON: those that workers and operators send, and those that are shown. Headers that would make
//! a replay wrong about its length are dropped.

use super::input::whole;
use super::problem::Problem;
use http::{HeaderMap, HeaderName, HeaderValue};
use semel::archive::base64;
use semel::core::outcome::{Body, Fields, Outcome, Status};
use semel_http::Kept;
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
    /// Headers in order, each as name and value. Headers of a single delivery are not stored.
    #[serde(default)]
    #[schema(value_type = Option<Vec<HeaderPair>>)]
    headers: Option<Vec<(String, String)>>,
    /// The body, if it is text.
    body: Option<String>,
    /// The body in base64, if it is not text.
    #[serde(rename = "bodyBase64")]
    #[schema(
        pattern = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$"
    )]
    body_base64: Option<String>,
    /// The old name of `bodyBase64`, which is still accepted.
    #[serde(rename = "body_base64")]
    #[schema(
        deprecated,
        pattern = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$"
    )]
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
    let status = whole(deserializer)?.and_then(|status| status.try_into().ok());
    status.ok_or_else(|| D::Error::custom("not a status"))
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

    /// The part that is stored.
    pub(super) fn into_outcome(self) -> Result<Outcome, Problem> {
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
                base64::decode(&text).ok_or_else(|| Problem::invalid("bodyBase64 is not base64."))?
            }
            (None, None) => Vec::new(),
        };
        let mut headers = HeaderMap::new();
        for (name, value) in self.headers.unwrap_or_default() {
            let name = HeaderName::from_bytes(name.as_bytes());
            let value = HeaderValue::from_bytes(value.as_bytes());
            let (Ok(name), Ok(value)) = (name, value) else {
                return Err(Problem::invalid("A header of the response is not valid in HTTP."));
            };
            headers
                .try_append(name, value)
                .map_err(|_| Problem::invalid("The response has too many headers."))?;
        }
        let kept = Kept::default().of(&headers, body.len(), false);
        Ok(Outcome::http(self.status, kept, body))
    }
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
    /// Whether its bytes were stored.
    retained: bool,
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
    pub(super) fn whole(outcome: &Outcome) -> Self {
        let trailers = (!outcome.trailers.is_empty()).then(|| pairs(&outcome.trailers));
        let mut stored = Self { headers: Some(pairs(&outcome.headers)), trailers, ..Self::outside(outcome) };
        if let Body::Kept(bytes) = &outcome.body {
            if let Ok(text) = str::from_utf8(bytes) {
                stored.body = Some(text.to_owned());
            } else {
                stored.body_base64 = Some(base64::encode(bytes));
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
        Self { protocol, status, retained, headers, body, body_base64, body_base64_old, trailers }
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
        serde_json::from_str::<GivenResponse>(text).expect("a response").into_outcome()
    }

    #[test]
    fn an_answer_is_kept_byte_for_byte_without_what_belongs_to_one_delivery() {
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
            r#"{"status": 200, "headers": [["a b", "c"]]}"#,
            r#"{"status": 200, "headers": [["a", "b\r\nc: d"]]}"#,
        ] {
            assert!(given(bad).is_err(), "{bad}");
        }
    }
}
