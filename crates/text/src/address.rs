//! Addresses to listen on, as people write them.

use std::net::{Ipv4Addr, SocketAddr};

/// Reads an address: `127.0.0.1:8080`, `[::]:8080`, or `:8080` for every IPv4 address of the machine.
///
/// ```
/// use semel_text::address;
///
/// assert_eq!(address::parse(":8080"), "0.0.0.0:8080".parse().map_err(|_| String::new()));
/// assert!(address::parse("localhost").is_err());
/// ```
pub fn parse(text: &str) -> Result<SocketAddr, String> {
    if let Some(port) = text.strip_prefix(':').and_then(|port| port.parse().ok()) {
        return Ok((Ipv4Addr::UNSPECIFIED, port).into());
    }
    text.parse().map_err(|_| {
        format!(
            "`{text}` is not an address with a port: write one like \"127.0.0.1:8080\", or \":8080\" \
                for every address of the machine"
        )
    })
}
