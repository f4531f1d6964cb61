//! The URL of an HTTP service, and request paths below it. Paths and queries are not rewritten.

use http::Uri;
use http::uri::{Authority, InvalidUri, PathAndQuery, Scheme};
use rustls::pki_types::ServerName;
use std::fmt;
use std::net::IpAddr;

/// The maximum length of a request's path and query: the longest that can be sent (65,534) minus the longest base path.
pub const PATH_BYTES_MAX: usize = 65_534 - BASE_BYTES_MAX;
const BASE_BYTES_MAX: usize = 1024;

/// The protocol of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    /// `http://`: HTTP/1.1 in plain text.
    Http,
    /// `https://`: TLS; HTTP/2 where the service offers it, HTTP/1.1 otherwise.
    Https,
    /// `h2c://`: HTTP/2 in plain text, by prior knowledge.
    H2c,
}

/// Where a service is: `http://host:port/base`, `https://…` or `h2c://…`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    transport: Transport,
    host: String,
    port: u16,
    authority: Authority,
    base: String,
}

impl Target {
    /// Reads a URL. It may have a base path, which is put before the path of every request. Credentials, queries and
    /// fragments are refused.
    pub fn parse(url: &str) -> Result<Self, TargetError> {
        let fail = |why| TargetError { url: url.to_owned(), why };
        let (transport, rest) = match url.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (Transport::Http, rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (Transport::Https, rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("h2c") => (Transport::H2c, rest),
            _ => return Err(fail("it does not begin with http://, https:// or h2c://")),
        };
        if rest.contains(['?', '#']) {
            return Err(fail("it has a query or a fragment"));
        }
        let (authority, base) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err(fail("it contains credentials, which the gateway does not send"));
        }
        let authority: Authority = authority.parse().map_err(|_| fail("its host is not valid"))?;
        let host = authority.host();
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if host.is_empty() {
            return Err(fail("it has no host"));
        }
        let host = host.to_owned();
        let named_port = &authority.as_str()[authority.host().len()..];
        let port = match authority.port_u16() {
            Some(0) => return Err(fail("port 0 cannot be used")),
            Some(port) => port,
            None if named_port.len() > 1 => return Err(fail("its port is not valid")),
            None if transport == Transport::Https => 443,
            None => 80,
        };
        let base = base.trim_end_matches('/');
        if !base.is_empty() && base.parse::<PathAndQuery>().is_err() {
            return Err(fail("its base path is not valid"));
        }
        if base.len() > BASE_BYTES_MAX {
            return Err(fail("its base path is longer than 1,024 bytes"));
        }
        if transport == Transport::Https && ServerName::try_from(host.as_str()).is_err() {
            return Err(fail("its host is not valid in a certificate"));
        }
        Ok(Self { transport, host, port, authority, base: base.to_owned() })
    }

    /// How it is spoken to.
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// The host's name or address, an IPv6 address without its brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Whether its host is this machine by name, so that nobody on the network can read the traffic.
    pub fn is_loopback(&self) -> bool {
        let is_address = self.host.parse().is_ok_and(|address: IpAddr| address.to_canonical().is_loopback());
        is_address || self.host.eq_ignore_ascii_case("localhost")
    }

    /// The port; the scheme's default if the URL has none.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Host and port as in the URL: the `Host` for a service that expects its own name.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The base path of every request; empty, or without a trailing slash.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// The target for `uri`: the base path, then its path and query, byte for byte. None if that is too long, which
    /// cannot happen within [`PATH_BYTES_MAX`].
    pub fn join(&self, uri: &Uri) -> Result<PathAndQuery, InvalidUri> {
        let path = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        if self.base.is_empty() || path.as_str() == "*" {
            return Ok(path);
        }
        PathAndQuery::try_from(format!("{}{path}", self.base))
    }

    /// The scheme as HTTP/2 has it.
    pub fn scheme(&self) -> Scheme {
        if self.transport == Transport::Https { Scheme::HTTPS } else { Scheme::HTTP }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.transport {
            Transport::Http => "http",
            Transport::Https => "https",
            Transport::H2c => "h2c",
        };
        write!(f, "{scheme}://{}{}", self.authority, self.base)
    }
}

