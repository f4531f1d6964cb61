//! The embedded store: one SQLite file, shared by the processes of one machine.
//!
//! **Contents**: [`Store`], which keeps the promises of [`semel_core::store`] in a file: a thread that writes
//! in batches, threads that read, and one for checkpoints. A write is answered only after it is on the disk.
//!
//! ```
//! use semel_core::id::CommandId;
//! use semel_core::store::Store as _;
//! use semel_sql::sqlite;
//!
//! # let directory = std::env::temp_dir().join(format!("semel-doc-{}", std::process::id()));
//! # std::fs::create_dir_all(&directory)?;
//! # let path = directory.join("semel.db");
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let store = sqlite::Store::open(path, sqlite::Options::default())?;
//! let reading = store.get(CommandId::from_bytes([7; 32])).await?;
//! assert_eq!(reading.entry, None);
//! store.close().await;
//! # Ok::<(), semel_core::store::Error>(())
//! # })?;
//! # std::fs::remove_dir_all(&directory)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod answers;
mod backend;
mod brackets;
mod checkpoint;
mod fault;
mod files;
mod guard;
mod hazards;
mod inboxes;
mod local;
mod open;
mod options;
mod queue;
mod read_only;
mod reader;
mod recent;
mod row;
mod row_writer;
mod scan;
mod schema;
mod side;
mod store;
mod tally;
pub mod transaction;
mod violations;
mod write;
mod writer;

pub use backend::{Backend, FileError, PathError};
pub use local::{Put, Step, WorkOutcome};
pub use open::NotRegular;
pub use options::Options;
pub use read_only::ReadOnlyStore;

use checkpoint::CheckpointState;
use fault::Fault;
use files::OpenFiles;
use open::File;
use queue::Queue;
use reader::{Question, Reader};
use semel_core::store::{Error, Kind};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle, ThreadId};
use tokio::sync::{Semaphore, watch};
use write::{Job, Work, WriteAnswer};
use writer::Writer;

/// The version of the built-in SQLite: `3.51.3`.
pub fn version() -> &'static str {
    rusqlite::version()
}

/// The most waiting calls; far more than a machine serves in a second.
const WAITING_MAX: usize = 1 << 16;
/// The most bytes that wait to be written; four batches.
const WAITING_BYTES_MAX: usize = 64 << 20;
/// The most bytes of one entry: half of SQLite's limit for a row.
const ENTRY_BYTES_MAX: u64 = 1 << 29;

/// A store in a file. See the [module](self), and [`Store`](semel_core::store::Store) for what it does.
///
/// Several processes may have the same file open; SQLite's locks separate them. Dropping it answers all
/// waiting calls and closes the file, which blocks on the disk. [`close`](Self::close) does the same without
/// blocking.
pub struct Store {
    file: File,
    files: Arc<OpenFiles>,
    writes: Arc<Queue<Job>>,
    questions: Arc<Queue<Question>>,
    /// Calls that read the whole file, which takes minutes. They have their own thread, so that the readers
    /// stay free.
    long_questions: Arc<Queue<Question>>,
    /// Limits concurrent reads of entries: twice the number of readers, so that no reader waits for decoding.
    read_permits: Semaphore,
    checkpoints: Arc<CheckpointState>,
    /// The writer's thread. Waiting for a write on this thread would be a deadlock.
    writer: ThreadId,
    /// The thread that ends last.
    last_thread: Mutex<Option<JoinHandle<()>>>,
    /// Its other end is dropped with that thread.
    ended: watch::Receiver<()>,
}

