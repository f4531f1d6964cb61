//! Opens a connection: name resolution, TCP, TLS.

use super::socket::{Io, Socket};
use super::tls::{self, AlpnConfigs};
use crate::wire::poll_read_piece;
use rustls::pki_types::ServerName;
use semel_net::client::{self, ConnectError};
use semel_net::target::{Target, Transport};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

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
) -> Result<NewConnection, ConnectError> {
    let tcp = client::dial(target.host(), target.port()).await?;
    let (socket, io) = Socket::new(tcp);
    let Some(offers) = offers else {
        let is_h2 = target.transport() == Transport::H2c;
        return Ok(NewConnection { stream: Stream::Plain(io), socket, is_h2 });
    };
    let name = ServerName::try_from(target.host().to_owned());
    let name = name.map_err(|error| ConnectError::Tls(io::Error::other(error)))?;
    let config = Arc::clone(if must_be_http1 { &offers.http1 } else { &offers.either });
    let stream = TlsConnector::from(config).connect(name, io).await.map_err(ConnectError::Tls)?;
    let is_h2 = tls::is_h2(stream.get_ref().1.alpn_protocol());
    Ok(NewConnection { stream: Stream::Tls(Box::new(stream)), socket, is_h2 })
}

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
