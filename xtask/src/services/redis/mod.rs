//! Redis (a single server, and a cluster of six) and Valkey.

mod cluster;
mod valkey;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use super::home::{Home, describe};
use super::server::Server;
use crate::cargo;
use crate::tools::packages;
use semel_test_support::launcher::{process, redis};

pub(super) use cluster::Cluster;
pub(super) use valkey::Valkey;

const PID_FILE: &str = "redis.pid";
const USER: &str = "redis";

/// Ten seconds in total.
const CHECKS_MAX: u32 = 100;
const PAUSE: Duration = Duration::from_millis(100);

/// The kind of server.
pub(super) struct Redis;

impl Server for Redis {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn variable(&self) -> &'static str {
        "SEMEL_TEST_REDIS_URL"
    }

    fn user(&self) -> &'static str {
        USER
    }

    fn missing_packages(&self) -> Vec<&'static str> {
        missing_packages()
    }

    fn url(&self, port: u16) -> String {
        url(port)
    }

    fn pid_file(&self) -> &'static str {
        PID_FILE
    }

    fn start(&self, home: &Home, port: u16, _: Option<&str>) -> Result<(), String> {
        let server = program("redis-server").ok_or("Redis is not installed: redis-server not found")?;
        start(home, home.command(&server), &home.data(), port, &[])
    }

    fn stop(&self, home: &Home) -> Result<(), String> {
        stop(home, &home.data())
    }

    fn version(&self, url: &str) -> Result<String, String> {
        info(url, "redis_version")
    }
}

fn url(port: u16) -> String {
    format!("redis://127.0.0.1:{port}")
}

fn program(name: &str) -> Option<PathBuf> {
    packages::directories().into_iter().map(|folder| folder.join(name)).find(|path| path.is_file())
}

fn missing_packages() -> Vec<&'static str> {
    let is_there = ["redis-server", "redis-cli"].iter().all(|name| program(name).is_some());
    if is_there { Vec::new() } else { vec!["redis-server"] }
}

/// Starts a server in the folder `data`.
fn start(home: &Home, mut server: Command, data: &Path, port: u16, more: &[&str]) -> Result<(), String> {
    fs::create_dir_all(data).map_err(|error| describe(data, &error))?;
    home.take_over()?;
    server.current_dir(data).args(redis::arguments(data, port)).args(["--daemonize", "yes"]);
    server.arg("--pidfile").arg(data.join(PID_FILE)).arg("--logfile").arg(home.path("log")).args(more);
    cargo::capture(server).map_err(|error| format!("{error}\n{}", home.log_tail()))?;
    // The started process forks, and the child writes its pid a moment later.
    for _ in 0..CHECKS_MAX {
        if process::find(&data.join(PID_FILE), data)?.is_some() {
            return Ok(());
        }
        thread::sleep(PAUSE);
    }
    Err(format!("the server ended right after its start\n{}", home.log_tail()))
}

fn stop(home: &Home, data: &Path) -> Result<(), String> {
    let running = || if data.is_dir() { process::find(&data.join(PID_FILE), data) } else { Ok(None) };
    let Some(pid) = running()? else { return Ok(()) };
    let mut kill = home.command(&PathBuf::from("/bin/sh"));
    kill.args(["-c", &format!("kill -TERM {pid}")]);
    cargo::capture(kill)?;
    for _ in 0..CHECKS_MAX {
        if running()?.is_none() {
            return Ok(());
        }
        thread::sleep(PAUSE);
    }
    Err(format!("Redis (pid {pid}) does not stop\n{}", home.log_tail()))
}

/// The server's answer.
fn ask(url: &str, arguments: &[&str]) -> Result<String, String> {
    let client = program("redis-cli").ok_or("Redis is not installed: redis-cli not found")?;
    let mut ask = cargo::program(&client.to_string_lossy());
    // The scheme and the parameters belong to the store; the rest is the same.
    let plain = url.replacen("valkey", "redis", 1);
    let plain = plain.split('?').next().unwrap_or_default().split(',').next().unwrap_or_default();
    ask.args(["-e", "-u", plain]).args(arguments);
    cargo::capture(ask).map(|answer| answer.trim().to_owned())
}

/// A line of the server's `INFO`.
fn info(url: &str, name: &str) -> Result<String, String> {
    let answer = ask(url, &["INFO", "server"])?;
    let line = answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.map(|value| value.trim().to_owned()).ok_or_else(|| format!("the server did not report {name}"))
}
