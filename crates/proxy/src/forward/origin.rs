//! Tells the upstream where a request came from: `Forwarded` (RFC 7239), `X-Forwarded-*` and `Via`. A peer that is not
//! trusted can speak only for itself.

use bytes::Bytes;
use http::header::{FORWARDED, HOST, VIA};
use http::{HeaderMap, HeaderName, HeaderValue, Version};
use std::fmt::Write;
use std::net::IpAddr;
use std::sync::Arc;

const FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const OF_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
/// The headers that this proxy sets.
const TOLD: [HeaderName; 4] = [FORWARDED, FOR, PROTO, OF_HOST];
/// Headers that other proxies set, and this one does not.
const OTHERS: [HeaderName; 6] = [
    HeaderName::from_static("x-forwarded-port"),
    HeaderName::from_static("x-forwarded-prefix"),
    HeaderName::from_static("x-forwarded-server"),
    HeaderName::from_static("x-forwarded-scheme"),
    HeaderName::from_static("x-forwarded-ssl"),
    HeaderName::from_static("x-real-ip"),
];

/// Whether a header says where a request came from.
pub fn is_origin_header(name: &HeaderName) -> bool {
    TOLD.contains(name) || OTHERS.contains(name)
}

/// The other end of a request's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client {
    /// Its address.
    pub address: IpAddr,
    /// Whether it speaks TLS to the gateway.
    pub is_tls: bool,
}

/// The proxies whose information about earlier hops is passed on.
#[derive(Clone)]
pub struct Trust(Option<Arc<dyn Fn(IpAddr) -> bool + Send + Sync>>);

impl Trust {
    /// None: what a client says about its origin is replaced.
    pub const NOBODY: Self = Self(None);

    /// Peers for which `is_trusted` holds.
    pub fn of(is_trusted: impl Fn(IpAddr) -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(is_trusted)))
    }

    fn in_client(&self, client: Option<Client>) -> bool {
        let (Some(is_trusted), Some(client)) = (&self.0, client) else { return false };
        is_trusted(client.address.to_canonical())
    }
}

impl std::fmt::Debug for Trust {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Trust(some)" } else { "Trust(nobody)" })
    }
}

/// Tells the upstream where the request came from, in addition to, or instead of, what the request says.
pub(super) fn add_origin_headers(headers: &mut HeaderMap, client: Option<Client>, trust: &Trust) {
    let host = headers.get(HOST).cloned();
    for name in misspelt(headers) {
        headers.remove(name);
    }
    if !trust.in_client(client) {
        for name in TOLD.iter().chain(&OTHERS) {
            headers.remove(name);
        }
    }
    let proto = if client.is_some_and(|client| client.is_tls) { "https" } else { "http" };
    append(headers, &FORWARDED, element(client, host.as_ref(), proto).into());
    if let Some(client) = client {
        append(headers, &FOR, client.address.to_canonical().to_string().into());
    }
    // From the first hop, if an earlier one has reported it.
    headers.entry(PROTO).or_insert(HeaderValue::from_static(proto));
    if let Some(host) = host {
        headers.entry(OF_HOST).or_insert(host);
    }
}

/// The same headers with underscores, which many servers treat as the same name. They are never trusted: no proxy
/// writes them, and a trusted proxy may have passed on a client's.
fn misspelt(headers: &HeaderMap) -> Vec<HeaderName> {
    let is_misspelt = |name: &&HeaderName| {
        let name = name.as_str();
        name.contains('_') && {
            let right = name.replace('_', "-");
            TOLD.iter().chain(&OTHERS).any(|origin_headers| origin_headers.as_str() == right)
        }
    };
    headers.keys().filter(is_misspelt).cloned().collect()
}

/// Adds this hop to the list.
pub(super) fn via(headers: &mut HeaderMap, received: Version) {
    let station: &'static [u8] = match received {
        Version::HTTP_09 | Version::HTTP_10 => b"1.0 semel",
        Version::HTTP_2 => b"2 semel",
        _ => b"1.1 semel",
    };
    append(headers, &VIA, Bytes::from_static(station));
}

fn element(client: Option<Client>, host: Option<&HeaderValue>, proto: &str) -> String {
    let mut element = String::with_capacity(ELEMENT_BYTES);
    // Writing to a string cannot fail.
    let _ = match client.map(|client| client.address.to_canonical()) {
        Some(IpAddr::V4(address)) => write!(element, "for={address}"),
        Some(IpAddr::V6(address)) => write!(element, "for=\"[{address}]\""),
        None => write!(element, "for=unknown"),
    };
    if let Some(host) = host.and_then(|host| host.to_str().ok()) {
        // A host contains no quote or backslash.
        if !host.contains(['"', '\\']) && !host.is_empty() {
            let _ = write!(element, ";host=\"{host}\"");
        }
    }
    element + ";proto=" + proto
}

