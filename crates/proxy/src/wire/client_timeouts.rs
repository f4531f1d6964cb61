//! How long the gateway waits for a client. The timer is reset as rarely as possible, because a kept-alive connection
//! changes its wait thousands of times before one ends. Time that the service takes does not count against the client.

use super::rate::Rate;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

/// The limits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClientTimeouts {
    /// From a head's first byte to its last; for the first head of a connection, from its start.
    pub(crate) head: Duration,
    /// Between two messages.
    pub(crate) idle: Duration,
    /// For a client to read any byte that is being sent to it.
    pub(crate) write: Duration,
    /// The minimum rate for that.
    pub(crate) rate: Rate,
}

/// What the connection waits for, between messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// The first byte of the connection.
    First,
    /// The first byte of the next message.
    Next,
    /// The rest of a head, the n-th of its connection.
    Head,
}

/// The timer of the reading side.
#[derive(Debug)]
pub(super) struct ReadTimer {
    timeouts: ClientTimeouts,
    waiting: Option<(Wait, u64, Instant)>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl ReadTimer {
    pub(super) fn new(timeouts: ClientTimeouts) -> Self {
        Self { timeouts, waiting: None, timer: None }
    }

    /// Ready when the client has taken too long. `message` distinguishes two waits of the same kind.
    pub(super) fn poll(&mut self, wait: Wait, message: u64, context: &mut Context<'_>) -> Poll<()> {
        let deadline = match self.waiting {
            Some((waited_for, number, deadline)) if (waited_for, number) == (wait, message) => deadline,
            before => self.begin(wait, message, before),
        };
        loop {
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
            if timer.deadline() > deadline {
                timer.as_mut().reset(deadline);
            }
            if timer.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            if timer.deadline() >= deadline {
                return Poll::Ready(());
            }
            // It was set for an earlier wait that is over.
            timer.as_mut().reset(deadline);
        }
    }

    fn begin(&mut self, wait: Wait, message: u64, before: Option<(Wait, u64, Instant)>) -> Instant {
        let limit = if wait == Wait::Next { self.timeouts.idle } else { self.timeouts.head };
        let deadline = match before {
            // The first head's time starts with the connection.
            Some((Wait::First, _, deadline)) if wait == Wait::Head => deadline,
            _ => sleep(limit).deadline(),
        };
        self.waiting = Some((wait, message, deadline));
        deadline
    }
}
