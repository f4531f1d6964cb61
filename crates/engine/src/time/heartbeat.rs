//! The heartbeat: writes a node's time into the store.
//!
//! It also reads what others wrote, stores an operator's confirmation of the clock, and shows whether the store accepts
//! settings. The time of an untrusted clock is never written, nor that of a node that still watches whether another one
//! uses another time.

use super::mark::{self, AfterWrite, Beat, Confirmed, Contradiction, Mark, Stored};
use super::{ClockChange, ClockStatus, Reference, TrustedTime, clamped};
use crate::node::Node;
use crate::node::writable::WriteSubject;
use crate::observe::{Call, Event};
use crate::runtime::clock::Clock;
use crate::runtime::tasks::Closing;
use crate::settings::ClockSettings;
use semel_core::id::CommandId;
use semel_core::store::{Error, Kind, Store};
use semel_core::time::Time;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How soon a failed heartbeat is retried, if that is sooner than the next one, so that the status of the store is
/// current.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

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
    /// The uptime of the last [catch-up](catch_up). Only one runs at a time.
    caught_up: tokio::sync::Mutex<Duration>,
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

/// Starts the heartbeat with a first beat now, so that even a short process leaves a mark.
pub(crate) async fn begin(node: &Arc<Node>) {
    // A failed call has its own event; the next beat tries again.
    let mut last = beat(node).await.is_ok();
    node.check_store().await;
    let beating = Arc::clone(node);
    node.spawn.spawn(Box::pin(async move {
        let node = beating;
        loop {
            tokio::select! {
                biased;
                () = node.tasks.closed(Closing::Draining) => return,
                () = node.clock.sleep(pause(&node, last)) => {}
            }
            tokio::select! {
                biased;
                () = node.tasks.closed(Closing::Draining) => return,
                beat = beat(&node) => last = beat.is_ok(),
            }
            node.check_store().await;
        }
    }));
}

fn pause(node: &Node, is_beaten: bool) -> Duration {
    let heartbeat = node.settings.clock.heartbeat;
    if is_beaten { heartbeat } else { heartbeat.min(AGAIN_AFTER) }
}

/// Updates the clock watch, writes the time, and reads what others wrote.
pub(crate) async fn beat(node: &Node) -> Result<(), Error> {
    let asked = node.clock.uptime();
    let (shown, received) = node.clock_time().await.inspect_err(|_| node.time.missed_read())?;
    let beaten = node.bounded(Call::Beat, beat_at(node, shown, asked, received)).await;
    match &beaten {
        Ok(true) => node.wrote(WriteSubject::Setting, received, Ok(())),
        Ok(false) => {}
        Err(error) => {
            node.time.missed_read();
            node.wrote(WriteSubject::Setting, received, Err(error));
        }
    }
    beaten.map(drop)
}

/// Reads what others wrote about the time, if the last heartbeat is too old: the process was suspended, or the store
/// was unreachable. Await this before anything is dated.
///
/// One waiter reads for all of them, and all of them fail with it: who claims without a current time may send nothing, and
/// may be unable to give the claim back.
pub(crate) async fn catch_up(node: &Node) -> Result<(), Error> {
    let started_at = node.clock.uptime();
    if !node.time.has_to_catch_up(started_at) {
        return Ok(());
    }
    let late = || Error::new(Kind::Unavailable, "waiting to read the time of other nodes");
    let asking = async {
        let mut tried_at = node.heartbeat.caught_up.lock().await;
        if !node.time.has_to_catch_up(node.clock.uptime()) {
            return Ok(());
        }
        if *tried_at >= started_at {
            return Err(late());
        }
        let caught_up = beat(node).await;
        *tried_at = node.clock.uptime();
        caught_up
    };
    // A request waits for this. The next one tries again.
    node.within(node.settings.request_timeout(), asking).await.unwrap_or_else(|| Err(late()))
}

