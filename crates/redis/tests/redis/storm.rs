//! Three nodes, many duplicates, a network that loses answers, nodes and a server that are killed: at most one effect for each key,
//! nothing acknowledged lost, and one order that explains every answer.
//!
//! `SEMEL_STORM_SEED` and `SEMEL_STORM_KEYS` choose another storm, and a longer one:
//! `SEMEL_STORM_SEED=7 SEMEL_STORM_KEYS=2000 cargo test -p semel-redis --test redis storm`.

use semel_core::store::Store as _;
use semel_redis::Store;
use semel_test_support::{RedisServer, ScratchDir};
use semel_testkit::history::{History, Recorder};
use semel_testkit::linearizability::{self, STEPS_MAX};
use semel_testkit::proxy::{FaultProxy, Odds, Protocol, Seeded};
use semel_testkit::workload::{FileJournal, Journal, Note, Workload, audit};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;

const NODES: usize = 3;
const NODE: &str = "SEMEL_STORM_NODE";
const ODDS: Odds = Odds {
    delay: 40,
    cut_before: 6,
    cut_after: 12,
    half_open: 2,
    throttle: 2,
    delay_max: Duration::from_millis(60),
};

fn chosen(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|value| value.parse().ok()).unwrap_or(otherwise)
}

fn workload() -> Workload {
    let (keys, seed) = (chosen("SEMEL_STORM_KEYS", 300), chosen("SEMEL_STORM_SEED", 1));
    Workload { keys, seed, duplicates: 2, concurrency: 16, tries_max: 400, ..Workload::default() }
}

fn journal_of(folder: &Path, node: &str) -> PathBuf {
    folder.join(format!("{node}.journal"))
}

fn history_of(folder: &Path, node: &str) -> PathBuf {
    folder.join(format!("{node}.history"))
}

/// The part of a node, in a process of its own that may be killed at any moment. Without its variables it is no test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node() {
    let Ok(node) = std::env::var(NODE) else { return };
    let folder = PathBuf::from(std::env::var_os("SEMEL_STORM_FOLDER").expect("a folder"));
    let url = std::env::var("SEMEL_STORM_URL").expect("a URL");
    let clock = Arc::new(semel::SystemClock);
    let recorder = Recorder::to_file(history_of(&folder, &node), &node, clock).expect("a history");
    let journal: Arc<dyn Journal> =
        Arc::new(FileJournal::open(journal_of(&folder, &node)).expect("a journal"));
    let store = loop {
        match Store::open(&url).await {
            Ok(store) => break Arc::new(store),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    let report = workload().run_node(&node, &recorder.record(store), &journal).await;
    assert_eq!(report.violations, Vec::<String>::new());
}

struct Storm {
    folder: ScratchDir,
    proxies: Vec<FaultProxy>,
    running: Vec<(usize, Child)>,
    names: Vec<String>,
}

impl Storm {
    fn start(&mut self, place: usize) {
        let name = format!("node-{}", self.names.len());
        let url = format!("redis://{}?timeout=1&connect_timeout=2", self.proxies[place].address());
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["storm::node", "--exact", "--quiet"]);
        command.env(NODE, &name).env("SEMEL_STORM_URL", url).env("SEMEL_STORM_FOLDER", self.folder.path());
        command.stdout(std::process::Stdio::null());
        self.running.push((place, command.spawn().expect("a process")));
        self.names.push(name);
    }

    /// Kills a node with -9, and starts another in its place.
    fn kill_one(&mut self, draw: usize) {
        let at = draw % self.running.len().max(1);
        if at < self.running.len() {
            let (place, mut child) = self.running.swap_remove(at);
            child.kill().expect("killed");
            child.wait().expect("ended");
            self.start(place);
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
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_has_one_effect_whatever_is_killed_or_lost() {
    if !RedisServer::is_installed() {
        return;
    }
    let (workload, folder) = (workload(), ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "storm"));
    let mut server = RedisServer::start(folder.join("server"), &[]);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, server.port()));
    let direct = server.url();
    Store::open(&direct).await.expect("the store opens").close().await;
    let mut proxies = Vec::new();
    for seed in 0..NODES as u64 {
        let plan = Seeded::new(workload.seed * 100 + seed, ODDS);
        proxies.push(FaultProxy::start(address, Protocol::Redis, plan).await.expect("a port"));
    }
    let mut storm = Storm { folder, proxies, running: Vec::new(), names: Vec::new() };
    (0..NODES).for_each(|place| storm.start(place));
    let (mut round, mut kills, mut crashes, mut ended_clients) = (0_u64, 0, 0, 0);
    while !storm.all_ended() {
        tokio::time::sleep(Duration::from_millis(350)).await;
        round += 1;
        assert!(round < 1_500, "the storm does not come to an end");
        let draw = usize::try_from(workload.seed.wrapping_mul(31).wrapping_add(round) % 97).expect("small");
        if round % 5 == 2 && kills < 8 {
            storm.kill_one(draw);
            kills += 1;
        } else if round % 9 == 4 && crashes < 3 {
            tokio::task::block_in_place(|| server.restart());
            crashes += 1;
        } else if round % 2 == 1 && ended_clients < 40 {
            tokio::task::block_in_place(|| server.ask("CLIENT KILL TYPE normal SKIPME yes"));
            ended_clients += 1;
        }
    }
    // What a killed node left on the wire has been applied or is gone.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let store = Store::open(&direct).await.expect("the store opens");
    let notes: Vec<Note> = storm
        .names
        .iter()
        .flat_map(|name| FileJournal::read(journal_of(storm.folder.path(), name)).unwrap_or_default())
        .collect();
    let found = audit(&workload, &store, &notes).await.expect("an answer");
    assert_eq!(found.violations, Vec::<String>::new());
    let effects = found.effects;
    assert!(effects > workload.keys / 2, "{effects} effects of {} keys", workload.keys);
    let histories =
        storm.names.iter().filter_map(|name| History::read(history_of(storm.folder.path(), name)).ok());
    let history = History::merged(histories);
    let calls = history.operations().len();
    linearizability::check(&history, STEPS_MAX).assert_linearizable();
    println!(
        "seed {}: {} keys, {effects} effects, {} finished, {} unfinished, {calls} calls, {kills} nodes and {crashes} servers killed",
        workload.seed, workload.keys, found.finished, found.unfinished
    );
    store.close().await;
}
