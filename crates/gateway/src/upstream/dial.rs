//! Opens a connection: name resolution, TCP, TLS.

use super::socket::{Io, Socket};
use super::target::{Target, Transport};
use super::tls::{self, AlpnConfigs};
use crate::wire::poll_read_piece;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use rustls::pki_types::ServerName;
use std::fmt;
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// After how long the next address is tried in parallel.
const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(250);

/// A new connection.
pub(super) struct NewConnection {
    pub(super) stream: Stream,
    pub(super) socket: Arc<Socket>,
    pub(super) is_h2: bool,
}

/// Opens a connection to `target`; without `offers`, in plain text.
pub(super) async fn dial(
    target: &Target,
    offers: Option<&AlpnConfigs>,
    must_be_http1: bool,
) -> Result<NewConnection, DialError> {
    let tcp = connect(target).await?;
    let (socket, io) = Socket::new(tcp);
    let Some(offers) = offers else {
        let is_h2 = target.transport() == Transport::H2c;
        return Ok(NewConnection { stream: Stream::Plain(io), socket, is_h2 });
    };
    let name = ServerName::try_from(target.host().to_owned());
    let name = name.map_err(|error| DialError::Tls(io::Error::other(error)))?;
    let config = Arc::clone(if must_be_http1 { &offers.http1 } else { &offers.either });
    let stream = TlsConnector::from(config).connect(name, io).await.map_err(DialError::Tls)?;
    let is_h2 = tls::is_h2(stream.get_ref().1.alpn_protocol());
    Ok(NewConnection { stream: Stream::Tls(Box::new(stream)), socket, is_h2 })
}

/// The first address that answers. A silent one does not delay the others.
async fn connect(target: &Target) -> Result<TcpStream, DialError> {
    let addresses = tokio::net::lookup_host((target.host(), target.port())).await;
    let mut addresses = addresses.map_err(DialError::Name)?.peekable();
    let mut trying = FuturesUnordered::new();
    let mut failed = io::Error::new(ErrorKind::NotFound, "the name has no address");
    loop {
        if let Some(address) = addresses.next() {
            trying.push(TcpStream::connect(address));
        } else if trying.is_empty() {
            return Err(DialError::Connect(failed));
        }
        let has_more = addresses.peek().is_some();
        tokio::select! {
            Some(tried) = trying.next() => match tried {
                Ok(stream) => {
                    // Small requests must not wait for the acknowledgement of earlier ones.
                    stream.set_nodelay(true).map_err(DialError::Connect)?;
                    return Ok(stream);
                }
                Err(error) => failed = error,
            },
            () = tokio::time::sleep(NEXT_ADDRESS_AFTER), if has_more => {}
        }
    }
}

/// Why there is no connection.
#[derive(Debug)]
pub(super) enum DialError {
    Name(io::Error),
    Connect(io::Error),
    Tls(io::Error),
}

impl fmt::Display for DialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(error) => write!(f, "its name has no address: {error}"),
            Self::Connect(error) => write!(f, "no connection: {error}"),
            Self::Tls(error) => write!(f, "the TLS handshake failed: {error}"),
        }
    }
}

impl std::error::Error for DialError {}

/// The transport of HTTP.
pub(super) enum Stream {
    Plain(Io),
    Tls(Box<TlsStream<Io>>),
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_read(context, into),
            Self::Tls(stream) => poll_read_piece(stream, context, into),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_write(context, data),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, data),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_write_vectored(context, data),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(context, data),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(io) => io.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
