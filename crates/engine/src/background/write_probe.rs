//! Whether the store accepts records, without waiting for a request.
//!
//! At the start, and after a failed write until they are accepted, entries of its own are inserted and removed: markers,
//! which are in no count or list of records and are not swept. They are written like the records of commands, and spread
//! over the store, so that each server of a cluster gets some, and a full disk has no room for all of them if it has none
//! for a claim. A node that writes no records otherwise tries one entry with each heartbeat, in turn: the heartbeat itself is
//! a small setting, and would not notice that records are refused.

use crate::node::Node;
use crate::node::store_access::StoreAccess;
use crate::node::writable::WriteSubject;
use crate::observe::Call;
use crate::probe_entry;
use crate::runtime::tasks::Closing;
use futures_util::future::join_all;
use semel_core::id::CommandId;
use semel_core::store::{Change, Error, Kind, Written};
use std::sync::Arc;
use std::time::Duration;

/// How soon after a failure, and how often while it lasts.
const EVERY: Duration = Duration::from_secs(1);
/// How many of them at the start, when most stores work.
const ENTRIES_AT_START: u8 = 8;
/// How often one entry is tried, while other nodes insert and remove the same one, or an answer is late.
const TRIES: u32 = 3;

/// The probe at the start. Returns whether the store accepted its entries.
pub(crate) async fn first(store: &StoreAccess) -> bool {
    probe(store, ENTRIES_AT_START).await
}

/// Starts probing: with every heartbeat, and after failed writes. `is_accepted` is the result of the first one.
pub(crate) fn begin(node: &Arc<Node>, mut is_accepted: bool) {
    let probing = Arc::clone(node);
    node.spawn.spawn(Box::pin(async move {
        let node = probing;
        let (mut entries, heartbeat) = ((0..probe_entry::COUNT).cycle(), node.settings.clock.heartbeat);
        loop {
            while is_accepted {
                tokio::select! {
                    biased;
                    () = node.tasks.closed(Closing::Draining) => return,
                    () = node.store.writes.next_failure() => is_accepted = false,
                    () = node.clock.sleep(heartbeat) => {
                        let since = node.clock.uptime().saturating_sub(heartbeat);
                        if !node.store.writes.has_written_record_since(since) {
                            is_accepted = probe_one(&node.store, entries.next().unwrap_or_default()).await;
                        }
                    }
                }
            }
            while !is_accepted {
                tokio::select! {
                    biased;
                    () = node.tasks.closed(Closing::Draining) => return,
                    () = node.clock.sleep(EVERY) => {}
                }
                // Not cancelled, because that could leave entries behind.
                is_accepted = probe(&node.store, probe_entry::COUNT).await;
            }
        }
    }));
}

/// Inserts and removes the first `count` entries. Returns whether the store accepted them.
async fn probe(store: &StoreAccess, count: u8) -> bool {
    let asked = store.clock.uptime();
    let entries = join_all((0..count).map(|entry| insert_and_remove(store, probe_entry::id(entry))));
    let probed = async {
        let mut is_proven = false;
        let mut failed = None;
        for result in entries.await {
            match result {
                Ok(is_written) => is_proven |= is_written,
                // The part of the store with that entry is lost, which is watched apart.
                Err(error) if error.kind() == Kind::DataLost => store.note_loss(&error),
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(is_proven), Err)
    };
    match store.bounded(Call::Beat, probed).await {
        Ok(is_proven) => {
            if is_proven {
                store.wrote(WriteSubject::Probe, asked, Ok(()));
            }
            is_proven
        }
        Err(error) => {
            store.wrote(WriteSubject::Probe, asked, Err(&error));
            false
        }
    }
}

/// Inserts and removes one entry. Returns whether that went without an error; it proves nothing about the other entries.
async fn probe_one(store: &StoreAccess, entry: u8) -> bool {
    let asked = store.clock.uptime();
    match insert_and_remove(store, probe_entry::id(entry)).await {
        Ok(_) => true,
        Err(error) if error.kind() == Kind::DataLost => {
            store.note_loss(&error);
            true
        }
        Err(error) => {
            store.wrote(WriteSubject::Probe, asked, Err(&error));
            false
        }
    }
}

/// `false` if other nodes did the same at the same time. A slow store may answer one of many calls late, which is no
/// refusal.
async fn insert_and_remove(store: &StoreAccess, id: CommandId) -> Result<bool, Error> {
    let mut last = Ok(false);
    for _ in 0..TRIES {
        last = insert_and_remove_once(store, id).await;
        match &last {
            Ok(true) => break,
            Err(error) if error.kind() != Kind::Ambiguous => break,
            Ok(false) | Err(_) => {}
        }
    }
    last
}

async fn insert_and_remove_once(store: &StoreAccess, id: CommandId) -> Result<bool, Error> {
    let is_inserted = is_done(store, id, Change::InsertMarker).await?;
    // One that a killed node left behind is removed too.
    is_done(store, id, Change::RemoveMarker).await?;
    Ok(is_inserted)
}

async fn is_done(
    store: &StoreAccess,
    id: CommandId,
    change: Change<&semel_core::record::Record>,
) -> Result<bool, Error> {
    let late = || Err(Error::new(Kind::Ambiguous, "waiting for the store to write an entry of its own"));
    let written = store.clock.within(store.settings.request_timeout(), store.raw.write(id, change)).await;
    Ok(matches!(written.unwrap_or_else(late)?, Written::Done { .. }))
}
