//! The heartbeat: writes a node's time into the store.
//!
//! It also reads what others wrote, and stores an operator's confirmation of the clock. The time of an untrusted clock is
//! never written, nor that of a node that still watches whether another one uses another time. When to beat, and what a
//! failure says about the store, is decided by its callers.

use super::mark::{self, AfterWrite, Confirmed, Contradiction, Mark, Stored, TimeReport};
use super::{ClockChange, ClockStatus, Reference, TrustedTime, clamped};
use crate::runtime::clock::Clock;
use crate::settings::ClockSettings;
use semel_core::id::CommandId;
use semel_core::store::{Error, Store};
use semel_core::time::Time;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// This node's knowledge of the mark.
pub(crate) struct Heartbeat {
    /// Identifies this run of this node.
    run: String,
    stored: Mutex<Stored>,
    /// An upper bound of the uptime at which the stored mark was last known.
    read_at: Mutex<Duration>,
    confirmations: Mutex<u64>,
    /// The contradiction that this node has seen last.
    contradiction: Mutex<Option<Contradiction>>,
    /// The uptime of the last [catch-up](crate::node::beat::catch_up). Only one runs at a time.
    pub(crate) caught_up: tokio::sync::Mutex<Duration>,
}

impl Heartbeat {
    /// Reads the stored mark. The inner error means that it cannot be read.
    pub(crate) async fn read(
        store: &dyn Store,
        run: String,
        asked: Duration,
    ) -> Result<(Self, Result<Option<Mark>, ()>), Error> {
        let stored = mark::read(store).await?;
        let remembered = stored.mark().map_err(drop);
        let known = remembered.as_ref().ok().and_then(Option::as_ref);
        let confirmations = Mutex::new(known.map_or(0, Mark::confirmations));
        let contradiction = Mutex::new(known.and_then(|mark| mark.contradiction.clone()));
        let (stored, read_at) = (Mutex::new(stored), Mutex::new(asked));
        let caught_up = tokio::sync::Mutex::default();
        Ok((Self { run, stored, read_at, confirmations, contradiction, caught_up }, remembered))
    }

    fn stored(&self) -> Stored {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn learn(&self, stored: Stored) {
        *self.stored.lock().unwrap_or_else(PoisonError::into_inner) = stored;
    }

    fn read_at(&self) -> MutexGuard<'_, Duration> {
        self.read_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A confirmation in `mark` that this node has not seen yet.
    fn unseen_confirmation<'a>(&self, mark: &'a Mark) -> Option<&'a Confirmed> {
        let mut seen = self.confirmations.lock().unwrap_or_else(PoisonError::into_inner);
        let confirmed = mark.confirmed.as_ref().filter(|confirmed| confirmed.count > *seen)?;
        *seen = confirmed.count;
        Some(confirmed)
    }

    /// Whether `mark` has a contradiction that this node has not seen yet.
    fn has_unseen_contradiction(&self, mark: &Mark) -> bool {
        let mut seen = self.contradiction.lock().unwrap_or_else(PoisonError::into_inner);
        let is_unseen = mark.contradiction.is_some() && *seen != mark.contradiction;
        seen.clone_from(&mark.contradiction);
        is_unseen
    }
}

/// What one exchange of the time needs.
pub(crate) struct TimeExchange<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) time: &'a TrustedTime,
    pub(crate) heartbeat: &'a Heartbeat,
    pub(crate) settings: &'a ClockSettings,
    /// Gets every change of the clock's status.
    pub(crate) report: &'a (dyn Fn(ClockChange) + Sync),
}

