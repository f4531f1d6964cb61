//! Why a message is refused, and what its sender is answered. The answer repeats nothing from the message.

use semel_http::{Code, SPECIFICATION};
use serde_json::json;
use std::fmt;
use std::sync::Arc;

macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident = $status:literal, $sentence:literal;)*) => {
        /// Why a message is refused. A refusal ends its connection.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum MessageRefusal { $($(#[$doc])* $name,)* }

        impl MessageRefusal {
            /// Every reason there is.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The HTTP status.
            pub const fn status(self) -> u16 {
                match self { $(Self::$name => $status,)* }
            }

            /// What is wrong, in one sentence.
            pub const fn sentence(self) -> &'static str {
                match self { $(Self::$name => $sentence,)* }
            }
        }
    };
}

refusals! {
    /// Not `method SP target SP version`.
    RequestLine = 400, "The request line is not a method, a target and a version with one space between them.";
    /// A target form that the method does not have.
    Target = 400, "The request's target is neither a path nor a URL of http or https.";
    /// A target with `#` in it.
    Fragment = 400, "The request's target has a fragment (#), which must not be sent to a server.";
    /// `user@host` in a target.
    UserInfo = 400, "The request's target contains a user name.";
    /// Not HTTP/1.0 or HTTP/1.1.
    Version = 400, "The request line has a version other than HTTP/1.0 and HTTP/1.1.";
    /// Too many empty lines where a request should begin.
    EmptyLines = 400, "The request has only empty lines.";
    /// A line that ends in LF alone.
    BareLineFeed = 400, "A line ends with a line feed alone, without the carriage return before it.";
    /// A CR that does not end a line.
    BareCarriageReturn = 400, "A line contains a carriage return.";
    /// A header line that begins with white space.
    Folding = 400, "A header line begins with white space: folding is obsolete.";
    /// A header line without a colon, or whose name is no token.
    HeaderName = 400, "A header line has no name, or one that is not a token.";
    /// White space between name and colon.
    SpaceBeforeColon = 400, "There is white space between a header's name and its colon.";
    /// NUL or another control character.
    ControlCharacter = 400, "A header's value contains a control character.";
    /// Two lengths, equal or not.
    TwoLengths = 400, "The message has two lengths.";
    /// A length that is no number, or too large a one.
    Length = 400, "The message's length is not a plain decimal number.";
    /// A length and a transfer coding.
    LengthAndCoding = 400, "The message has both Content-Length and Transfer-Encoding.";
    /// Two transfer coding lines.
    TwoCodings = 400, "The message has two transfer codings.";
    /// Any coding but `chunked`.
    Coding = 400, "The message has a transfer coding other than plain chunked.";
    /// A transfer coding in HTTP/1.0.
    CodingInOldVersion = 400, "HTTP/1.0 has no Transfer-Encoding.";
    /// `Content_Length`, `Transfer_Encoding`, `Host` with an underscore for the hyphen.
    Disguised = 400, "A header's name is that of a framing header, with an underscore.";
    /// Two hosts.
    TwoHosts = 400, "The message has two Host headers.";
    /// HTTP/1.1 without a host.
    NoHost = 400, "The message has no Host header.";
    /// A host that no address can have.
    Host = 400, "The Host header is not a host with an optional port.";
    /// A target and a `Host` header that differ.
    OtherHost = 400, "The hosts in the request's target and in its Host header differ.";
    /// A chunk size that is not plain hexadecimal.
    ChunkSize = 400, "A chunk's size is not a plain hexadecimal number.";
    /// Extensions that are too long, or hold control characters.
    ChunkExtension = 400, "The chunk extensions are too long or contain control characters.";
    /// A chunk that does not end where its size says.
    ChunkEnd = 400, "A chunk is longer or shorter than its size says.";
    /// A framing header in the trailers, or too many trailers.
    Trailer = 400, "The trailers are too long or contain a framing header.";
    /// The connection or the stream ended within the body.
    CutShort = 400, "The request ended before its body was complete.";
    /// The head is longer than allowed.
    HeadTooLarge = 431, "The request line and headers are too long.";
    /// More header lines than allowed.
    TooManyHeaders = 431, "There are too many header lines.";
    /// The head did not arrive in time.
    HeadTimeout = 408, "The request line and headers did not arrive in time.";
    /// The body did not arrive in time, and the service had no answer without it.
    BodyTimeout = 408, "The request's body did not arrive in time.";
    /// Too many running requests.
    Busy = 503, "Too many requests are running at once.";
}

