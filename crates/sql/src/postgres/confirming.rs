//! Confirms commits of other connections to the same server.
//!
//! If somebody cancels a commit's wait for the standby, the server acknowledges it with a warning, which the
//! application's driver may not show. A later commit of this store that has reached the standby proves that
//! the earlier one has, too.

use super::doubts::confirmation;
use super::fault::Fault;
use super::slot::Slot;
use super::timeline::TIMELINE_NAME;
use semel_core::store::{Error, Kind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

const CONFIRMING: &str = "confirming a commit by another one on PostgreSQL";
/// How many callers may wait for the next confirmation.
const WAITING_MAX: usize = 1 << 14;

/// Shared by all callers: one small commit at a time, which confirms everything that was committed before it
/// began on the same timeline.
pub(super) struct Confirming {
    slot: Arc<Slot>,
    held: Mutex<State>,
}

/// The timeline that was confirmed.
type Confirmed = Result<String, Fault>;

#[derive(Default)]
struct State {
    /// Those whose confirmation has not begun.
    waiting: Vec<oneshot::Sender<Confirmed>>,
    is_running: bool,
}

impl Confirming {
    /// `slot` is connected when it is first needed.
    pub(super) fn new(slot: Arc<Slot>) -> Arc<Self> {
        Arc::new(Self { slot, held: Mutex::default() })
    }

    fn held(&self) -> MutexGuard<'_, State> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything that was committed on this timeline before this call is on the standby that commits wait for, if
    /// there is one. After a failover another server answers, which may lack it.
    pub(super) async fn confirm(self: &Arc<Self>, timeline: &str) -> Result<(), Error> {
        let confirmed = loop {
            // Without an answer, the task was on a runtime that has ended: the next one is on this caller's.
            if let Ok(confirmed) = self.enqueue()?.await {
                break confirmed.map_err(|fault| fault.error(CONFIRMING))?;
            }
        };
        if confirmed != timeline {
            let cause = format!(
                "the commit was on timeline {timeline}, and PostgreSQL was failed over to timeline {confirmed} since"
            );
            return Err(Error::new(Kind::Ambiguous, CONFIRMING).because(cause));
        }
        Ok(())
    }

    /// Waits for the next confirmation, and begins one if none runs.
    fn enqueue(self: &Arc<Self>) -> Result<oneshot::Receiver<Confirmed>, Error> {
        let mut held = self.held();
        if held.waiting.len() >= WAITING_MAX {
            let cause = format!("{WAITING_MAX} callers are waiting already");
            return Err(Error::new(Kind::Unavailable, CONFIRMING).because(cause));
        }
        let (reply, answer) = oneshot::channel();
        held.waiting.push(reply);
        let is_running = std::mem::replace(&mut held.is_running, true);
        drop(held);
        if !is_running {
            // Created here, because a runtime that ends drops the task without running it.
            tokio::spawn(Arc::clone(self).run(Running(Arc::clone(self))));
        }
        Ok(answer)
    }

    /// Confirms until nobody waits.
    async fn run(self: Arc<Self>, running: Running) {
        let _running = running;
        loop {
            // Whoever comes from here on may have committed after this one has begun, and gets the next.
            let waiting = {
                let mut held = self.held();
                held.waiting.retain(|reply| !reply.is_closed());
                if held.waiting.is_empty() {
                    return;
                }
                std::mem::take(&mut held.waiting)
            };
            let confirmed = self.commit().await;
            for reply in waiting {
                drop(reply.send(confirmed.clone()));
            }
        }
    }

    /// The task is over. Whoever still waits begins another one.
    fn stopped(&self) {
        let mut held = self.held();
        held.is_running = false;
        let waiting = std::mem::take(&mut held.waiting);
        drop(held);
        drop(waiting);
    }

    /// Commits, and returns the timeline of the server that did.
    async fn commit(&self) -> Confirmed {
        let sql = format!("SELECT {TIMELINE_NAME}, {}", confirmation());
        let rows = self.slot.write(&sql, Vec::new()).await?;
        let timeline = rows.first().and_then(|row| row.try_get(0).ok());
        timeline.ok_or_else(|| Fault::new(Kind::Ambiguous, "the answer cannot be read"))
    }
}

/// The task that confirms. Its runtime may end before it.
struct Running(Arc<Confirming>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.stopped();
    }
}
