//! Requests to HTTP services: HTTP/1.1, one request at a time on a connection, without redirects and cookies.
//!
//! Nothing here has a timeout: what waits for a response sets its own.

mod authorities;
mod connection;
mod dial;

pub use authorities::{Authorities, AuthoritiesError};
pub use connection::{Connection, ReadError, SendError, read};
pub use dial::{ConnectError, dial};

use rustls::pki_types::ServerName;
use std::fmt;
use std::io;
use std::sync::Arc;
use tokio_rustls::TlsConnector;

/// Opens connections to one service.
#[derive(Clone)]
pub struct Client {
    host: String,
    port: u16,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

/// Why a service cannot be spoken to.
#[derive(Debug)]
pub enum ClientError {
    /// No certificate can have this host.
    Host,
    /// Its certificate could not be verified.
    Authorities(AuthoritiesError),
}

impl Client {
    /// For the service at `host`, an IPv6 address without its brackets. Over TLS if there are authorities, otherwise in
    /// plain text. Opens no connection yet.
    pub fn new(host: &str, port: u16, authorities: Option<&Authorities>) -> Result<Self, ClientError> {
        let tls = match authorities {
            Some(authorities) => {
                let name = ServerName::try_from(host.to_owned()).map_err(|_| ClientError::Host)?;
                let config = authorities.client_config().map_err(ClientError::Authorities)?;
                Some((TlsConnector::from(Arc::new(config)), name))
            }
            None => None,
        };
        Ok(Self { host: host.to_owned(), port, tls })
    }

    /// Opens a connection.
    pub async fn connect(&self) -> Result<Connection, ConnectError> {
        let stream = dial(&self.host, self.port).await?;
        let connection = match &self.tls {
            Some((connector, name)) => {
                let stream = connector.connect(name.clone(), stream).await.map_err(ConnectError::Tls)?;
                Connection::over(stream).await
            }
            None => Connection::over(stream).await,
        };
        connection.map_err(|error| ConnectError::Connect(io::Error::other(error)))
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (host, port, is_tls) = (&self.host, self.port, self.tls.is_some());
        f.debug_struct("Client").field("host", host).field("port", &port).field("is_tls", &is_tls).finish()
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("its host is not valid in a certificate"),
            Self::Authorities(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ClientError {}
