//! The client's side of TLS with the upstream: which versions of HTTP it offers.

use rustls::ClientConfig;
use semel_net::client::{Authorities, AuthoritiesError};
use std::sync::Arc;

const H2: &[u8] = b"h2";
const HTTP_1_1: &[u8] = b"http/1.1";

/// The configurations for a handshake: with both HTTP versions, or only with the one that can be upgraded.
#[derive(Debug, Clone)]
pub(super) struct AlpnConfigs {
    pub(super) either: Arc<ClientConfig>,
    pub(super) http1: Arc<ClientConfig>,
}

impl AlpnConfigs {
    /// With a server that one of `authorities` has signed for.
    pub(super) fn new(authorities: &Authorities) -> Result<Self, AuthoritiesError> {
        let mut config = authorities.client_config()?;
        config.alpn_protocols = vec![HTTP_1_1.to_vec()];
        let http1 = Arc::new(config.clone());
        config.alpn_protocols = vec![H2.to_vec(), HTTP_1_1.to_vec()];
        Ok(Self { either: Arc::new(config), http1 })
    }
}

/// Whether the handshake ended with HTTP/2.
pub(super) fn is_h2(chosen: Option<&[u8]>) -> bool {
    chosen == Some(H2)
}