/// Enough for most.
const ELEMENT_BYTES: usize = 128;

/// In one line with the existing value: some readers see only the first line.
fn append(headers: &mut HeaderMap, name: &HeaderName, value: Bytes) {
    let line = if headers.contains_key(name) {
        let mut line = Vec::new();
        for part in headers.get_all(name).iter().map(HeaderValue::as_bytes).chain([&*value]) {
            if !line.is_empty() && !part.is_empty() {
                line.extend_from_slice(b", ");
            }
            line.extend_from_slice(part);
        }
        line.into()
    } else {
        value
    };
    // Headers joined by a comma are a header.
    if let Ok(line) = HeaderValue::from_maybe_shared(line) {
        headers.insert(name.clone(), line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: &str = "192.0.2.7";
    const V6: &str = "2001:db8::7";

    fn origin_headers(
        from: &str,
        is_tls: bool,
        trust: &Trust,
        received: &[(&'static str, &'static str)],
    ) -> Vec<String> {
        let mut headers: HeaderMap = received
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect();
        let client = Client { address: from.parse().expect("an address"), is_tls };
        add_origin_headers(&mut headers, Some(client), trust);
        ["forwarded", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "x-real-ip"]
            .map(|name| headers.get(name).map_or("-", |value| value.to_str().expect("ASCII")).to_owned())
            .to_vec()
    }

    #[test]
    fn the_upstream_gets_the_requests_origin() {
        assert_eq!(
            origin_headers(V4, false, &Trust::NOBODY, &[("host", "pay.example")]),
            ["for=192.0.2.7;host=\"pay.example\";proto=http", V4, "http", "pay.example", "-"]
        );
        assert_eq!(
            origin_headers(V6, true, &Trust::NOBODY, &[("host", "pay.example:8443")]),
            [
                "for=\"[2001:db8::7]\";host=\"pay.example:8443\";proto=https",
                V6,
                "https",
                "pay.example:8443",
                "-"
            ]
        );
        assert_eq!(origin_headers("::ffff:192.0.2.7", false, &Trust::NOBODY, &[])[1], V4);
    }

    #[test]
    fn an_untrusted_peers_hops_are_replaced() {
        let received = [
            ("host", "pay.example"),
            ("forwarded", "for=10.0.0.1"),
            ("x-forwarded-for", "10.0.0.1"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "bank.example"),
            ("x-real-ip", "10.0.0.1"),
        ];
        let alone = origin_headers(V4, false, &Trust::NOBODY, &[("host", "pay.example")]);
        assert_eq!(origin_headers(V4, false, &Trust::NOBODY, &received), alone);
        let other = Trust::of(|address| address != V4.parse::<IpAddr>().expect("an address"));
        assert_eq!(origin_headers(V4, false, &other, &received), alone);
    }

    /// Many servers treat both spellings as one name.
    #[test]
    fn no_peer_gets_around_that_by_another_spelling() {
        let trust = Trust::of(|_| true);
        for trust in [&Trust::NOBODY, &trust] {
            let mut headers = HeaderMap::new();
            for name in ["x_forwarded_for", "x-forwarded_host", "x_forwarded-proto", "x_real_ip", "x_own"] {
                headers.insert(HeaderName::from_static(name), HeaderValue::from_static("10.0.0.1"));
            }
            let client = Client { address: V4.parse().expect("an address"), is_tls: false };
            add_origin_headers(&mut headers, Some(client), trust);
            let other: Vec<_> =
                headers.keys().map(HeaderName::as_str).filter(|name| name.contains('_')).collect();
            assert_eq!(other, ["x_own"], "{trust:?}");
            assert_eq!(headers[FOR], V4);
        }
    }

    #[test]
    fn a_trusted_peers_hops_are_continued() {
        let trust = Trust::of(|address| address == V4.parse::<IpAddr>().expect("an address"));
        let received = [
            ("host", "pay.example"),
            ("forwarded", "for=10.0.0.1"),
            ("x-forwarded-for", "10.0.0.1"),
            ("x-forwarded-proto", "https"),
            ("x-real-ip", "10.0.0.1"),
        ];
        assert_eq!(
            origin_headers("::ffff:192.0.2.7", false, &trust, &received),
            [
                "for=10.0.0.1, for=192.0.2.7;host=\"pay.example\";proto=http",
                "10.0.0.1, 192.0.2.7",
                "https",
                "pay.example",
                "10.0.0.1"
            ]
        );
    }

    #[test]
    fn every_station_is_named_once() {
        let mut headers = HeaderMap::new();
        via(&mut headers, Version::HTTP_2);
        via(&mut headers, Version::HTTP_10);
        assert_eq!(headers[VIA], "2 semel, 1.0 semel");
        assert_eq!(headers.len(), 1);
    }
}
