//! Why a listening socket cannot be opened, with the setting that fixes it.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why [`Bound::bind`](super::Bound::bind) failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The address cannot be bound.
    Address(SocketAddr, io::Error),
    /// A file of the TLS settings cannot be read.
    Unreadable(PathBuf, io::Error),
    /// There is no certificate in the file.
    NoCertificate(PathBuf),
    /// Client certificates are configured without TLS.
    ClientsWithoutTls,
    /// There is no private key in the file.
    NoKey(PathBuf),
    /// The content of the file is damaged or of an unknown kind.
    Damaged(PathBuf, String),
    /// The key does not belong to the certificate.
    OtherKey {
        /// The certificate's file.
        certificates: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address, error) if error.kind() == io::ErrorKind::AddrInUse => {
                write!(f, "{address} is in use by another program. Stop it, or choose another address")
            }
            Self::Address(address, error) => write!(f, "cannot listen on {address}: {error}"),
            Self::Unreadable(file, error) => write!(f, "{}: {error}", file.display()),
            Self::NoCertificate(file) => {
                write!(f, "{} contains no certificate (PEM, BEGIN CERTIFICATE)", file.display())
            }
            Self::ClientsWithoutTls => {
                f.write_str("client certificates need TLS. Set a certificate and its key for the listener")
            }
            Self::NoKey(file) => {
                write!(f, "{} contains no private key (PEM, BEGIN PRIVATE KEY)", file.display())
            }
            Self::Damaged(file, reason) => write!(f, "{}: {reason}", file.display()),
            Self::OtherKey { certificates, key } => write!(
                f,
                "{}: the key does not belong to the first certificate of {}",
                key.display(),
                certificates.display()
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Address(_, error) | Self::Unreadable(_, error) => Some(error),
            _ => None,
        }
    }
}
