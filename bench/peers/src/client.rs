//! An HTTP client with a persistent connection.

use std::error::Error;
use std::fmt::Write as _;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The parts of a response that are checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: String,
    head: String,
}

impl Reply {
    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

pub(crate) struct Client {
    stream: TcpStream,
    /// The headers that identify the sender.
    sender_headers: String,
    buffer: Vec<u8>,
}

impl Client {
    /// Connects, and logs in if the service has sessions.
    pub(crate) async fn connect(to: SocketAddr) -> Result<Self, Box<dyn Error>> {
        let stream = TcpStream::connect(to).await?;
        stream.set_nodelay(true)?;
        let sender_headers = "authorization: Bearer shop\r\n".to_owned();
        let mut client = Self { stream, sender_headers, buffer: Vec::new() };
        let login = client.post("/login", "log-in-of-the-shop", "", "").await?;
        if let Some(cookie) = login.header("set-cookie").and_then(|cookie| cookie.split(';').next()) {
            let _ = write!(client.sender_headers, "cookie: {cookie}\r\n");
        }
        Ok(client)
    }

    /// Another connection of the same sender.
    pub(crate) async fn reconnect(&self, to: SocketAddr) -> Result<Self, Box<dyn Error>> {
        let stream = TcpStream::connect(to).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, sender_headers: self.sender_headers.clone(), buffer: Vec::new() })
    }

    pub(crate) async fn post(
        &mut self,
        path: &str,
        key: &str,
        more: &str,
        body: &str,
    ) -> Result<Reply, Box<dyn Error>> {
        self.send(path, key, more, body).await?;
        self.receive().await
    }

    pub(crate) async fn send(
        &mut self,
        path: &str,
        key: &str,
        more: &str,
        body: &str,
    ) -> Result<(), Box<dyn Error>> {
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: peers\r\ncontent-type: application/json\r\nidempotency-key: {key}\r\n{}{more}\
             content-length: {}\r\n\r\n{body}",
            self.sender_headers,
            body.len()
        );
        Ok(self.stream.write_all(request.as_bytes()).await?)
    }

    pub(crate) async fn receive(&mut self) -> Result<Reply, Box<dyn Error>> {
        self.buffer.clear();
        let end = loop {
            if let Some(at) = self.buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err("the service closed the connection".into());
            }
        };
        let head = String::from_utf8_lossy(&self.buffer[..end]).into_owned();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or("no status")?;
        let mut reply = Reply { status, body: String::new(), head };
        let length: usize =
            reply.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        while self.buffer.len() < end + length {
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err("the response was cut short".into());
            }
        }
        reply.body = String::from_utf8_lossy(&self.buffer[end..end + length]).into_owned();
        Ok(reply)
    }
}
