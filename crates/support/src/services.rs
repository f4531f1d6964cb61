//! The servers that `cargo xtask services` provides.
//!
//! Contents: where tests find them. Never here: a test that passes under `cargo xtask test` because its server is
//! missing.

use std::io::Write as _;

/// PostgreSQL, which takes writes.
pub fn postgres_url() -> Option<String> {
    url("SEMEL_TEST_POSTGRES_URL")
}

/// A streaming standby of it, which refuses them.
pub fn postgres_standby_url() -> Option<String> {
    url("SEMEL_TEST_POSTGRES_STANDBY_URL")
}

/// `PgBouncer` in front of PostgreSQL, in transaction mode.
pub fn pgbouncer_url() -> Option<String> {
    url("SEMEL_TEST_PGBOUNCER_URL")
}

/// A Redis server that syncs every write.
pub fn redis_url() -> Option<String> {
    url("SEMEL_TEST_REDIS_URL")
}

/// A Redis cluster of six: three that take writes, each with a replica.
pub fn redis_cluster_url() -> Option<String> {
    url("SEMEL_TEST_REDIS_CLUSTER_URL")
}

/// A Valkey server that syncs every write.
pub fn valkey_url() -> Option<String> {
    url("SEMEL_TEST_VALKEY_URL")
}

/// The URL that an environment variable names. Without one the test is to be left out, and standard error says so;
/// under `cargo xtask test` this panics instead.
fn url(variable: &str) -> Option<String> {
    let url = std::env::var(variable).ok().filter(|url| !url.is_empty());
    if url.is_none() {
        leave_out(&format!("{variable} is not set; `cargo xtask services up --export` prints it"));
    }
    url
}

/// Says why a test is left out. Panics if nothing may be: under `cargo xtask test`.
pub fn leave_out(why: &str) {
    let required = std::env::var_os("SEMEL_TEST_TOOLS").is_some_and(|value| value == "required");
    assert!(!required, "{why}");
    // Past the test harness, which shows what a passed test prints to nobody.
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}