/// Why a URL cannot be used as that of a service.
#[derive(Clone, PartialEq, Eq)]
pub struct TargetError {
    url: String,
    why: &'static str,
}

/// As displayed: without credentials in the URL.
impl fmt::Debug for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TargetError({self})")
    }
}

impl TargetError {
    /// What is wrong with the URL, without any part of it.
    pub fn reason(&self) -> &'static str {
        self.why
    }
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // It may contain credentials, which do not belong in logs.
        let shown = match self.url.rsplit_once('@') {
            Some((_, rest)) => format!("…@{rest}"),
            None => self.url.clone(),
        };
        let shown = match shown.split_once(['?', '#']) {
            Some((rest, _)) => format!("{rest}…"),
            None => shown,
        };
        write!(f, "{shown:?} cannot be used: {}", self.why)
    }
}

impl std::error::Error for TargetError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(url: &str) -> Target {
        Target::parse(url).expect("a target")
    }

    #[test]
    fn a_url_names_host_port_and_base() {
        let plain = target("http://pay.internal:3000");
        assert_eq!((plain.host(), plain.port(), plain.transport()), ("pay.internal", 3000, Transport::Http));
        assert_eq!(target("https://pay.internal/").port(), 443);
        assert_eq!(target("HTTP://pay.internal").port(), 80);
        let v6 = target("h2c://[::1]:50051/grpc/");
        assert_eq!((v6.host(), v6.port(), v6.authority().as_str()), ("::1", 50051, "[::1]:50051"));
        assert_eq!(v6.to_string(), "h2c://[::1]:50051/grpc");
    }

    #[test]
    fn meaningless_addresses_are_refused_with_a_reason() {
        for (url, reason) in [
            ("pay.internal:3000", "http://"),
            ("ftp://pay.internal", "http://"),
            ("http://", "host"),
            ("http:///base", "host"),
            ("http://:3000", "host"),
            ("http://user:hunter2@pay.internal", "credentials"),
            ("http://pay.internal/?a=hunter2", "query"),
            ("http://pay.internal/#top", "fragment"),
            ("http://pay.internal:99999", "port"),
            ("http://pay.internal:0", "port"),
            ("http://pay internal", "host"),
            ("http://pay.internal/a b", "base"),
        ] {
            let refusal = Target::parse(url).expect_err(url).to_string();
            assert!(refusal.contains(reason) && !refusal.contains("hunter2"), "{url}: {refusal}");
        }
    }

    #[test]
    fn a_path_and_query_pass_byte_for_byte() {
        for path in ["/", "/a//b/../c/./d", "/%2e%2E/%41?x=%20&y=+&&=", "/a?", "//host/x", "/é?ü", "*"] {
            let uri: Uri = path.parse().expect("a path");
            let joined = |url| target(url).join(&uri).expect("a path").to_string();
            assert_eq!(joined("http://h"), path);
            assert_eq!(joined("http://h/"), path);
            let below = if path == "*" { path.to_owned() } else { format!("/base{path}") };
            assert_eq!(joined("http://h/base/"), below);
        }
    }

    #[test]
    fn a_path_below_the_base_is_below_it_or_nowhere() {
        let path_of = |bytes: usize| format!("/{}", "a".repeat(bytes - 1)).parse::<Uri>().expect("a path");
        let base = format!("/{}", "b".repeat(BASE_BYTES_MAX - 1));
        let longest = target(&format!("http://h{base}"));
        let joined = longest.join(&path_of(PATH_BYTES_MAX)).expect("it is not too long");
        assert!(joined.as_str().starts_with(&base) && joined.as_str().len() == 65_534);
        longest.join(&path_of(PATH_BYTES_MAX + 1)).expect_err("it is too long");
        Target::parse(&format!("http://h{base}b")).expect_err("its base path is too long");
    }
}
