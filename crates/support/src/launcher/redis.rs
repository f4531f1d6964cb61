//! Redis and Valkey. Their settings never lose or evict a write.

use super::output;
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

/// Every write is synced before it is answered, and nothing is evicted.
const SETTINGS: &[&str] = &[
    "--bind",
    "127.0.0.1",
    "--appendonly",
    "yes",
    "--appendfsync",
    "always",
    "--save",
    "",
    "--maxmemory-policy",
    "noeviction",
];

/// The arguments that make a server one of a cluster. The others consider it failed if it does not answer for
/// `failed_after_ms` milliseconds.
pub const fn in_cluster(failed_after_ms: &str) -> [&str; 4] {
    ["--cluster-enabled", "yes", "--cluster-node-timeout", failed_after_ms]
}

/// For [`in_cluster`], where no replica should take over: longer than a busy machine keeps a server waiting. A takeover
/// that nobody asked for loses the last writes.
pub const NEVER_FAILED_MS: &str = "15000";

/// The arguments of a server with its data in `data`.
pub fn arguments(data: &Path, port: u16) -> Vec<OsString> {
    let mut arguments: Vec<OsString> =
        vec!["--port".into(), port.to_string().into(), "--dir".into(), data.into()];
    arguments.extend(SETTINGS.iter().map(OsString::from));
    arguments
}

/// Makes these servers, `HOST:PORT`, a cluster in which each master has this many replicas. They agree a moment later.
pub fn create_cluster(addresses: &[String], replicas: &str) -> Result<(), String> {
    let mut create = vec!["create"];
    create.extend(addresses.iter().map(String::as_str));
    create.extend(["--cluster-replicas", replicas, "--cluster-yes"]);
    manage_cluster(&create)
}

/// Runs `redis-cli --cluster`.
pub fn manage_cluster(arguments: &[&str]) -> Result<(), String> {
    let mut client = Command::new("redis-cli");
    output(client.arg("--cluster").args(arguments).stdin(Stdio::null())).map(drop)
}

/// The program in a Debian package of Valkey that was unpacked to `root` with all its libraries: the loader, which is
/// one of them, and its first arguments.
pub fn unpacked_valkey(root: &Path) -> Option<Vec<OsString>> {
    let loader = root.join("usr/lib64/ld-linux-x86-64.so.2");
    let (libraries, program) = (root.join("usr/lib/x86_64-linux-gnu"), root.join("usr/bin/valkey-server"));
    (loader.is_file() && program.is_file())
        .then(|| vec![loader.into(), "--library-path".into(), libraries.into(), program.into()])
}
