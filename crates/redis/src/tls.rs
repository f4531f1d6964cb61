//! Encrypted connections: the server's certificate is always checked.

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use semel_net::named_file::{self, CERTIFICATES_BYTES_MAX};
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
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    let config = builder.with_root_certificates(authorities(roots)?).with_no_client_auth();
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

/// The certificates of the file, or the system's.
pub(crate) fn authorities(path: Option<&Path>) -> io::Result<RootCertStore> {
    let mut store = RootCertStore::empty();
    match path {
        Some(path) => {
            let failed = |cause: String| io::Error::other(format!("sslrootcert={}: {cause}", path.display()));
            let pem =
                named_file::read(path, CERTIFICATES_BYTES_MAX).map_err(|error| failed(error.to_string()))?;
            for certificate in CertificateDer::pem_slice_iter(&pem) {
                let certificate = certificate.map_err(|error| failed(error.to_string()))?;
                store.add(certificate).map_err(|error| failed(error.to_string()))?;
            }
        }
        None => {
            store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if store.is_empty() {
        return Err(io::Error::other("no root certificate was found; name a file with sslrootcert=PATH"));
    }
    Ok(store)
}