/// Returns whether anything was written: not by a node that does not trust its clock, or still watches the mark.
async fn beat_at(node: &Node, shown: Time, asked: Duration, received: Duration) -> Result<bool, Error> {
    let heartbeat = &node.heartbeat;
    let mut known = heartbeat.stored().mark().ok().flatten();
    let boot = node.clock.boot();
    // A node that may not write has to read: the last known mark is not current.
    let stored = if node.time.steady_since().is_err() || node.time.is_watching() {
        mark::read(&*node.store).await?
    } else {
        heartbeat.stored()
    };
    let written = mark::write(&*node.store, stored, |stored| {
        let mark = stored.unwrap_or(None);
        if let Some(mark) = &mark
            && known.as_ref() != Some(mark)
        {
            notice(node, mark, known.as_ref(), shown, asked, received);
            known = Some(mark.clone());
        }
        if let (Some(report), Some(mark)) = (node.time.contradiction(), &mark) {
            return Ok(mark.contradicted(report, &heartbeat.run, boot.as_deref()));
        }
        let Ok(steady_since) = node.time.steady_since() else { return Ok(None) };
        if !node.time.may_write(asked) {
            return Ok(None);
        }
        let uptime = node.clock.uptime();
        let now = node.time.earliest(uptime).at;
        let shown = shown + uptime.saturating_sub(received);
        let beat = Beat { now, shown, node: &heartbeat.run, boot: boot.as_deref(), uptime, steady_since };
        Ok(Some(Mark::after(mark.as_ref(), &beat)))
    });
    let AfterWrite { stored, is_written } = written.await?;
    *heartbeat.read_at() = asked;
    // Also what a conflict has shown: it was noticed, and the next change comes after it.
    heartbeat.learn(stored);
    if is_written {
        node.time.end_watch();
    }
    node.time.beaten(asked);
    Ok(is_written)
}

/// Another node wrote `mark` since this node read `known`.
fn notice(node: &Node, mark: &Mark, known: Option<&Mark>, shown: Time, asked: Duration, received: Duration) {
    let clock = &node.settings.clock;
    if node.heartbeat.has_unseen_contradiction(mark)
        && node.time.steady_since().is_ok()
        && let Some(up_to) = mark.contradicted_up_to()
    {
        node.time.expect_dates_of_another(up_to, received);
        node.look_for_future_dates.store(true, Ordering::Release);
    }
    let is_confirmed = known.map(Mark::confirmations) != Some(mark.confirmations());
    if node.time.is_watching() && known.is_some() && !is_confirmed {
        let is_moved = known.is_some_and(|known| !mark.has_time_of(known));
        if mark.node == node.heartbeat.run {
            // This node's own write, whose answer was lost.
            node.time.end_watch();
        } else if is_moved {
            let before = *node.heartbeat.read_at();
            if let Some(change) = node.time.watched(mark, before, received) {
                node.clock_changed(change);
            }
        }
        return;
    }
    if node.time.is_starting() {
        // This confirmation is older than this node's start.
        node.heartbeat.unseen_confirmation(mark);
        let boot = node.clock.boot();
        if let Some(change) = node.time.start_again(boot.as_deref(), mark, (shown, asked, received)) {
            node.clock_changed(change);
        }
        return;
    }
    if let Some(confirmed) = node.heartbeat.unseen_confirmation(mark) {
        // Between this node's last read and this answer.
        let from = *node.heartbeat.read_at();
        let (at, before) = (confirmed.at(), mark.replaced_up_to());
        let reference = Reference { at, from, to: node.clock.uptime(), before };
        node.clock_changed(node.time.follow_confirmation(reference, shown, asked, received));
        return;
    }
    if node.time.steady_since().is_err() {
        // It has no time of its own that could differ.
        if known.is_some_and(|known| !mark.has_time_of(known)) {
            node.time.measure_contradiction(mark, received);
        }
        return;
    }
    if mark.node == node.heartbeat.run {
        // This node's own confirmation, whose answer was lost.
        return;
    }
    let now = node.time.earliest(received).at;
    let is_behind = mark.now() + clock.peers_seen_within() + clock.skew < now;
    let is_ahead = mark.now() > now + clock.skew + received.saturating_sub(asked) + Duration::from_secs(1);
    if is_behind || is_ahead {
        node.time.disagree(received);
        let by = i128::from(mark.now().as_millis()) - i128::from(now.as_millis());
        node.observe(&Event::Clock(ClockChange::Disagrees { by_ms: clamped(by) }));
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
        let beat = Beat { now: shown, shown, node: who, boot, uptime, steady_since };
        // An unreadable mark is replaced: this is the purpose of a confirmation.
        Ok(Some(Mark::confirmed(stored.unwrap_or(None).as_ref(), &beat, who, why)))
    })
    .await?;
    Ok(shown)
}
