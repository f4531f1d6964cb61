//! Keeps a node from writing to one of two rival servers, or to a server with older data than it has seen.
//!
//! The store has a number, its epoch. A node that changes to another server, or to a restarted one,
//! increments it there. A server with a lower epoch than this node knows lacks acknowledged writes: it is a
//! former master that returned, or it has lost its data.

use crate::address::Host;
use crate::connection::{Connection, Failure};
use crate::fault::ServerRefusal;
use crate::resp::{Value, text};
use crate::scripts;
use crate::server_info::{self, Rivals};
use semel_core::store::{Error, Kind};
use std::sync::{Mutex, MutexGuard, PoisonError};

const CHANGING: &str = "changing to another Redis server";

pub(crate) struct Fence {
    /// The key of the epoch.
    meta: Vec<u8>,
    known: tokio::sync::Mutex<KnownServer>,
    /// The problem while two servers take writes.
    rivals: Mutex<Option<Rivals>>,
}

/// The server that this node uses.
#[derive(Default)]
struct KnownServer {
    run_id: Option<String>,
    epoch: u64,
}

impl Fence {
    pub(crate) fn new(meta: Vec<u8>) -> Self {
        Self { meta, known: tokio::sync::Mutex::default(), rivals: Mutex::default() }
    }

    /// The epoch when the store was opened.
    pub(crate) async fn opened(&self, epoch: u64) {
        let mut known = self.known.lock().await;
        known.epoch = known.epoch.max(epoch);
    }

    /// Refuses a server that lacks writes that this node has seen. A server that does not identify itself
    /// (`INFO` is forbidden) cannot be checked.
    pub(crate) async fn admit(&self, host: &Host, connection: &Connection) -> Result<(), Error> {
        let lost =
            |failure: Failure| Error::new(Kind::Unavailable, CHANGING).because(format!("{host}: {failure}"));
        let Some(run_id) = server_info::run_id(connection).await.map_err(lost)? else { return Ok(()) };
        let mut known = self.known.lock().await;
        let is_first = known.run_id.is_none();
        if !is_first && known.run_id.as_ref() != Some(&run_id) {
            let epoch = known.epoch.to_string();
            let question = scripts::EPOCH.question(&[&self.meta], &[epoch.as_bytes()], false);
            let answer = connection.ask(question, 0).await.map_err(lost)?;
            known.epoch = next_epoch(host, known.epoch, &answer)?;
        }
        known.run_id = Some(run_id);
        Ok(())
    }

    fn rivals(&self) -> MutexGuard<'_, Option<Rivals>> {
        self.rivals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records whether two servers take writes.
    pub(crate) fn set_rivals(&self, found: Option<Rivals>) {
        let mut rivals = self.rivals();
        match (&*rivals, &found) {
            (None, Some(cause)) => tracing::error!(%cause, "nothing is written to the Redis store"),
            (Some(_), None) => tracing::warn!("one server takes writes again, and the Redis store continues"),
            _ => {}
        }
        *rivals = found;
    }

    /// Why writes are refused now.
    pub(crate) fn objection(&self) -> Option<Rivals> {
        self.rivals().clone()
    }
}

fn next_epoch(host: &Host, known: u64, answer: &Value) -> Result<u64, Error> {
    let refused = |cause: String| Error::new(Kind::Unavailable, CHANGING).because(format!("{host} {cause}"));
    if let Value::Error(text) = answer {
        return Err(ServerRefusal::of(text, false).fault().error(CHANGING));
    }
    let [status, epoch] = answer.array() else {
        return Err(refused("gave no answer that makes sense".to_owned()));
    };
    let epoch = text(epoch).parse::<u64>().ok().filter(|_| status.text() == Some("found"));
    let epoch = epoch.ok_or_else(|| refused("holds something else under the store's own key".to_owned()))?;
    if epoch >= known {
        return Ok(epoch);
    }
    let cause = format!(
        "{host} lacks writes that were acknowledged: the store's epoch is {epoch} there, and {known} was seen. It is a former master that \
         returned, or it lost its data; commands that it does not know would run again. Bring back the server with the newest data. Where \
         this one is meant to go on as it is, restart every gateway"
    );
    Err(Error::new(Kind::DataLost, CHANGING).because(cause))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn answered(epoch: &'static str) -> Value {
        Value::Array(vec![
            Value::Bytes(Bytes::from_static(b"found")),
            Value::Bytes(Bytes::from_static(epoch.as_bytes())),
        ])
    }

    #[test]
    fn an_epoch_never_goes_back() {
        let host = Host { name: "h".to_owned(), port: 1 };
        assert_eq!(next_epoch(&host, 4, &answered("5")).ok(), Some(5));
        assert_eq!(next_epoch(&host, 4, &answered("4")).ok(), Some(4));
        for epoch in ["3", "0"] {
            let refused = next_epoch(&host, 4, &answered(epoch)).expect_err("older");
            assert_eq!(
                refused.kind(),
                Kind::DataLost,
                "acknowledged records are gone, for all that is known"
            );
            assert!(refused.to_string().contains("h:1 lacks writes"), "{refused}");
        }
        assert!(next_epoch(&host, 4, &Value::Nil).is_err() && next_epoch(&host, 4, &answered("x")).is_err());
    }
}
