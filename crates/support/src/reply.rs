//! A response, read to its end, and Semel's headers in it.

use crate::key::KEY;
use bytes::Bytes;
use http::{HeaderMap, Response};
use http_body_util::BodyExt;

/// A response, read to its end.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the parts of a response")]
pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub trailers: Option<HeaderMap>,
}

impl Reply {
    /// Reads a response to its end. Fails if it is cut off.
    pub async fn read<B: http_body::Body<Data = Bytes>>(response: Response<B>) -> Result<Self, B::Error> {
        let (parts, body) = response.into_parts();
        let body = body.collect().await?;
        let trailers = body.trailers().cloned();
        let (status, body) = (parts.status.as_u16(), body.to_bytes());
        Ok(Self { status, headers: parts.headers, body, trailers })
    }

    /// The first header line with this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("ASCII"))
    }

    /// The body, which has to be text.
    pub fn text(&self) -> &str {
        str::from_utf8(&self.body).expect("UTF-8")
    }

    /// The body, which has to be JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("JSON in {self:?}"))
    }

    /// The code of a problem, if it is one.
    pub fn code(&self) -> Option<String> {
        let is_problem = self.header("content-type") == Some("application/problem+json");
        is_problem.then(|| self.json()["code"].as_str().expect("a code").to_owned())
    }

    /// Whether it is a problem that can be retried with the same key.
    pub fn is_retryable(&self) -> bool {
        self.code().is_some() && self.json()["retryable"] == true
    }

    /// Whether it is marked as a replay.
    pub fn is_replay(&self) -> bool {
        self.header("idempotency-replayed") == Some("true")
    }

    /// Whether it is marked as stored.
    pub fn is_acknowledged(&self) -> bool {
        self.headers.contains_key("idempotency-expires")
    }

    /// What all replays have in common: everything except the replay mark, the date, and the framing of the body.
    pub fn kept(&self) -> (u16, Vec<(String, Vec<u8>)>, Bytes) {
        const PASSING: [&str; 5] =
            ["date", "idempotency-replayed", "connection", "content-length", "transfer-encoding"];
        let headers = self.headers.iter().filter(|(name, _)| !PASSING.contains(&name.as_str()));
        let mut headers: Vec<_> =
            headers.map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect();
        // Lines with the same name keep their order; different names have none.
        headers.sort_by(|one, other| one.0.cmp(&other.0));
        (self.status, headers, self.body.clone())
    }

    /// The members of a problem, after checking what every problem must and must not contain.
    pub fn problem(&self) -> serde_json::Value {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        assert!(!self.text().contains(KEY), "the key is in the problem");
        let problem: serde_json::Value = serde_json::from_slice(&self.body).expect("JSON");
        let code = problem["code"].as_str().expect("a code");
        assert_eq!(problem["type"], format!("/.well-known/idempotency#{code}"));
        assert_eq!(problem["status"], self.status);
        assert!(
            problem["title"].is_string()
                && problem["detail"].is_string()
                && problem["retryable"].is_boolean()
        );
        assert_eq!(problem["operationId"].as_str(), self.header("operation-id"));
        problem
    }

    /// The status, code and retryability of a problem.
    #[track_caller]
    pub fn is_problem(&self, status: u16, code: &str, retryable: bool) {
        let problem = self.problem();
        let found = (self.status, problem["code"].as_str().expect("a code"), problem["retryable"].as_bool());
        assert_eq!(found, (status, code, Some(retryable)), "{problem}");
    }
}
