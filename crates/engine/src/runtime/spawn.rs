//! Where the engine's own tasks run.
//!
//! If a client disconnects, these tasks are not cancelled.

use std::pin::Pin;

/// A task that belongs to the engine.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Starts tasks that outlive the caller. Injected, so that a simulation can control the schedule.
pub trait Spawn: Send + Sync + 'static {
    /// Starts `task`. It runs to its end unless the process ends first.
    fn spawn(&self, task: Task);
}

/// A tokio runtime.
impl Spawn for tokio::runtime::Handle {
    fn spawn(&self, task: Task) {
        drop(Self::spawn(self, task));
    }
}
