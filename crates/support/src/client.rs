//! A simple client: sends each request once, on its own connection.

use crate::Reply;
use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// A request under construction.
#[derive(Debug, Clone)]
#[must_use = "nothing is sent before `send`"]
pub struct TestRequest {
    method: &'static str,
    path: String,
    headers: Vec<(&'static str, Vec<u8>)>,
    body: Bytes,
    /// In pieces of this many bytes, without a length.
    pieces: Option<usize>,
}

impl TestRequest {
    /// A request without a body.
    pub fn new(method: &'static str, path: impl Into<String>) -> Self {
        Self { method, path: path.into(), headers: Vec::new(), body: Bytes::new(), pieces: None }
    }

    /// A POST without a body.
    pub fn post(path: &str) -> Self {
        Self::new("POST", path)
    }

    /// A GET.
    pub fn get(path: &str) -> Self {
        Self::new("GET", path)
    }

    /// Adds a header line.
    pub fn with(mut self, name: &'static str, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name, value.as_ref().to_vec()));
        self
    }

    /// With this idempotency key.
    pub fn key(self, key: &str) -> Self {
        self.with("idempotency-key", key)
    }

    /// With a JSON body.
    pub fn json(self, text: &str) -> Self {
        self.with("content-type", "application/json").bytes(text.to_owned())
    }

    /// With a body without a type.
    pub fn bytes(mut self, bytes: impl Into<Bytes>) -> Self {
        self.body = bytes.into();
        self
    }

    /// With the body in chunks of this many bytes, without a length.
    pub fn in_pieces(mut self, of: usize) -> Self {
        self.pieces = Some(of);
        self
    }

    /// Sends it, and reads the response to its end. Fails without a complete response.
    pub async fn send(self, to: SocketAddr) -> io::Result<Reply> {
        self.send_by(TcpStream::connect(to).await?, to).await
    }

    /// The same on an existing connection.
    pub async fn send_by<I>(self, stream: I, to: SocketAddr) -> io::Result<Reply>
    where
        I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let mut request =
            Request::builder().method(self.method).uri(&self.path).header("host", to.to_string());
        for (name, value) in &self.headers {
            request = request.header(*name, HeaderValue::from_bytes(value).expect("a value"));
        }
        let request = request.body(self.body()).expect("a request");
        let response = request_by(stream, request).await?;
        Reply::read(response).await.map_err(io::Error::other)
    }

    /// Its bytes, for tests that disconnect halfway.
    pub fn raw(&self) -> Vec<u8> {
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

/// Sends a request on its own connection, and reads the head of the response. Fails without a response.
pub async fn request_by<I, B>(stream: I, request: Request<B>) -> io::Result<Response<Incoming>>
where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.map_err(io::Error::other)?;
    tokio::spawn(connection);
    sender.send_request(request).await.map_err(io::Error::other)
}
