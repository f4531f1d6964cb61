//! A cluster of six: three servers that take writes, each with a replica. It is ready when all of them agree.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::thread;

use super::{CHECKS_MAX, PAUSE, PID_FILE, USER, ask, info, missing_packages, program, start, stop, url};
use crate::services::home::{Home, describe};
use crate::services::server::Server;
use semel_test_support::launcher::redis;

const SERVERS: usize = 6;
/// How many spare ports are tried.
const TRIES_MAX: u32 = 5;

/// The kind of server.
pub(in crate::services) struct Cluster;

impl Server for Cluster {
    fn name(&self) -> &'static str {
        "redis-cluster"
    }

    fn variable(&self) -> &'static str {
        "SEMEL_TEST_REDIS_CLUSTER_URL"
    }

    fn user(&self) -> &'static str {
        USER
    }

    fn missing_packages(&self) -> Vec<&'static str> {
        missing_packages()
    }

    /// The first server, which knows the others.
    fn url(&self, port: u16) -> String {
        url(port)
    }

    fn pid_file(&self) -> &'static str {
        PID_FILE
    }

    /// Creates a new cluster. Its contents are not needed after a test.
    fn start(&self, home: &Home, port: u16, _: Option<&str>) -> Result<(), String> {
        self.stop(home)?;
        for data in (0..SERVERS).map(|number| data(home, number)).filter(|data| data.exists()) {
            fs::remove_dir_all(&data).map_err(|error| describe(&data, &error))?;
        }
        let server = program("redis-server").ok_or("Redis is not installed: redis-server not found")?;
        let mut ports = Vec::new();
        for number in 0..SERVERS {
            ports.push(start_one(home, &server, number, (number == 0).then_some(port))?);
        }
        let urls: Vec<_> = ports.iter().map(|port| url(*port)).collect();
        wait("the servers answer", || urls.iter().all(|url| ask(url, &["PING"]).is_ok()))?;
        let addresses: Vec<_> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        redis::create_cluster(&addresses, "1")?;
        wait("the cluster agrees", || urls.iter().all(|url| is_ready(url)))
    }

    fn stop(&self, home: &Home) -> Result<(), String> {
        (0..SERVERS).rev().try_for_each(|number| stop(home, &data(home, number)))
    }

    fn version(&self, url: &str) -> Result<String, String> {
        info(url, "redis_version")
    }

    fn verify(&self, url: &str, _: Option<&str>) -> Result<(), String> {
        if is_ready(url) { Ok(()) } else { Err("it is not a cluster that has settled".to_owned()) }
    }
}

/// Starts a server on `port`, or on a free one, and returns the port. Another process may take a free port
/// before the server binds it; then others are tried.
fn start_one(home: &Home, server: &Path, number: usize, port: Option<u16>) -> Result<u16, String> {
    let data = data(home, number);
    let mut tries = 1;
    loop {
        let spare = spare_ports(2)?;
        let (port, bus) = (port.unwrap_or(spare[0]), spare[1].to_string());
        let more = [&redis::in_cluster(redis::NEVER_FAILED_MS)[..], &["--cluster-port", &bus]].concat();
        match start(home, home.command(server), &data, port, &more) {
            Ok(()) => return Ok(port),
            Err(error) if tries == TRIES_MAX || !error.contains("Address already in use") => {
                return Err(error);
            }
            Err(_) => tries += 1,
        }
        if data.exists() {
            fs::remove_dir_all(&data).map_err(|error| describe(&data, &error))?;
        }
    }
}

/// The first server's data identifies the cluster.
fn data(home: &Home, number: usize) -> std::path::PathBuf {
    if number == 0 { home.data() } else { home.path(&format!("data-{number}")) }
}

/// A new cluster refuses requests for a moment.
fn is_ready(url: &str) -> bool {
    let has_settled = ask(url, &["CLUSTER", "INFO"]).is_ok_and(|info| {
        info.contains("cluster_state:ok") && info.contains(&format!("cluster_known_nodes:{SERVERS}"))
    });
    let nodes = ask(url, &["CLUSTER", "NODES"]).unwrap_or_default();
    has_settled && nodes.lines().filter(|line| line.contains("slave")).count() == SERVERS / 2
}

fn spare_ports(count: usize) -> Result<Vec<u16>, String> {
    let none = |error: std::io::Error| format!("no spare port on 127.0.0.1: {error}");
    let sockets: Result<Vec<_>, _> =
        (0..count).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).collect();
    let ports: Result<Vec<_>, _> = sockets
        .map_err(none)?
        .iter()
        .map(|socket| socket.local_addr().map(|address| address.port()))
        .collect();
    ports.map_err(none)
}

fn wait(event: &str, mut condition: impl FnMut() -> bool) -> Result<(), String> {
    for _ in 0..CHECKS_MAX {
        if condition() {
            return Ok(());
        }
        thread::sleep(PAUSE);
    }
    Err(format!("timed out before {event}"))
}
