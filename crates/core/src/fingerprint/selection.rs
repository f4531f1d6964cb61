//! Which parts of a request count.
//!
//! Contents: the choice itself, its rules, and what may never be chosen. A record keeps its selection, so that a
//! retry is judged by the choice its first attempt was made under. Never here: reading a request.

use std::fmt;

use super::json::Places;
use super::pointer::{Pointer, PointerError};

/// The algorithm version that new fingerprints are made with.
pub const VERSION: u8 = 1;

/// Names that change between two sends of one request, that prove who is asking, that count already or describe
/// only the way a message travels, or that steer Semel itself.
const NEVER: &[&str] = &[
    "authorization",
    "b3",
    "baggage",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "cookie",
    "date",
    "dpop",
    "elastic-apm-traceparent",
    "grpc-trace-bin",
    "newrelic",
    "operation-id",
    "proxy-authorization",
    "request-id",
    "sentry-trace",
    "signature",
    "signature-input",
    "sw8",
    "traceparent",
    "tracestate",
    "transfer-encoding",
    "uber-trace-id",
    "x-amz-date",
    "x-amz-security-token",
    "x-amzn-trace-id",
    "x-api-key",
    "x-auth-token",
    "x-cloud-trace-context",
    "x-correlation-id",
    "x-csrf-token",
    "x-ot-span-context",
    "x-request-id",
    "x-trace-id",
];
const NEVER_PREFIXES: &[&str] =
    &["idempotency-", "ot-tracer-", "sw8-", "uberctx-", "x-b3-", "x-datadog-", "x-instana-"];

/// The algorithm version together with the chosen headers and JSON pointers.
///
/// The default chooses no header and the whole body. Headers are held in lower case; headers and pointers are
/// held sorted and once each, so that two selections that mean the same are equal.
///
/// Pointers concern JSON bodies only. `include` narrows the body to the named places, each of which counts with
/// its value or as absent; `exclude` leaves places out, within the included ones where both are given. A pointer
/// names one place: there are no wildcards, see [`Pointer`].
///
/// ```
/// use semel_core::fingerprint::Selection;
///
/// let selection = Selection::default().with_headers(["X-Region"])?.excluding(["/client/sent_at"])?;
/// assert_eq!(selection.headers(), ["x-region"]);
/// assert!(Selection::default().with_headers(["Authorization"]).is_err());
/// # Ok::<(), semel_core::fingerprint::SelectionError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Selection {
    version: u8,
    headers: Vec<String>,
    include: Vec<String>,
    exclude: Vec<String>,
    /// The pointers once more, taken apart; none under a version that this build does not know.
    places: Places,
}

impl Default for Selection {
    fn default() -> Self {
        Self {
            version: VERSION,
            headers: Vec::new(),
            include: Vec::new(),
            exclude: Vec::new(),
            places: Places::default(),
        }
    }
}

impl Selection {
    /// How many bytes of memory it takes besides itself.
    pub(crate) fn memory_bytes(&self) -> usize {
        let text = |text: &String| size_of::<String>() + text.len();
        let pointers = self.include.iter().chain(&self.exclude).map(text).sum::<usize>();
        // Taken apart, a pointer takes about twice as much again.
        self.headers.iter().map(text).sum::<usize>() + 3 * pointers
    }

    /// Adds request headers whose values count. Refuses names that must never be in a fingerprint.
    pub fn with_headers<I>(mut self, names: I) -> Result<Self, SelectionError>
    where
        I: IntoIterator<Item: AsRef<str>>,
    {
        for name in names {
            self.headers.push(choosable(header(name.as_ref())?)?);
        }
        tidy(&mut self.headers);
        Ok(self)
    }

    /// Narrows a JSON body to these pointers, in addition to those named before.
    pub fn including<I>(mut self, pointers: I) -> Result<Self, SelectionError>
    where
        I: IntoIterator<Item: AsRef<str>>,
    {
        for text in pointers {
            self.places.include.push(pointer(text.as_ref())?);
            self.include.push(text.as_ref().to_owned());
        }
        tidy(&mut self.include);
        self.places.include.sort_by_cached_key(Pointer::to_string);
        self.places.include.dedup();
        Ok(self)
    }

