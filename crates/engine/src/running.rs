//! The attempts that this engine has under way.
//!
//! What lives here: how twins in the same process find each other without asking the store, and how the last one out
//! is told at shutdown. What must never: an answer that the store would not give too.

use semel_core::id::CommandId;
use semel_core::record::Record;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use tokio::sync::watch;

/// How far the attempt of this process has come.
#[derive(Debug, Clone)]
pub(crate) enum Progress {
    /// Somebody here is claiming it.
    Claiming,
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

/// A record, and the id that it stands under.
#[derive(Debug, Clone)]
pub(crate) struct Standing {
    pub(crate) id: CommandId,
    pub(crate) record: Arc<Record>,
}

/// The attempts under way in this process, by command.
#[derive(Debug, Default)]
pub(crate) struct Running {
    slots: Mutex<HashMap<CommandId, watch::Receiver<Progress>>>,
}

/// A place in [`Running`], given up when it is dropped. Twins that wait learn at once.
#[derive(Debug)]
pub(crate) struct Place {
    id: CommandId,
    running: Arc<Running>,
    progress: watch::Sender<Progress>,
}

impl Running {
    /// Takes the place of the command, or yields the twin that has it.
    pub(crate) fn enter(self: &Arc<Self>, id: CommandId) -> Result<Place, watch::Receiver<Progress>> {
        let mut slots = self.slots();
        if let Some(twin) = slots.get(&id) {
            return Err(twin.clone());
        }
        let (progress, receiver) = watch::channel(Progress::Claiming);
        slots.insert(id, receiver);
        Ok(Place { id, running: Arc::clone(self), progress })
    }

    /// How many attempts are under way.
    pub(crate) fn len(&self) -> usize {
        self.slots().len()
    }

    fn slots(&self) -> std::sync::MutexGuard<'_, HashMap<CommandId, watch::Receiver<Progress>>> {
        self.slots.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Place {
    pub(crate) fn show(&self, progress: Progress) {
        self.progress.send_replace(progress);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.running.slots().remove(&self.id);
        self.progress.send_if_modified(|progress| {
            let ended = matches!(progress, Progress::Ended(_));
            if !ended {
                *progress = Progress::Left;
            }
            !ended
        });
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
}
