//! What a client should do about each refusal.
//!
//! Contents: a sentence or two for every code, as it is published. Never here: advice that depends on a setting, or
//! that would have somebody pay twice.

use crate::problem::Code;

impl Code {
    /// What a client should do, the same every time.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::Missing => {
                "Draw a key (a random UUID will do), keep it with what is to be done, and send it with every attempt."
            }
            Self::Invalid => {
                "Nothing was done. Mend how keys are made: a random UUID for each thing to be done is always right."
            }
            Self::CallerNotIdentified => {
                "Nothing was done. Send one stable credential, by which the service can tell you from others."
            }
            Self::Unfingerprintable => "Nothing was done. Mend the body, then send it with the same key.",
            Self::Mismatch => {
                "Send the first payload again to get its answer. Something else to be done needs a key of its own."
            }
            Self::InProgress => {
                "Wait as long as Retry-After says, then send the same request with the same key."
            }
            Self::Unknown | Self::UpstreamFailed | Self::UpstreamTimeout => {
                "It may have been done: never use a new key. Retry with this one where retryable is true; otherwise have the operation id looked into."
            }
            Self::Expired => {
                "It was answered long ago. Look at the service's own data for what it did; a new key would do it again."
            }
            Self::NotRetained => {
                "It was done, and its answer was not kept. Look at the service for what it did, and do not repeat it."
            }
            Self::Quota => {
                "Nothing was done. Wait as long as Retry-After says, then send it with the same key."
            }
            Self::TooLarge => "Nothing was done. Send a smaller body; the key may stay the same.",
            Self::AttemptsExhausted => {
                "No attempt took effect. Report it as failed; to try after all is a new intent, with a new key."
            }
            Self::Unreachable => "Nothing was sent. Send the same request with the same key, a little later.",
            Self::Streaming => {
                "Nothing was done. Send the command as a plain request with the key, and follow its events on another without one."
            }
            Self::Malformed => {
                "Nothing was done under the key. Fix how the request is written, then send it with the same key."
            }
            Self::NotFound => {
                "Ask with the credential that the operation was sent with; another caller's is not shown."
            }
            Self::Busy | Self::ClockNotTrusted | Self::StoreUnavailable => {
                "This request did nothing. Wait as long as Retry-After says, then send it with the same key."
            }
        }
    }
}
