//! Finds the server of each key: the single server, or one of a cluster.

use crate::address::{Address, Host};
use crate::connection::{Connection, Failure, Lost};
use crate::fault::{Fault, ServerRefusal};
use crate::fence::Fence;
use crate::link::Link;
use crate::resp::{self, Value};
use crate::scripts::Script;
use crate::topology::Topology;
use bytes::Bytes;
use semel_core::store::{Error, Kind};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often a command is redirected before it fails.
const ROUTES_MAX: u32 = 12;
/// The pause between two tries while a cluster is not stable.
const PAUSE: Duration = Duration::from_millis(100);

/// What a command can change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing: it can be repeated.
    Reads,
    /// It may have changed something, whatever its answer.
    Writes,
}

/// The servers of one store, with one connection to each.
pub(crate) struct Servers {
    address: Arc<Address>,
    confirms: bool,
    /// Without a cluster; a cluster decides by itself which servers take writes.
    fence: Option<Arc<Fence>>,
    /// Without a cluster, or before it is known.
    first: Arc<Link>,
    /// Of a cluster.
    topology: Option<Arc<Topology>>,
    links: Mutex<BTreeMap<Host, Arc<Link>>>,
}

impl Servers {
    /// Connects to one of the named servers, and discovers the others.
    pub(crate) async fn connect(
        address: &Arc<Address>,
        confirms: bool,
        fence: Option<&Arc<Fence>>,
    ) -> Result<Self, Error> {
        let topology = if is_cluster(address).await? { Some(Topology::new(address)) } else { None };
        if let Some(topology) = &topology {
            topology.learn().await.map_err(|fault| fault.error("asking who has which slot"))?;
        }
        Self::of(address, confirms, fence, topology).await
    }

    /// Further connections to the same servers.
    pub(crate) async fn connect_again(
        &self,
        confirms: bool,
        fence: Option<&Arc<Fence>>,
    ) -> Result<Self, Error> {
        Self::of(&self.address, confirms, fence, self.topology.clone()).await
    }

    async fn of(
        address: &Arc<Address>,
        confirms: bool,
        fence: Option<&Arc<Fence>>,
        topology: Option<Arc<Topology>>,
    ) -> Result<Self, Error> {
        let fence = fence.filter(|_| topology.is_none());
        let first = Arc::new(Link::new(address, address.hosts.clone(), confirms).behind(fence));
        if topology.is_none() {
            first.connection().await?;
        }
        let (address, fence, links) = (Arc::clone(address), fence.cloned(), Mutex::default());
        Ok(Self { address, confirms, fence, first, topology, links })
    }

