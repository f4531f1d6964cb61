//! Where a request came from.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// Where a request came from, according to its connection.
#[derive(Clone, PartialEq, Eq)]
pub struct Peer {
    /// The other end of the connection.
    pub address: IpAddr,
    /// The verified client certificate (DER).
    pub certificate: Option<Arc<[u8]>>,
}

/// Without the certificate's content.
impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.certificate.as_ref().map(|certificate| certificate.len());
        f.debug_struct("Peer").field("address", &self.address).field("certificate_bytes", &bytes).finish()
    }
}
