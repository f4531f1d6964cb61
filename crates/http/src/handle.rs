//! The handler's end of an attempt.
//!
//! Contents: what a handler may learn of its attempt, and say about it while it runs. Never here: a word that is
//! asked for; who says nothing is judged by the response.

use http::Extensions;
use semel::Attempt;
use semel::core::classify::Steer;
use semel::core::id::OperationId;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// A protected request, as its handler has it: which operation and attempt it is, and the handler's own word about it.
///
/// It is an extension of the request. In axum `Extension<Handle>` extracts it, `Option<Extension<Handle>>` if
/// requests may come without a key; elsewhere [`Handle::of`] finds it.
///
/// ```
/// use axum::Extension;
/// use semel_http::{Handle, Steer};
///
/// async fn charge(Extension(handle): Extension<Handle>) -> Result<String, http::StatusCode> {
///     // Until something was sent, nothing took effect, whatever the status says.
///     handle.steer(Steer::NotApplied);
///     let account = find_account().await.ok_or(http::StatusCode::INTERNAL_SERVER_ERROR)?;
///     handle.unsteer();
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
    said: Arc<Mutex<Said>>,
}

/// What a handler has said so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Said {
    pub(crate) steer: Option<Steer>,
    pub(crate) resource: Option<String>,
}

impl Handle {
    pub(crate) fn new(attempt: Attempt) -> Self {
        Self { attempt, said: Arc::default() }
    }

    /// The handle of a request, where it is protected.
    pub fn of(extensions: &Extensions) -> Option<&Self> {
        extensions.get()
    }

    /// The public name of the operation: the same on every attempt.
    pub fn operation_id(&self) -> OperationId {
        self.attempt.operation_id()
    }

    /// The attempt: its number, its fence, and the check before its effect's first byte.
    pub fn attempt(&self) -> &Attempt {
        &self.attempt
    }

    /// What is known about the effect, whatever the response's status says. The last word counts.
    pub fn steer(&self, steer: Steer) {
        self.said(|said| said.steer = Some(steer));
    }

    /// Takes that back: the response speaks for itself.
    pub fn unsteer(&self) {
        self.said(|said| said.steer = None);
    }

    /// What the operation made, by whatever name [`Rebuild`](crate::Rebuild) finds it by. Kept only if the terms keep
    /// [the least](crate::Retain::Minimal) of a response.
    pub fn name_resource(&self, name: impl Into<String>) {
        let name = name.into();
        self.said(|said| said.resource = Some(name));
    }

    /// What was said until now.
    pub(crate) fn heard(&self) -> Said {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn said(&self, say: impl FnOnce(&mut Said)) {
        say(&mut self.said.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("attempt", &self.attempt).finish_non_exhaustive()
    }
}