    /// Leaves these pointers of a JSON body out, in addition to those named before.
    ///
    /// The empty pointer, which would leave out the whole body, is refused.
    pub fn excluding<I>(mut self, pointers: I) -> Result<Self, SelectionError>
    where
        I: IntoIterator<Item: AsRef<str>>,
    {
        for text in pointers {
            let text = text.as_ref();
            if text.is_empty() {
                return Err(SelectionError::WholeBodyExcluded);
            }
            self.places.exclude.push(pointer(text)?);
            self.exclude.push(text.to_owned());
        }
        tidy(&mut self.exclude);
        tidy(&mut self.places.exclude);
        Ok(self)
    }

    /// Rebuilds a selection that a record was stored with, and is for nothing else.
    ///
    /// What a configuration chooses goes through [`with_headers`](Self::with_headers), which refuses names that
    /// must never be chosen; here they pass, because a record is judged by what was chosen when it was claimed.
    ///
    /// The parts of a version this build does not know are kept as they are: such a selection can be compared,
    /// shown and written back, but fingerprinting under it is
    /// [`UnknownVersion`](super::ErrorKind::UnknownVersion).
    pub fn from_parts(
        version: u8,
        headers: Vec<String>,
        include: Vec<String>,
        exclude: Vec<String>,
    ) -> Result<Self, SelectionError> {
        if !is_known(version) {
            return Ok(Self { version, headers, include, exclude, places: Places::default() });
        }
        // A header that was fit to be chosen when the record was claimed stays so: a list that has grown since
        // must not make the record unreadable.
        let mut headers = headers.iter().map(|name| header(name)).collect::<Result<Vec<_>, _>>()?;
        tidy(&mut headers);
        Self { version, headers, ..Self::default() }.including(include)?.excluding(exclude)
    }

    /// The algorithm version.
    pub fn version(&self) -> u8 {
        self.version
    }

    pub(super) fn places(&self) -> &Places {
        &self.places
    }

    /// The chosen header names: lower case, sorted, once each.
    pub fn headers(&self) -> &[String] {
        &self.headers
    }

    /// The pointers a JSON body is narrowed to, sorted; none means the whole body.
    pub fn include(&self) -> &[String] {
        &self.include
    }

    /// The pointers left out of a JSON body, sorted.
    pub fn exclude(&self) -> &[String] {
        &self.exclude
    }
}

/// Whether this build can make fingerprints of a version: of today's, and of every one that records may still have.
pub(super) fn is_known(version: u8) -> bool {
    matches!(version, 1)
}

fn tidy<T: Ord>(list: &mut Vec<T>) {
    list.sort_unstable();
    list.dedup();
}

fn header(name: &str) -> Result<String, SelectionError> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_token) {
        return Err(SelectionError::NotAHeaderName(name.to_owned()));
    }
    Ok(name.to_ascii_lowercase())
}

fn choosable(name: String) -> Result<String, SelectionError> {
    if NEVER.contains(&name.as_str()) || NEVER_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
        return Err(SelectionError::ForbiddenHeader(name));
    }
    Ok(name)
}

fn pointer(text: &str) -> Result<Pointer, SelectionError> {
    Pointer::parse(text).map_err(|problem| SelectionError::NotAPointer { pointer: text.to_owned(), problem })
}

/// A selection that cannot be used. Quotes the configuration, never a request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SelectionError {
    /// The text is not an HTTP field name.
    NotAHeaderName(String),
    /// The header changes with every send, carries a credential, counts already, or is one of Semel's own.
    ForbiddenHeader(String),
    /// The text is not a JSON pointer.
    NotAPointer {
        /// The text as it was given.
        pointer: String,
        /// What is wrong with it.
        problem: PointerError,
    },
    /// The empty pointer was excluded, which would make all bodies equal.
    WholeBodyExcluded,
}

