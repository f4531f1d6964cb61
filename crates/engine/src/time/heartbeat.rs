//! The heartbeat: writes a node's time into the store.
//!
//! It also reads what others wrote, stores an operator's confirmation of the clock, and proves that the store accepts
//! writes. The time of an untrusted clock is never written.

use super::mark::{self, Beat, Confirmed, Mark, Stored};
use super::{ClockChange, ClockStatus, Reference, TrustedTime, clamped};
use crate::clock::Clock;
use crate::node::Node;
use crate::observe::{Call, Event};
use crate::settings::ClockSettings;
use crate::tasks::Closing;
use semel_core::id::CommandId;
use semel_core::store::{Error, Kind, Store};
use semel_core::time::Time;
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
        let confirmations = remembered.as_ref().ok().and_then(Option::as_ref).map_or(0, Mark::confirmations);
        let (stored, confirmations) = (Mutex::new(stored), Mutex::new(confirmations));
        let read_at = Mutex::new(asked);
        Ok((
            Self { run, stored, read_at, confirmations, caught_up: tokio::sync::Mutex::default() },
            remembered,
        ))
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
}

/// Starts the heartbeat with a first beat now, so that even a short process leaves a mark.
pub(crate) async fn begin(node: &Arc<Node>) {
    // A failed call has its own event; the next beat tries again.
    let mut last = beat(node).await.is_ok();
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
    let (shown, received) = node.clock_time().await?;
    let beaten = node.bounded(Call::Beat, beat_at(node, shown, asked, received)).await;
    match &beaten {
        Ok(true) => node.wrote(received, Ok(())),
        Ok(false) => {}
        Err(error) => node.wrote(received, Err(error)),
    }
    beaten.map(drop)
}

/// Reads what others wrote about the time, if the last heartbeat is too old: the process was suspended, or the store
/// was unreachable. Await this before anything is dated.
///
/// One waiter reads for all of them. If it gets no answer, the others' own calls to the store will show the problem.
pub(crate) async fn catch_up(node: &Node) -> Result<(), Error> {
    let started_at = node.clock.uptime();
    if !node.time.has_to_catch_up(started_at) {
        return Ok(());
    }
    let asking = async {
        let mut tried_at = node.heartbeat.caught_up.lock().await;
        if *tried_at >= started_at || !node.time.has_to_catch_up(node.clock.uptime()) {
            return Ok(());
        }
        let caught_up = beat(node).await;
        *tried_at = node.clock.uptime();
        caught_up
    };
    // A request waits for this. The next one tries again.
    let late = || Err(Error::new(Kind::Unavailable, "waiting to read the time of other nodes"));
    node.within(node.settings.request_timeout(), asking).await.unwrap_or_else(late)
}

/// Returns whether anything was written: not by a node that does not trust its clock.
async fn beat_at(node: &Node, shown: Time, asked: Duration, received: Duration) -> Result<bool, Error> {
    let heartbeat = &node.heartbeat;
    let mut known = heartbeat.stored().mark().ok().flatten();
    let boot = node.clock.boot();
    // A node that may not write has to read: the last known mark is not current.
    let stored = match node.time.steady_since() {
        Err(_) => mark::read(&*node.store).await?,
        Ok(_) => heartbeat.stored(),
    };
    let written = mark::write(&*node.store, stored, |stored| {
        let mark = stored.unwrap_or(None);
        if let Some(mark) = &mark
            && known.as_ref() != Some(mark)
        {
            notice(node, mark, shown, asked, received);
            known = Some(mark.clone());
        }
        let Ok(steady_since) = node.time.steady_since() else { return Ok(None) };
        let uptime = node.clock.uptime();
        let now = node.time.earliest(uptime).at;
        let beat = Beat { now, node: &heartbeat.run, boot: boot.as_deref(), uptime, steady_since };
        Ok(Some(Mark::after(mark.as_ref(), &beat)))
    });
    let written = written.await?;
    *heartbeat.read_at() = asked;
    let is_written = written.is_some();
    if let Some(stored) = written {
        heartbeat.learn(stored);
        node.time.beaten(asked);
    }
    Ok(is_written)
}

/// Another node wrote `mark` since this node's last read.
fn notice(node: &Node, mark: &Mark, shown: Time, asked: Duration, received: Duration) {
    let clock = &node.settings.clock;
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
        let beat = Beat { now: shown, node: who, boot: boot.as_deref(), uptime, steady_since: Some(shown) };
        // An unreadable mark is replaced: this is the purpose of a confirmation.
        Ok(Some(Mark::confirmed(stored.unwrap_or(None).as_ref(), &beat, who, why)))
    })
    .await?;
    Ok(shown)
}
