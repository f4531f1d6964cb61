//! The handler's access to its attempt.
//!
//! What a handler can find out about its attempt, and report while it runs. Reporting is optional: by default the
//! response decides.

use super::outcome_hint::OutcomeHint;
use http::Extensions;
use semel::Attempt;
use semel::core::id::OperationId;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// A protected request, for its handler: the operation, the attempt, and a way to report its outcome.
///
/// It is an extension of the request. In axum, use `Extension<Handle>`, or `Option<Extension<Handle>>` if requests
/// may have no key; elsewhere use [`Handle::of`].
///
/// ```
/// use axum::Extension;
/// use semel_http::{Handle, OutcomeHint};
///
/// async fn charge(Extension(handle): Extension<Handle>) -> Result<String, http::StatusCode> {
///     // Until something is sent, nothing took effect, whatever the status is.
///     handle.set_outcome_hint(OutcomeHint::NotApplied);
///     let account = find_account().await.ok_or(http::StatusCode::INTERNAL_SERVER_ERROR)?;
///     handle.clear_outcome_hint();
///     let charge = debit(account, handle.operation_id()).await;
///     handle.name_resource(&charge);
///     Ok(charge)
/// }
/// # async fn find_account() -> Option<u32> { Some(7) }
/// # async fn debit(_: u32, id: semel::core::id::OperationId) -> String { id.to_string() }
/// ```
#[derive(Clone)]
pub struct Handle {
    attempt: Attempt,
    report: Arc<Mutex<Report>>,
}

/// What a handler has reported so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Report {
    pub(crate) outcome_hint: Option<OutcomeHint>,
    pub(crate) resource: Option<String>,
}

impl Handle {
    pub(crate) fn new(attempt: Attempt) -> Self {
        Self { attempt, report: Arc::default() }
    }

    /// The handle of a request, if it is protected.
    pub fn of(extensions: &Extensions) -> Option<&Self> {
        extensions.get()
    }

    /// The operation ID: the same on every attempt.
    pub fn operation_id(&self) -> OperationId {
        self.attempt.operation_id()
    }

    /// The attempt: its number, its fence, and the check before its effect is sent.
    pub fn attempt(&self) -> &Attempt {
        &self.attempt
    }

    /// Reports what is known about the effect. Overrides the response's status; the last call counts.
    pub fn set_outcome_hint(&self, hint: OutcomeHint) {
        self.update_report(|report| report.outcome_hint = Some(hint));
    }

    /// Withdraws the report: the response decides.
    pub fn clear_outcome_hint(&self) {
        self.update_report(|report| report.outcome_hint = None);
    }

    /// Names the created resource, so that [`Rebuild`](crate::Rebuild) can find it. Stored only with
    /// [`Retain::Minimal`](crate::Retain::Minimal).
    pub fn name_resource(&self, name: impl Into<String>) {
        let name = name.into();
        self.update_report(|report| report.resource = Some(name));
    }

    /// What was reported so far.
    pub(crate) fn report(&self) -> Report {
        self.report.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn update_report(&self, update: impl FnOnce(&mut Report)) {
        update(&mut self.report.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("attempt", &self.attempt).finish_non_exhaustive()
    }
}
