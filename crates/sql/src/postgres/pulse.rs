//! Whether a connection still answers.

use crate::clock::uptime;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// Records when a connection received bytes, and how many calls wait for more.
pub(super) struct Pulse {
    held: Mutex<State>,
    patience_max: Duration,
    changed: Arc<Notify>,
}

struct State {
    waiting: usize,
    /// The last byte, or the first call that waits, whichever was later.
    quiet_since: Duration,
    /// How long a connection may be silent while a call waits.
    patience: Duration,
    is_suspected: bool,
    /// A statement was given up, and the server has sent nothing since: it may still run there.
    is_overdue: bool,
    /// How often bytes came.
    heard: u64,
}

/// How a connection is watched.
#[derive(Default)]
pub(super) struct PulseSettings {
    /// How long it may be silent while a call waits, at first.
    pub(super) patience: Duration,
    /// Notified when it receives bytes after it was suspected, or a call on it ends.
    pub(super) changed: Arc<Notify>,
}

/// A call that waits for its answer.
pub(super) struct Waiting<'a>(&'a Pulse);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut held = self.0.held();
        held.waiting -= 1;
        let is_suspected = held.is_suspected;
        drop(held);
        if is_suspected {
            self.0.changed.notify_waiters();
        }
    }
}

impl Pulse {
    /// `patience_max` limits the patience with a slow server.
    pub(super) fn new(settings: &PulseSettings, patience_max: Duration) -> Self {
        let PulseSettings { patience, changed } = settings;
        let (patience, changed) = (*patience, Arc::clone(changed));
        let state = State {
            waiting: 0,
            quiet_since: uptime(),
            patience,
            is_suspected: false,
            is_overdue: false,
            heard: 0,
        };
        Self { held: Mutex::new(state), patience_max, changed }
    }

    fn held(&self) -> MutexGuard<'_, State> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call is about to be sent.
    pub(super) fn begin(&self) -> Waiting<'_> {
        let mut held = self.held();
        if held.waiting == 0 {
            held.quiet_since = uptime();
        }
        held.waiting += 1;
        drop(held);
        Waiting(self)
    }

    /// Bytes came.
    pub(super) fn heard(&self) {
        let now = uptime();
        let mut held = self.held();
        if held.waiting > 0 {
            // A server that is slow, but answers, is given more time: to suspect it again and again would
            // only add logins to its work.
            let silence = now.saturating_sub(held.quiet_since);
            held.patience = held.patience.max((silence * 2).min(self.patience_max));
        }
        held.quiet_since = now;
        held.heard += 1;
        held.is_overdue = false;
        let was_suspected = std::mem::take(&mut held.is_suspected);
        drop(held);
        if was_suspected {
            self.changed.notify_waiters();
        }
    }

    /// A call gives up its statement. If the connection is silent, it counts as silent until bytes come. One that is not
    /// needs no proof: it would get no calls, and so no bytes.
    pub(super) fn give_up(&self) {
        let mut held = self.held();
        let quiet_for = uptime().saturating_sub(held.quiet_since);
        held.is_overdue |= held.waiting > 0 && quiet_for >= held.patience;
    }

    /// Whether a statement was given up, and the server has sent nothing since.
    pub(super) fn is_overdue(&self) -> bool {
        self.held().is_overdue
    }

    /// How long until the connection counts as silent; zero if it does. `None` if no call waits.
    pub(super) fn silent_in(&self) -> Option<Duration> {
        let held = self.held();
        if held.is_overdue {
            return Some(Duration::ZERO);
        }
        let quiet_for = uptime().saturating_sub(held.quiet_since);
        (held.waiting > 0).then(|| held.patience.saturating_sub(quiet_for))
    }

    pub(super) fn is_silent(&self) -> bool {
        self.silent_in().is_some_and(|left| left.is_zero())
    }

    pub(super) fn is_idle(&self) -> bool {
        let held = self.held();
        held.waiting == 0 && !held.is_overdue
    }

    /// The next bytes are notified. Returns how often bytes have come so far.
    pub(super) fn suspect(&self) -> u64 {
        let mut held = self.held();
        held.is_suspected = true;
        held.heard
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pulse(patience: Duration) -> Pulse {
        Pulse::new(&PulseSettings { patience, ..PulseSettings::default() }, Duration::from_mins(1))
    }

    #[test]
    fn a_connection_is_silent_only_while_a_call_waits() {
        let pulse = pulse(Duration::ZERO);
        assert!(!pulse.is_silent() && pulse.is_idle(), "nothing was asked");
        let waiting = pulse.begin();
        assert!(pulse.is_silent() && !pulse.is_idle());
        drop(waiting);
        assert!(!pulse.is_silent() && pulse.is_idle());
    }

    #[test]
    fn after_a_statement_was_given_up_the_connection_is_silent_until_bytes_come() {
        let silent = pulse(Duration::ZERO);
        let waiting = silent.begin();
        silent.give_up();
        drop(waiting);
        assert!(silent.is_silent() && silent.is_overdue() && !silent.is_idle());
        silent.heard();
        assert!(!silent.is_silent() && !silent.is_overdue() && silent.is_idle());
    }

    #[test]
    fn a_statement_given_up_while_bytes_come_leaves_the_connection_usable() {
        let heard = pulse(Duration::from_mins(1));
        let waiting = heard.begin();
        heard.give_up();
        drop(waiting);
        assert!(!heard.is_overdue() && heard.is_idle(), "without a call, no more bytes would come");
    }

    #[test]
    fn a_late_answer_doubles_the_patience_up_to_its_maximum() {
        let pulse = pulse(Duration::from_secs(1));
        let asked_ago = |ago: Duration| {
            let mut held = pulse.held();
            (held.quiet_since, held.waiting) = (uptime().saturating_sub(ago), 1);
        };
        // The uptime may still be short here.
        pulse.held().quiet_since = Duration::ZERO;
        asked_ago(Duration::ZERO);
        pulse.heard();
        assert_eq!(pulse.held().patience, Duration::from_secs(1), "an answer in time");
        pulse.held().patience = Duration::ZERO;
        while uptime() < Duration::from_millis(2) {
            std::thread::yield_now();
        }
        asked_ago(Duration::from_millis(2));
        pulse.heard();
        assert!(pulse.held().patience >= Duration::from_millis(4), "{:?}", pulse.held().patience);
    }
}