impl Store {
    /// Opens the store in the file `path`, and creates it if there is none, readable by its owner only. A
    /// path is a path, never a URI; links in it are followed.
    ///
    /// If the path later leads to another file, or to none, the store closes itself: a running write is
    /// [ambiguous](Kind::Ambiguous), and every later call fails as [unfit](Kind::Unfit) until the store is
    /// opened again. The same applies to the log next to the file and the log's index. Each answer waits for
    /// that check.
    ///
    /// Upgrades older files to this build's schema. Rejects a file of a newer build, foreign tables, and a
    /// SQLite version that could damage the file. After this returns, everything readable survives a power
    /// failure, and the log is empty: if a process was killed before it could [scrub](semel_core::store::Store::scrub)
    /// an erased response, this does it. While another program reads the file, it is done as soon as that has
    /// ended. Blocks on the disk.
    pub fn open(path: impl Into<PathBuf>, options: Options) -> Result<Self, Error> {
        let Options { clock, readers, wal_bytes_max } = options;
        let file = File::new(&path.into(), wal_bytes_max)?;
        let connection = file.writer()?;
        let files = Arc::new(OpenFiles::of(&file)?);
        let frames_max = wal_bytes_max / u64::from(file.page_bytes(&connection)?);
        let checkpoints = Arc::new(CheckpointState::new(frames_max.max(1), files.clone()));
        if file.has_log() {
            // It could not be emptied now, and may have a response that was erased before this start.
            checkpoints.empty_log_later();
        }
        let writes = Arc::new(Queue::new(WAITING_MAX, WAITING_BYTES_MAX, Job::weight));
        let questions: Arc<Queue<Question>> = Arc::new(Queue::new(WAITING_MAX, 0, |_| 0));
        let long_questions: Arc<Queue<Question>> = Arc::new(Queue::new(WAITING_MAX, 0, |_| 0));
        let checkpointer = file.checkpointer()?;
        let read_permits = Semaphore::new(2 * readers);
        let readers = (0..readers).map(|_| file.reader()).collect::<Result<Vec<_>, _>>()?;
        let for_long = Reader { connection: file.reader()?, clock: clock.clone() };
        // Every connection opened the file by its name, so check that all of them have the same file.
        files.check_read()?;

        let mut threads = Threads {
            writes: writes.clone(),
            questions: [questions.clone(), long_questions.clone()],
            started: Vec::new(),
        };
        let (ready, is_ready) = mpsc::channel();
        let writer = Writer {
            connection,
            queue: writes.clone(),
            clock: clock.clone(),
            checkpoints: checkpoints.clone(),
            files: files.clone(),
        };
        let writer = threads.start("semel-write", move || writer.run(|result| drop(ready.send(result))))?;
        for connection in readers {
            let reader = Reader { connection, clock: clock.clone() };
            let questions = questions.clone();
            threads.start("semel-read", move || reader.run(&questions))?;
        }
        let asked = long_questions.clone();
        threads.start("semel-read-all", move || for_long.run(&asked))?;
        match is_ready.recv() {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(Fault::nothing_written("opening the SQLite store", &error).into()),
            Err(_) => return Err(Error::new(Kind::Unavailable, "starting the thread that writes")),
        }
        let (alive, ended) = watch::channel(());
        let others = std::mem::take(&mut threads.started);
        let last_thread = {
            let checkpoints = checkpoints.clone();
            let keep = move || {
                checkpoints.run(&checkpointer, others);
                drop(checkpointer);
                drop(alive);
            };
            thread::Builder::new().name("semel-checkpoint".to_owned()).spawn(keep).map_err(no_thread)?
        };
        let last_thread = Mutex::new(Some(last_thread));
        Ok(Self {
            file,
            files,
            writes,
            questions,
            long_questions,
            read_permits,
            checkpoints,
            writer,
            last_thread,
            ended,
        })
    }

    /// Accepts no more calls, and completes when every accepted write is answered and the file is closed.
    pub async fn close(&self) {
        self.stop();
        let mut ended = self.ended.clone();
        // The channel is only used to notice that the sender is gone.
        while ended.changed().await.is_ok() {}
    }

    /// One line for each problem of the file; empty if there is none. Reads the whole file, which takes
    /// minutes for a large one. Other calls continue meanwhile; a second verification waits for the first.
    pub async fn verify(&self) -> Result<Vec<String>, Error> {
        self.put(&self.long_questions, Reader::verify).await
    }

