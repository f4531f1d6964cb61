//! What to do about a store that cannot be examined, by where the store is: in a file, in the tables of a server, or in the
//! keys of one.

use crate::stores::Url;
use semel::core::store::{Error, Kind};

/// There is no store where the URL says.
pub(super) fn missing(url: &Url) -> &'static str {
    if !url.files().is_empty() {
        "check the path and the working directory; `semel serve` and `semel schema apply` create it"
    } else if url.backend().schema_steps().is_empty() {
        "check the host, the database and the `prefix` in the URL; `semel serve` creates the store when it starts. If gateways used \
         this store before, the server was emptied: restore the data. A gateway that starts now creates a new store, and every \
         command can run again"
    } else {
        "check the host, the database and the `schema` in the URL; `semel serve` and `semel schema apply` create the tables. If \
         gateways used this store before, the server was emptied: restore the data. A gateway that starts now creates a new store, \
         and every command can run again"
    }
}

/// The URL names something on this machine that is not what it should be.
pub(super) fn named_wrongly(url: &Url) -> &'static str {
    if url.files().is_empty() {
        "set what the URL names, or name something else in it"
    } else {
        "check the path: name the file that the gateway uses"
    }
}

/// The store was not opened.
pub(super) fn unopened(url: &Url, error: &Error) -> &'static str {
    let is_file = !url.files().is_empty();
    match error.kind() {
        Kind::ReadOnly if is_file => "run this as the user that the gateway runs as",
        Kind::ReadOnly => "name the user and password in the URL that the gateway uses",
        Kind::Unfit if is_file => restored(url),
        Kind::Unfit => {
            "follow the message; if the data is damaged, stop the gateways and restore the store from a \
                backup of its server"
        }
        Kind::DataLost => ACCEPT_LOSS,
        _ if is_file => "try again; another process may have locked the file",
        _ => UNREACHABLE,
    }
}

/// The store stopped answering.
pub(super) fn unanswered(url: &Url) -> String {
    if url.files().is_empty() {
        return format!("{UNREACHABLE}; if this remains, {}", restored(url));
    }
    "try again; if this remains, stop the gateways and restore the file from a backup".to_owned()
}

/// How to repair damage.
pub(super) fn restored(url: &Url) -> &'static str {
    if url.files().is_empty() {
        "stop the gateways, and restore the store from a backup of its server"
    } else {
        "stop the gateways, and restore the file together with its -wal from a backup"
    }
}

/// What is lost cannot be told from what never was.
const ACCEPT_LOSS: &str = "restore the data, or accept the loss with semel doctor --accept-loss --reason \"…\": then the lost \
    commands can run again. If this is a former master, bring back the server with the newest data. If nothing of the store, or \
    of the newest data, is left, restart every gateway instead, with the same consequence";

/// How to protect stored responses that are not sealed, and for how long.
pub(super) fn unsealed(url: &Url) -> &'static str {
    if !url.files().is_empty() {
        "protect the file from readers. Each is removed after its ttl by the sweeper, but SQLite's free pages and log may contain its \
         bytes for longer"
    } else if url.backend().schema_steps().is_empty() {
        "protect the server from readers. Each is removed after its ttl by the sweeper, but the server's snapshots, append-only log \
         and replicas may contain its bytes for longer"
    } else {
        "protect the tables from readers. Each is removed after its ttl by the sweeper, but dead rows, the write-ahead log, standbys \
         and backups may contain its bytes for longer"
    }
}

const UNREACHABLE: &str = "check that the server runs and can be reached from here, and that host, port, user and password in \
                           the URL are right; then try again";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_about_the_kind_of_store() {
        let url = |text: &str| text.parse::<Url>().expect("a store");
        let gone = Error::new(Kind::Unavailable, "connecting");
        let file = url("sqlite:semel.db");
        assert!(missing(&file).contains("path") && unopened(&file, &gone).contains("locked"));
        for server in ["postgres://semel@h/d", "redis://h"] {
            let server = url(server);
            for text in [missing(&server), unopened(&server, &gone), &unanswered(&server)] {
                assert!(text.contains("URL") && !text.contains("path") && !text.contains("file"), "{text}");
            }
        }
        assert!(missing(&url("postgres://semel@h/d")).contains("semel schema apply"));
        assert!(!missing(&url("redis://h")).contains("schema"), "it has no tables");
        for server in ["postgres://semel@h/d", "redis://h"] {
            assert!(missing(&url(server)).contains("the server was emptied: restore the data"), "{server}");
        }
        let lost = unopened(&url("redis://h"), &Error::new(Kind::DataLost, "reading"));
        assert!(lost.contains("--accept-loss --reason") && lost.contains("restart every gateway"), "{lost}");
    }
}
