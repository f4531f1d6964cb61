//! Finds the server of each key: the single server, or one of a cluster.

use crate::address::{Address, Host};
use crate::connection::{Connection, Failure};
use crate::fault::{Fault, Refusal};
use crate::fence::Fence;
use crate::link::Link;
use crate::resp::{self, Value};
use crate::scripts::Script;
use bytes::Bytes;
use semel_core::store::{Error, Kind};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often a command is redirected before it fails.
const ROUTES_MAX: u32 = 12;
/// The pause between two tries while a cluster is not stable.
const PAUSE: Duration = Duration::from_millis(100);
const SLOTS: u16 = 16_384;

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
    held: Mutex<State>,
}

struct State {
    links: BTreeMap<Host, Arc<Link>>,
    /// The link of each range of slots, by its last slot; without a cluster, one link for all.
    by_last_slot: BTreeMap<u16, Host>,
    /// Without a cluster, or before it is known.
    first: Arc<Link>,
    is_cluster: bool,
}

impl Servers {
    /// Connects to one of the named servers, and discovers the others.
    pub(crate) async fn connect(
        address: &Arc<Address>,
        confirms: bool,
        fence: Option<&Arc<Fence>>,
    ) -> Result<Self, Error> {
        let is_cluster = is_cluster(address).await?;
        let fence = fence.filter(|_| !is_cluster);
        let first = Arc::new(Link::new(address, address.hosts.clone(), confirms).behind(fence));
        let held = State { links: BTreeMap::new(), by_last_slot: BTreeMap::new(), first, is_cluster };
        let (address, fence, held) = (Arc::clone(address), fence.cloned(), Mutex::new(held));
        let servers = Self { address, confirms, fence, held };
        if is_cluster {
            servers.learn().await.map_err(|fault| fault.error("asking who has which slot"))?;
        } else {
            let first = Arc::clone(&servers.held().first);
            first.connection().await?;
        }
        Ok(servers)
    }

