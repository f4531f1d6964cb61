//! Encrypted connections: the server's certificate is always checked.

use rustls::pki_types::ServerName;
use semel_net::tls;
use std::io;
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Encrypts a connection to `host`, whose certificate an authority in `roots` must have signed for that name.
pub(crate) async fn connect(
    stream: TcpStream,
    host: &str,
    roots: Option<&Path>,
) -> io::Result<TlsStream<TcpStream>> {
    let roots = tls::store_roots(roots).map_err(io::Error::other)?;
    let config = tls::client_config(roots).map_err(io::Error::other)?;
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}
