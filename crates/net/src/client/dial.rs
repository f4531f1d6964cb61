//! Opens a TCP connection to a service.

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use std::fmt;
use std::io::{self, ErrorKind};
use std::time::Duration;
use tokio::net::TcpStream;

/// After how long the next address is tried in parallel.
const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(250);

/// Connects to the first address of `host` that answers. A silent one does not delay the others.
pub async fn dial(host: &str, port: u16) -> Result<TcpStream, ConnectError> {
    let addresses = tokio::net::lookup_host((host, port)).await;
    let mut addresses = addresses.map_err(ConnectError::Name)?.peekable();
    let mut trying = FuturesUnordered::new();
    let mut failed = io::Error::new(ErrorKind::NotFound, "the name has no address");
    loop {
        if let Some(address) = addresses.next() {
            trying.push(TcpStream::connect(address));
        } else if trying.is_empty() {
            return Err(ConnectError::Connect(failed));
        }
        let has_more = addresses.peek().is_some();
        tokio::select! {
            Some(tried) = trying.next() => match tried {
                Ok(stream) => {
                    // Small requests must not wait for the acknowledgement of earlier ones.
                    stream.set_nodelay(true).map_err(ConnectError::Connect)?;
                    return Ok(stream);
                }
                Err(error) => failed = error,
            },
            () = tokio::time::sleep(NEXT_ADDRESS_AFTER), if has_more => {}
        }
    }
}

/// Why there is no connection. Nothing of a request was sent.
#[derive(Debug)]
pub enum ConnectError {
    /// The name could not be resolved.
    Name(io::Error),
    /// No TCP connection.
    Connect(io::Error),
    /// The TLS handshake failed.
    Tls(io::Error),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(error) => write!(f, "its name has no address: {error}"),
            Self::Connect(error) => write!(f, "no connection: {error}"),
            Self::Tls(error) => write!(f, "the TLS handshake failed: {error}"),
        }
    }
}

impl std::error::Error for ConnectError {}
