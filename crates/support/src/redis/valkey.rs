//! The program of the Valkey server that `cargo xtask services` runs.

use super::RedisClient;
use crate::services;
use std::ffi::OsString;
use std::path::Path;

/// If it was unpacked with its own libraries, as `cargo xtask services` does, its loader is next to them.
const LOADER: &str = "usr/lib64/ld-linux-x86-64.so.2";
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// The command that starts another server: the program and its first arguments. The running server reports its
/// location.
pub(super) fn program() -> Option<Vec<OsString>> {
    let info = RedisClient::connect(&services::valkey_url()?).ask(&["INFO", "server"]).text();
    let path = info.lines().find_map(|line| line.strip_prefix("executable:")).unwrap_or_default().trim();
    let path = Path::new(path);
    if !path.is_file() {
        services::leave_out("Valkey runs on another machine, and a test that kills it needs one here");
        return None;
    }
    let root = path.ancestors().nth(3).unwrap_or(path);
    let loader = root.join(LOADER);
    if !loader.is_file() {
        return Some(vec![path.into()]);
    }
    Some(vec![loader.into(), "--library-path".into(), root.join(LIBRARIES).into(), path.into()])
}
