//! The clocks of a node: the machine's for durations, and the store's time as far as it is known.

use crate::runtime::clock::{Clock, Sleep, within};
use crate::time::{Heartbeat, TrustedTime};
use semel_core::time::{Now, Time};
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct NodeClock {
    pub(crate) machine: Arc<dyn Clock>,
    /// The store's time.
    pub(crate) trusted: TrustedTime,
    pub(crate) heartbeat: Heartbeat,
}

impl NodeClock {
    pub(crate) fn uptime(&self) -> Duration {
        self.machine.uptime()
    }

    pub(crate) fn sleep(&self, span: Duration) -> Sleep {
        self.machine.sleep(span)
    }

    /// [`Clock::alarm`].
    pub(crate) fn alarm(&self, span: Duration) -> Sleep {
        self.machine.alarm(span)
    }

    /// The result of `future`, or `None` after `span`. Sets a timer only if the future is not ready immediately.
    pub(crate) async fn within<T>(&self, span: Duration, future: impl Future<Output = T>) -> Option<T> {
        within(&*self.machine, span, future).await
    }

    /// The store's time, the earliest that it can be.
    pub(crate) fn now(&self) -> Time {
        self.trusted.earliest(self.uptime()).at
    }

    /// The store's time, at the latest.
    pub(crate) fn now_at_the_latest(&self) -> Now {
        self.trusted.latest(self.uptime())
    }

    /// The moment of an answer, and how far it is trusted.
    pub(crate) fn at(&self, at: Time) -> Now {
        self.trusted.at(at, self.uptime())
    }
}
