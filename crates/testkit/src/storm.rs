//! Three nodes, many duplicates, a network that loses answers, and kills of nodes and servers: at most one
//! effect per key, no acknowledged write lost, and one order that explains every answer. For the tests of
//! every shared store.
//!
//! The nodes are processes of the test program itself. So it has a module `storm` with a test `node` that calls
//! [`run_node`], and its other tests start a [`Storm`].
//!
//! `SEMEL_STORM_SEED` and `SEMEL_STORM_KEYS` choose another storm, and a longer one:
//! `SEMEL_STORM_SEED=7 SEMEL_STORM_KEYS=2000 cargo test -p semel-redis --test redis storm`.

use crate::history::{Answer, History, Operation, Recorder};
use crate::linearizability::{self, STEPS_MAX};
use crate::proxy::{FaultProxy, FaultRates, Protocol, Seeded};
use crate::workload::{Event, FileJournal, Journal, Note, Workload, audit};
use semel_core::store::{Kind, Store};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// How many nodes run at a time.
pub const NODES: usize = 3;
/// The test in which a node runs; see [`run_node`].
const NODE_TEST: &str = "storm::node";
const NODE: &str = "SEMEL_STORM_NODE";
const URL: &str = "SEMEL_STORM_URL";
const FOLDER: &str = "SEMEL_STORM_FOLDER";
const KEYS: &str = "SEMEL_STORM_KEYS";
/// How many times as many keys a storm has that its test ends: its nodes never finish by themselves.
const ENDLESS: u64 = 100;
/// The pause between two faults.
const PAUSE: Duration = Duration::from_millis(350);
const ODDS: FaultRates = FaultRates {
    delay: 40,
    cut_before: 6,
    cut_after: 12,
    half_open: 2,
    throttle: 2,
    delay_max: Duration::from_millis(60),
};

/// What happens to the servers while the nodes work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerFault {
    /// A server is killed with -9 and started again.
    RestartServer,
    /// Connections are ended by their server.
    EndConnections,
}

fn chosen(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|value| value.parse().ok()).unwrap_or(otherwise)
}

fn workload() -> Workload {
    let (keys, seed) = (chosen(KEYS, 300), chosen("SEMEL_STORM_SEED", 1));
    Workload { keys, seed, duplicates: 2, concurrency: 16, tries_max: 400, ..Workload::default() }
}

/// A network for the `number`th route to a server.
pub async fn proxy(server: SocketAddr, protocol: Protocol, number: u64) -> FaultProxy {
    let plan = Seeded::new(workload().seed * 100 + number, ODDS);
    FaultProxy::start(server, protocol, plan).await.expect("a port")
}

fn journal_of(folder: &Path, node: &str) -> PathBuf {
    folder.join(format!("{node}.journal"))
}

fn history_of(folder: &Path, node: &str) -> PathBuf {
    folder.join(format!("{node}.history"))
}

