//! TLS to servers: the certificate authorities that they are verified with, and the client's side of a handshake.

use crate::named_file::{self, CERTIFICATES};
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::{ClientConfig, RootCertStore};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;

/// The authorities in PEM text, which may contain none.
pub fn roots_of(pem: &[u8]) -> Result<RootCertStore, AuthorityError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        roots.add(certificate?)?;
    }
    Ok(roots)
}

/// What is wrong with one of the authorities.
#[derive(Debug, Error)]
pub enum AuthorityError {
    /// It is not PEM text.
    #[error(transparent)]
    Pem(#[from] pem::Error),
    /// It is not a certificate.
    #[error(transparent)]
    Certificate(#[from] rustls::Error),
}

/// The authorities that the system trusts, as far as they can be read.
pub fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    add_system_roots(&mut roots);
    roots
}

/// Adds the authorities that the system trusts. Returns why some of them could not be read.
pub fn add_system_roots(roots: &mut RootCertStore) -> Vec<String> {
    let native = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(native.certs);
    native.errors.iter().map(ToString::to_string).collect()
}

/// The authorities for the server of a store: those in the file that `sslrootcert` in the store's URL names, or the
/// system's. There is at least one.
pub fn store_roots(sslrootcert: Option<&Path>) -> Result<RootCertStore, StoreRootsError> {
    let roots = match sslrootcert {
        Some(path) => {
            let pem = named_file::read(path, CERTIFICATES)
                .map_err(|source| StoreRootsError::Unreadable { path: path.to_owned(), source })?;
            roots_of(&pem).map_err(|source| StoreRootsError::Unusable { path: path.to_owned(), source })?
        }
        None => system_roots(),
    };
    if roots.is_empty() { Err(StoreRootsError::Empty) } else { Ok(roots) }
}

/// Why there is no authority that the server of a store could be verified with.
#[derive(Debug, Error)]
pub enum StoreRootsError {
    /// The file cannot be read.
    #[error("sslrootcert={path}: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// One of the authorities in the file cannot be used.
    #[error("sslrootcert={path}: {source}")]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: AuthorityError,
    },
    /// The file, or the system, has none.
    #[error("no root certificate was found; name a file with sslrootcert=PATH")]
    Empty,
}

/// For connections to servers whose certificate one of `roots` has signed for the server's name. The client has no
/// certificate of its own.
pub fn client_config(roots: RootCertStore) -> Result<ClientConfig, rustls::Error> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    Ok(builder.with_safe_default_protocol_versions()?.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;
    use semel_test_support::ScratchDir;

    /// A certificate of an authority, in PEM text.
    fn authority() -> String {
        let key = rcgen::KeyPair::generate().expect("a key");
        let parameters = rcgen::CertificateParams::new(Vec::new()).expect("no names");
        parameters.self_signed(&key).expect("a certificate").pem()
    }

    #[test]
    fn every_certificate_of_a_file_is_trusted() {
        let folder = ScratchDir::new("roots");
        let file = folder.write("ca.pem", format!("{}{}", authority(), authority()));
        assert_eq!(store_roots(Some(&file)).expect("two authorities").len(), 2);
    }

    #[test]
    fn a_file_that_cannot_be_used_is_named_and_the_system_is_not_used_instead() {
        let folder = ScratchDir::new("roots");
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for (name, content) in [("broken.pem", broken), ("cut.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n")] {
            let file = folder.write(name, content);
            let refusal = store_roots(Some(&file)).expect_err(name);
            assert!(matches!(refusal, StoreRootsError::Unusable { .. }), "{refusal:?}");
            let refusal = refusal.to_string();
            assert!(refusal.starts_with(&format!("sslrootcert={}: ", file.display())), "{refusal}");
        }
        let empty = folder.write("empty.pem", "");
        let refusal = store_roots(Some(&empty)).expect_err("no certificate");
        assert_eq!(refusal.to_string(), "no root certificate was found; name a file with sslrootcert=PATH");
        let missing = store_roots(Some(&folder.join("none.pem"))).expect_err("no file");
        assert!(matches!(missing, StoreRootsError::Unreadable { .. }), "{missing:?}");
    }
}