    fn held(&self) -> MutexGuard<'_, State> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_cluster(&self) -> bool {
        self.held().is_cluster
    }

    /// Every server that takes writes, with one connection to each.
    pub(crate) fn all(&self) -> Vec<Arc<Link>> {
        let held = self.held();
        if !held.is_cluster {
            return vec![Arc::clone(&held.first)];
        }
        let owners: std::collections::BTreeSet<_> = held.by_last_slot.values().collect();
        owners.into_iter().filter_map(|host| held.links.get(host).cloned()).collect()
    }

    fn owner(&self, slot: u16) -> Arc<Link> {
        let held = self.held();
        let owner = held.by_last_slot.range(slot..).next().and_then(|(_, host)| held.links.get(host));
        Arc::clone(owner.unwrap_or(&held.first))
    }

    fn link_to(&self, host: &Host) -> Arc<Link> {
        let mut held = self.held();
        let link = || Arc::new(Link::new(&self.address, vec![host.clone()], self.confirms));
        Arc::clone(held.links.entry(host.clone()).or_insert_with(link))
    }

    /// Asks any server that answers for the slots of all servers.
    async fn learn(&self) -> Result<(), Fault> {
        let mut known: Vec<Host> = self.held().links.keys().cloned().collect();
        known.extend(self.address.hosts.iter().filter(|host| !self.held().links.contains_key(host)).cloned());
        let mut last = Fault::new(Kind::Unavailable, "no server of the cluster answers");
        for host in known {
            // A replica knows them too.
            let any = Arc::new((*self.address).clone().for_reading());
            let link = Link::new(&any, vec![host.clone()], false);
            let answer = match link.connection().await {
                Ok(connection) => connection.ask(resp::command(&[b"CLUSTER", b"SLOTS"]), 0).await,
                Err(error) => {
                    last = Fault::of(&error);
                    continue;
                }
            };
            match answer {
                Ok(Value::Array(ranges)) if !ranges.is_empty() => {
                    self.apply_slots(&ranges, &host);
                    return Ok(());
                }
                Ok(Value::Error(text)) => last = Refusal::of(&text, false).fault(),
                Ok(_) => {}
                Err(Failure::NotSent(cause) | Failure::Lost(cause)) => {
                    last = Fault::new(Kind::Unavailable, cause);
                }
            }
        }
        Err(last)
    }

    fn apply_slots(&self, ranges: &[Value], asked: &Host) {
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
        for host in by_last_slot.values() {
            self.link_to(host);
        }
        self.held().by_last_slot = by_last_slot;
    }

    /// Sends a command to the server of `slot`. If a server did nothing, the command is redirected; after an
    /// ambiguous error it is repeated only if it just reads.
    pub(crate) async fn ask(&self, slot: u16, question: Bytes, effect: Effect) -> Result<Value, Fault> {
        if effect == Effect::Writes
            && let Some(cause) = self.fence.as_ref().and_then(|fence| fence.objection())
        {
            return Err(Fault::new(Kind::Unavailable, cause));
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
                    tokio::time::sleep(PAUSE).await;
                    drop(self.learn().await);
                    (link, prelude, fault) = (self.owner(slot), false, refused);
                    continue;
                }
            };
            match send(&connection, &question, prelude).await {
                Ok(Value::Error(text)) => match Refusal::of(&text, effect == Effect::Writes) {
                    Refusal::Moved(host) => {
                        drop(self.learn().await);
                        (link, prelude) = (self.link_to(&host), false);
                        fault = Refusal::Moved(host).fault();
                    }
                    Refusal::Ask(host) => (link, prelude) = (self.link_to(&host), true),
                    refusal @ Refusal::TryAgain(_) => {
                        tokio::time::sleep(PAUSE).await;
                        drop(self.learn().await);
                        (link, prelude, fault) = (self.owner(slot), false, refusal.fault());
                    }
                    Refusal::NoScript => return Ok(Value::Error(text)),
                    refusal @ Refusal::ReadOnly(_) => {
                        // It was replaced: the next command finds the server that takes writes.
                        link.discard(&connection).await;
                        return Err(refusal.fault());
                    }
                    refusal => return Err(refusal.fault()),
                },
                Ok(value) => return Ok(value),
                Err(Failure::NotSent(cause)) => {
                    fault = Fault::new(Kind::Unavailable, cause);
                    lost += 1;
                    if lost == 3 {
                        return Err(fault);
                    }
                }
                Err(Failure::Lost(cause)) => {
                    link.discard(&connection).await;
                    lost += 1;
                    if effect == Effect::Writes {
                        return Err(Fault::new(Kind::Ambiguous, cause));
                    }
                    fault = Fault::new(Kind::Unavailable, cause);
                    // A broken connection is replaced; a server that hangs is not waited for twice.
                    if lost == 2 || fault == silent(self.address.answer_timeout) {
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
                    Ok(Value::Error(_)) => Err(Refusal::NoScript.fault()),
                    answer => answer,
                }
            }
            answer => answer,
        };
        answer.map_err(|fault| fault.in_script(script))
    }

    /// Accepts no more commands, and returns when those sent are answered.
    pub(crate) async fn close(&self) {
        let links: Vec<_> = {
            let held = self.held();
            held.links.values().chain([&held.first]).cloned().collect()
        };
        for link in links {
            link.close().await;
        }
    }
}

fn silent(after: Duration) -> Fault {
    Fault::new(Kind::Unavailable, format!("the server did not answer within {after:?}"))
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

/// The slot of a key's hash tag.
pub(crate) fn slot_of(tag: &str) -> u16 {
    let mut crc: u16 = 0;
    for byte in tag.bytes() {
        crc ^= u16::from(byte) << 8;
        for _ in 0..8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
        }
    }
    crc % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_match_those_of_the_servers() {
        assert_eq!([slot_of("123456789"), slot_of("foo"), slot_of("")], [12_739, 12_182, 0]);
    }
}
