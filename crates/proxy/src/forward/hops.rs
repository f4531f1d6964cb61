//! Hop-by-hop headers, and their removal. A client cannot use `Connection` to remove a header that Semel or the
//! upstream relies on.

use http::header::{CONNECTION, TE, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue};

/// Hop-by-hop headers, whether or not `Connection` names them. `Trailer` is not one: without it, HTTP/1 forwards no
/// trailers.
const HOPS: [HeaderName; 8] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("proxy-authenticate"),
    HeaderName::from_static("proxy-authorization"),
    HeaderName::from_static("http2-settings"),
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Never hop-by-hop, even if `Connection` names them.
const ENDS: &[&str] = &[
    "age",
    "allow",
    "api-key",
    "apikey",
    "authorization",
    "cache-control",
    "cookie",
    "date",
    "digest",
    "etag",
    "expect",
    "expires",
    "forwarded",
    "from",
    "host",
    "last-modified",
    "link",
    "location",
    "operation-id",
    "origin",
    "pragma",
    "prefer",
    "priority",
    "range",
    "referer",
    "repr-digest",
    "retry-after",
    "server",
    "set-cookie",
    "signature",
    "signature-input",
    "te",
    "trailer",
    "traceparent",
    "tracestate",
    "user-agent",
    "vary",
    "via",
    "warning",
    "www-authenticate",
    "x-api-key",
    "x-client-ip",
    "x-real-ip",
    "x-request-id",
];
const END_PREFIXES: &[&str] = &[
    "accept",
    "access-control-",
    "content-",
    "grpc-",
    "idempotency-",
    "if-",
    "sec-",
    "webhook-",
    "x-forwarded-",
    "x-idempotency-",
];

/// Removes the headers that `Connection` names, except the standard end-to-end headers, Semel's own, and `kept`.
/// Hop-by-hop headers stay, for [`strip`].
pub(super) fn strip_named(headers: &mut HeaderMap, kept: &[HeaderName]) {
    if !headers.contains_key(CONNECTION) {
        return;
    }
    for name in named(headers) {
        if !is_end_to_end(&name) && !kept.contains(&name) && !HOPS.contains(&name) {
            headers.remove(name);
        }
    }
}

/// Removes hop-by-hop headers. Of `TE`, `trailers` is passed on.
pub(super) fn strip(headers: &mut HeaderMap) {
    for name in &HOPS {
        headers.remove(name);
    }
    if headers.contains_key(TE) {
        let wants_trailers = tokens(headers, &TE).any(|token| token.eq_ignore_ascii_case(b"trailers"));
        headers.remove(TE);
        if wants_trailers {
            headers.insert(TE, HeaderValue::from_static("trailers"));
        }
    }
}

/// The protocol that a message wants to upgrade to, if its connection allows it.
pub(super) fn upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let protocols = headers.get(UPGRADE)?;
    let is_named = tokens(headers, &CONNECTION).any(|token| token.eq_ignore_ascii_case(b"upgrade"));
    is_named.then(|| protocols.clone())
}

fn named(headers: &HeaderMap) -> Vec<HeaderName> {
    tokens(headers, &CONNECTION).filter_map(|name| HeaderName::from_bytes(name).ok()).collect()
}

fn tokens<'h>(headers: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'h [u8]> {
    let lines = headers.get_all(name).iter();
    lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b',')).map(<[u8]>::trim_ascii)
}

fn is_end_to_end(name: &HeaderName) -> bool {
    let name = name.as_str();
    ENDS.contains(&name) || END_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let header = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        lines.iter().map(header).collect()
    }

    fn left(headers: &HeaderMap) -> Vec<&str> {
        headers.keys().map(HeaderName::as_str).collect()
    }

    #[test]
    fn hop_by_hop_headers_are_removed() {
        let mut message = headers(&[
            ("connection", "close, x-hop, upgrade"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("proxy-authorization", "Basic eA=="),
            ("transfer-encoding", "chunked"),
            ("upgrade", "websocket"),
            ("http2-settings", "AAMAAABkAAQAAP__"),
            ("te", "gzip"),
            ("x-hop", "1"),
            ("x-end", "1"),
            ("trailer", "checksum"),
        ]);
        strip_named(&mut message, &[]);
        strip(&mut message);
        assert_eq!(left(&message), ["x-end", "trailer"]);
    }

    #[test]
    fn trailers_are_all_that_is_left_of_te() {
        let te = |value| {
            let mut message = headers(&[("te", value)]);
            strip(&mut message);
            message.get(TE).map(|value| value.to_str().expect("ASCII").to_owned())
        };
        assert_eq!(te("gzip;q=0.5, Trailers").as_deref(), Some("trailers"));
        assert_eq!(te("gzip"), None);
    }

    #[test]
    fn a_client_cannot_remove_trusted_headers_through_connection() {
        let named = "idempotency-key, Authorization, cookie, host, content-length, content-type, operation-id, \
                     idempotency-fence, x-forwarded-for, forwarded, via, x-tenant";
        let mut message = headers(&[("connection", named)]);
        for name in named.split(", ") {
            let name = HeaderName::from_bytes(name.trim().as_bytes()).expect("a name");
            message.insert(name, HeaderValue::from_static("1"));
        }
        let before = message.len();
        strip_named(&mut message, &[HeaderName::from_static("x-tenant")]);
        assert_eq!(message.len(), before);
    }

    #[test]
    fn an_upgrade_counts_only_where_the_connection_names_it() {
        assert!(
            upgrade(&headers(&[("upgrade", "websocket"), ("connection", "keep-alive, Upgrade")])).is_some()
        );
        assert!(upgrade(&headers(&[("upgrade", "websocket"), ("connection", "keep-alive")])).is_none());
        assert!(upgrade(&headers(&[("connection", "upgrade")])).is_none());
    }
}
