//! The problems for what the engine refuses or cannot do.

use super::code::Code;
use super::document::Problem;
use semel::core::fingerprint::{self, ErrorKind};
use semel::core::id::OperationId;
use semel::{Error, GivenUp, RefusalReason};
use std::time::Duration;

/// When a client should retry if the store is unavailable.
const STORE_RETRY_AFTER: Duration = Duration::from_secs(1);

impl Problem {
    /// The problem for an error of the engine.
    pub fn of_error(error: &Error) -> Self {
        match error {
            Error::Fingerprint(error) => Self::of_fingerprint_error(error),
            Error::Quota(exceeded) => {
                let detail = "Too many requests with new idempotency keys. Nothing was run; retry later with the same key.";
                Self::new(Code::Quota, detail).retryable_after(exceeded.retry_after)
            }
            Error::GivenUp(GivenUp::Late) => Self::deadline_exceeded(),
            // Waiting does not fix a configuration.
            Error::NoSealingKey | Error::Policy(_) | Error::LocalClass | Error::LocalRecord(_) => {
                tracing::error!(%error, "a request cannot be protected with this configuration");
                Self::misconfigured()
            }
            // In all other cases nothing was run: without a claim, nothing runs.
            _ => Self::store_unavailable(),
        }
    }

    /// The problem for a request that cannot be fingerprinted.
    pub(crate) fn of_fingerprint_error(error: &fingerprint::Error) -> Self {
        match error.kind() {
            ErrorKind::TooLarge => Self::new(Code::TooLarge, format!("Nothing was run. {error}")),
            _ => Self::new(
                Code::Unfingerprintable,
                format!("The body cannot be compared with a retry, so nothing was run. {error}"),
            ),
        }
    }

    /// The problem for a command without an outcome, if no settings of a route say otherwise.
    pub(crate) fn of_refusal(id: OperationId, reason: &RefusalReason) -> Self {
        match reason {
            RefusalReason::InProgress { retry_after } => {
                let detail =
                    "A request with this idempotency key is being processed. Retry later with the same key.";
                Self::new(Code::InProgress, detail).retryable_after(*retry_after).about(id)
            }
            RefusalReason::Mismatch => {
                let detail = "This idempotency key was used for a different request. Nothing was run; use \
                              a new key for a new request.";
                Self::new(Code::Mismatch, detail).about(id)
            }
            RefusalReason::Expired => {
                let detail =
                    "The original request has had its outcome, which expired or was erased. Nothing was run.";
                Self::new(Code::Expired, detail).about(id)
            }
            RefusalReason::AttemptsExhausted => {
                let detail = "All allowed attempts for this idempotency key were made, and none took effect.";
                Self::new(Code::AttemptsExhausted, detail).about(id)
            }
            RefusalReason::ClockNotTrusted { retry_after } => {
                Self::clock_not_trusted(Some(*retry_after)).about(id)
            }
            RefusalReason::NotApplied => {
                let detail = "The request took no effect; retry with the same key.";
                Self::new(Code::Unreachable, detail).retryable(true).about(id)
            }
            RefusalReason::Unknown { repeatable } => Self::outcome_unknown(id).retryable(*repeatable),
            _ => Self::outcome_unknown(id),
        }
    }

    fn outcome_unknown(id: OperationId) -> Self {
        let detail = "The original request may have taken effect. Nothing more was run under this key. Report the \
                      operation ID to the service's operators, who can find out.";
        Self::new(Code::Unknown, detail).about(id)
    }

    /// The command took effect, but its response was not stored.
    pub(crate) fn not_retained(id: OperationId) -> Self {
        let detail =
            "The original request was processed, but its response was not retained. Nothing was run.";
        Self::new(Code::NotRetained, detail).about(id)
    }

    /// The client's deadline was over before anything was run.
    pub fn deadline_exceeded() -> Self {
        let detail = "The time that the request had left was over before it could be run. Nothing was run; retry with the \
                      same key and more time.";
        Self::new(Code::DeadlineExceeded, detail).retryable(true)
    }

