//! How a node that starts ahead of the mark watches it before it writes its own time, and gives way to a live node with
//! another time.

use super::mark::{ContradictionReport, Mark};
use super::start::DistrustReason;
use super::{ClockChange, TrustState, TrustedTime};
use crate::settings::ClockSettings;
use semel_core::time::Time;
use std::time::Duration;

/// A node that is ahead of the mark watches whether another node moves it. Every read counts only if the one before it
/// was recent and successful: a live node that could not reach the store either has to have a chance to write.
#[derive(Debug, Clone, Copy)]
pub(super) struct Watch {
    /// The uptime of the first of the reads that count; `None` if the next one is the first.
    pub(super) since: Option<Duration>,
    /// The uptime of the last read.
    pub(super) last: Duration,
    /// The last mark of another node with an earlier time, if there was one.
    pub(super) earlier: Option<EarlierMark>,
}

/// A mark with an earlier time than that of the node that watches. It proves nothing yet: it may have been on its way
/// for long, sent by a node that is gone. But it was in the store after the uptime `after`, and the next mark was sent by
/// a node that had read this one.
#[derive(Debug, Clone, Copy)]
pub(super) struct EarlierMark {
    after: Duration,
    now: Time,
    uptime: Duration,
}

impl EarlierMark {
    fn is_time_of(&self, mark: &Mark) -> bool {
        (self.now, self.uptime) == (mark.now(), mark.uptime())
    }
}

impl Watch {
    pub(super) fn begin(read: Duration) -> Self {
        Self { since: Some(read), last: read, earlier: None }
    }

    /// The mark was read at the uptime `read`, and nobody had moved it. Whether that has been so for long enough.
    fn is_over(&mut self, settings: &ClockSettings, read: Duration) -> bool {
        let is_unbroken = read.saturating_sub(self.last) <= settings.heartbeat * 3 / 2;
        let since = self.since.filter(|_| is_unbroken).unwrap_or(read);
        (self.since, self.last) = (Some(since), read);
        read.saturating_sub(since) >= settings.peers_seen_within()
    }
}

impl TrustedTime {
    /// Whether this node does not write its time yet, because a live node may use another one.
    pub(crate) fn is_watching(&self) -> bool {
        matches!(self.state().trust, TrustState::Trusted { watch: Some(_), .. })
    }

    /// The mark was read at the uptime `read`, and no other node has moved it. Whether this node may write its time.
    pub(crate) fn may_write(&self, read: Duration) -> bool {
        match &mut self.state().trust {
            TrustState::Trusted { watch: Some(watch), .. } => watch.is_over(&self.settings, read),
            TrustState::Trusted { watch: None, .. } => true,
            TrustState::Untrusted { .. } => false,
        }
    }

    /// A read of the mark failed.
    pub(crate) fn missed_read(&self) {
        if let TrustState::Trusted { watch: Some(watch), .. } = &mut self.state().trust {
            watch.since = None;
        }
    }

    /// This node's time is in the store, or that of a node that agrees.
    pub(crate) fn end_watch(&self) {
        if let TrustState::Trusted { watch, .. } = &mut self.state().trust {
            *watch = None;
        }
    }

    /// While this node watched, another one moved the mark to `mark`, which was read until the uptime `received`, but
    /// not yet at the uptime `before`. If it has another time, this node gives way.
    pub(crate) fn watched(&self, mark: &Mark, before: Duration, received: Duration) -> Option<ClockChange> {
        let mut state = self.state();
        let (now, latest) = (state.earliest(received), state.latest(received));
        let TrustState::Trusted { watch: Some(watch), .. } = &mut state.trust else { return None };
        let allowance = self.settings.watch_allowance();
        // Whether it is earlier than this node's time at that uptime.
        let is_earlier_than = |uptime| mark.now() + allowance < now - received.saturating_sub(uptime);
        let is_behind = mark.now() > latest + allowance;
        let is_recent = now.since(mark.now()) <= self.settings.peers_seen_within() + allowance;
        if !is_behind && !is_earlier_than(before) && is_recent {
            drop(state);
            self.end_watch();
            return None;
        }
        let known = watch.earlier.filter(|earlier| !earlier.is_time_of(mark));
        let is_ahead = !is_behind && known.is_some_and(|earlier| is_earlier_than(earlier.after));
        if !is_ahead && !is_behind {
            if watch.earlier.is_none() || known.is_some() {
                watch.earlier = Some(EarlierMark { after: before, now: mark.now(), uptime: mark.uptime() });
                // If a live node wrote it, the next one follows.
                watch.since = None;
            }
            return None;
        }
        let why = DistrustReason::Contradicted(if is_ahead {
            now.since(mark.now())
        } else {
            mark.now().since(now)
        });
        let report = ContradictionReport { ahead: now.since(mark.now()), up_to: latest };
        state.trust = TrustState::Untrusted {
            why,
            mark: Some(Box::new(mark.clone())),
            ahead_max: self.settings.peers_seen_within() + allowance,
            reference: None,
            // A clock that is behind contradicts the mark at every start.
            contradiction: is_ahead.then_some(report),
            since: received,
        };
        Some(ClockChange::Distrusted(why))
    }

    /// What the store has to keep, if this node has given way to another one.
    pub(crate) fn contradiction(&self) -> Option<ContradictionReport> {
        match self.state().trust {
            TrustState::Untrusted { contradiction, .. } => contradiction,
            TrustState::Trusted { .. } => None,
        }
    }

    /// A node that has given way reads a later mark of another one. A mark that was written late looks further behind
    /// than that node is: the smallest difference is the most precise.
    pub(crate) fn measure_contradiction(&self, mark: &Mark, received: Duration) {
        if let TrustState::Untrusted { contradiction: Some(report), since, .. } = &mut self.state().trust {
            // This node's time, continued since it gave way.
            let now = report.up_to + received.saturating_sub(*since);
            if now > mark.now() {
                report.ahead = report.ahead.min(now.since(mark.now()));
            }
        }
    }

    /// Another node gave way. Until `uptime` it may have given dates up to `up_to`.
    pub(crate) fn expect_dates_of_another(&self, up_to: Time, uptime: Duration) {
        let mut state = self.state();
        let last = self.settings.peers_seen_within();
        let up_to = state.replaced_up_to().max(Some(up_to + last));
        state.expect_dates_up_to(up_to);
        state.look_from = uptime + last;
    }
}
