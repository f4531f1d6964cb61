//! A plain client: sends exactly what a test specifies, on its own connection.

use serde_json::Value;
use std::fmt::Write as _;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A request under construction.
pub(crate) struct AdminRequest {
    address: SocketAddr,
    line: String,
    headers: Vec<(String, String)>,
    body: Option<Vec<u8>>,
}

/// A response, read to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl AdminRequest {
    pub(crate) fn new(address: SocketAddr, method: &str, path: &str) -> Self {
        let line = format!("{method} {path} HTTP/1.1");
        Self { address, line, headers: vec![("host".into(), address.to_string())], body: None }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Adds another header with the same name.
    pub(crate) fn add_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    pub(crate) fn token(self, token: &str) -> Self {
        self.header("authorization", &format!("Bearer {token}"))
    }

    pub(crate) fn json(self, body: &Value) -> Self {
        self.text(&body.to_string()).header("content-type", "application/json")
    }

    pub(crate) fn text(mut self, body: &str) -> Self {
        self.body = Some(body.as_bytes().to_vec());
        self
    }

    pub(crate) async fn send(self) -> Reply {
        let mut head = format!("{}\r\nconnection: close\r\n", self.line);
        for (name, value) in &self.headers {
            write!(head, "{name}: {value}\r\n").expect("writing to a string cannot fail");
        }
        if let Some(body) = &self.body {
            write!(head, "content-length: {}\r\n", body.len()).expect("writing to a string cannot fail");
        }
        head.push_str("\r\n");
        let mut stream = TcpStream::connect(self.address).await.expect("it listens");
        stream.write_all(head.as_bytes()).await.expect("sent");
        // A refused body may not be read to its end.
        stream.write_all(&self.body.unwrap_or_default()).await.ok();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.ok();
        Reply::read(&answer)
    }
}

impl Reply {
    fn read(answer: &[u8]) -> Self {
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
        let head = str::from_utf8(&answer[..end]).expect("ASCII");
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse().ok());
        let headers = lines.map(|line| {
            let (name, value) = line.split_once(':').expect("a header");
            (name.to_ascii_lowercase(), value.trim().to_owned())
        });
        let headers: Vec<_> = headers.collect();
        let is_chunked = headers.iter().any(|(name, _)| name == "transfer-encoding");
        let rest = &answer[end + 4..];
        let body = if is_chunked { unchunked(rest) } else { rest.to_vec() };
        Self { status: status.expect("a status"), headers, body }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(known, _)| known == name);
        let first = found.next().map(|(_, value)| value.as_str());
        assert!(found.next().is_none(), "{name} comes twice: {self:?}");
        first
    }

    pub(crate) fn text(&self) -> &str {
        str::from_utf8(&self.body).expect("UTF-8")
    }

    /// The JSON of a response that is not a problem.
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.header("content-type"), Some("application/json"), "{}", self.text());
        serde_json::from_slice(&self.body).expect("JSON")
    }

    /// Status and code of a problem, after checking the members that every problem has.
    pub(crate) fn problem(&self) -> (u16, String) {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{}", self.text());
        let problem: Value = serde_json::from_slice(&self.body).expect("JSON");
        let code = problem["code"].as_str().expect("a code").to_owned();
        assert_eq!(problem["type"], format!("/.well-known/idempotency#{code}"));
        assert_eq!(problem["status"], self.status);
        assert!(
            problem["title"].is_string()
                && problem["detail"].is_string()
                && problem["retryable"].is_boolean()
        );
        assert_eq!(problem["operationId"].as_str(), self.header("operation-id"));
        assert!(problem["retryable"] == true || self.header("retry-after").is_none());
        (self.status, code)
    }

    /// The value of `Retry-After` in seconds.
    pub(crate) fn retry_after(&self) -> Option<u64> {
        self.header("retry-after").map(|seconds| seconds.parse().expect("whole seconds"))
    }
}

fn unchunked(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|two| two == b"\r\n").expect("a size");
        let size = usize::from_str_radix(str::from_utf8(&rest[..end]).expect("ASCII"), 16).expect("a size");
        if size == 0 {
            return body;
        }
        body.extend_from_slice(&rest[end + 2..end + 2 + size]);
        rest = &rest[end + 2 + size + 2..];
    }
}
