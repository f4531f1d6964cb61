//! Where the gateway sends a question: to a path below the upstream, or to its own URL. The host is fixed.

use super::template::{Placeholder, Template};
use crate::invalid_value::InvalidValue;
use semel_net::target::{Target, Transport};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// Where a question goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// The service to ask; by default the upstream.
    pub target: Option<Target>,
    /// The path to request.
    pub path: Template,
}

impl Destination {
    /// Reads a path below the upstream, or a whole URL.
    pub fn parse(text: &str, known: &[Placeholder]) -> Result<Self, InvalidValue> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return Ok(Self { target: None, path: Template::parse(text, known)? });
        };
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        if authority.contains(['{', '}']) {
            let problem = format!("`{text}` has a placeholder in its host");
            return Err(InvalidValue::new(problem, "write a fixed host"));
        }
        let fix = "write https://HOST/PATH, or a path below the upstream";
        let target = Target::parse(&format!("{scheme}://{authority}"))
            .map_err(|error| InvalidValue::new(error.to_string(), fix))?;
        let path = Template::parse(if path.is_empty() { "/" } else { path }, known)?;
        Ok(Self { target: Some(target), path })
    }

    /// Whether requests can be read on the network, as far as the address shows.
    pub fn is_open(&self) -> bool {
        self.target.as_ref().is_some_and(is_open)
    }

    /// The same, for a path below `upstream`.
    pub fn is_open_below(&self, upstream: &Target) -> bool {
        is_open(self.target.as_ref().unwrap_or(upstream))
    }

    /// Whether it is the gateway itself, which listens on `address`, as far as the address shows.
    pub fn is_at(&self, address: SocketAddr) -> bool {
        let Some(target) = &self.target else { return false };
        let is_same = match target.host().parse::<IpAddr>() {
            Ok(host) => host.to_canonical() == address.ip().to_canonical(),
            Err(_) => false,
        };
        let is_reached = address.ip().is_loopback() || address.ip().is_unspecified();
        target.port() == address.port() && (is_same || is_reached && is_here(target.host()))
    }
}

fn is_open(target: &Target) -> bool {
    target.transport() != Transport::Https && !is_here(target.host())
}

/// Whether a host is this machine, without name resolution.
fn is_here(host: &str) -> bool {
    let is_loopback = |ip: IpAddr| ip.to_canonical().is_loopback();
    host.eq_ignore_ascii_case("localhost") || host.parse().is_ok_and(is_loopback)
}

/// As it was written.
impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.target {
            Some(target) => write!(f, "{target}{}", self.path),
            None => self.path.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &[Placeholder] = &[Placeholder::OperationId];

    fn destination(text: &str) -> Destination {
        Destination::parse(text, ID).expect("a place")
    }

    #[test]
    fn a_question_goes_below_the_upstream_or_to_its_own_url() {
        assert_eq!(destination("/effects/{operation_id}").target, None);
        let absolute = destination("https://ledger.internal:8443/effects/{operation_id}?full=1");
        assert_eq!(
            absolute.target.as_ref().map(Target::to_string).as_deref(),
            Some("https://ledger.internal:8443")
        );
        assert_eq!(absolute.to_string(), "https://ledger.internal:8443/effects/{operation_id}?full=1");
        for (text, reason) in [
            ("ftp://ledger/x", "http://"),
            ("https://{operation_id}.internal/x", "a fixed host"),
            ("https://user:hunter2@ledger/x", "credentials"),
            ("https://ledger?x", "slash"),
            ("ledger.internal/x", "slash"),
        ] {
            let refusal = Destination::parse(text, ID).expect_err(text).to_string();
            assert!(refusal.contains(reason) && !refusal.contains("hunter2"), "{text}: {refusal}");
        }
    }

    #[test]
    fn an_unencrypted_destination_is_recognised() {
        assert!(destination("http://ledger.internal/x").is_open());
        assert!(destination("h2c://10.0.0.1/x").is_open());
        for closed in
            ["https://ledger/x", "http://localhost:1/x", "http://127.0.0.2/x", "http://[::1]/x", "/x"]
        {
            assert!(!destination(closed).is_open(), "{closed}");
        }
        let below = |url: &str| destination("/x").is_open_below(&Target::parse(url).expect("an upstream"));
        assert!(below("http://service.internal:80") && !below("https://service.internal"));
        assert!(!below("http://127.0.0.1:9"));
    }

    #[test]
    fn the_gateway_itself_is_recognised() {
        let at = |url: &str, address: &str| destination(url).is_at(address.parse().expect("an address"));
        assert!(at("http://127.0.0.1:8080/x", "127.0.0.1:8080"));
        assert!(at("http://localhost:8080/x", "127.0.0.1:8080"));
        assert!(at("http://localhost:8080/x", "0.0.0.0:8080"));
        assert!(at("http://10.0.0.1:8080/x", "10.0.0.1:8080"));
        assert!(!at("http://10.0.0.2:8080/x", "10.0.0.1:8080"));
        assert!(!at("http://localhost:8080/x", "10.0.0.1:8080"));
        assert!(!at("http://127.0.0.1:8081/x", "127.0.0.1:8080"));
        assert!(!at("/x", "127.0.0.1:8080"));
    }
}
