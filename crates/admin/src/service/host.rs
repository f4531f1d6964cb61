//! Checks `Host` on requests without a token.
//!
//! A web page can let its own name resolve to 127.0.0.1, and its requests then arrive here; but they have that name in
//! `Host`. So only names that no resolver decides are accepted.

use http::header::HOST;
use http::uri::Authority;
use http::{HeaderMap, Uri};
use std::net::IpAddr;

/// Whether the request was sent to this machine by a loopback name or address, and to this port.
pub(super) fn is_own(uri: &Uri, headers: &HeaderMap, port: u16) -> bool {
    let mut lines = headers.get_all(HOST).iter();
    let named = match (lines.next(), lines.next()) {
        (Some(line), None) => line.to_str().ok().and_then(|line| line.parse::<Authority>().ok()),
        (None, _) => None,
        (Some(_), Some(_)) => return false,
    };
    let is_named = headers.contains_key(HOST);
    let fits = |authority: &Authority| is_loopback(authority) && has_port(authority, port);
    match (uri.authority(), named) {
        (Some(target), Some(named)) => fits(target) && fits(&named),
        (Some(target), None) => !is_named && fits(target),
        (None, Some(named)) => fits(&named),
        (None, None) => false,
    }
}

fn is_loopback(authority: &Authority) -> bool {
    if authority.as_str().contains('@') {
        return false;
    }
    let host = authority.host();
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.eq_ignore_ascii_case("localhost")
        || bare.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

fn has_port(authority: &Authority, port: u16) -> bool {
    authority.port_u16().unwrap_or(80) == port
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn is_own_host(uri: &'static str, hosts: &[&'static str]) -> bool {
        let hosts = hosts.iter().map(|host| (HOST, HeaderValue::from_static(host)));
        is_own(&Uri::from_static(uri), &hosts.collect(), 9090)
    }

    #[test]
    fn only_loopback_names_are_this_machine() {
        for host in ["localhost:9090", "LocalHost:9090", "127.0.0.1:9090", "127.9.9.9:9090", "[::1]:9090"] {
            assert!(is_own_host("/", &[host]), "{host}");
        }
        let others = [
            "evil.example:9090",
            "localhost.evil.example:9090",
            "localhost",
            "localhost:9091",
            "127.0.0.1",
            "127.0.0.1.evil.example:9090",
            "10.0.0.1:9090",
            "[2001:db8::1]:9090",
            "localhost@evil.example:9090",
            "evil.example@localhost:9090",
            "",
        ];
        for host in others {
            assert!(!is_own_host("/", &[host]), "{host}");
        }
    }

    #[test]
    fn one_name_has_to_be_there_and_no_second_one() {
        assert!(!is_own_host("/", &[]));
        assert!(!is_own_host("/", &["localhost:9090", "localhost:9090"]));
        assert!(is_own_host("http://localhost:9090/", &[]));
        assert!(is_own_host("http://localhost:9090/", &["127.0.0.1:9090"]));
        assert!(!is_own_host("http://localhost:9090/", &["evil.example:9090"]));
        assert!(!is_own_host("http://evil.example:9090/", &["localhost:9090"]));
        assert!(!is_own_host("http://localhost:9090/", &[""]));
    }

    #[test]
    fn the_port_of_plain_http_may_be_left_out() {
        let headers = [(HOST, HeaderValue::from_static("localhost"))].into_iter().collect();
        assert!(is_own(&Uri::from_static("/"), &headers, 80));
    }
}
