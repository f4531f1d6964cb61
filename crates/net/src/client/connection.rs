//! A connection that carries one request after another.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use std::error::Error as _;
use std::fmt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;

/// An open connection. It closes when it is dropped, also while a response is being read from it.
#[derive(Debug)]
pub struct Connection {
    sender: SendRequest<Full<Bytes>>,
    driving: JoinHandle<()>,
}

impl Connection {
    /// Speaks HTTP on an open stream.
    pub async fn over(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<Self, hyper::Error> {
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // A response can be read after the service has closed the connection, so its end is no error by itself.
        let driving = tokio::spawn(async move { drop(connection.await) });
        Ok(Self { sender, driving })
    }

    /// Waits until the response to the last request was read to its end. Fails if the connection is closed.
    pub async fn ready(&mut self) -> Result<(), hyper::Error> {
        self.sender.ready().await
    }

    /// Sends a request, after the response to the last one was read to its end, and waits for the head of the response.
    pub async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, SendError> {
        if let Err(error) = self.ready().await {
            return Err(SendError { error, unsent: Some(Box::new(request)) });
        }
        self.sender.try_send_request(request).await.map_err(|mut failed| {
            let unsent = failed.take_message().map(Box::new);
            SendError { error: failed.into_error(), unsent }
        })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driving.abort();
    }
}

/// Why there is no response.
#[derive(Debug)]
pub struct SendError {
    /// What happened.
    pub error: hyper::Error,
    /// The request, if no byte of it was sent. Otherwise the service may have received it.
    pub unsent: Option<Box<Request<Full<Bytes>>>>,
}

/// With what caused it: the error itself says only that the connection failed.
impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)?;
        let mut cause = self.error.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

impl std::error::Error for SendError {}

/// The body of a response. Its connection must not be dropped before.
pub async fn read(mut body: Incoming, bytes_max: usize) -> Result<Bytes, ReadError> {
    let mut content = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(ReadError::Broken)?.into_data() else { continue };
        if data.len() > bytes_max - content.len() {
            return Err(ReadError::TooLong);
        }
        content.extend_from_slice(&data);
    }
    Ok(content.into())
}

/// Why a response has no body that can be used.
#[derive(Debug)]
pub enum ReadError {
    /// It was cut off, or is not valid.
    Broken(hyper::Error),
    /// It is longer than allowed.
    TooLong,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken(error) => error.fmt(f),
            Self::TooLong => f.write_str("it is too long"),
        }
    }
}

impl std::error::Error for ReadError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Client;
    use http::StatusCode;
    use std::net::SocketAddr;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::sync::oneshot;

    fn request() -> Request<Full<Bytes>> {
        Request::post("/").header("host", "h").body(Full::new(Bytes::from("{}"))).expect("a request")
    }

    /// Answers each connection's first request with these bytes and closes the connection.
    async fn says(response: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut asked = [0; 1024];
                let _ = stream.read(&mut asked).await;
                let _ = stream.write_all(response.as_bytes()).await;
            }
        });
        address
    }

    async fn connected(address: SocketAddr) -> Connection {
        let client = Client::new(&address.ip().to_string(), address.port(), None).expect("plain text");
        client.connect().await.expect("a connection")
    }

    #[tokio::test]
    async fn a_response_is_read_to_its_end() {
        let whole = says("HTTP/1.1 201 Created\r\ncontent-length: 5\r\n\r\nhello").await;
        let mut connection = connected(whole).await;
        let response = connection.send(request()).await.expect("a response");
        assert_eq!(response.status(), StatusCode::CREATED);
        assert_eq!(read(response.into_body(), 5).await.expect("a body"), "hello");
        let until_closed = says("HTTP/1.1 200 OK\r\n\r\nhello").await;
        let mut connection = connected(until_closed).await;
        let response = connection.send(request()).await.expect("a response");
        assert_eq!(read(response.into_body(), 5).await.expect("a body"), "hello");
    }

    #[tokio::test]
    async fn a_long_body_and_one_that_is_cut_off_are_distinguished() {
        let whole = says("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello").await;
        let mut connection = connected(whole).await;
        let response = connection.send(request()).await.expect("a response");
        assert!(matches!(read(response.into_body(), 4).await, Err(ReadError::TooLong)));
        let cut_off = says("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nhello").await;
        let mut connection = connected(cut_off).await;
        let response = connection.send(request()).await.expect("a response");
        assert!(matches!(read(response.into_body(), 9).await, Err(ReadError::Broken(_))));
    }

    #[tokio::test]
    async fn a_closed_connection_hands_the_request_back() {
        let address = says("HTTP/1.1 204 No Content\r\n\r\n").await;
        let mut connection = connected(address).await;
        let response = connection.send(request()).await.expect("a response");
        read(response.into_body(), 0).await.expect("no body");
        // The service closes the connection after its first response.
        let failed = connection.send(request()).await.expect_err("it is closed");
        let unsent = failed.unsent.expect("nothing was sent");
        let response = connected(address).await.send(*unsent).await.expect("a response");
        assert_eq!(response.status(), StatusCode::NO_CONTENT);
    }

    #[tokio::test]
    async fn a_request_without_a_response_is_not_handed_back() {
        let mut connection = connected(says("").await).await;
        let failed = connection.send(request()).await.expect_err("no response");
        assert!(failed.unsent.is_none(), "the service read it");
    }

    #[tokio::test]
    async fn a_dropped_connection_is_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (closing, closed) = oneshot::channel();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut read = Vec::new();
            let _ = closing.send(stream.read_to_end(&mut read).await.is_ok());
        });
        let mut connection = connected(address).await;
        tokio::select! {
            _ = connection.send(request()) => panic!("nobody answers"),
            () = tokio::time::sleep(std::time::Duration::from_millis(10)) => {}
        }
        drop(connection);
        assert!(closed.await.expect("the service saw the end"));
    }
}
