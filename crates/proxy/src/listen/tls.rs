//! TLS for a listening socket, and its replacement while the socket listens.

use super::error::Error;
use super::options::{Clients, Tls};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{InconsistentKeys, RootCertStore, ServerConfig};
use semel_net::named_file::{self, CERTIFICATES};
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use tokio_rustls::TlsAcceptor;

/// The protocols to negotiate, best first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// The TLS configuration of a listening socket. Clones share it.
#[derive(Debug, Clone)]
pub struct Credentials(Arc<RwLock<LoadedTls>>);

/// TLS files that were read and fit together.
#[derive(Debug)]
pub struct LoadedTls {
    config: Arc<ServerConfig>,
    /// The certificates that clients get.
    chain: Arc<[CertificateDer<'static>]>,
}

impl LoadedTls {
    /// Reads the files. On an error nothing has changed anywhere.
    pub fn read(tls: &Tls, clients: Option<&Clients>) -> Result<Self, Error> {
        let chain = certificates(&tls.certificates)?;
        Ok(Self { config: config(tls, clients)?, chain: chain.into() })
    }
}

impl Tls {
    /// Whether certificate and key can be used and belong together.
    pub fn check(&self) -> Result<(), Error> {
        config(self, None).map(drop)
    }
}

impl Clients {
    /// Whether these authorities can verify clients.
    pub fn check(&self) -> Result<(), Error> {
        verifier(self, &Arc::new(rustls::crypto::ring::default_provider())).map(drop)
    }
}

impl Credentials {
    pub(super) fn new(loaded: LoadedTls) -> Self {
        Self(Arc::new(RwLock::new(loaded)))
    }

    /// The certificates that clients get now, as DER.
    pub fn chain(&self) -> Arc<[CertificateDer<'static>]> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner).chain)
    }

    /// Uses `fresh` for every new handshake; earlier sessions cannot be resumed. Open connections continue.
    pub fn replace(&self, fresh: LoadedTls) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = fresh;
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner).config))
    }
}

fn config(tls: &Tls, clients: Option<&Clients>) -> Result<Arc<ServerConfig>, Error> {
    let certificates = certificates(&tls.certificates)?;
    let key = key(&tls.key)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let damaged = |file: &Path, error: rustls::Error| Error::Damaged(file.to_owned(), error.to_string());
    // Loaded separately first, so that errors name the right file.
    provider.key_provider.load_private_key(key.clone_key()).map_err(|error| damaged(&tls.key, error))?;
    let verifier = match clients {
        Some(clients) => verifier(clients, &provider)?,
        None => WebPkiClientVerifier::no_client_auth(),
    };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| damaged(&tls.certificates, error))?
        .with_client_cert_verifier(verifier)
        .with_single_cert(certificates, key)
        .map_err(|error| match error {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                Error::OtherKey { certificates: tls.certificates.clone(), key: tls.key.clone() }
            }
            other => damaged(&tls.certificates, other),
        })?;
    if clients.is_some() {
        // A resumed session would reuse a certificate that was verified when it began, and may have expired since.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
    Ok(Arc::new(config))
}

fn verifier(clients: &Clients, provider: &Arc<CryptoProvider>) -> Result<Arc<dyn ClientCertVerifier>, Error> {
    let file = &clients.authorities;
    let damaged = |error: String| Error::Damaged(file.clone(), error);
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        roots.add(certificate).map_err(|error| damaged(error.to_string()))?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    let builder = if clients.is_required { builder } else { builder.allow_unauthenticated() };
    builder.build().map_err(|error| damaged(error.to_string()))
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let text = read(file)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match certificates {
        Ok(certificates) if certificates.is_empty() => Err(Error::NoCertificate(file.to_owned())),
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(Error::Damaged(file.to_owned(), format!("not valid PEM: {error}"))),
    }
}

fn key(file: &Path) -> Result<PrivateKeyDer<'static>, Error> {
    let text = read(file)?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| match error {
        pem::Error::NoItemsFound => Error::NoKey(file.to_owned()),
        other => Error::Damaged(file.to_owned(), format!("not valid PEM: {other}")),
    })
}

fn read(file: &Path) -> Result<Vec<u8>, Error> {
    named_file::read_once(file, CERTIFICATES).map_err(|error| Error::Unreadable(file.to_owned(), error))
}