    fn stop(&self) {
        self.writes.close();
        self.questions.close();
        self.long_questions.close();
        self.checkpoints.close();
    }

    /// Runs `work`, and waits until it is durable.
    async fn write(&self, work: Work) -> Result<WriteAnswer, Error> {
        self.files.check_open()?;
        if thread::current().id() == self.writer {
            let cause = "it was called from inside the work of a local command, which it would wait for";
            return Err(Error::new(Kind::Unfit, "writing to the SQLite store").because(cause));
        }
        let (job, answer) = Job::new(work);
        self.writes.push(job)?;
        // The writer failed in the middle: it is not known whether it committed.
        let lost = |_| Error::new(Kind::Ambiguous, "waiting for a write to the SQLite store");
        answer.await.map_err(lost)?
    }

    async fn ask<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Reader) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.put(&self.questions, ask).await
    }

    async fn put<T: Send + 'static>(
        &self,
        questions: &Queue<Question>,
        ask: impl FnOnce(&Reader) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.files.check_open()?;
        let (files, checkpoints, asked) =
            (self.files.clone(), self.checkpoints.clone(), self.files.checks_begun());
        let (question, answer) = Reader::question(move |reader| {
            let answer = ask(reader);
            // In any case: the file may not be the one that others find.
            files.check_read_since(asked).inspect_err(|_| checkpoints.wrote())?;
            answer
        });
        questions.push(question)?;
        answer.await.map_err(reader::lost)?
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.stop();
        let last_thread = self.last_thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(last_thread) = last_thread {
            drop(last_thread.join());
        }
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("sqlite::Store").field("path", &self.file.path).finish_non_exhaustive()
    }
}

/// Threads of a store that is not open yet: they end if opening fails.
struct Threads {
    writes: Arc<Queue<Job>>,
    questions: [Arc<Queue<Question>>; 2],
    started: Vec<JoinHandle<()>>,
}

impl Threads {
    fn start(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<ThreadId, Error> {
        let started = thread::Builder::new().name(name.to_owned()).spawn(work).map_err(no_thread)?;
        let id = started.thread().id();
        self.started.push(started);
        Ok(id)
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if !self.started.is_empty() {
            self.writes.close();
            self.questions.iter().for_each(|questions| questions.close());
            self.started.drain(..).for_each(|thread| drop(thread.join()));
        }
    }
}

fn no_thread(error: std::io::Error) -> Error {
    Error::new(Kind::Unavailable, "starting a thread of the SQLite store").because(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use semel_core::id::CommandId;
    use semel_core::store::Store as _;
    use semel_test_support::ScratchDir;
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    #[tokio::test]
    async fn records_are_readable_while_the_file_is_verified() {
        let folder = ScratchDir::new("verify");
        let store = Store::open(folder.join("semel.db"), Options::default().readers(1)).expect("opened");
        // A verification that takes until the test has checked enough.
        let ((begin, begun), (end, ended)) = (mpsc::channel(), mpsc::channel::<()>());
        let (lasting, _answer) = Reader::question(move |_| {
            let _ = begin.send(());
            ended.recv().map_err(|_| Error::new(Kind::Closed, "waiting for the test"))
        });
        store.long_questions.push(lasting).expect("there is room");
        begun.recv().expect("it has begun");
        let mut verified = pin!(store.verify());
        let mut look = async || poll_fn(|context| Poll::Ready(verified.as_mut().poll(context))).await;
        assert!(look().await.is_pending());
        // The only reader is free.
        assert_eq!(store.get(CommandId::from_bytes([7; 32])).await.expect("read").entry, None);
        assert!(look().await.is_pending(), "and it is not what verifies");
        end.send(()).expect("it listens");
        assert_eq!(verified.await.expect("read"), Vec::<String>::new());
        store.close().await;
    }
}
