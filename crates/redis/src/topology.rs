//! Which server of a cluster has which slots. One caller at a time asks for it, and the others use its answer: with a
//! server down, every command would ask otherwise, each on a connection of its own.

use crate::address::{Address, Host};
use crate::fault::{Fault, ServerRefusal};
use crate::link::Link;
use crate::resp::{self, Value};
use semel_core::store::Kind;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedMutexGuard, watch};

/// The pause after an answer before the servers are asked again. It doubles while nothing changes.
const REST_MIN: Duration = Duration::from_millis(100);
const REST_MAX: Duration = Duration::from_secs(1);

pub(crate) struct Topology {
    /// With a replica, which knows the slots too.
    any_server: Arc<Address>,
    /// The server of each range of slots, by its last slot.
    by_last_slot: Mutex<BTreeMap<u16, Host>>,
    /// Held from a question until the pause after its answer is over; the length of that pause.
    turn: Arc<tokio::sync::Mutex<Duration>>,
    /// How many callers have wanted an answer.
    wanted: AtomicU64,
    /// How many questions have begun.
    begun: AtomicU64,
    answered: watch::Sender<Answered>,
}

/// The last question that was answered.
struct Answered {
    number: u64,
    outcome: Result<(), Fault>,
}

impl Topology {
    pub(crate) fn new(address: &Address) -> Arc<Self> {
        Arc::new(Self {
            any_server: Arc::new(address.clone().for_reading()),
            by_last_slot: Mutex::default(),
            turn: Arc::new(tokio::sync::Mutex::new(REST_MIN)),
            wanted: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            answered: watch::Sender::new(Answered { number: 0, outcome: Ok(()) }),
        })
    }

    fn slots(&self) -> MutexGuard<'_, BTreeMap<u16, Host>> {
        self.by_last_slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn owner(&self, slot: u16) -> Option<Host> {
        self.slots().range(slot..).next().map(|(_, host)| host.clone())
    }

    /// Every server that takes writes.
    pub(crate) fn owners(&self) -> Vec<Host> {
        let owners: std::collections::BTreeSet<_> = self.slots().values().cloned().collect();
        owners.into_iter().collect()
    }

    /// Waits for the answer to a question that begins now or later.
    pub(crate) async fn learn(self: &Arc<Self>) -> Result<(), Fault> {
        self.wanted.fetch_add(1, Ordering::SeqCst);
        let begun = self.begun.load(Ordering::SeqCst);
        let mut answered = self.answered.subscribe();
        let is_fresh = |answered: &Answered| answered.number > begun;
        tokio::select! {
            biased;
            // The sender lives as long as `self`.
            _ = answered.wait_for(is_fresh) => {}
            turn = Arc::clone(&self.turn).lock_owned() => self.begin(turn),
        }
        match answered.wait_for(is_fresh).await {
            Ok(fresh) => fresh.outcome.clone(),
            Err(_) => Err(Fault::new(Kind::Closed, "the store was closed")),
        }
    }

    /// Asks unless somebody does or has just done so, and does not wait.
    pub(crate) fn refresh(self: &Arc<Self>) {
        self.wanted.fetch_add(1, Ordering::SeqCst);
        if let Ok(turn) = Arc::clone(&self.turn).try_lock_owned() {
            self.begin(turn);
        }
    }

    /// In a task, so that the answer does not depend on the patience of one caller.
    fn begin(self: &Arc<Self>, mut rest: OwnedMutexGuard<Duration>) {
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let topology = Arc::clone(self);
        tokio::spawn(async move {
            let outcome = topology.ask().await;
            *rest = match outcome {
                Ok(true) => REST_MIN,
                Ok(false) | Err(_) => (*rest * 2).min(REST_MAX),
            };
            let wanted = topology.wanted.load(Ordering::SeqCst);
            topology.answered.send_replace(Answered { number, outcome: outcome.map(drop) });
            tokio::time::sleep(*rest).await;
            if topology.wanted.load(Ordering::SeqCst) == wanted {
                *rest = REST_MIN;
            }
        });
    }

    /// Asks any server that answers for the slots of all servers. Returns whether they have changed.
    async fn ask(&self) -> Result<bool, Fault> {
        let mut known = self.owners();
        known.extend(self.any_server.hosts.iter().cloned());
        let mut last = Fault::new(Kind::Unavailable, "no server of the cluster answers");
        for (at, host) in known.iter().enumerate() {
            if known[..at].contains(host) {
                continue;
            }
            let link = Link::new(&self.any_server, vec![host.clone()], false);
            let answer = match link.connection().await {
                Ok(connection) => connection.ask(resp::command(&[b"CLUSTER", b"SLOTS"]), 0).await,
                Err(error) => {
                    last = Fault::of(&error);
                    continue;
                }
            };
            match answer {
                Ok(Value::Array(ranges)) if !ranges.is_empty() => {
                    let by_last_slot = read_slots(&ranges, host);
                    let mut held = self.slots();
                    let is_changed = *held != by_last_slot;
                    *held = by_last_slot;
                    return Ok(is_changed);
                }
                Ok(Value::Error(text)) => last = ServerRefusal::of(&text, false).fault(),
                Ok(_) => {}
                Err(failure) => last = Fault::new(Kind::Unavailable, failure.to_string()),
            }
        }
        Err(last)
    }
}

fn read_slots(ranges: &[Value], asked: &Host) -> BTreeMap<u16, Host> {
    let mut by_last_slot = BTreeMap::new();
    for range in ranges {
        let [_, last, owner, ..] = range.array() else { continue };
        let (Some(last), [name, port, ..]) = (last.number(), owner.array()) else { continue };
        // A server that does not know its own address is known by the address that was asked.
        let name = name.text().filter(|name| !name.is_empty()).unwrap_or(&asked.name).to_owned();
        let (Ok(last), Some(port)) =
            (u16::try_from(last), port.number().and_then(|port| u16::try_from(port).ok()))
        else {
            continue;
        };
        by_last_slot.insert(last, Host { name, port });
    }
    by_last_slot
}
