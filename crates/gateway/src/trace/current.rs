//! The trace of the request that is being worked on.
//!
//! What lives here: how a log line learns which trace it belongs to. What must never: a trace that outlives its request's step.

use super::Context;
use std::cell::Cell;
use std::pin::Pin;
use std::task::{self, Poll};

thread_local! {
    static CURRENT: Cell<Option<Context>> = const { Cell::new(None) };
}

/// The trace of the request that is being worked on, if it has one.
pub(crate) fn current() -> Option<Context> {
    CURRENT.get()
}

/// Work on a request that belongs to a trace.
pub(crate) struct Within<F> {
    context: Context,
    work: Pin<Box<F>>,
}

impl<F> Within<F> {
    pub(crate) fn new(context: Context, work: F) -> Self {
        Self { context, work: Box::pin(work) }
    }
}

impl<F: Future> Future for Within<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut task::Context<'_>) -> Poll<F::Output> {
        let before = CURRENT.replace(Some(self.context));
        let polled = self.work.as_mut().poll(context);
        CURRENT.set(before);
        polled
    }
}
