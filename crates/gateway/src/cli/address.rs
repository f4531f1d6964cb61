//! Addresses to listen on, as people write them.

use std::net::{Ipv4Addr, SocketAddr};

/// Reads an address: `127.0.0.1:8080`, `[::]:8080`, or `:8080` for every IPv4 address of the machine.
///
/// ```
/// use semel_gateway::cli::address;
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

/// Whether both cannot be listened on at once, or a request to one arrives at the other.
pub(crate) fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let covers = |one: SocketAddr, other: SocketAddr| {
        one.ip().is_unspecified() && (one.is_ipv6() || other.ip().to_canonical().is_ipv4())
    };
    let is_same = one.ip().to_canonical() == other.ip().to_canonical();
    one.port() != 0 && one.port() == other.port() && (is_same || covers(one, other) || covers(other, one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_overlap_where_one_covers_the_other() {
        let overlap = |one: &str, other: &str| {
            overlap(one.parse().expect("an address"), other.parse().expect("an address"))
        };
        assert!(overlap("127.0.0.1:80", "127.0.0.1:80") && overlap("0.0.0.0:80", "127.0.0.1:80"));
        assert!(overlap("[::]:80", "127.0.0.1:80") && overlap("10.0.0.1:80", "0.0.0.0:80"));
        assert!(!overlap("127.0.0.1:80", "127.0.0.1:81") && !overlap("127.0.0.1:80", "127.0.0.2:80"));
        assert!(!overlap("127.0.0.1:0", "127.0.0.1:0"), "the system chooses two ports");
    }
}