    /// The store cannot be reached, and nothing was run.
    pub fn store_unavailable() -> Self {
        let detail =
            "The idempotency store is unavailable, so nothing was run. Retry later with the same key.";
        Self::new(Code::StoreUnavailable, detail).retryable_after(STORE_RETRY_AFTER)
    }

    /// The service is set up in a way that cannot protect the request. Nothing was run.
    pub fn misconfigured() -> Self {
        let detail = "This service is not configured to protect requests like this one. Nothing was run; the operators of the \
                      service have to fix it.";
        Self::new(Code::StoreUnavailable, detail).with_status(500)
    }

    /// The clock is not trusted, and nothing was run. `retry_after`: when the clock may be trusted again, if that is
    /// known.
    pub fn clock_not_trusted(retry_after: Option<Duration>) -> Self {
        let detail = "Nothing was run: the clock of the idempotency store is not trusted at the moment. \
                      Retry later with the same key.";
        Self::new(Code::ClockNotTrusted, detail).retryable_after(retry_after.unwrap_or(STORE_RETRY_AFTER))
    }

    /// In class `local`: the command's transaction was rolled back. `retryable`: another attempt may succeed.
    pub fn rolled_back(retryable: bool) -> Self {
        let detail = if retryable {
            "The service failed while it processed the request, and everything was rolled back. Retry with the same key."
        } else {
            "The service failed while it processed the request, and everything was rolled back. The operators of the service \
             have to fix it."
        };
        Self::new(Code::NotRecorded, detail).retryable(retryable)
    }

    /// In class `local`: the command's transaction was rolled back, for a reason that passes by itself.
    pub fn rolled_back_for_now() -> Self {
        let detail = "The request could not be completed at the moment, and everything was rolled back. Retry with the same key.";
        Self::new(Code::NotRecorded, detail).with_status(503).retryable_after(STORE_RETRY_AFTER)
    }

    /// In class `local`: the service reported a success that it did not record.
    pub fn not_recorded(id: OperationId) -> Self {
        let detail = "The service did not record what it did with this request, so a retry would run it again. The operators of \
                      the service have to fix it.";
        Self::new(Code::NotRecorded, detail).about(id)
    }

    /// In class `local`: it is not known yet whether the transaction has committed. A retry finds out.
    pub fn commit_in_doubt(id: OperationId) -> Self {
        let detail =
            "It is not known yet whether the request took effect. Retry with the same key to find out.";
        Self::new(Code::Unknown, detail).about(id).retryable_after(STORE_RETRY_AFTER)
    }

    /// In class `external` and `downstream`: someone else settled the attempt, or its record is gone.
    pub fn overtaken(id: OperationId) -> Self {
        Self::of_refusal(id, &RefusalReason::Unknown { repeatable: false })
    }
}

#[cfg(test)]
mod tests {
    use super::super::document::Form;
    use super::*;

    #[test]
    fn a_missing_sealing_key_is_not_a_retryable_outage() {
        let local = Error::LocalRecord(OperationId::from_bytes([7; 16]));
        for set_up in [Error::NoSealingKey, Error::LocalClass, local] {
            let request_outcome = Problem::of_error(&set_up).into_response(Form::Json, "");
            assert_eq!(
                (request_outcome.status().as_u16(), request_outcome.headers().get("retry-after")),
                (500, None)
            );
            let document =
                String::from_utf8_lossy(&request_outcome.body().data().unwrap_or_default()).into_owned();
            assert!(document.contains("\"retryable\":false"), "{document}");
        }
        let request_outcome = Problem::of_error(&Error::Closing).into_response(Form::Json, "");
        assert_eq!(
            (request_outcome.status().as_u16(), request_outcome.headers().contains_key("retry-after")),
            (503, true)
        );
    }
}
