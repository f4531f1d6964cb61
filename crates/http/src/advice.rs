//! What a client should do about each refusal.
//!
//! What lives here: a sentence or two for every code, as it is published. What must never: advice that depends on a setting,
//! or that would have somebody pay twice.

use crate::problem::Code;

impl Code {
    /// What a client should do, the same every time.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::Missing => {
                "Draw a key (a random UUID will do), keep it with what is to be done, and send it with every attempt."
            }
            Self::Invalid => "Nothing was done. Send a key that keeps to the rules above.",
            Self::CallerNotIdentified => {
                "Nothing was done. Send one stable credential: an Authorization of the scheme Bearer or Basic."
            }
            Self::Unfingerprintable => "Nothing was done. Mend the body, then send it with the same key.",
            Self::Mismatch => {
                "Send the first payload again to get its answer. Something else to be done needs a key of its own."
            }
            Self::InProgress => "Wait as long as Retry-After says, then send the same request with the same key.",
            Self::Unknown => {
                "Do not send it under a new key. Ask the service, by the operation id, whether it took effect."
            }
            Self::Expired => {
                "It was answered long ago. Look at the service for what it did; a new key would do it again."
            }
            Self::NotRetained => {
                "It was done, and its answer was not kept. Look at the service for what it did, and do not repeat it."
            }
            Self::Quota => "Nothing was done. Wait as long as Retry-After says, then send it with the same key.",
            Self::TooLarge => "Nothing was done. Send a smaller body; the key may stay the same.",
            Self::AttemptsExhausted => {
                "No attempt took effect. Find out why the service refuses, then begin anew with a new key."
            }
            Self::Unreachable => "Nothing was sent. Send the same request with the same key, a little later.",
            Self::UpstreamFailed | Self::UpstreamTimeout => {
                "It may have been done. Keep the key, and ask the service, by the operation id, before anything else."
            }
            Self::Streaming => "Nothing was done. Ask for an ordinary response, or leave the key out.",
            Self::NotFound => "Ask with the credential that the operation was sent with; another caller's is not shown.",
            Self::StoreUnavailable => {
                "This request did nothing. Wait as long as Retry-After says, then send it with the same key."
            }
        }
    }
}
