//! Ranges of trusted addresses. Host names are not accepted, because whoever answers the DNS query would decide who is
//! trusted.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A range of addresses, as `10.0.0.0/8`, `fd00::/8`, or one address alone.
///
/// ```
/// use semel_identity::Network;
///
/// let network: Network = "10.1.0.0/16".parse()?;
/// assert!(network.holds("10.1.2.3".parse().unwrap()));
/// assert!(network.holds("::ffff:10.1.2.3".parse().unwrap()), "the same address, written for IPv6");
/// assert!(!network.holds("10.2.2.3".parse().unwrap()));
/// # Ok::<(), semel_identity::NetworkError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    base: IpAddr,
    prefix: u8,
}

impl Network {
    /// Whether the address is in the range. An IPv4-mapped IPv6 address is the same as the IPv4 address.
    pub fn holds(&self, address: IpAddr) -> bool {
        match (self.base, address.to_canonical()) {
            (IpAddr::V4(base), IpAddr::V4(address)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0);
                (u32::from(base) ^ u32::from(address)) & mask == 0
            }
            (IpAddr::V6(base), IpAddr::V6(address)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix)).unwrap_or(0);
                (u128::from(base) ^ u128::from(address)) & mask == 0
            }
            _ => false,
        }
    }

    /// Whether the range is wider than any private network.
    pub fn is_too_wide(&self) -> bool {
        match self.base {
            IpAddr::V4(_) => self.prefix < 8,
            IpAddr::V6(_) => self.prefix < 7,
        }
    }

    /// One address alone.
    fn single(address: IpAddr) -> Self {
        let base = address.to_canonical();
        Self { base, prefix: width(base) }
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

impl From<IpAddr> for Network {
    fn from(address: IpAddr) -> Self {
        Self::single(address)
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let malformed = |_| NetworkError::Malformed(text.to_owned());
        let Some((base, prefix)) = text.split_once('/') else {
            return Ok(Self::single(text.parse().map_err(malformed)?));
        };
        let written: IpAddr = base.parse().map_err(malformed)?;
        let is_plain = !prefix.is_empty() && prefix.bytes().all(|byte| byte.is_ascii_digit());
        let prefix = prefix.parse::<u8>().ok().filter(|prefix| is_plain && *prefix <= width(written));
        let mut prefix = prefix.ok_or_else(|| NetworkError::Malformed(text.to_owned()))?;
        let base = written.to_canonical();
        if base != written {
            prefix = prefix.checked_sub(96).ok_or_else(|| NetworkError::Malformed(text.to_owned()))?;
        }
        let network = Self { base, prefix };
        let lowest = network.lowest();
        if lowest == base { Ok(network) } else { Err(NetworkError::Inside(Self { base: lowest, prefix })) }
    }
}

impl Network {
    fn lowest(&self) -> IpAddr {
        match self.base {
            IpAddr::V4(base) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0);
                IpAddr::V4((u32::from(base) & mask).into())
            }
            IpAddr::V6(base) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix)).unwrap_or(0);
                IpAddr::V6((u128::from(base) & mask).into())
            }
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.prefix)
    }
}

/// Why a text is not a range of addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NetworkError {
    /// Neither an address nor a range.
    Malformed(String),
    /// An address within a range, instead of the range's first one. Contains the correct range.
    Inside(Network),
}

impl fmt::Display for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(text) => {
                write!(
                    f,
                    "`{text}` is not a range of addresses; write one like 10.0.0.0/8, fd00::/8 or 127.0.0.1"
                )
            }
            Self::Inside(network) => {
                write!(f, "the address has bits after the prefix; write {network}, or the address alone")
            }
        }
    }
}

impl std::error::Error for NetworkError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        text.parse().expect(text)
    }

    fn holds(text: &str, address: &str) -> bool {
        network(text).holds(address.parse().expect(address))
    }

    #[test]
    fn a_range_ends_at_its_prefix() {
        assert!(holds("10.0.0.0/8", "10.255.255.255") && !holds("10.0.0.0/8", "11.0.0.0"));
        assert!(holds("192.168.4.0/22", "192.168.7.255") && !holds("192.168.4.0/22", "192.168.8.0"));
        assert!(holds("10.0.0.1", "10.0.0.1") && !holds("10.0.0.1", "10.0.0.2"));
        assert!(holds("fd00::/8", "fdff::1") && !holds("fd00::/8", "fe00::1"));
        assert!(holds("::1", "::1") && !holds("::1", "::2") && !holds("::1", "127.0.0.1"));
        assert!(holds("0.0.0.0/0", "255.1.2.3") && !holds("0.0.0.0/0", "fd00::1"));
    }

    #[test]
    fn an_address_mapped_into_ipv6_is_the_address() {
        assert!(holds("127.0.0.0/8", "::ffff:127.0.0.1"));
        assert!(holds("::ffff:127.0.0.0/104", "127.1.2.3"));
        assert_eq!(network("::ffff:10.0.0.1"), network("10.0.0.1"));
        assert!(network("::ffff:0.0.0.0/96").is_too_wide(), "all of IPv4 by another name");
    }

    #[test]
    fn an_invalid_range_is_reported_with_a_correct_one() {
        for text in
            ["", "x", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/+8", "::/129", "proxy.example/8", "10.0.0.0/8/8"]
        {
            assert_eq!(text.parse::<Network>(), Err(NetworkError::Malformed(text.to_owned())), "{text}");
        }
        let refusal = "10.1.2.3/8".parse::<Network>().map_err(|error| error.to_string());
        assert!(refusal.is_err_and(|refusal| refusal.contains("10.0.0.0/8")));
    }

    #[test]
    fn whole_private_networks_are_not_too_wide_and_the_world_is() {
        for text in ["10.0.0.0/8", "fc00::/7", "127.0.0.1"] {
            assert!(!network(text).is_too_wide(), "{text}");
        }
        for text in ["0.0.0.0/0", "::/0", "0.0.0.0/1", "128.0.0.0/1", "2000::/3"] {
            assert!(network(text).is_too_wide(), "{text}");
        }
    }
}
