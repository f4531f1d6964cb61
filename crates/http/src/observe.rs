//! What the layer tells anyone who watches it.
//!
//! Contents: what became of each request, for metrics, logs and reports. Never here: a raw key, a path with what
//! looks like somebody's id in it, or anything that the layer's behaviour depends on.

use crate::layer::Shared;
use crate::problem::Code;
use crate::route::Ready;
use crate::unread::Unread;
use semel::core::id::{CallerHash, KeyHash, OperationId};
use semel::core::key::Weakness;
use semel::core::record::StateName;
use std::sync::Arc;

/// Watches a layer. Called while requests wait: be quick, and never block.
pub trait Observer: Send + Sync + 'static {
    /// Something became of a request.
    fn observe(&self, event: &Event<'_>);

    /// The work of an attempt begins. `operation` is a label, as in an [`Event`].
    fn began(&self, operation: &str) {
        let _ = operation;
    }

    /// The work that [`began`](Self::began) is over, however it ended.
    fn ended(&self, operation: &str) {
        let _ = operation;
    }
}

/// Any function of an event.
impl<O: Fn(&Event<'_>) + Send + Sync + 'static> Observer for O {
    fn observe(&self, event: &Event<'_>) {
        self(event);
    }
}

/// What became of one request on a route whose methods are protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event<'a> {
    /// The operation, as a label: its name, else its route's template, else `other`. There are no more of them than
    /// routes.
    pub operation: &'a str,
    /// What became of it.
    pub what: What,
    /// What else was seen of a request in shadow mode; only with [`What::Shadow`].
    pub seen: Option<Seen<'a>>,
    /// The command that it was about, where it got so far.
    pub operation_id: Option<OperationId>,
    /// The hash of its key, where it got no outcome, or one that is in doubt.
    pub key: Option<KeyHash>,
}

impl<'a> Event<'a> {
    pub(crate) fn new(operation: &'a str, what: What) -> Self {
        Self { operation, what, operation_id: None, key: None, seen: None }
    }

    pub(crate) fn in_shadow(operation: &'a str, would: Would, seen: Seen<'a>) -> Self {
        Self { seen: Some(seen), ..Self::new(operation, What::Shadow(would)) }
    }
}

/// What is seen of a request in shadow mode besides what would have become of it: enough to say which routes should be
/// protected, also where none is named yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen<'a> {
    /// The method.
    pub method: &'a str,
    /// The path, as a template: whatever looks like an id in it is `{id}`. Not bounded in number.
    pub path: &'a str,
    /// Whether a key came along, good or bad.
    pub has_key: bool,
    /// It has no key, and one with the same payload from the same caller ran within the last minutes: likely a
    /// duplicate.
    pub is_repeat: bool,
}

/// What became of a request. Each has one of these; [`OddWord`](Self::OddWord) and [`WeakKey`](Self::WeakKey) come
/// besides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum What {
    /// It had no key and needed none: nothing is promised about it.
    Unprotected,
    /// It ran. With the state that this led to, where that was stored in time.
    Ran(Option<StateName>),
    /// It got the outcome that was stored before.
    Replayed,
    /// It got a response that was made of what was kept.
    Rebuilt,
    /// It was told to look later, as it preferred.
    Accepted,
    /// It got no outcome.
    Refused {
        /// Why not.
        code: Code,
        /// Whose key was bound to another payload; only then.
        caller: Option<CallerHash>,
    },
    /// Its body was not read to its end, and nothing was run.
    Unread(Unread),
    /// It would have got a stored outcome, and was not allowed to have it.
    NotAuthorized,
    /// The store could not be reached, and the request was handed on without protection, as the terms have it.
    FailedOpen,
    /// It was handed on in shadow mode; this is what would have become of it.
    Shadow(Would),
    /// The handler said of a success that nothing took effect. That is honoured: the next request runs again.
    OddWord,
    /// Its key was taken although it is weak.
    WeakKey(Weakness),
}

/// What would have become of a request that was handed on in shadow mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Would {
    /// It would have run, as it did.
    Run,
    /// It would have got a stored outcome instead.
    Replay,
    /// It would have got no outcome, for this reason; [`Code::InProgress`] after a wait.
    Refuse(Code),
    /// It has no key, and would have run. One with the same payload from the same caller ran before: a key might have
    /// saved it.
    RunAgain,
    /// Nobody can tell: the service did not read its body, or too many were being judged.
    NotJudged,
}

/// Nobody watches.
pub(crate) struct Unobserved;

impl Observer for Unobserved {
    fn observe(&self, _: &Event<'_>) {}
}

/// One attempt's work, from its beginning until it is dropped.
pub(crate) struct UnderWay {
    shared: Arc<Shared>,
    ready: Arc<Ready>,
}

impl UnderWay {
    pub(crate) fn new(shared: &Arc<Shared>, ready: &Arc<Ready>) -> Self {
        shared.observer.began(&ready.label);
        Self { shared: Arc::clone(shared), ready: Arc::clone(ready) }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.shared.observer.ended(&self.ready.label);
    }
}
