//! The attempts that this engine has under way.
//!
//! Contents: how duplicates in the same process find each other without asking the store, and how the last one out is
//! told at shutdown. Never here: an answer that the store would not give too.

use semel_core::id::CommandId;
use semel_core::record::Record;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// How far the attempt of this process has come.
#[derive(Debug, Clone)]
pub(crate) enum Progress {
    /// Somebody here is claiming it.
    Claiming,
    /// A transaction of this process runs it. Nothing is in the store before that has ended.
    Transaction,
    /// It runs here; this is the record as it was claimed.
    Running(Standing),
    /// It runs on another node, or its ending is on its way to the store: this is the record as it was last known, and
    /// only the store knows whether it still is.
    Unsure(Standing),
    /// It has ended, and this is stored.
    Ended(Standing),
    /// It is no longer ours, or was not to be had: the store knows more.
    Left,
}

/// A record, and the id that it is under.
#[derive(Debug, Clone)]
pub(crate) struct Standing {
    pub(crate) id: CommandId,
    pub(crate) record: Arc<Record>,
}

/// The attempts under way in this process, by command.
#[derive(Debug, Default)]
pub(crate) struct Running {
    slots: Mutex<HashMap<CommandId, Arc<Mutex<Slot>>>>,
}

/// One attempt. Most have no duplicates, and a channel is made for the first that comes: telling one that nobody
/// listens to would cost more than all the rest of this file.
#[derive(Debug)]
struct Slot {
    progress: Progress,
    twins: Option<watch::Sender<Progress>>,
}

impl Slot {
    fn show(&mut self, progress: Progress) {
        if let Some(twins) = &self.twins {
            twins.send_replace(progress.clone());
        }
        self.progress = progress;
    }

    fn watch(&mut self) -> watch::Receiver<Progress> {
        let Self { progress, twins } = self;
        twins.get_or_insert_with(|| watch::channel(progress.clone()).0).subscribe()
    }
}

/// No code of others runs under the locks of this file, so that what they hold is whole even after a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A place in [`Running`], given up when it is dropped. Twins that wait learn at once.
#[derive(Debug)]
pub(crate) struct Place {
    id: CommandId,
    running: Arc<Running>,
    slot: Arc<Mutex<Slot>>,
}

impl Running {
    /// Takes the place of the command, or yields the duplicate that has it.
    pub(crate) fn enter(self: &Arc<Self>, id: CommandId) -> Result<Place, watch::Receiver<Progress>> {
        let mut slots = lock(&self.slots);
        if let Some(twin) = slots.get(&id) {
            return Err(lock(twin).watch());
        }
        let slot = Arc::new(Mutex::new(Slot { progress: Progress::Claiming, twins: None }));
        slots.insert(id, Arc::clone(&slot));
        Ok(Place { id, running: Arc::clone(self), slot })
    }

    /// How many attempts are under way.
    pub(crate) fn len(&self) -> usize {
        lock(&self.slots).len()
    }
}

impl Place {
    pub(crate) fn show(&self, progress: Progress) {
        lock(&self.slot).show(progress);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.running.slots).remove(&self.id);
        let mut slot = lock(&self.slot);
        if !matches!(slot.progress, Progress::Ended(_)) {
            slot.show(Progress::Left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_one_is_shown_the_first_until_it_leaves() {
        let running = Arc::new(Running::default());
        let id = CommandId::from_bytes([1; 32]);
        let place = running.enter(id).expect("nobody is there");
        let twin = running.enter(id).expect_err("the first is there");
        assert!(matches!(*twin.borrow(), Progress::Claiming));
        assert_eq!(running.len(), 1);
        drop(place);
        assert!(matches!(*twin.borrow(), Progress::Left));
        assert!(running.enter(id).is_ok());
    }

    #[test]
    fn a_twin_sees_what_was_shown_before_it_came_and_is_told_of_what_comes_after() {
        let running = Arc::new(Running::default());
        let id = CommandId::from_bytes([1; 32]);
        let place = running.enter(id).expect("nobody is there");
        place.show(Progress::Left);
        let mut twin = running.enter(id).expect_err("the first is there");
        assert!(matches!(*twin.borrow_and_update(), Progress::Left));
        place.show(Progress::Claiming);
        assert!(twin.has_changed().expect("the first is still there"));
        assert!(matches!(*twin.borrow_and_update(), Progress::Claiming));
    }
}
