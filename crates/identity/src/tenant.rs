//! The tenant of a request. A host has one normal form; otherwise, a retry with another spelling would run again.

use http::header::HOST;
use http::request::Parts;
use http::uri::Authority;

/// The host of a request. `None` if it is missing, invalid or ambiguous.
pub(super) fn host(parts: &Parts) -> Option<String> {
    let mut lines = parts.headers.get_all(HOST).iter();
    let line = lines.next();
    if lines.next().is_some() {
        return None;
    }
    let line = line.map(|line| host_of(line.as_bytes()));
    let target = parts.uri.authority().map(|authority| host_of(authority.as_str().as_bytes()));
    match (line, target) {
        (Some(line), Some(target)) if line != target => None,
        (Some(host), _) | (None, Some(host)) => host,
        (None, None) => None,
    }
}

/// The host of an authority: lower case, without port and without a trailing dot.
pub(super) fn host_of(authority: &[u8]) -> Option<String> {
    let authority = Authority::try_from(authority).ok()?;
    if authority.as_str().contains('@') {
        return None;
    }
    let host = authority.host();
    let host = host.strip_suffix('.').unwrap_or(host);
    (!host.is_empty() && !host.ends_with('.')).then(|| host.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn tenant(target: &str, lines: &[&str]) -> Option<String> {
        let request = lines.iter().fold(Request::get(target), |request, line| request.header(HOST, *line));
        host(&request.body(()).expect("a request").into_parts().0)
    }

    #[test]
    fn every_spelling_of_a_host_is_that_host() {
        for line in
            ["shop.example", "SHOP.example", "shop.example:8080", "shop.example.", "shop.example.:443"]
        {
            assert_eq!(tenant("/", &[line]).as_deref(), Some("shop.example"), "{line}");
        }
        assert_eq!(
            tenant("http://shop.example/", &[]).as_deref(),
            Some("shop.example"),
            "HTTP/2 has no Host"
        );
        assert_eq!(tenant("http://shop.example/", &["Shop.Example:80"]).as_deref(), Some("shop.example"));
        assert_eq!(tenant("/", &["[::1]:80"]).as_deref(), Some("[::1]"));
    }

    #[test]
    fn an_ambiguous_or_missing_host_is_no_tenant() {
        assert_eq!(tenant("/", &[]), None);
        assert_eq!(tenant("/", &["a.example", "a.example"]), None);
        assert_eq!(tenant("http://a.example/", &["b.example"]), None);
        for line in ["", ".", "a.example..", "user@a.example", "a b", "a/b"] {
            assert_eq!(tenant("/", &[line]), None, "{line}");
        }
    }
}
