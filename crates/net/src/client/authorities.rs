//! The certificate authorities that a service is verified with. Verification cannot be switched off.

use crate::tls;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use std::fmt;

/// The certificate authorities for an `https://` service; the system's by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Authorities {
    named: Vec<CertificateDer<'static>>,
    is_private: bool,
}

impl Authorities {
    /// Those in `pem`, in addition to the system's.
    pub fn also(pem: &[u8]) -> Result<Self, AuthoritiesError> {
        Ok(Self { named: read(pem)?, is_private: false })
    }

    /// Only those in `pem`.
    pub fn only(pem: &[u8]) -> Result<Self, AuthoritiesError> {
        Ok(Self { named: read(pem)?, is_private: true })
    }

    /// A client that trusts them, and at least one. What cannot be read of the system's is logged.
    pub fn client_config(&self) -> Result<ClientConfig, AuthoritiesError> {
        let mut roots = RootCertStore::empty();
        for authority in &self.named {
            roots.add(authority.clone()).map_err(|error| AuthoritiesError::Unusable(error.to_string()))?;
        }
        if !self.is_private {
            for error in tls::add_system_roots(&mut roots) {
                tracing::warn!(target: "semel_gateway::upstream::tls", %error, "one of the system's certificate authorities could not be read");
            }
        }
        if roots.is_empty() {
            return Err(AuthoritiesError::None);
        }
        tls::client_config(roots).map_err(|error| AuthoritiesError::Unusable(error.to_string()))
    }
}

fn read(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, AuthoritiesError> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let read = read.map_err(|error| AuthoritiesError::Unusable(error.to_string()))?;
    if read.is_empty() { Err(AuthoritiesError::Empty) } else { Ok(read) }
}

/// Why certificate authorities cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthoritiesError {
    /// One of them is not valid.
    Unusable(String),
    /// The text names none.
    Empty,
    /// None were named, and the system has none.
    None,
}

impl fmt::Display for AuthoritiesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unusable(why) => write!(f, "the certificate authorities cannot be used: {why}"),
            Self::Empty => f.write_str("the certificate authorities cannot be used: there is no certificate"),
            Self::None => f.write_str(
                "the system has no certificate authorities, and none are configured, so no server could be verified",
            ),
        }
    }
}

impl std::error::Error for AuthoritiesError {}
