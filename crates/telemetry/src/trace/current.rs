//! The trace of the current request, for log lines.

use super::Context;
use std::cell::Cell;
use std::pin::Pin;
use std::task::{self, Poll};

thread_local! {
    static CURRENT: Cell<Option<Context>> = const { Cell::new(None) };
}

/// The trace of the current request, if it has one.
pub fn current() -> Option<Context> {
    CURRENT.get()
}

/// A future that runs in a trace.
pub struct InTrace<F> {
    context: Context,
    work: Pin<Box<F>>,
}

impl<F> InTrace<F> {
    /// Runs `work` in the trace of `context`.
    pub fn new(context: Context, work: F) -> Self {
        Self { context, work: Box::pin(work) }
    }
}

impl<F: Future> Future for InTrace<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut task::Context<'_>) -> Poll<F::Output> {
        let _before = RestoreContext(CURRENT.replace(Some(self.context)));
        self.work.as_mut().poll(context)
    }
}

/// Restores the previous value, even after a panic: the thread continues with other work.
struct RestoreContext(Option<Context>);

impl Drop for RestoreContext {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::pin::pin;

    fn context(trace: u128) -> Context {
        Context { trace, span: 1, is_sampled: true }
    }

    #[test]
    fn a_trace_ends_with_its_request_even_where_that_panics() {
        let mut task = task::Context::from_waker(task::Waker::noop());
        let mut outer = pin!(InTrace::new(context(1), async {
            let mut inner = pin!(InTrace::new(context(2), async {
                assert_eq!(current(), Some(context(2)));
                panic!("in the middle of it");
            }));
            let mut task = task::Context::from_waker(task::Waker::noop());
            let polled = catch_unwind(AssertUnwindSafe(|| inner.as_mut().poll(&mut task).is_ready()));
            assert!(polled.is_err());
            assert_eq!(current(), Some(context(1)));
        }));
        assert!(outer.as_mut().poll(&mut task).is_ready());
        assert_eq!(current(), None);
    }
}
