//! One beat of the heartbeat: a node exchanges its time with others through the store.
//!
//! That also shows whether the store accepts settings.

use super::Node;
use super::writable::WriteSubject;
use crate::observe::Call;
use crate::time::TimeExchange;
use semel_core::store::{Error, Kind};

/// Updates the clock watch, writes the time, and reads what others wrote.
pub(crate) async fn beat(node: &Node) -> Result<(), Error> {
    let asked = node.clock.uptime();
    let (shown, received) = node.clock_time().await.inspect_err(|_| node.clock.trusted.missed_read())?;
    let report = |change| node.clock_changed(change);
    let exchange = TimeExchange {
        store: &*node.store,
        clock: &*node.clock.machine,
        time: &node.clock.trusted,
        heartbeat: &node.clock.heartbeat,
        settings: &node.settings.clock,
        report: &report,
    };
    let beaten = node.bounded(Call::Beat, exchange.run(shown, asked, received)).await;
    match &beaten {
        Ok(true) => node.wrote(WriteSubject::Setting, received, Ok(())),
        Ok(false) => {}
        Err(error) => {
            node.clock.trusted.missed_read();
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
    if !node.clock.trusted.has_to_catch_up(started_at) {
        return Ok(());
    }
    let late = || Error::new(Kind::Unavailable, "waiting to read the time of other nodes");
    let asking = async {
        let mut tried_at = node.clock.heartbeat.caught_up.lock().await;
        if !node.clock.trusted.has_to_catch_up(node.clock.uptime()) {
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
    node.clock.within(node.settings.request_timeout(), asking).await.unwrap_or_else(|| Err(late()))
}
