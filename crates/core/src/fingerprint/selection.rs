//! Which parts of a request are fingerprinted.
//!
//! The selection, its rules, and the headers that can never be selected. A record keeps its selection, so a retry is
//! judged by the selection of the first attempt.

use std::fmt;

use super::json::ParsedPointers;
use super::pointer::{Pointer, PointerError};

/// The algorithm version of new fingerprints.
pub const VERSION: u8 = 1;

/// Headers that change between a request and its retry, carry credentials, count already, describe only the
/// transport, or control Semel.
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
/// The default selects no header and the whole body. Headers are in lower case; headers and pointers are sorted and
/// unique, so equivalent selections are equal.
///
/// Pointers apply to JSON bodies only. `include` narrows the body to the named places, each of which counts with its
/// value or as absent; `exclude` leaves places out, within the included ones if both are given. There are no
/// wildcards, see [`Pointer`].
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
    /// The parsed pointers; none for a version that this build does not know.
    parsed: ParsedPointers,
}

impl Default for Selection {
    fn default() -> Self {
        Self {
            version: VERSION,
            headers: Vec::new(),
            include: Vec::new(),
            exclude: Vec::new(),
            parsed: ParsedPointers::default(),
        }
    }
}

impl Selection {
    /// The heap bytes it uses.
    pub(crate) fn memory_bytes(&self) -> usize {
        let text = |text: &String| size_of::<String>() + text.len();
        let pointers = self.include.iter().chain(&self.exclude).map(text).sum::<usize>();
        // A parsed pointer needs about twice as much in addition.
        self.headers.iter().map(text).sum::<usize>() + 3 * pointers
    }

    /// Adds request headers whose values count. Rejects headers that must never be in a fingerprint.
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

    /// Narrows a JSON body to these pointers, in addition to earlier ones.
    pub fn including<I>(mut self, pointers: I) -> Result<Self, SelectionError>
    where
        I: IntoIterator<Item: AsRef<str>>,
    {
        for text in pointers {
            self.parsed.include.push(pointer(text.as_ref())?);
            self.include.push(text.as_ref().to_owned());
        }
        tidy(&mut self.include);
        self.parsed.include.sort_by_cached_key(Pointer::to_string);
        self.parsed.include.dedup();
        Ok(self)
    }

    /// Excludes these pointers of a JSON body, in addition to earlier ones.
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
            self.parsed.exclude.push(pointer(text)?);
            self.exclude.push(text.to_owned());
        }
        tidy(&mut self.exclude);
        tidy(&mut self.parsed.exclude);
        Ok(self)
    }

    /// Rebuilds the selection of a stored record. Not for configuration.
    ///
    /// Unlike [`with_headers`](Self::with_headers), it accepts every header name, because a record is judged by the
    /// selection it was claimed under.
    ///
    /// The parts of an unknown version are kept unchanged: such a selection can be compared, shown and written back,
    /// but fingerprinting with it fails with [`UnknownVersion`](super::ErrorKind::UnknownVersion).
    pub fn from_parts(
        version: u8,
        headers: Vec<String>,
        include: Vec<String>,
        exclude: Vec<String>,
    ) -> Result<Self, SelectionError> {
        if !is_known(version) {
            return Ok(Self { version, headers, include, exclude, parsed: ParsedPointers::default() });
        }
        // A header that was allowed when the record was claimed stays allowed: a longer list of forbidden headers
        // must not make the record unreadable.
        let mut headers = headers.iter().map(|name| header(name)).collect::<Result<Vec<_>, _>>()?;
        tidy(&mut headers);
        Self { version, headers, ..Self::default() }.including(include)?.excluding(exclude)
    }

    /// The algorithm version.
    pub fn version(&self) -> u8 {
        self.version
    }

    pub(super) fn parsed(&self) -> &ParsedPointers {
        &self.parsed
    }

    /// The selected header names: lower case, sorted, unique.
    pub fn headers(&self) -> &[String] {
        &self.headers
    }

    /// The included pointers, sorted; none means the whole body.
    pub fn include(&self) -> &[String] {
        &self.include
    }

    /// The excluded pointers, sorted.
    pub fn exclude(&self) -> &[String] {
        &self.exclude
    }
}

/// Whether this build supports a version: the current one, and every version that records may still have.
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

/// Why a selection is invalid. Quotes the configuration, never a request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SelectionError {
    /// The text is not an HTTP field name.
    NotAHeaderName(String),
    /// The header changes with every request, carries a credential, counts already, or belongs to Semel.
    ForbiddenHeader(String),
    /// The text is not a JSON pointer.
    NotAPointer {
        /// The text.
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
                "header {name:?} cannot be fingerprinted: it differs between a request and its retry, \
                 carries a credential, or counts anyway; remove it from the list"
            ),
            Self::NotAPointer { pointer, problem } => {
                write!(f, "{pointer:?} is not a JSON pointer: {problem}")
            }
            Self::WholeBodyExcluded => {
                f.write_str("the empty pointer would exclude the whole body, and all bodies would be equal; exclude a part")
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
        let control = "Idempotency-Key IDEMPOTENCY-FENCE Operation-Id";
        for name in [credentials, traces, counted, control].iter().flat_map(|names| names.split_whitespace())
        {
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
    fn a_stored_selection_keeps_a_header_that_is_refused_today() {
        let stored = Selection::from_parts(1, vec!["x-api-key".into()], vec![], vec![]).unwrap();
        assert_eq!(stored.headers(), ["x-api-key"]);
    }
}
