//! The admin address, or `off`. [`Options::check`](super::Options::check) decides whether it may be opened.

use super::Options;
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use thiserror::Error;

/// Where operators and workers connect, if anywhere: `127.0.0.1:9090`, or `off`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Address {
    /// No admin address.
    Off,
    /// This address.
    At(SocketAddr),
}

impl Default for Address {
    fn default() -> Self {
        Self::At(Options::default().address)
    }
}

/// This text is not an admin address.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is not an address with a port: write one like \"127.0.0.1:9090\", or \"off\" for none")]
pub struct AddressError(pub String);

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if text == "off" {
            return Ok(Self::Off);
        }
        semel_text::address::parse(text).map(Self::At).map_err(|_| AddressError(text.to_owned()))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::At(address) => address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_exactly_as_written() {
        for text in ["off", "127.0.0.1:9090", "[::]:80"] {
            assert_eq!(text.parse::<Address>().expect("an address").to_string(), text);
        }
        assert_eq!(Address::default().to_string(), "127.0.0.1:9090");
        for bad in ["", "Off", "none", "9090", "localhost:9090", "127.0.0.1"] {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
    }
}
