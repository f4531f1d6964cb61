//! Addresses to listen on, as people write them, and addresses that count as one client.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Reads an address: `127.0.0.1:8080`, `[::]:8080`, or `:8080` for every IPv4 address of the machine.
///
/// ```
/// use semel_text::address;
///
/// assert_eq!(address::parse(":8080").ok(), "0.0.0.0:8080".parse().ok());
/// assert!(address::parse("localhost").is_err());
/// ```
pub fn parse(text: &str) -> Result<SocketAddr, AddressError> {
    if let Some(port) = text.strip_prefix(':').and_then(|port| port.parse().ok()) {
        return Ok((Ipv4Addr::UNSPECIFIED, port).into());
    }
    text.parse().map_err(|_| AddressError { text: text.to_owned() })
}

/// A text that is not an address with a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressError {
    /// What was read.
    pub text: String,
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is not an address with a port: write one like \"127.0.0.1:8080\", or \":8080\" \
                for every address of the machine",
            self.text
        )
    }
}

impl std::error::Error for AddressError {}

/// What counts as one client: an address, or for IPv6 the network that a household gets.
///
/// ```
/// use semel_text::address::network;
///
/// let address = |text: &str| text.parse::<std::net::IpAddr>().ok();
/// assert_eq!(address("2001:db8::7:8").map(network), address("2001:db8::"));
/// assert_eq!(address("::ffff:192.0.2.1").map(network), address("192.0.2.1"));
/// ```
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}
