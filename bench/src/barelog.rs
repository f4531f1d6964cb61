//! The baseline: an append-only log with group commit, and nothing else.
//!
//! One thread writes the waiting entries, syncs once, and answers all of them. It has no index, no conditions
//! and no reads, so no store can be faster.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use tokio::sync::oneshot;

/// The batch size of the store.
const BATCH_COUNT_MAX: usize = 1024;

struct Append {
    bytes: Vec<u8>,
    done: oneshot::Sender<()>,
}

/// An open log.
pub struct BareLog {
    queue: Option<mpsc::Sender<Append>>,
    writer: Option<JoinHandle<()>>,
}

impl BareLog {
    /// Begins a log in a new file.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub fn create(path: &Path) -> std::io::Result<Self> {
        let file = File::create(path)?;
        let (queue, appends) = mpsc::channel();
        let writer = thread::spawn(move || write(file, &appends));
        Ok(Self { queue: Some(queue), writer: Some(writer) })
    }

    /// Appends `bytes`; returns when they are on the disk.
    ///
    /// # Panics
    /// If the disk fails: the baseline would be wrong.
    pub async fn append(&self, bytes: Vec<u8>) {
        let (done, is_done) = oneshot::channel();
        let queue = self.queue.as_ref().expect("open until it is dropped");
        queue.send(Append { bytes, done }).expect("the writer is alive");
        is_done.await.expect("the writer is alive");
    }
}

impl Drop for BareLog {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(writer) = self.writer.take() {
            drop(writer.join());
        }
    }
}

fn write(mut file: File, appends: &mpsc::Receiver<Append>) {
    let (mut buffer, mut waiting) = (Vec::new(), Vec::new());
    while let Ok(first) = appends.recv() {
        for Append { bytes, done } in std::iter::once(first).chain(appends.try_iter()).take(BATCH_COUNT_MAX) {
            let length = u32::try_from(bytes.len()).expect("a record of less than 4 GiB");
            buffer.extend_from_slice(&length.to_le_bytes());
            buffer.extend_from_slice(&bytes);
            waiting.push(done);
        }
        file.write_all(&buffer).expect("the disk takes it");
        file.sync_data().expect("the disk keeps it");
        buffer.clear();
        for done in waiting.drain(..) {
            // The caller may be gone.
            let _ = done.send(());
        }
    }
}
