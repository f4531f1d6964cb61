//! A Redis cluster that belongs to one test.

use super::{RedisReply, RedisServer, wait_until};
use crate::launcher::redis::{self, NEVER_FAILED_MS};
use std::path::Path;

const SERVERS: usize = 6;
/// After this many milliseconds without an answer, the others consider a server failed, and its replica takes over.
const FAILED_AFTER_MS: &str = "5000";
/// Where no replica can take over.
const WITHOUT_REPLICAS_MS: &str = "1000";

/// Servers that share the keys. They stop when this is dropped.
#[derive(Debug)]
pub struct RedisCluster {
    /// The servers, in no particular order.
    pub servers: Vec<RedisServer>,
}

impl RedisCluster {
    /// Starts six servers in `dir`: three masters, each with a replica. Returns as soon as all of them agree. No replica
    /// takes over.
    pub fn start(dir: impl AsRef<Path>) -> Self {
        Self::create(dir.as_ref(), &[&[][..]; SERVERS], "1", NEVER_FAILED_MS)
    }

    /// The same, with replicas that take over from masters that were killed.
    pub fn start_failing_over(dir: impl AsRef<Path>) -> Self {
        Self::create(dir.as_ref(), &[&[][..]; SERVERS], "1", FAILED_AFTER_MS)
    }

    /// The same with servers without replicas, one for each port that they announce on 127.0.0.1. Something else
    /// listens on that port and forwards to the server.
    pub fn start_announcing(dir: impl AsRef<Path>, ports: &[u16]) -> Self {
        let ports: Vec<_> = ports.iter().map(u16::to_string).collect();
        let more: Vec<_> = ports.iter().map(|port| ["--cluster-announce-port", port]).collect();
        let more: Vec<&[&str]> = more.iter().map(<[_; 2]>::as_slice).collect();
        Self::create(dir.as_ref(), &more, "0", WITHOUT_REPLICAS_MS)
    }

    fn create(dir: &Path, arguments: &[&[&str]], replicas: &str, failed_after_ms: &str) -> Self {
        let start = |(number, arguments): (usize, &&[&str])| {
            // The servers use a second port, ten thousand higher, to talk to each other.
            let more = redis::in_cluster(failed_after_ms);
            RedisServer::start(dir.join(number.to_string()), &[&more[..], *arguments].concat())
        };
        let cluster = Self { servers: arguments.iter().enumerate().map(start).collect() };
        let addresses: Vec<_> = cluster.servers.iter().map(RedisServer::address).collect();
        redis::create_cluster(&addresses, replicas).expect("a cluster");
        let count = cluster.servers.len();
        wait_until("the cluster agrees", || cluster.servers.iter().all(|server| is_ready(server, count)));
        cluster
    }

    /// All servers, in the form of a store's URL.
    pub fn url(&self) -> String {
        let addresses: Vec<_> = self.servers.iter().map(RedisServer::address).collect();
        format!("redis://{}", addresses.join(","))
    }

    /// The index of a server that accepts writes.
    pub fn master(&self) -> usize {
        let is_master = |server: &RedisServer| server.info("role") == "master";
        self.servers.iter().position(is_master).expect("one takes writes")
    }

    /// Waits until every replica has what its master has.
    pub fn catch_up(&self) {
        let offset = |server: &RedisServer| server.info("master_repl_offset");
        wait_until("the replicas have caught up", || {
            let masters: Vec<_> =
                self.servers.iter().filter(|server| server.info("role") == "master").map(offset).collect();
            let replicas = self.servers.iter().filter(|server| server.info("role") != "master");
            replicas.map(|server| server.info("slave_repl_offset")).all(|offset| masters.contains(&offset))
        });
    }

    /// Moves slots from one master to another while both are working.
    pub fn move_slots(&self, count: u32) {
        let from = &self.servers[self.master()];
        let id = |server: &RedisServer| server.ask("CLUSTER MYID").text();
        let mut others = self.servers.iter().filter(|server| server.info("role") == "master");
        let to = others.next_back().expect("another one");
        assert_ne!(id(from), id(to));
        let (address, from, to, count) = (from.address(), id(from), id(to), count.to_string());
        let between = ["--cluster-from", &from, "--cluster-to", &to];
        let reshard = [&["reshard", &address], &between[..], &["--cluster-slots", &count, "--cluster-yes"]];
        redis::manage_cluster(&reshard.concat()).expect("the slots are moved");
    }
}

/// A new cluster still refuses commands for a moment.
fn is_ready(server: &RedisServer, count: usize) -> bool {
    let RedisReply::Bytes(info) = server.ask("CLUSTER INFO") else { return false };
    let info = String::from_utf8_lossy(&info).into_owned();
    let is_linked = server.info("role") == "master" || server.info("master_link_status") == "up";
    is_linked && info.contains("cluster_state:ok") && info.contains(&format!("cluster_known_nodes:{count}"))
}
