//! The servers that `cargo xtask services` provides.

use std::io::Write as _;

/// PostgreSQL, which accepts writes.
pub fn postgres_url() -> Option<String> {
    url("SEMEL_TEST_POSTGRES_URL")
}

/// A streaming standby of it, which refuses writes.
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

/// A Redis cluster of six: three masters, each with a replica.
pub fn redis_cluster_url() -> Option<String> {
    url("SEMEL_TEST_REDIS_CLUSTER_URL")
}

/// A Valkey server that syncs every write.
pub fn valkey_url() -> Option<String> {
    url("SEMEL_TEST_VALKEY_URL")
}

/// The URL in an environment variable. Without one, skip the test; a message is printed to standard error. Under `cargo
/// xtask test` this panics instead.
fn url(variable: &str) -> Option<String> {
    let url = std::env::var(variable).ok().filter(|url| !url.is_empty());
    if url.is_none() {
        leave_out(&format!("{variable} is not set; `cargo xtask services up --export` prints it"));
    }
    url
}

/// Prints why a test is skipped. Panics under `cargo xtask test`, which allows no skipped tests.
pub fn leave_out(why: &str) {
    let required = std::env::var_os("SEMEL_TEST_TOOLS").is_some_and(|value| value == "required");
    assert!(!required, "{why}");
    // Written directly, because the test harness hides the output of passing tests.
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}
