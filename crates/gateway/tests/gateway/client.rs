//! A client without opinions: it sends what it is told, once, on a connection of its own.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request};
use http_body::Frame;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// A request to be.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    method: &'static str,
    path: String,
    headers: Vec<(&'static str, Vec<u8>)>,
    body: Bytes,
    /// In pieces of so many bytes, without a length.
    pieces: Option<usize>,
}

impl Ask {
    pub(crate) fn new(method: &'static str, path: impl Into<String>) -> Self {
        Self { method, path: path.into(), headers: Vec::new(), body: Bytes::new(), pieces: None }
    }

    pub(crate) fn post(path: &str) -> Self {
        Self::new("POST", path)
    }

    pub(crate) fn get(path: &str) -> Self {
        Self::new("GET", path)
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name, value.as_ref().to_vec()));
        self
    }

    pub(crate) fn key(self, key: &str) -> Self {
        self.with("idempotency-key", key)
    }

    pub(crate) fn json(self, text: &str) -> Self {
        self.with("content-type", "application/json").bytes(text.to_owned())
    }

    pub(crate) fn bytes(mut self, bytes: impl Into<Bytes>) -> Self {
        self.body = bytes.into();
        self
    }

    pub(crate) fn in_pieces(mut self, of: usize) -> Self {
        self.pieces = Some(of);
        self
    }

    /// Sends it, and reads the answer to its end. An error where there is none, or not a whole one.
    pub(crate) async fn send(self, to: SocketAddr) -> io::Result<Reply> {
        self.send_by(TcpStream::connect(to).await?, to).await
    }

    /// The same on a connection that is there.
    pub(crate) async fn send_by<I>(self, stream: I, to: SocketAddr) -> io::Result<Reply>
    where
        I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let stream = TokioIo::new(stream);
        let http1 = hyper::client::conn::http1::Builder::new();
        let (mut sender, connection) = http1.handshake(stream).await.map_err(io::Error::other)?;
        let driving = tokio::spawn(connection);
        let mut request =
            Request::builder().method(self.method).uri(&self.path).header("host", to.to_string());
        for (name, value) in &self.headers {
            request = request.header(*name, HeaderValue::from_bytes(value).expect("a value"));
        }
        let request = request.body(self.body()).expect("a request");
        let response = sender.send_request(request).await.map_err(io::Error::other)?;
        let (parts, body) = response.into_parts();
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        drop(sender);
        drop(driving);
        Ok(Reply { status: parts.status.as_u16(), headers: parts.headers, body })
    }

    /// The bytes of it, for whoever goes away in the middle of them.
    pub(crate) fn raw(&self) -> Vec<u8> {
        let mut raw = format!("{} {} HTTP/1.1\r\nhost: test\r\n", self.method, self.path).into_bytes();
        for (name, value) in &self.headers {
            raw.extend_from_slice(format!("{name}: ").as_bytes());
            raw.extend_from_slice(value);
            raw.extend_from_slice(b"\r\n");
        }
        raw.extend_from_slice(format!("content-length: {}\r\n\r\n", self.body.len()).as_bytes());
        raw.extend_from_slice(&self.body);
        raw
    }

    fn body(&self) -> BoxBody<Bytes, Infallible> {
        let Some(size) = self.pieces else { return Full::new(self.body.clone()).boxed() };
        let pieces: Vec<_> =
            self.body.chunks(size).map(|piece| Ok(Frame::data(Bytes::copy_from_slice(piece)))).collect();
        BodyExt::boxed(StreamBody::new(futures_util::stream::iter(pieces)))
    }
}

/// A response, read to its end.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("ASCII"))
    }

    pub(crate) fn text(&self) -> &str {
        str::from_utf8(&self.body).expect("UTF-8")
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("JSON in {self:?}"))
    }

    /// A problem's code, if it is one.
    pub(crate) fn code(&self) -> Option<String> {
        let is_problem = self.header("content-type") == Some("application/problem+json");
        is_problem.then(|| self.json()["code"].as_str().expect("a code").to_owned())
    }

    pub(crate) fn is_replay(&self) -> bool {
        self.header("idempotency-replayed") == Some("true")
    }

    /// Whether it says that its outcome is stored for good.
    pub(crate) fn is_acknowledged(&self) -> bool {
        self.headers.contains_key("idempotency-expires")
    }

    /// What stays of it in every replay: all but the mark of one, the date, and how the body's end is told.
    pub(crate) fn kept(&self) -> (u16, Vec<(String, Vec<u8>)>, Bytes) {
        const PASSING: [&str; 5] =
            ["date", "idempotency-replayed", "connection", "content-length", "transfer-encoding"];
        let headers = self.headers.iter().filter(|(name, _)| !PASSING.contains(&name.as_str()));
        let mut headers: Vec<_> =
            headers.map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect();
        // Lines of one name keep their order; names have none.
        headers.sort_by(|one, other| one.0.cmp(&other.0));
        (self.status, headers, self.body.clone())
    }
}
