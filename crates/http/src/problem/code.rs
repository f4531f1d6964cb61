//! The codes of the problems, with their statuses and titles.
//!
//! Clients can rely on a code: it never changes its meaning.

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $status:literal, $grpc:literal, $title:literal;)*) => {
        /// The problems, by a stable code for clients.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code { $($(#[$doc])* $name,)* }

        impl Code {
            /// Every code.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The code as it is sent.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// The HTTP status, unless an option changes it.
            pub const fn status(self) -> u16 {
                match self { $(Self::$name => $status,)* }
            }

            /// The gRPC status.
            pub const fn grpc_status(self) -> u32 {
                match self { $(Self::$name => $grpc,)* }
            }

            /// The title of the problem.
            pub const fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)* }
            }
        }
    };
}

codes! {
    /// A key is required, and there is none.
    Missing = "MISSING_IDEMPOTENCY_KEY", 400, 3, "The request has no idempotency key";
    /// The key is malformed, too short, too long or weak.
    Invalid = "INVALID_IDEMPOTENCY_KEY", 400, 3, "The idempotency key is not valid";
    /// The caller cannot be identified.
    CallerNotIdentified = "CALLER_NOT_IDENTIFIED", 400, 3, "The caller cannot be identified";
    /// The body cannot be fingerprinted.
    Unfingerprintable = "UNFINGERPRINTABLE_REQUEST", 400, 3, "The request cannot be compared with its retries";
    /// The key is bound to another payload.
    Mismatch = "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST", 422, 9,
        "The idempotency key belongs to a different request";
    /// The original is still running.
    InProgress = "IDEMPOTENCY_REQUEST_IN_PROGRESS", 409, 10, "The original request is still in progress";
    /// Nobody can prove what happened.
    Unknown = "IDEMPOTENCY_OUTCOME_UNKNOWN", 409, 2, "The outcome of the original request is unknown";
    /// The outcome has expired.
    Expired = "IDEMPOTENCY_RECORD_EXPIRED", 410, 9, "The outcome of the original request is no longer kept";
    /// The outcome is known, but its bytes were not retained.
    NotRetained = "IDEMPOTENCY_RESPONSE_NOT_RETAINED", 409, 9, "The original response was not retained";
    /// Too many new keys.
    Quota = "IDEMPOTENCY_KEY_QUOTA_EXCEEDED", 429, 8, "Too many new idempotency keys";
    /// The request's body is over the limit.
    TooLarge = "IDEMPOTENCY_REQUEST_TOO_LARGE", 413, 8, "The request body is too large";
    /// All allowed attempts ended without effect.
    AttemptsExhausted = "IDEMPOTENCY_ATTEMPTS_EXHAUSTED", 409, 9, "All allowed attempts were made";
    /// Nothing was sent.
    Unreachable = "UPSTREAM_UNREACHABLE", 502, 14, "The service could not be reached";
    /// It failed after a byte may have been sent.
    UpstreamFailed = "UPSTREAM_FAILED", 502, 2, "The service failed to answer";
    /// No answer in time.
    UpstreamTimeout = "UPSTREAM_TIMEOUT", 504, 4, "The service did not answer in time";
    /// The client's deadline was over before the effect began.
    DeadlineExceeded = "DEADLINE_EXCEEDED", 504, 4, "There was not enough time left";
    /// An upgrade or an endless stream.
    Streaming = "STREAMING_NOT_PROTECTED", 501, 12, "Streams cannot be protected";
    /// No such operation, or another caller's.
    NotFound = "OPERATION_NOT_FOUND", 404, 5, "There is no such operation";
    /// The request is not valid HTTP.
    Malformed = "MALFORMED_REQUEST", 400, 3, "The request is not valid HTTP";
    /// The decision depends on the time, and the clock is not trusted.
    ClockNotTrusted = "IDEMPOTENCY_CLOCK_NOT_TRUSTED", 503, 14, "The clock of the idempotency records is not trusted";
    /// There is no capacity for the request.
    Busy = "GATEWAY_BUSY", 503, 8, "The service has no capacity for the request at the moment";
    /// The store did not answer.
    StoreUnavailable = "IDEMPOTENCY_STORE_UNAVAILABLE", 503, 14, "The idempotency store is unavailable";
    /// In class `local`: the service has no recorded outcome for the request.
    NotRecorded = "LOCAL_COMMAND_NOT_RECORDED", 500, 13, "The service recorded no outcome";
}

impl Code {
    /// Every HTTP status that this code is sent with, the usual one first.
    ///
    /// Clients can rely on the code alone; the status is for intermediaries.
    pub const fn statuses(self) -> &'static [u16] {
        match self {
            // No connection in time, and a replay that the service did not authorize.
            Self::Unreachable => &[502, 503, 504],
            // By choice: `MismatchStatus::Conflict`.
            Self::Mismatch => &[422, 409],
            // A process whose configuration cannot protect the request.
            Self::StoreUnavailable => &[503, 500],
            Self::Missing
            | Self::Invalid
            | Self::CallerNotIdentified
            | Self::Unfingerprintable
            | Self::Malformed => &[400],
            Self::InProgress | Self::Unknown | Self::NotRetained | Self::AttemptsExhausted => &[409],
            Self::NotFound => &[404],
            Self::Expired => &[410],
            Self::TooLarge => &[413],
            Self::Quota => &[429],
            Self::Streaming => &[501],
            Self::UpstreamFailed => &[502],
            Self::Busy | Self::ClockNotTrusted => &[503],
            Self::UpstreamTimeout | Self::DeadlineExceeded => &[504],
            // The service stops, or another transaction came first: a retry helps soon.
            Self::NotRecorded => &[500, 503],
        }
    }
}
