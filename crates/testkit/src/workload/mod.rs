//! Several nodes that use one store like engines do, with many duplicates.
//!
//! Claims, applies the effect and finishes for each request, directly on a [`Store`], and audits afterwards. Every
//! effect has a claim, and no claim is guessed.
//!
//! Each request inserts a record with its own token. If that succeeds, it applies the effect, which is a line in a
//! [`Journal`], and replaces the record by one with the outcome. After a lost answer, a claim or a finish is looked
//! up in the store and recognised by its token or content, as in the engine. Nobody takes over a claim: if a node was
//! killed, its keys stay unfinished.
//!
//! Afterwards, [`audit`] compares the store with the journals of all nodes, including those of killed ones: at most
//! one effect per key, and no acknowledged write lost.

mod audit;
mod journal;
mod request;

pub use audit::{Audit, audit};
pub use journal::{Event, FileJournal, Journal, MemoryJournal, Note};

use crate::chance::mixed;
use request::Requests;
use semel_core::store::Store;
use std::hash::{DefaultHasher, Hasher as _};
use std::ops::AddAssign;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// The settings of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Workload {
    /// The number of keys. Every node handles them in the same order.
    pub keys: u64,
    /// How many requests each node makes for each key.
    pub duplicates: u64,
    /// The number of concurrent requests per node.
    pub concurrency: u64,
    /// The seed of the tokens, together with the node's name.
    pub seed: u64,
    /// How often a request retries before it gives up.
    pub tries_max: u32,
    /// How long it pauses between two tries.
    pub retry_pause: Duration,
}

impl Default for Workload {
    /// 100 keys, three requests of each node per key, eight at once; a store may be unavailable for ten seconds.
    fn default() -> Self {
        Self {
            keys: 100,
            duplicates: 3,
            concurrency: 8,
            seed: 0,
            tries_max: 200,
            retry_pause: Duration::from_millis(50),
        }
    }
}

/// The result of one or several nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Requests made.
    pub requests: u64,
    /// Requests that claimed their key and applied its effect.
    pub claimed: u64,
    /// Claims and finishes whose answer was lost, and that were found in the store.
    pub recognised: u64,
    /// Claims whose outcome is in the store.
    pub finished: u64,
    /// Requests that were shown an outcome.
    pub replayed: u64,
    /// Requests that found their key claimed by another.
    pub in_progress: u64,
    /// Requests that gave up because the store did not answer, before the effect or after it.
    pub gave_up: u64,
    /// Violations, as text.
    pub violations: Vec<String>,
}

impl AddAssign for Report {
    fn add_assign(&mut self, other: Self) {
        self.requests += other.requests;
        self.claimed += other.claimed;
        self.recognised += other.recognised;
        self.finished += other.finished;
        self.replayed += other.replayed;
        self.in_progress += other.in_progress;
        self.gave_up += other.gave_up;
        self.violations.extend(other.violations);
    }
}

impl Workload {
    /// Runs one node to its end. Node names must differ, and a restarted node needs a new name: tokens are derived from
    /// it.
    pub async fn run_node(&self, node: &str, store: &Arc<dyn Store>, journal: &Arc<dyn Journal>) -> Report {
        let mut name = DefaultHasher::new();
        name.write(node.as_bytes());
        let requests = Arc::new(Requests::new(
            *self,
            mixed(self.seed ^ mixed(name.finish())),
            Arc::clone(store),
            Arc::clone(journal),
        ));
        let mut tasks = JoinSet::new();
        for _ in 0..self.concurrency.max(1) {
            tasks.spawn(Arc::clone(&requests).run());
        }
        let mut report = Report::default();
        while let Some(done) = tasks.join_next().await {
            report += done.unwrap_or_else(|failed| resume_unwind(failed.into_panic()));
        }
        report
    }

    /// Runs several nodes concurrently, each with its own handle on the same store, and returns the combined result.
    pub async fn run(&self, nodes: &[(String, Arc<dyn Store>)], journal: &Arc<dyn Journal>) -> Report {
        let mut tasks = JoinSet::new();
        for (node, store) in nodes {
            let (workload, node) = (*self, node.clone());
            let (store, journal) = (Arc::clone(store), Arc::clone(journal));
            tasks.spawn(async move { workload.run_node(&node, &store, &journal).await });
        }
        let mut report = Report::default();
        while let Some(done) = tasks.join_next().await {
            report += done.unwrap_or_else(|failed| resume_unwind(failed.into_panic()));
        }
        report
    }
}
