//! A response, read to its end, and what Semel says in it.

use crate::KEY;
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
    /// Reads a response to its end. An error if it is cut off.
    pub async fn read<B: http_body::Body<Data = Bytes>>(response: Response<B>) -> Result<Self, B::Error> {
        let (parts, body) = response.into_parts();
        let body = body.collect().await?;
        let trailers = body.trailers().cloned();
        let (status, body) = (parts.status.as_u16(), body.to_bytes());
        Ok(Self { status, headers: parts.headers, body, trailers })
    }

    /// The first header line of that name.
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

    /// A problem's code, if it is one.
    pub fn code(&self) -> Option<String> {
        let is_problem = self.header("content-type") == Some("application/problem+json");
        is_problem.then(|| self.json()["code"].as_str().expect("a code").to_owned())
    }

    /// Whether it is a problem that asks to be tried again with the same key.
    pub fn is_retryable(&self) -> bool {
        self.code().is_some() && self.json()["retryable"] == true
    }

    /// Whether it says that it is a replay.
    pub fn is_replay(&self) -> bool {
        self.header("idempotency-replayed") == Some("true")
    }

    /// Whether it says that its outcome is stored for good.
    pub fn is_acknowledged(&self) -> bool {
        self.headers.contains_key("idempotency-expires")
    }

    /// What every replay must have in common: everything except the mark of a replay, the date, and the framing of the
    /// body.
    pub fn kept(&self) -> (u16, Vec<(String, Vec<u8>)>, Bytes) {
        const PASSING: [&str; 5] =
            ["date", "idempotency-replayed", "connection", "content-length", "transfer-encoding"];
        let headers = self.headers.iter().filter(|(name, _)| !PASSING.contains(&name.as_str()));
        let mut headers: Vec<_> =
            headers.map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect();
        // Lines of one name keep their order; names have none.
        headers.sort_by(|one, other| one.0.cmp(&other.0));
        (self.status, headers, self.body.clone())
    }

    /// The members of a problem, after a look at what every problem must and must not have.
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
        let told = (self.status, problem["code"].as_str().expect("a code"), problem["retryable"].as_bool());
        assert_eq!(told, (status, code, Some(retryable)), "{problem}");
    }
}
