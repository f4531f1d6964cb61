//! The program of the Valkey server that `cargo xtask services` runs.

use super::RedisClient;
use crate::launcher::redis;
use crate::services;
use std::ffi::OsString;
use std::path::Path;

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
    // `cargo xtask services` may have unpacked it.
    let root = path.ancestors().nth(3).unwrap_or(path);
    Some(redis::unpacked_valkey(root).unwrap_or_else(|| vec![path.into()]))
}
