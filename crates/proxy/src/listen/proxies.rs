//! The client's address behind trusted proxies, used to decide which client has to give way.

use http::HeaderMap;
use http::header::FORWARDED;
use semel_text::address::network;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, PoisonError, RwLock};

type IsTrusted = dyn Fn(IpAddr) -> bool + Send + Sync;

/// The trusted proxies. Clones share them; a request uses the list at its start.
#[derive(Clone, Default)]
pub struct Proxies(Arc<RwLock<Option<Arc<IsTrusted>>>>);

impl Proxies {
    /// Trusts the peers for which `is_trusted` holds.
    pub fn replace(&self, is_trusted: impl Fn(IpAddr) -> bool + Send + Sync + 'static) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(is_trusted));
    }

    /// The network that a request came from; behind trusted proxies, the client's own.
    pub(super) fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let peer = peer.to_canonical();
        let is_trusted = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(is_trusted) = is_trusted.filter(|is_trusted| is_trusted(peer)) else { return network(peer) };
        // Each proxy appends the address that it saw: the last one that is not a proxy is the client.
        let mut client = peer;
        for station in hops(headers).into_iter().rev() {
            let Some(address) = station else { break };
            client = address;
            if !is_trusted(address) {
                break;
            }
        }
        network(client)
    }
}

/// The addresses that the proxies saw, in order. If both headers are present, `X-Forwarded-For` counts: most proxies
/// write it, and pass the other on unchanged.
fn hops(headers: &HeaderMap) -> Vec<Option<IpAddr>> {
    let parts = |name: &str| -> Vec<&str> {
        let lines = headers.get_all(name).iter().map(|line| line.to_str().unwrap_or(""));
        lines.flat_map(|line| line.split(',')).collect()
    };
    let listed = parts("x-forwarded-for");
    if !listed.is_empty() {
        return listed.into_iter().map(address).collect();
    }
    parts(FORWARDED.as_str()).into_iter().map(forwarded_for).collect()
}

/// The `for` of one element of `Forwarded`.
fn forwarded_for(element: &str) -> Option<IpAddr> {
    let mut pairs = element.split(';').filter_map(|pair| pair.split_once('='));
    let (_, node) = pairs.find(|(name, _)| name.trim().eq_ignore_ascii_case("for"))?;
    address(node)
}

/// An address, with or without quotes, brackets and a port.
fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim().trim_matches('"');
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let found = bare.parse().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|socket| socket.ip()));
    found.map(|address: IpAddr| address.to_canonical())
}

impl fmt::Debug for Proxies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Proxies")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};

    fn client_of(peer: &str, lines: &[(&'static str, &'static str)]) -> String {
        let proxies = Proxies::default();
        proxies.replace(|address| address.to_string().starts_with("10."));
        let headers = lines
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect();
        proxies.client(peer.parse().expect("an address"), &headers).to_string()
    }

    #[test]
    fn a_trusted_proxy_names_its_client() {
        let client = |text| client_of("10.0.0.1", &[("x-forwarded-for", text)]);
        assert_eq!(client("192.0.2.7"), "192.0.2.7");
        assert_eq!(client("198.51.100.9, 192.0.2.7"), "192.0.2.7", "the client's own entry comes first");
        assert_eq!(client("192.0.2.7, 10.0.0.2"), "192.0.2.7", "a proxy behind a proxy");
        assert_eq!(client("192.0.2.7:4711"), "192.0.2.7");
        assert_eq!(client("[2001:db8:1:2::9]:4711"), "2001:db8:1:2::", "IPv6: the network");
        assert_eq!(client("198.51.100.9, unknown"), "10.0.0.1", "no known client address");
        let forwarded = |text| client_of("::ffff:10.0.0.1", &[("forwarded", text)]);
        assert_eq!(forwarded("for=192.0.2.7;proto=http"), "192.0.2.7");
        assert_eq!(forwarded("for=198.51.100.9, proto=https;For=\"[2001:db8::9]:80\""), "2001:db8::");
        let both = [("forwarded", "for=198.51.100.9"), ("x-forwarded-for", "192.0.2.7")];
        assert_eq!(client_of("10.0.0.1", &both), "192.0.2.7");
    }

    #[test]
    fn nobody_else_is_believed() {
        assert_eq!(client_of("203.0.113.5", &[("x-forwarded-for", "192.0.2.7")]), "203.0.113.5");
        assert_eq!(client_of("10.0.0.1", &[]), "10.0.0.1");
        let headers = [("x-forwarded-for", "192.0.2.7")]
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let client = Proxies::default().client(IpAddr::from([10, 0, 0, 1]), &headers.into_iter().collect());
        assert_eq!(client.to_string(), "10.0.0.1");
    }
}