impl fmt::Display for SelectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAHeaderName(name) => write!(f, "{name:?} is not a header name"),
            Self::ForbiddenHeader(name) => write!(
                f,
                "header {name:?} cannot be part of a fingerprint: it differs between a request and its retry, \
                 carries a credential, or counts without being chosen; take it off the list"
            ),
            Self::NotAPointer { pointer, problem } => {
                write!(f, "{pointer:?} is not a JSON pointer: {problem}")
            }
            Self::WholeBodyExcluded => {
                f.write_str("excluding the empty pointer would make every body equal; name a place inside it")
            }
        }
    }
}

impl std::error::Error for SelectionError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_that_change_between_sends_or_carry_credentials_are_refused() {
        let credentials = "Authorization Cookie DPoP Proxy-Authorization Signature Signature-Input X-Amz-Date \
            X-Amz-Security-Token X-Api-Key X-Auth-Token X-CSRF-Token";
        let traces = "B3 Baggage Date Elastic-Apm-Traceparent Grpc-Trace-Bin NewRelic Ot-Tracer-SpanId Request-Id \
            Sentry-Trace Sw8 Sw8-Correlation Traceparent Tracestate Uber-Trace-Id Uberctx-A X-Amzn-Trace-Id \
            X-B3-TraceId X-Cloud-Trace-Context X-Correlation-Id X-Datadog-Trace-Id X-Instana-T \
            X-Ot-Span-Context X-Request-Id X-Trace-Id";
        let counted = "Connection Content-Encoding Content-Length Content-Type Transfer-Encoding";
        let own = "Idempotency-Key IDEMPOTENCY-FENCE Operation-Id";
        for name in [credentials, traces, counted, own].iter().flat_map(|names| names.split_whitespace()) {
            let error = Selection::default().with_headers([name]).unwrap_err();
            assert_eq!(error, SelectionError::ForbiddenHeader(name.to_ascii_lowercase()), "{name}");
        }
        for name in ["Host", "X-Region", "Accept", "Content-Language", "X-Api-Version", "Date-Of-Order"] {
            assert!(Selection::default().with_headers([name]).is_ok(), "{name}");
        }
        for name in ["", "a b", "a:", "ä"] {
            let error = Selection::default().with_headers([name]).unwrap_err();
            assert_eq!(error, SelectionError::NotAHeaderName(name.into()));
        }
    }

    #[test]
    fn selections_that_mean_the_same_are_equal() {
        let one = Selection::default().with_headers(["X-B", "x-a", "x-b"]).unwrap();
        let two = Selection::default().with_headers(["x-b"]).unwrap().with_headers(["X-A"]).unwrap();
        assert_eq!(one, two);
        assert_eq!(one.headers(), ["x-a", "x-b"]);
        let parts = Selection::from_parts(1, vec!["x-b".into(), "x-a".into()], vec![], vec![]).unwrap();
        assert_eq!(one, parts);
    }

    #[test]
    fn pointers_are_checked_and_the_whole_body_cannot_be_excluded() {
        let excluding = |text| Selection::default().excluding([text]);
        assert!(matches!(excluding("a"), Err(SelectionError::NotAPointer { .. })));
        assert_eq!(excluding(""), Err(SelectionError::WholeBodyExcluded));
        assert_eq!(Selection::default().including([""]).unwrap().include(), [""]);
    }

    #[test]
    fn a_selection_of_a_newer_version_is_kept_as_it_is() {
        let parts = (vec!["B".to_owned(), "A".to_owned()], vec!["not a pointer".to_owned()]);
        let newer = Selection::from_parts(9, parts.0.clone(), parts.1.clone(), vec![]).unwrap();
        assert_eq!((newer.version(), newer.headers(), newer.include()), (9, &parts.0[..], &parts.1[..]));
    }

    #[test]
    fn a_stored_selection_keeps_the_version_it_was_made_under() {
        for version in 0..=u8::MAX {
            let stored = Selection::from_parts(version, vec![], vec![], vec![]).unwrap();
            assert_eq!(stored.version(), version);
        }
    }

    #[test]
    fn a_stored_selection_keeps_a_header_that_could_not_be_chosen_today() {
        let stored = Selection::from_parts(1, vec!["x-api-key".into()], vec![], vec![]).unwrap();
        assert_eq!(stored.headers(), ["x-api-key"]);
    }
}