impl MessageRefusal {
    const fn title(self) -> &'static str {
        match self.status() {
            408 => "Request Timeout",
            431 => "Request Header Fields Too Large",
            503 => "Service Unavailable",
            _ => "Bad Request",
        }
    }

    /// The code in the problem. A problem without one says nothing about idempotency.
    pub fn code(self) -> Option<Code> {
        [Code::Malformed, Code::Busy].into_iter().find(|code| code.status() == self.status())
    }

    /// The problem (RFC 9457). `prefix` is where the specification is published; `is_begun`: the request had already
    /// been handed to the service.
    pub fn problem(self, prefix: &str, is_begun: bool) -> String {
        let passed = if is_begun { "What had come of it" } else { "Nothing of it" };
        let mut problem = json!({
            "type": "about:blank",
            "title": self.title(),
            "status": self.status(),
            "detail": format!("{} {passed} was passed on.", self.sentence()),
            "retryable": matches!(self, Self::HeadTimeout | Self::Busy),
        });
        if let Some(code) = self.code() {
            problem["type"] = format!("{prefix}{SPECIFICATION}#{}", code.as_str()).into();
            problem["title"] = code.title().into();
            problem["code"] = code.as_str().into();
        }
        problem.to_string()
    }

    /// The complete response to a request that was not handed on; the connection is closed after it.
    pub(crate) fn response(self, prefix: &str) -> Vec<u8> {
        let (status, title, problem) = (self.status(), self.title(), self.problem(prefix, false));
        let length = problem.len();
        format!(
            "HTTP/1.1 {status} {title}\r\ncontent-type: application/problem+json\r\ncontent-length: {length}\r\n\
             cache-control: no-store\r\nconnection: close\r\n\r\n{problem}"
        )
        .into_bytes()
    }
}

/// Learns of each refusal that a client is answered, once. Called on the connection's task: be quick, and never block.
#[derive(Clone)]
pub struct RefusalObserver(Arc<dyn Fn(MessageRefusal) + Send + Sync>);

impl RefusalObserver {
    /// Calls `observe` for each refusal.
    pub fn new(observe: impl Fn(MessageRefusal) + Send + Sync + 'static) -> Self {
        Self(Arc::new(observe))
    }

    pub(crate) fn observe(&self, refusal: MessageRefusal) {
        (self.0)(refusal);
    }
}

impl Default for RefusalObserver {
    /// Ignores all of them.
    fn default() -> Self {
        Self::new(|_| {})
    }
}

impl fmt::Debug for RefusalObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RefusalObserver")
    }
}

/// How the refusals of one connection are answered, and who learns of them.
#[derive(Debug, Clone)]
pub(crate) struct Refusals {
    /// Where they are explained.
    pub(crate) prefix: Arc<str>,
    pub(crate) observer: RefusalObserver,
}

impl fmt::Display for MessageRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}

impl std::error::Error for MessageRefusal {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_is_a_problem_in_json_that_ends_its_connection() {
        for refusal in MessageRefusal::ALL {
            let problem: serde_json::Value =
                serde_json::from_str(&refusal.problem("/semel", false)).expect("JSON");
            assert_eq!(problem["status"], refusal.status());
            assert!(problem["retryable"].is_boolean(), "{problem}");
            if refusal.status() == 400 {
                let (kind, code) = (&problem["type"], &problem["code"]);
                assert_eq!(
                    (kind, code),
                    (&"/semel/.well-known/idempotency#MALFORMED_REQUEST".into(), &"MALFORMED_REQUEST".into())
                );
            }
            let response = String::from_utf8(refusal.response("/semel")).expect("text");
            let (head, body) = response.split_once("\r\n\r\n").expect("a head");
            assert!(head.contains("\r\nconnection: close"), "{head}");
            assert!(head.contains(&format!("\r\ncontent-length: {}\r\n", body.len())), "{head}");
        }
    }
}
