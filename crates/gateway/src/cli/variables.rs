//! Environment variables of `semel serve`, and the keys of the file that they outrank.

use crate::config::effective::GivenSetting;

/// Variable, table, key, and whether the file has its value in quotation marks.
const VARIABLES: [(&str, &str, &str, bool); 25] = [
    ("SEMEL_UPSTREAM", "upstream", "url", true),
    ("SEMEL_LISTEN", "listen", "address", true),
    ("SEMEL_ADMIN", "admin", "address", true),
    ("SEMEL_PREFIX", "published", "prefix", true),
    ("SEMEL_STORE", "store", "url", true),
    ("SEMEL_REQUIRE_KEY", "defaults", "key", true),
    ("SEMEL_KEY", "defaults", "key", true),
    ("SEMEL_CLASS", "defaults", "class", true),
    ("SEMEL_DEDUP_WINDOW", "defaults", "dedup_window", true),
    ("SEMEL_TTL", "defaults", "ttl", true),
    ("SEMEL_TOMBSTONE", "defaults", "tombstone", true),
    ("SEMEL_LEASE", "defaults", "lease", true),
    ("SEMEL_WAIT", "defaults", "wait", true),
    ("SEMEL_REQUEST_MAX", "defaults", "request_max", true),
    ("SEMEL_KEPT_MAX", "defaults", "kept_max", true),
    ("SEMEL_CONNECTIONS_MAX", "listen", "connections_max", false),
    ("SEMEL_DRAIN", "listen", "drain", true),
    ("SEMEL_TLS_CERT", "listen", "tls_cert", true),
    ("SEMEL_TLS_KEY", "listen", "tls_key", true),
    ("SEMEL_UPSTREAM_CA", "upstream", "ca", true),
    ("SEMEL_CONNECT_TIMEOUT", "upstream", "connect_timeout", true),
    ("SEMEL_RESPONSE_TIMEOUT", "upstream", "response_timeout", true),
    ("SEMEL_FRESH_CONNECTIONS", "upstream", "fresh_connections", false),
    ("SEMEL_LOG", "log", "form", true),
    ("SEMEL_LOG_REQUESTS", "log", "requests", false),
];
/// Variables that have no single key of the same value in the file, and the file itself.
const OTHERS: [(&str, &str, &str, bool); 2] =
    [("SEMEL_LOG_LEVEL", "log", "level", true), ("SEMEL_ANONYMOUS", "identity", "sources", true)];

/// What the environment sets.
pub(super) fn given(environment: &dyn Fn(&str) -> Option<String>) -> Vec<GivenSetting> {
    let set = VARIABLES.iter().chain(&OTHERS).filter_map(|(variable, table, key, is_quoted)| {
        let value = environment(variable).filter(|value| !value.is_empty())?;
        let is_false = ["false", "0", "no", "off", "n", "f"].contains(&value.to_ascii_lowercase().as_str());
        let value = match *variable {
            "SEMEL_REQUIRE_KEY" | "SEMEL_ANONYMOUS" if is_false => return None,
            "SEMEL_REQUIRE_KEY" => "\"required\"".to_owned(),
            "SEMEL_ANONYMOUS" => "[\"anonymous\"]".to_owned(),
            "SEMEL_FRESH_CONNECTIONS" | "SEMEL_LOG_REQUESTS" => (!is_false).to_string(),
            _ if *is_quoted => format!("\"{}\"", value.escape_debug()),
            _ => value,
        };
        Some((*table, *key, value, *variable))
    });
    set.collect()
}

/// Every variable.
#[cfg(test)]
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    VARIABLES.iter().chain(&OTHERS).map(|(name, ..)| *name)
}
