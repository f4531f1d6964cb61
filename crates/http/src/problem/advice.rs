//! Advice for clients about each refusal.
//!
//! One or two published sentences for every code. Advice does not depend on settings, and never risks a second effect.

use super::code::Code;

impl Code {
    /// What a client should do.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::Missing => {
                "Generate a key, such as a random UUID, store it with the operation, and send it with every attempt."
            }
            Self::Invalid => {
                "Nothing was run. Fix how keys are generated: a random UUID per operation is always right."
            }
            Self::CallerNotIdentified => "Nothing was run. Send one stable credential that identifies you.",
            Self::Unfingerprintable => "Nothing was run. Fix the body, then send it with the same key.",
            Self::Mismatch => {
                "Send the original payload again to get its answer. Use a new key for a new operation."
            }
            Self::InProgress => {
                "Wait as long as Retry-After says, then send the same request with the same key."
            }
            Self::Unknown | Self::UpstreamFailed | Self::UpstreamTimeout => {
                "The request may have taken effect: never use a new key. If retryable is true, retry with this key; otherwise report the operation ID to the service's operators."
            }
            Self::Expired => {
                "The outcome expired or was erased. Look up the result in the service's own data; a new key would run the request again."
            }
            Self::NotRetained => {
                "The request was processed, but its response was not retained. Look up the result in the service's own data; do not repeat the request."
            }
            Self::TooLarge => "Nothing was run. Send a smaller body; you may use the same key.",
            Self::AttemptsExhausted => {
                "No attempt took effect. Treat the operation as failed; use a new key to try again."
            }
            Self::Unreachable => "Nothing was sent. Send the same request with the same key a little later.",
            Self::DeadlineExceeded => {
                "Nothing was run. Send the same request with the same key and more time, if the result is still wanted."
            }
            Self::Streaming => {
                "Nothing was run. Send the command as a plain request with the key, and read events in another request without a key."
            }
            Self::Malformed => {
                "Nothing was run. Fix the syntax of the request, then send it with the same key."
            }
            Self::NotFound => {
                "Use the same credential as for the original request; operations of other callers are not shown."
            }
            Self::NotRecorded => {
                "If retryable is true, nothing took effect: send the same request with the same key. Otherwise report the operation ID to the service's operators before you retry."
            }
            Self::Quota | Self::Busy | Self::ClockNotTrusted | Self::StoreUnavailable => {
                "Nothing was run. Wait as long as Retry-After says, then send it with the same key."
            }
        }
    }
}
