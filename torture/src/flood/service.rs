//! The service behind the gateway. It answers with bodies of every length, without limits.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

const LARGE_BYTES: usize = 9 << 20;
/// Longer than the gateway stores.
const LONG_BYTES: usize = 12 << 20;
const HANG: Duration = Duration::from_secs(5);

/// Serves for as long as this program runs.
pub(crate) async fn start() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        loop {
            if let Ok((connection, _)) = listener.accept().await {
                tokio::spawn(serve(connection));
            }
        }
    });
    Ok(address)
}

async fn serve(connection: TcpStream) -> io::Result<()> {
    let mut connection = BufReader::new(connection);
    loop {
        let (path, length) = head(&mut connection).await?;
        let mut body = (&mut connection).take(length);
        tokio::io::copy(&mut body, &mut tokio::io::sink()).await?;
        let bytes = match path.as_str() {
            "/large" => LARGE_BYTES,
            "/long" => LONG_BYTES,
            "/hang" => {
                sleep(HANG).await;
                2
            }
            _ => 2,
        };
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {bytes}\r\n\r\n");
        connection.write_all(head.as_bytes()).await?;
        let piece = [b'x'; 16 * 1024];
        let mut left = bytes;
        while left > 0 {
            let count = left.min(piece.len());
            connection.write_all(&piece[..count]).await?;
            left -= count;
        }
        connection.flush().await?;
    }
}

/// The path of the next request, and the length of its body.
async fn head(connection: &mut BufReader<TcpStream>) -> io::Result<(String, u64)> {
    let (mut path, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if connection.read_line(&mut line).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            return Ok((path, length));
        }
        if path.is_empty() {
            line.split(' ').nth(1).unwrap_or("/").clone_into(&mut path);
        } else if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
    }
}
