//! The certificate authorities that the gateway trusts for the upstream. Verification cannot be switched off.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use semel_net::tls;
use std::fmt;
use std::sync::Arc;

const H2: &[u8] = b"h2";
const HTTP_1_1: &[u8] = b"http/1.1";

/// The certificate authorities for an `https://` upstream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tls {
    authorities: Vec<CertificateDer<'static>>,
    is_private: bool,
}

impl Tls {
    /// Those in `pem`, in addition to the system's.
    pub fn also(pem: &[u8]) -> Result<Self, TlsError> {
        Ok(Self { authorities: read(pem)?, is_private: false })
    }

    /// Only those in `pem`.
    pub fn only(pem: &[u8]) -> Result<Self, TlsError> {
        Ok(Self { authorities: read(pem)?, is_private: true })
    }

    /// The configurations for a handshake.
    pub(super) fn offers(&self) -> Result<AlpnConfigs, TlsError> {
        let mut roots = RootCertStore::empty();
        for authority in &self.authorities {
            roots.add(authority.clone()).map_err(|error| TlsError(error.to_string()))?;
        }
        if !self.is_private {
            for error in tls::add_system_roots(&mut roots) {
                tracing::warn!(%error, "one of the system's certificate authorities could not be read");
            }
        }
        if roots.is_empty() {
            let none = "neither the system nor the options name a certificate authority, so no upstream \
                could be verified";
            return Err(TlsError(none.to_owned()));
        }
        let mut config = tls::client_config(roots).map_err(|error| TlsError(error.to_string()))?;
        config.alpn_protocols = vec![HTTP_1_1.to_vec()];
        let http1 = Arc::new(config.clone());
        config.alpn_protocols = vec![H2.to_vec(), HTTP_1_1.to_vec()];
        Ok(AlpnConfigs { either: Arc::new(config), http1 })
    }
}

/// The configurations for a handshake: with both HTTP versions, or only with the one that can be upgraded.
#[derive(Debug, Clone)]
pub(super) struct AlpnConfigs {
    pub(super) either: Arc<ClientConfig>,
    pub(super) http1: Arc<ClientConfig>,
}

/// Whether the handshake ended with HTTP/2.
pub(super) fn is_h2(chosen: Option<&[u8]>) -> bool {
    chosen == Some(H2)
}

fn read(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let read = read.map_err(|error| TlsError(error.to_string()))?;
    if read.is_empty() { Err(TlsError("it contains no certificate".to_owned())) } else { Ok(read) }
}

/// Why the certificate authorities cannot be used.
#[derive(Debug, Clone)]
pub struct TlsError(String);

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the upstream's certificate authorities: {}", self.0)
    }
}

impl std::error::Error for TlsError {}
