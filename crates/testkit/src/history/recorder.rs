//! Records calls and answers.

use super::{Answer, Call, History, Operation, Value, lines};
use semel::Clock;
use semel_core::id::CommandId;
use semel_core::record::Record;
use semel_core::store::{Change, Delegate, Error, Pending, Reading, Store, Written};
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Records the calls of one node. Clones are the same recorder.
///
/// The recorders of one process made by [`in_memory`](Self::in_memory) and [`node`](Self::node) share one order of
/// events. Those of several processes write [to files](Self::to_file), by a clock that these share.
///
/// The beginning of a call is recorded before the call is made; in a file, it survives the process. A call without an
/// end in the history may still take effect, or never did.
#[derive(Clone)]
pub struct Recorder {
    node: Arc<str>,
    log: Arc<Mutex<Log>>,
}

struct Log {
    sink: Sink,
    calls: u64,
}

enum Sink {
    Memory { operations: Vec<Operation>, events: u64 },
    File { file: File, clock: Arc<dyn Clock> },
}

impl Recorder {
    /// A recorder that keeps the calls of `node` in memory, with a counter instead of a clock.
    pub fn in_memory(node: &str) -> Self {
        let sink = Sink::Memory { operations: Vec::new(), events: 0 };
        Self { node: node.into(), log: Arc::new(Mutex::new(Log { sink, calls: 0 })) }
    }

    /// A recorder that writes the calls of `node` to a new file, one line for each event, with the uptime that
    /// `clock` shows. Processes on one machine share that of [`semel::SystemClock`]. Names of nodes must differ; one
    /// that is started again needs a new one.
    pub fn to_file(path: impl AsRef<Path>, node: &str, clock: Arc<dyn Clock>) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create_new(true).open(path)?;
        let sink = Sink::File { file, clock };
        Ok(Self { node: node.into(), log: Arc::new(Mutex::new(Log { sink, calls: 0 })) })
    }

    /// A recorder for another node, with the same order of events.
    #[must_use]
    pub fn node(&self, node: &str) -> Self {
        Self { node: node.into(), log: Arc::clone(&self.log) }
    }

    /// `store`, whose writes and reads by ID are recorded. Lists, counts and settings are not.
    pub fn record(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        Arc::new(Recording { inner: store, recorder: self.clone() })
    }

    /// The calls in memory so far. Empty for a recorder that writes to a file.
    pub fn history(&self) -> History {
        match &self.log().sink {
            Sink::Memory { operations, .. } => History::new(operations.iter().cloned()),
            Sink::File { .. } => History::default(),
        }
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, id: CommandId, call: Call) -> u64 {
        let mut log = self.log();
        let number = log.calls;
        log.calls += 1;
        let operation = |invoked_at| Operation {
            node: Arc::clone(&self.node),
            number,
            id,
            call,
            invoked_at,
            answer: None,
        };
        match &mut log.sink {
            Sink::Memory { operations, events } => {
                operations.push(operation(*events));
                *events += 1;
            }
            Sink::File { file, clock } => append(file, &lines::beginning(&operation(now(&**clock)))),
        }
        number
    }

    fn end(&self, number: u64, answer: Answer) {
        match &mut self.log().sink {
            Sink::Memory { operations, events } => {
                let index = usize::try_from(number).ok().and_then(|index| operations.get_mut(index));
                index.expect("a call that was begun").answer = Some((*events, answer));
                *events += 1;
            }
            Sink::File { file, clock } => {
                append(file, &lines::end(&self.node, number, now(&**clock), answer));
            }
        }
    }
}

/// In one write, so that only the last line of a killed process can be cut off.
fn append(file: &mut File, line: &str) {
    file.write_all(line.as_bytes()).expect("a history with gaps shows nothing");
}

fn now(clock: &dyn Clock) -> u64 {
    u64::try_from(clock.uptime().as_nanos()).unwrap_or(u64::MAX)
}

struct Recording {
    inner: Arc<dyn Store>,
    recorder: Recorder,
}

impl Delegate for Recording {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn write<'a>(&'a self, id: CommandId, change: Change<&'a Record>) -> Pending<'a, Written> {
        Box::pin(async move {
            let number = self.recorder.begin(id, Call::Write(change.map(Value::of)));
            let written = self.inner.write(id, change).await;
            let answer = match &written {
                Ok(Written::Done { .. }) => Answer::Done,
                Ok(Written::Refused(reading)) => Answer::Refused(Value::shown(reading)),
                Err(error) => failed(error),
            };
            self.recorder.end(number, answer);
            written
        })
    }

    fn get(&self, id: CommandId) -> Pending<'_, Reading> {
        Box::pin(async move {
            let number = self.recorder.begin(id, Call::Get);
            let reading = self.inner.get(id).await;
            let answer = match &reading {
                Ok(reading) => Answer::Read(Value::shown(reading)),
                Err(error) => failed(error),
            };
            self.recorder.end(number, answer);
            reading
        })
    }
}

fn failed(error: &Error) -> Answer {
    if error.is_ambiguous() { Answer::Ambiguous } else { Answer::Failed(error.kind()) }
}