impl TimeExchange<'_> {
    /// Returns whether anything was written: not by a node that does not trust its clock, or still watches the mark.
    pub(crate) async fn run(&self, shown: Time, asked: Duration, received: Duration) -> Result<bool, Error> {
        let heartbeat = self.heartbeat;
        let mut known = heartbeat.stored().mark().ok().flatten();
        let boot = self.clock.boot();
        // A node that may not write has to read: the last known mark is not current.
        let stored = if self.time.steady_since().is_err() || self.time.is_watching() {
            mark::read(self.store).await?
        } else {
            heartbeat.stored()
        };
        let written = mark::write(self.store, stored, |stored| {
            let mark = stored.unwrap_or(None);
            if let Some(mark) = &mark
                && known.as_ref() != Some(mark)
            {
                self.notice(mark, known.as_ref(), shown, asked, received);
                known = Some(mark.clone());
            }
            if let (Some(report), Some(mark)) = (self.time.contradiction(), &mark) {
                return Ok(mark.contradicted(report, &heartbeat.run, boot.as_deref()));
            }
            let Ok(steady_since) = self.time.steady_since() else { return Ok(None) };
            if !self.time.may_write(asked) {
                return Ok(None);
            }
            let uptime = self.clock.uptime();
            let now = self.time.earliest(uptime).at;
            let shown = shown + uptime.saturating_sub(received);
            let beat =
                TimeReport { now, shown, node: &heartbeat.run, boot: boot.as_deref(), uptime, steady_since };
            Ok(Some(Mark::after(mark.as_ref(), &beat)))
        });
        let AfterWrite { stored, is_written } = written.await?;
        *heartbeat.read_at() = asked;
        // Also what a conflict has shown: it was noticed, and the next change comes after it.
        heartbeat.learn(stored);
        if is_written {
            self.time.end_watch();
        }
        self.time.beaten(asked);
        Ok(is_written)
    }

    /// Another node wrote `mark` since this node read `known`.
    fn notice(&self, mark: &Mark, known: Option<&Mark>, shown: Time, asked: Duration, received: Duration) {
        let settings = self.settings;
        if self.heartbeat.has_unseen_contradiction(mark)
            && self.time.steady_since().is_ok()
            && let Some(up_to) = mark.contradicted_up_to()
        {
            self.time.expect_dates_of_another(up_to, received);
            self.time.look_for_future_dates();
        }
        let is_confirmed = known.map(Mark::confirmations) != Some(mark.confirmations());
        if self.time.is_watching() && known.is_some() && !is_confirmed {
            let is_moved = known.is_some_and(|known| !mark.has_time_of(known));
            if mark.node == self.heartbeat.run {
                // This node's own write, whose answer was lost.
                self.time.end_watch();
            } else if is_moved {
                let before = *self.heartbeat.read_at();
                if let Some(change) = self.time.watched(mark, before, received) {
                    (self.report)(change);
                }
            }
            return;
        }
        if self.time.is_starting() {
            // This confirmation is older than this node's start.
            self.heartbeat.unseen_confirmation(mark);
            let boot = self.clock.boot();
            if let Some(change) = self.time.start_again(boot.as_deref(), mark, (shown, asked, received)) {
                (self.report)(change);
            }
            return;
        }
        if let Some(confirmed) = self.heartbeat.unseen_confirmation(mark) {
            // Between this node's last read and this answer.
            let from = *self.heartbeat.read_at();
            let (at, before) = (confirmed.at(), mark.replaced_up_to());
            let reference = Reference { at, from, to: self.clock.uptime(), before };
            (self.report)(self.time.follow_confirmation(reference, shown, asked, received));
            return;
        }
        if self.time.steady_since().is_err() {
            // It has no time of its own that could differ.
            if known.is_some_and(|known| !mark.has_time_of(known)) {
                self.time.measure_contradiction(mark, received);
            }
            return;
        }
        if mark.node == self.heartbeat.run {
            // This node's own confirmation, whose answer was lost.
            return;
        }
        let now = self.time.earliest(received).at;
        let is_behind = mark.now() + settings.peers_seen_within() + settings.skew < now;
        let is_ahead =
            mark.now() > now + settings.skew + received.saturating_sub(asked) + Duration::from_secs(1);
        if is_behind || is_ahead {
            self.time.disagree(received);
            let by = i128::from(mark.now().as_millis()) - i128::from(now.as_millis());
            (self.report)(ClockChange::Disagrees { by_ms: clamped(by) });
        }
    }
}

/// How a node that started now would judge the store's clock. Writes nothing.
pub async fn examine_clock(
    store: &dyn Store,
    clock: &dyn Clock,
    settings: &ClockSettings,
) -> Result<ClockStatus, Error> {
    let remembered = mark::read(store).await?.mark().map_err(drop);
    let asked = clock.uptime();
    let shown = store.get(CommandId::from_bytes([0; 32])).await?.now;
    let received = clock.uptime();
    let boot = clock.boot();
    let answer = (shown, asked, received);
    let (time, _) = TrustedTime::start(settings.clone(), boot.as_deref(), remembered, answer);
    Ok(time.status())
}

/// Confirms that the store's clock is right: all nodes of the store use it from now on. `who` and `why` are stored
/// with the time. Returns the confirmed time.
///
/// Running nodes read it at their next heartbeat. For a while they judge no lease as expired, and nothing expires for
/// [`ClockSettings::settle`](crate::ClockSettings::settle).
pub async fn confirm_clock(
    store: &dyn Store,
    clock: &dyn Clock,
    who: &str,
    why: &str,
) -> Result<Time, Error> {
    let shown = store.get(CommandId::from_bytes([0; 32])).await?.now;
    let boot = clock.boot();
    let stored = mark::read(store).await?;
    mark::write(store, stored, |stored| {
        let uptime = clock.uptime();
        let (boot, steady_since) = (boot.as_deref(), Some(shown));
        let beat = TimeReport { now: shown, shown, node: who, boot, uptime, steady_since };
        // An unreadable mark is replaced: this is the purpose of a confirmation.
        Ok(Some(Mark::confirmed(stored.unwrap_or(None).as_ref(), &beat, who, why)))
    })
    .await?;
    Ok(shown)
}