    fn links(&self) -> MutexGuard<'_, BTreeMap<Host, Arc<Link>>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_cluster(&self) -> bool {
        self.topology.is_some()
    }

    /// Every server that takes writes, with one connection to each.
    pub(crate) fn all(&self) -> Vec<Arc<Link>> {
        let Some(topology) = &self.topology else { return vec![Arc::clone(&self.first)] };
        topology.owners().iter().map(|host| self.link_to(host)).collect()
    }

    fn owner(&self, slot: u16) -> Arc<Link> {
        let owner = self.topology.as_ref().and_then(|topology| topology.owner(slot));
        owner.map_or_else(|| Arc::clone(&self.first), |host| self.link_to(&host))
    }

    fn link_to(&self, host: &Host) -> Arc<Link> {
        let mut links = self.links();
        let link = || Arc::new(Link::new(&self.address, vec![host.clone()], self.confirms));
        Arc::clone(links.entry(host.clone()).or_insert_with(link))
    }

    /// Asks the cluster for the slots of all servers. The answer is not older than this call.
    pub(crate) async fn learn(&self) -> Result<(), Fault> {
        match &self.topology {
            Some(topology) => topology.learn().await,
            None => Ok(()),
        }
    }

    /// Waits until a cluster may have changed, and uses what is known by then.
    async fn pause(&self) {
        tokio::time::sleep(PAUSE).await;
        // What is not answered in time is used by the next try.
        let _ = tokio::time::timeout(PAUSE, self.learn()).await;
    }

    /// Sends a command to the server of `slot`. If a server did nothing, the command is redirected; after an
    /// ambiguous error it is repeated only if it just reads.
    pub(crate) async fn ask(&self, slot: u16, question: Bytes, effect: Effect) -> Result<Value, Fault> {
        if effect == Effect::Writes
            && let Some(cause) = self.fence.as_ref().and_then(|fence| fence.objection())
        {
            return Err(Fault::new(Kind::Unavailable, cause.to_string()));
        }
        let mut link = self.owner(slot);
        let (mut prelude, mut fault) = (false, Fault::new(Kind::Unavailable, "the cluster does not settle"));
        let mut lost = 0;
        for _ in 0..ROUTES_MAX {
            let connection = match link.connection().await {
                Ok(connection) => connection,
                Err(error) => {
                    let refused = Fault::of(&error);
                    if !self.is_cluster() || refused.kind == Kind::Closed {
                        return Err(refused);
                    }
                    // Its replica may have taken over.
                    self.pause().await;
                    (link, prelude, fault) = (self.owner(slot), false, refused);
                    continue;
                }
            };
            match send(&connection, &question, prelude).await {
                Ok(Value::Error(text)) => match ServerRefusal::of(&text, effect == Effect::Writes) {
                    ServerRefusal::Moved(host) => {
                        self.topology.iter().for_each(Topology::refresh);
                        (link, prelude) = (self.link_to(&host), false);
                        fault = ServerRefusal::Moved(host).fault();
                    }
                    ServerRefusal::Ask(host) => (link, prelude) = (self.link_to(&host), true),
                    refusal @ ServerRefusal::TryAgain(_) => {
                        self.pause().await;
                        (link, prelude, fault) = (self.owner(slot), false, refusal.fault());
                    }
                    ServerRefusal::NoScript => return Ok(Value::Error(text)),
                    refusal @ ServerRefusal::ReadOnly(_) => {
                        // It was replaced: the next command finds the server that takes writes.
                        link.discard(&connection).await;
                        return Err(refusal.fault());
                    }
                    refusal => return Err(refusal.fault()),
                },
                Ok(value) => return Ok(value),
                Err(Failure::NotSent(cause)) => {
                    fault = Fault::new(Kind::Unavailable, cause.to_string());
                    lost += 1;
                    if lost == 3 {
                        return Err(fault);
                    }
                }
                Err(Failure::Lost(cause)) => {
                    link.discard(&connection).await;
                    lost += 1;
                    if effect == Effect::Writes {
                        return Err(Fault::new(Kind::Ambiguous, cause.to_string()));
                    }
                    fault = Fault::new(Kind::Unavailable, cause.to_string());
                    // A broken connection is replaced; a server that hangs is not waited for twice.
                    if lost == 2 || matches!(cause, Lost::Silent(_)) {
                        return Err(fault);
                    }
                }
            }
        }
        Err(fault)
    }

    /// Runs a script on the server of `slot`.
    pub(crate) async fn run(
        &self,
        slot: u16,
        script: &Script,
        effect: Effect,
        keys: &[&[u8]],
        arguments: &[&[u8]],
    ) -> Result<Value, Fault> {
        let by_hash = self.ask(slot, script.question(keys, arguments, true), effect).await;
        let answer = match by_hash {
            // Nothing ran: the server does not know the script yet.
            Ok(Value::Error(_)) => {
                match self.ask(slot, script.question(keys, arguments, false), effect).await {
                    Ok(Value::Error(_)) => Err(ServerRefusal::NoScript.fault()),
                    answer => answer,
                }
            }
            answer => answer,
        };
        answer.map_err(|fault| fault.in_script(script))
    }

    /// Accepts no more commands, and returns when those sent are answered.
    pub(crate) async fn close(&self) {
        let links: Vec<_> = self.links().values().chain([&self.first]).cloned().collect();
        for link in links {
            link.close().await;
        }
    }
}

async fn send(connection: &Connection, question: &Bytes, with_prelude: bool) -> Result<Value, Failure> {
    if !with_prelude {
        return connection.ask(question.clone(), 0).await;
    }
    let mut both = resp::command(&[b"ASKING"]).to_vec();
    both.extend_from_slice(question);
    connection.ask(both.into(), 1).await
}

/// Whether the servers are a cluster. The first that answers decides.
async fn is_cluster(address: &Arc<Address>) -> Result<bool, Error> {
    let any = Arc::new((**address).clone().for_reading());
    let link = Link::new(&any, address.hosts.clone(), false);
    Ok(link.connection().await?.greeting.mode == "cluster")
}
