//! Which headers of a response are stored.
//!
//! Headers that belong to one delivery and must not be replayed. Headers that describe the outcome are never dropped.

use crate::names;
use http::header::{CONNECTION, CONTENT_LENGTH};
use http::{HeaderMap, HeaderName};

/// Headers of one moment, one session or one trace.
const DROPPED: &[&str] = &[
    "b3",
    "baggage",
    "date",
    "elastic-apm-traceparent",
    "grpc-trace-bin",
    "newrelic",
    "request-id",
    "sentry-trace",
    "set-cookie",
    "set-cookie2",
    "sw8",
    "traceparent",
    "tracestate",
    "traceresponse",
    "uber-trace-id",
    "www-authenticate",
    "x-amzn-trace-id",
    "x-cloud-trace-context",
    "x-correlation-id",
    "x-ot-span-context",
    "x-request-id",
    "x-trace-id",
];
const DROPPED_PREFIXES: &[&str] = &[
    "ot-tracer-",
    "ratelimit",
    "sw8-",
    "uberctx-",
    "x-b3-",
    "x-datadog-",
    "x-instana-",
    "x-ratelimit",
    "x-rate-limit",
];

/// Which headers of a response are stored. Default: all except those of one delivery: hop-by-hop headers, `Date`,
/// `Set-Cookie`, `WWW-Authenticate`, rate limits, traces.
#[derive(Debug, Clone, Default)]
pub struct StoredHeaders {
    /// Stored although the default drops them. Hop-by-hop headers and Semel's own are never stored.
    pub include: Vec<HeaderName>,
    /// Dropped although the default stores them.
    pub exclude: Vec<HeaderName>,
}

/// Headers of the connection; no setting stores them.
const HOP_BY_HOP: &[&str] = &[
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
];

impl StoredHeaders {
    /// The stored headers of a response with a body of this length, in order.
    ///
    /// A wrong `Content-Length` would break every replay. It is stored if it is right, or if the response has no body
    /// because of its method or status (`bodiless`).
    pub fn of<'h>(
        &self,
        headers: &'h HeaderMap,
        body_bytes: usize,
        bodiless: bool,
    ) -> Vec<(&'h str, &'h [u8])> {
        let hops = hops(headers);
        let is_right = |value: &[u8]| bodiless || value == body_bytes.to_string().as_bytes();
        let stored = headers.iter().filter(|(name, value)| {
            self.is_stored(name)
                && !hops.contains(name)
                && (**name != CONTENT_LENGTH || is_right(value.as_bytes()))
        });
        stored.map(|(name, value)| (name.as_str(), value.as_bytes())).collect()
    }

    fn is_stored(&self, name: &HeaderName) -> bool {
        let text = name.as_str();
        if names::is_control(name) || HOP_BY_HOP.contains(&text) || self.exclude.contains(name) {
            return false;
        }
        let dropped =
            DROPPED.contains(&text) || DROPPED_PREFIXES.iter().any(|prefix| text.starts_with(prefix));
        !dropped || self.include.contains(name)
    }
}

/// The headers that `Connection` names.
fn hops(headers: &HeaderMap) -> Vec<HeaderName> {
    let values =
        headers.get_all(CONNECTION).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    values.filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn stored(rule: &StoredHeaders, names: &str) -> String {
        let header =
            |name: &str| (name.parse::<HeaderName>().expect("a name"), HeaderValue::from_static("1"));
        let headers: HeaderMap = names.split_whitespace().map(header).collect();
        rule.of(&headers, 1, false).iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn headers_of_the_outcome_are_stored_and_delivery_headers_dropped() {
        let described = "location etag link content-type content-encoding content-length retry-after vary x-own \
                         cache-control trailer last-modified";
        assert_eq!(
            stored(&StoredHeaders::default(), described).split(' ').count(),
            described.split_whitespace().count()
        );
        let delivered = "connection keep-alive transfer-encoding upgrade te date set-cookie www-authenticate \
                         ratelimit ratelimit-limit x-ratelimit-remaining traceparent x-b3-traceid operation-id \
                         idempotency-fence idempotency-outcome proxy-authenticate";
        assert_eq!(stored(&StoredHeaders::default(), delivered), "");
    }

    #[test]
    fn the_lists_can_be_changed_except_for_what_concerns_the_connection() {
        let own = StoredHeaders {
            include: ["x-request-id", "transfer-encoding", "operation-id"]
                .map(HeaderName::from_static)
                .to_vec(),
            exclude: vec![HeaderName::from_static("server")],
        };
        assert_eq!(stored(&own, "x-request-id server transfer-encoding operation-id date"), "x-request-id");
    }

    #[test]
    fn connection_headers_and_a_wrong_length_are_dropped() {
        let mut headers = HeaderMap::new();
        headers.insert("connection", HeaderValue::from_static("close, X-Hop"));
        headers.insert("x-hop", HeaderValue::from_static("1"));
        headers.insert("content-length", HeaderValue::from_static("7"));
        assert_eq!(StoredHeaders::default().of(&headers, 8, false), []);
        assert_eq!(StoredHeaders::default().of(&headers, 7, false), [("content-length", b"7".as_slice())]);
        assert_eq!(StoredHeaders::default().of(&headers, 0, true), [("content-length", b"7".as_slice())]);
    }
}
