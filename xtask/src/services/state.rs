//! The state of a server, as a table and as JSON. Passwords are not shown.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::server::Server;

/// The version, or why it is not known.
type Version = Result<String, String>;

/// A server as the tests would find it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The private instance does not run.
    Stopped,
    /// The private instance runs.
    Running { url: String, pid: u32, version: Version },
    /// The environment variable names another server, which is used instead and never started or stopped.
    External { url: String, version: Version },
}

impl State {
    fn word(&self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Running { .. } => "running",
            Self::External { .. } => "external",
        }
    }

    fn url(&self) -> Option<String> {
        match self {
            Self::Stopped => None,
            Self::Running { url, .. } | Self::External { url, .. } => Some(hide_password(url)),
        }
    }

    fn pid(&self) -> Option<u32> {
        if let Self::Running { pid, .. } = self { Some(*pid) } else { None }
    }

    fn version(&self) -> Option<&Version> {
        match self {
            Self::Stopped => None,
            Self::Running { version, .. } | Self::External { version, .. } => Some(version),
        }
    }
}

/// One line per server, and another one if it needs an explanation.
pub(super) fn table(states: &[(&dyn Server, State)]) -> String {
    let mut text = line("name", "state", "version", "pid", "url");
    for (server, state) in states {
        let version = state.version().map_or("-", |version| version.as_deref().unwrap_or("?"));
        let pid = state.pid().map_or_else(|| "-".to_owned(), |pid| pid.to_string());
        text += &line(server.name(), state.word(), version, &pid, state.url().as_deref().unwrap_or("-"));
    }
    for (server, state) in states {
        if let State::External { .. } = state {
            let _ = writeln!(text, "{}: {}", server.name(), explain_external(*server));
        }
        if let Some(Err(reason)) = state.version() {
            let _ = writeln!(text, "{} does not answer: {reason}", server.name());
        }
    }
    text
}

fn line(name: &str, state: &str, version: &str, pid: &str, url: &str) -> String {
    format!("{name:<17} {state:<9} {version:<9} {pid:<8} {url}\n")
}

/// As JSON: a list of objects, with null for values that do not apply.
pub(super) fn to_json(states: &[(&dyn Server, State)]) -> Value {
    let object = |(server, state): &(&dyn Server, State)| {
        json!({
            "name": server.name(),
            "variable": server.variable(),
            "state": state.word(),
            "url": state.url(),
            "version": state.version().and_then(|version| version.as_ref().ok()),
            "error": state.version().and_then(|version| version.as_ref().err()),
            "pid": state.pid(),
        })
    };
    states.iter().map(object).collect()
}

/// Why there is no private instance.
pub(super) fn explain_external(server: &dyn Server) -> String {
    let variable = server.variable();
    format!("{variable} names the server, which is never started or stopped here; unset it for a private one")
}

/// The URL with a masked password.
pub(super) fn hide_password(url: &str) -> String {
    let (head, query) = url.split_once('?').map_or((url, None), |(head, query)| (head, Some(query)));
    let mut shown = head.to_owned();
    if let Some((scheme, rest)) = head.split_once("://")
        && let Some((user, host)) = rest.rsplit_once('@')
        && let Some((user, _)) = user.split_once(':')
    {
        shown = format!("{scheme}://{user}:***@{host}");
    }
    let Some(query) = query else { return shown };
    let hide =
        |part: &str| if part.starts_with("password=") { "password=***".to_owned() } else { part.to_owned() };
    format!("{shown}?{}", query.split('&').map(hide).collect::<Vec<_>>().join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::SERVERS;

    #[test]
    fn a_password_is_never_shown() {
        for (url, shown) in [
            ("postgres://semel@127.0.0.1:5/semel", "postgres://semel@127.0.0.1:5/semel"),
            ("postgres://a:s@:secret@db/x", "postgres://a:***@db/x"),
            (
                "postgres://db/x?user=a&password=secret&sslmode=require",
                "postgres://db/x?user=a&password=***&sslmode=require",
            ),
        ] {
            assert_eq!(hide_password(url), shown);
            let state = State::External { url: url.to_owned(), version: Ok("15.18".to_owned()) };
            let states = [(SERVERS[0], state)];
            assert!(!table(&states).contains("secret"), "{}", table(&states));
            assert_eq!(to_json(&states)[0]["url"], shown);
        }
    }

    #[test]
    fn an_external_server_is_marked_as_such() {
        let state = State::External { url: "postgres://db/x".to_owned(), version: Err("refused".to_owned()) };
        let states = [(SERVERS[0], state), (SERVERS[0], State::Stopped)];
        let table = table(&states);
        assert!(table.contains("external") && table.contains("SEMEL_TEST_POSTGRES_URL names"), "{table}");
        assert!(table.contains("does not answer: refused") && table.contains("stopped"), "{table}");
        let json = to_json(&states);
        assert_eq!((&json[0]["state"], &json[0]["error"]), (&json!("external"), &json!("refused")));
        assert_eq!((&json[1]["state"], &json[1]["pid"]), (&json!("stopped"), &Value::Null));
    }
}
