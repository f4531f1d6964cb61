//! The attempts that this engine is running.
//!
//! Duplicates in the same process find each other here without the store. They get no answer that the store would not
//! give too.

use semel_core::id::CommandId;
use semel_core::record::Record;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// The progress of an attempt in this process.
#[derive(Debug, Clone)]
pub(crate) enum Progress {
    /// It is being claimed here.
    Claiming,
    /// A transaction of this process runs it. The store has nothing of it until the transaction ends.
    Transaction,
    /// It runs here; contains the claimed record.
    Running(StoredRecord),
    /// It runs on another node, or its ending is on its way to the store; contains the last known record. Only the
    /// store knows whether that is current.
    Unsure(StoredRecord),
    /// It has ended; contains the stored record. It was read or written at the uptime `since` or later.
    Ended { stored: StoredRecord, since: Duration },
    /// It is no longer ours, or could not be claimed: ask the store.
    Left,
}

/// A record and its command ID.
#[derive(Debug, Clone)]
pub(crate) struct StoredRecord {
    pub(crate) id: CommandId,
    pub(crate) record: Arc<Record>,
}

/// The running attempts of this process, by command.
#[derive(Debug, Default)]
pub(crate) struct Running {
    slots: Mutex<HashMap<CommandId, Arc<Mutex<Slot>>>>,
}

/// One attempt. Most have no duplicates, so the channel is created for the first one: notifying a channel without
/// listeners would cost more than everything else here.
#[derive(Debug)]
struct Slot {
    progress: Progress,
    watchers: Option<watch::Sender<Progress>>,
}

impl Slot {
    fn show(&mut self, progress: Progress) {
        if let Some(watchers) = &self.watchers {
            watchers.send_replace(progress.clone());
        }
        self.progress = progress;
    }

    fn watch(&mut self) -> watch::Receiver<Progress> {
        let Self { progress, watchers } = self;
        watchers.get_or_insert_with(|| watch::channel(progress.clone()).0).subscribe()
    }
}

/// No foreign code runs under these locks, so their data is consistent even after a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An entry in [`Running`], removed on drop. Waiting duplicates are notified immediately.
#[derive(Debug)]
pub(crate) struct RunningEntry {
    id: CommandId,
    running: Arc<Running>,
    slot: Arc<Mutex<Slot>>,
}

impl Running {
    /// Adds the command, or returns the running duplicate's progress.
    pub(crate) fn enter(self: &Arc<Self>, id: CommandId) -> Result<RunningEntry, watch::Receiver<Progress>> {
        let mut slots = lock(&self.slots);
        if let Some(first_run) = slots.get(&id) {
            return Err(lock(first_run).watch());
        }
        let slot = Arc::new(Mutex::new(Slot { progress: Progress::Claiming, watchers: None }));
        slots.insert(id, Arc::clone(&slot));
        Ok(RunningEntry { id, running: Arc::clone(self), slot })
    }

    /// How many attempts are running.
    pub(crate) fn len(&self) -> usize {
        lock(&self.slots).len()
    }
}

impl RunningEntry {
    pub(crate) fn show(&self, progress: Progress) {
        lock(&self.slot).show(progress);
    }
}

impl Drop for RunningEntry {
    fn drop(&mut self) {
        lock(&self.running.slots).remove(&self.id);
        let mut slot = lock(&self.slot);
        if !matches!(slot.progress, Progress::Ended { .. }) {
            slot.show(Progress::Left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_run_sees_the_first_until_it_ends() {
        let running = Arc::new(Running::default());
        let id = CommandId::from_bytes([1; 32]);
        let running_entry = running.enter(id).expect("no run yet");
        let first_run = running.enter(id).expect_err("the first runs");
        assert!(matches!(*first_run.borrow(), Progress::Claiming));
        assert_eq!(running.len(), 1);
        drop(running_entry);
        assert!(matches!(*first_run.borrow(), Progress::Left));
        assert!(running.enter(id).is_ok());
    }

    #[test]
    fn a_duplicate_sees_earlier_and_later_progress() {
        let running = Arc::new(Running::default());
        let id = CommandId::from_bytes([1; 32]);
        let running_entry = running.enter(id).expect("no run yet");
        running_entry.show(Progress::Left);
        let mut first_run = running.enter(id).expect_err("the first runs");
        assert!(matches!(*first_run.borrow_and_update(), Progress::Left));
        running_entry.show(Progress::Claiming);
        assert!(first_run.has_changed().expect("the first still runs"));
        assert!(matches!(*first_run.borrow_and_update(), Progress::Claiming));
    }
}
