//! Events of the layer.
//!
//! The result of each request, for metrics, logs and reports. Events contain no raw key and no path with IDs, and the
//! layer's behaviour does not depend on them.

use crate::problem::{Code, UnreadReason};
use crate::route::Mode;
use semel::core::id::{CallerHash, KeyHash, OperationId};
use semel::core::key::Weakness;
use semel::core::record::StateName;

/// Observes a layer. Called while requests wait: be quick, and never block.
pub trait Observer: Send + Sync + 'static {
    /// Receives an event.
    fn observe(&self, event: &Event<'_>);

    /// A request belongs to this operation, by its method and path; called before the request is handled. `operation`
    /// is a label, as in an [`Event`]. Requests that no settings apply to are not reported.
    fn routed(&self, operation: &str, mode: Mode) {
        let _ = (operation, mode);
    }

    /// The work of an attempt begins. `operation` is a label, as in an [`Event`].
    fn began(&self, operation: &str) {
        let _ = operation;
    }

    /// The work that [`began`](Self::began) has ended, in any way.
    fn ended(&self, operation: &str) {
        let _ = operation;
    }
}

/// Any function that takes an event.
impl<O: Fn(&Event<'_>) + Send + Sync + 'static> Observer for O {
    fn observe(&self, event: &Event<'_>) {
        self(event);
    }
}

/// The result of one request on a protected route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event<'a> {
    /// The operation's label: its name, otherwise its route's template, otherwise `other`. At most one per route.
    pub operation: &'a str,
    /// The result.
    pub what: EventKind,
    /// Details of a request in shadow mode; only with [`EventKind::Shadow`].
    pub seen: Option<ShadowDetails<'a>>,
    /// The operation ID, if it is known.
    pub operation_id: Option<OperationId>,
    /// The hash of its key, if it got no outcome or an outcome in doubt.
    pub key: Option<KeyHash>,
}

impl<'a> Event<'a> {
    pub(crate) fn new(operation: &'a str, what: EventKind) -> Self {
        Self { operation, what, operation_id: None, key: None, seen: None }
    }

    pub(crate) fn in_shadow(operation: &'a str, shadowed: ShadowOutcome, seen: ShadowDetails<'a>) -> Self {
        Self { seen: Some(seen), ..Self::new(operation, EventKind::Shadow(shadowed)) }
    }
}

/// Details of a request in shadow mode: enough to find routes that should be protected, even if none is configured
/// yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShadowDetails<'a> {
    /// The method.
    pub method: &'a str,
    /// The path as a template: segments that look like IDs are `{id}`. Their number is not limited.
    pub path: &'a str,
    /// Whether the request has a key, valid or not.
    pub has_key: bool,
    /// It has no key, and a request with the same payload from the same caller ran within the last minutes: likely a
    /// duplicate.
    pub is_repeat: bool,
}

/// The result of a request. Each request has exactly one; [`OddWord`](Self::OddWord) and [`WeakKey`](Self::WeakKey)
/// come in addition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind {
    /// It had no key and needed none: it is not protected.
    Unprotected,
    /// It ran, and the handler answered; contains the resulting state if it was stored in time. If the handler had no
    /// answer, the request is [refused](Self::Refused) with the code for that.
    Ran(Option<StateName>),
    /// It got a stored outcome.
    Replayed,
    /// It got a rebuilt response.
    Rebuilt,
    /// It got 202, as it preferred.
    Accepted,
    /// It got no outcome.
    Refused {
        /// Why not.
        code: Code,
        /// The caller, if the key was bound to another payload.
        caller: Option<CallerHash>,
    },
    /// Its body was not read completely, and nothing was run.
    Unread(UnreadReason),
    /// It would have got a stored outcome, but was not authorized.
    NotAuthorized,
    /// The store was unavailable, and the request was passed on without protection, as configured.
    FailedOpen,
    /// It was passed on in shadow mode; contains what would have happened.
    Shadow(ShadowOutcome),
    /// The handler reported a success as "not applied". That is honoured: the next request runs again.
    OddWord,
    /// Its weak key was accepted.
    WeakKey(Weakness),
}

/// What would have happened to a request in shadow mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ShadowOutcome {
    /// It would have run, as it did.
    Run,
    /// It would have got a stored outcome instead.
    Replay,
    /// It would have got this problem; [`Code::InProgress`] after a wait.
    Refuse(Code),
    /// It has no key, and would have run. A request with the same payload from the same caller ran before: a key
    /// might have prevented it.
    RunAgain,
    /// Unknown: the service did not read its body, or too many requests were being judged.
    NotJudged,
}

/// Ignores all events.
pub(crate) struct Unobserved;

impl Observer for Unobserved {
    fn observe(&self, _: &Event<'_>) {}
}
