//! One beat of the heartbeat: a node exchanges its time with others through the store.
//!
//! That also shows whether the store accepts settings.

use super::store_access::StoreAccess;
use super::writable::WriteSubject;
use crate::observe::Call;
use crate::time::TimeExchange;
use semel_core::store::{Error, Kind};

/// Updates the clock watch, writes the time, and reads what others wrote.
pub(crate) async fn beat(store: &StoreAccess) -> Result<(), Error> {
    let asked = store.clock.uptime();
    let (shown, received) = store.clock_time().await.inspect_err(|_| store.clock.trusted.missed_read())?;
    let report = |change| store.clock_changed(change);
    let exchange = TimeExchange {
        store: &*store.raw,
        clock: &*store.clock.machine,
        time: &store.clock.trusted,
        heartbeat: &store.clock.heartbeat,
        settings: &store.settings.clock,
        report: &report,
    };
    let beaten = store.bounded(Call::Beat, exchange.run(shown, asked, received)).await;
    match &beaten {
        Ok(true) => store.wrote(WriteSubject::Setting, received, Ok(())),
        Ok(false) => {}
        Err(error) => {
            store.clock.trusted.missed_read();
            store.wrote(WriteSubject::Setting, received, Err(error));
        }
    }
    beaten.map(drop)
}

/// Reads what others wrote about the time, if the last heartbeat is too old: the process was suspended, or the store
/// was unreachable. Await this before anything is dated.
///
/// One waiter reads for all of them, and all of them fail with it: who claims without a current time may send nothing, and
/// may be unable to give the claim back.
pub(crate) async fn catch_up(store: &StoreAccess) -> Result<(), Error> {
    let started_at = store.clock.uptime();
    if !store.clock.trusted.has_to_catch_up(started_at) {
        return Ok(());
    }
    let late = || Error::new(Kind::Unavailable, "waiting to read the time of other nodes");
    let asking = async {
        let mut tried_at = store.clock.heartbeat.caught_up.lock().await;
        if !store.clock.trusted.has_to_catch_up(store.clock.uptime()) {
            return Ok(());
        }
        if *tried_at >= started_at {
            return Err(late());
        }
        let caught_up = beat(store).await;
        *tried_at = store.clock.uptime();
        caught_up
    };
    // A request waits for this. The next one tries again.
    store.clock.within(store.settings.request_timeout(), asking).await.unwrap_or_else(|| Err(late()))
}