/// Runs a node in a separate process that may be killed at any moment: the test `storm::node`. `open` opens the store
/// at a URL, and is called again until it does. Does nothing without the variables of a storm.
pub async fn run_node(open: impl AsyncFn(&str) -> Option<Arc<dyn Store>>) {
    let Ok(node) = std::env::var(NODE) else { return };
    let folder = PathBuf::from(std::env::var_os(FOLDER).expect("a folder"));
    let url = std::env::var(URL).expect("a URL");
    let clock = Arc::new(semel::SystemClock);
    let recorder = Recorder::to_file(history_of(&folder, &node), &node, clock).expect("a history");
    let journal: Arc<dyn Journal> =
        Arc::new(FileJournal::open(journal_of(&folder, &node)).expect("a journal"));
    let store = loop {
        match open(&url).await {
            Some(store) => break store,
            None => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    let report = workload().run_node(&node, &recorder.record(store), &journal).await;
    assert_eq!(report.violations, Vec::<String>::new());
}

/// The nodes, and the faults so far.
#[derive(Debug)]
pub struct Storm {
    workload: Workload,
    folder: PathBuf,
    /// One for each node.
    urls: Vec<String>,
    running: Vec<(usize, Child)>,
    names: Vec<String>,
    kills: u32,
    restarts: u32,
}

impl Storm {
    /// Starts a node on each URL. Their journals are in `folder`.
    pub fn start(folder: &Path, urls: Vec<String>) -> Self {
        Self::start_with(workload(), folder, urls)
    }

    /// As [`Self::start`], with more keys than the nodes can work on before the test ends them.
    pub fn start_endless(folder: &Path, urls: Vec<String>) -> Self {
        let workload = workload();
        Self::start_with(Workload { keys: workload.keys * ENDLESS, ..workload }, folder, urls)
    }

    fn start_with(workload: Workload, folder: &Path, urls: Vec<String>) -> Self {
        let mut storm = Self {
            workload,
            folder: folder.to_owned(),
            urls,
            running: Vec::new(),
            names: Vec::new(),
            kills: 0,
            restarts: 0,
        };
        (0..storm.urls.len()).for_each(|index| storm.start_node(index));
        storm
    }

    fn start_node(&mut self, index: usize) {
        let name = format!("node-{}", self.names.len());
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args([NODE_TEST, "--exact", "--quiet"]).stdout(Stdio::null());
        command.env(NODE, &name).env(URL, &self.urls[index]).env(FOLDER, &self.folder);
        command.env(KEYS, self.workload.keys.to_string());
        self.running.push((index, command.spawn().expect("a process")));
        self.names.push(name);
    }

    /// Kills a node with -9, and starts another one.
    fn kill_one(&mut self, draw: usize) {
        let at = draw % self.running.len().max(1);
        if at < self.running.len() {
            let (index, mut child) = self.running.swap_remove(at);
            child.kill().expect("killed");
            child.wait().expect("ended");
            self.start_node(index);
            self.kills += 1;
        }
    }

    fn all_ended(&mut self) -> bool {
        self.running.retain_mut(|(_, child)| match child.try_wait().expect("looked at") {
            None => true,
            Some(status) => {
                assert!(status.success(), "a node found a violation");
                false
            }
        });
        self.running.is_empty()
    }

    /// Continues until every node has ended. `inject` may block.
    pub async fn run_to_end(&mut self, mut inject: impl FnMut(ServerFault)) {
        let (mut round, mut kills, mut ends) = (0_u64, 0, 0);
        while !self.all_ended() {
            tokio::time::sleep(PAUSE).await;
            round += 1;
            assert!(round < 1_500, "the storm does not end");
            let draw = self.workload.seed.wrapping_mul(31).wrapping_add(round) % 97;
            if round % 5 == 2 && kills < 8 {
                self.kill_one(usize::try_from(draw).expect("small"));
                kills += 1;
            } else if round % 9 == 4 && self.restarts < 3 {
                tokio::task::block_in_place(|| inject(ServerFault::RestartServer));
                self.restarts += 1;
            } else if round % 2 == 1 && ends < 40 {
                tokio::task::block_in_place(|| inject(ServerFault::EndConnections));
                ends += 1;
            }
        }
        // What a killed node had sent is applied or lost by now.
        tokio::time::sleep(Duration::from_secs(3)).await;
    }

    /// Continues until every node from the `first` on has used the store.
    async fn run_until_working(&mut self, first: usize, mut end_connections: impl FnMut()) {
        for _ in 0..300 {
            let has_worked = |name: &String| {
                FileJournal::read(journal_of(&self.folder, name)).is_ok_and(|notes| !notes.is_empty())
            };
            if self.names[first..].iter().all(has_worked) {
                return;
            }
            tokio::time::sleep(PAUSE).await;
            assert!(!self.all_ended(), "the storm ends before the loss");
            tokio::task::block_in_place(&mut end_connections);
        }
        panic!("a node does not use the store");
    }

    /// Loses all data of the store under the nodes of an endless storm, and continues until they have noticed. No
    /// node is started afterwards: it would create a new store.
    pub async fn run_until_lost(&mut self, mut end_connections: impl FnMut(), lose: impl FnOnce()) {
        self.run_until_working(0, &mut end_connections).await;
        (0..2).for_each(|_| self.kill_one(0));
        // They have opened the store before it is lost.
        self.run_until_working(NODES, &mut end_connections).await;
        lose();
        for _ in 0..8 {
            tokio::time::sleep(PAUSE).await;
            tokio::task::block_in_place(&mut end_connections);
        }
        for (_, mut child) in self.running.drain(..) {
            child.kill().expect("killed");
            child.wait().expect("ended");
        }
    }

    /// No key has two effects, and the nodes were told why. The store has nothing to compare with.
    pub fn judge_after_loss(&self) {
        let folder = self.folder.as_path();
        let journals = self.names.iter().map(|name| FileJournal::read(journal_of(folder, name)));
        let mut effects: BTreeMap<u64, u32> = BTreeMap::new();
        for note in journals.flat_map(Result::unwrap_or_default).filter(|note| note.event == Event::Effect) {
            *effects.entry(note.key).or_default() += 1;
        }
        let twice: Vec<_> = effects.iter().filter(|(_, count)| **count > 1).collect();
        assert!(twice.is_empty(), "keys with several effects: {twice:?}");
        assert!(effects.len() > 10, "{} effects before the loss", effects.len());
        let histories = self.names.iter().filter_map(|name| History::read(history_of(folder, name)).ok());
        let history = History::merged(histories);
        let is_refused =
            |operation: &&Operation| matches!(operation.answer, Some((_, Answer::Failed(Kind::DataLost))));
        let refused = history.operations().iter().filter(is_refused).count();
        assert!(refused > 10, "{refused} calls were refused after the loss");
        println!("{} effects before the loss, {refused} calls refused after it", effects.len());
    }

    /// Compares the store with the nodes' journals.
    pub async fn judge(&self, store: &dyn Store) {
        let (workload, folder) = (&self.workload, self.folder.as_path());
        let journals = self.names.iter().map(|name| FileJournal::read(journal_of(folder, name)));
        let notes: Vec<Note> = journals.flat_map(Result::unwrap_or_default).collect();
        let found = audit(workload, store, &notes).await.expect("an answer");
        assert_eq!(found.violations, Vec::<String>::new());
        let effects = found.effects;
        assert!(effects > workload.keys / 2, "{effects} effects of {} keys", workload.keys);
        let histories = self.names.iter().filter_map(|name| History::read(history_of(folder, name)).ok());
        let history = History::merged(histories);
        linearizability::check(&history, STEPS_MAX).assert_linearizable();
        println!(
            "seed {}: {} keys, {effects} effects, {} finished, {} unfinished, {} calls, {} nodes and {} servers killed",
            workload.seed,
            workload.keys,
            found.finished,
            found.unfinished,
            history.operations().len(),
            self.kills,
            self.restarts
        );
    }
}
