//! TLS of a listening socket.
//!
//! What lives here: from two PEM files to a configuration. What must never: a handshake that goes on with anything but what
//! the files say.

use super::error::Error;
use super::options::Tls;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{InconsistentKeys, ServerConfig};
use std::path::Path;
use std::sync::Arc;

/// What a client can choose from, best first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

pub(super) fn config(tls: &Tls) -> Result<Arc<ServerConfig>, Error> {
    let certificates = certificates(&tls.certificates)?;
    let key = key(&tls.key)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let damaged = |file: &Path, error: rustls::Error| Error::Damaged(file.to_owned(), error.to_string());
    // Loaded by itself first, so that what is wrong with it is told of the right file.
    provider.key_provider.load_private_key(key.clone_key()).map_err(|error| damaged(&tls.key, error))?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| damaged(&tls.certificates, error))?
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .map_err(|error| match error {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                Error::OtherKey { certificates: tls.certificates.clone(), key: tls.key.clone() }
            }
            other => damaged(&tls.certificates, other),
        })?;
    config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
    Ok(Arc::new(config))
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let text = read(file)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match certificates {
        Ok(certificates) if certificates.is_empty() => Err(Error::NoCertificate(file.to_owned())),
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(Error::Damaged(file.to_owned(), format!("not PEM as it should be: {error}"))),
    }
}

fn key(file: &Path) -> Result<PrivateKeyDer<'static>, Error> {
    let text = read(file)?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| match error {
        pem::Error::NoItemsFound => Error::NoKey(file.to_owned()),
        other => Error::Damaged(file.to_owned(), format!("not PEM as it should be: {other}")),
    })
}

fn read(file: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(file).map_err(|error| Error::Unreadable(file.to_owned(), error))
}
