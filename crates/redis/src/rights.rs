//! Checks that the store's user has all rights, and that the servers can confirm writes as the URL asks,
//! before anything is written.

use crate::address::Address;
use crate::fault::unexpected;
use crate::layout::Layout;
use crate::resp::{self, Value, text};
use crate::scripts;
use crate::servers::{Effect, Servers};
use semel_core::store::{Error, Kind};
use std::sync::Arc;
use std::time::Duration;

const TRYING: &str = "trying out what the store's user may do on Redis";
const CONFIRMING: &str = "trying out how Redis confirms writes";
/// How long replicas may take to confirm what they have.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Runs every command of the scripts on separate keys. Otherwise, a missing right could interrupt a write.
pub(crate) async fn check(layout: &Layout, servers: &Servers) -> Result<(), Error> {
    let (slot, key) = layout.of_store("probe");
    let keys: Vec<Vec<u8>> =
        ["1", "2", "3"].iter().map(|number| [&key[..], number.as_bytes()].concat()).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    // It leaves nothing behind, whatever its answer.
    let asked = servers.run(slot, &scripts::PROBE, Effect::Reads, &keys, &[]).await;
    let answer = asked.map_err(|fault| fault.error(TRYING))?;
    match answer.array() {
        [status] if status.text() == Some("may") => Ok(()),
        [status, lacking @ ..] if status.text() == Some("lacks") => {
            let lacking: Vec<_> =
                lacking.iter().map(|command| format!("+{}", text(command).to_lowercase())).collect();
            let cause = format!(
                "the store's user lacks the rights {}; nothing was written. Add them to its ACL: the guide has the whole list",
                lacking.join(" ")
            );
            Err(Error::new(Kind::Unfit, TRYING).because(cause))
        }
        _ => Err(unexpected(&answer)),
    }
}

/// Whether every server can confirm writes as the URL asks.
pub(crate) async fn check_confirmation(address: &Address) -> Result<(), Error> {
    let confirmation = address.confirmation;
    if !confirmation.is_wanted() {
        return Ok(());
    }
    // On connections that do not confirm writes themselves.
    let plain = Arc::new(address.clone().unconfirmed());
    let servers = Servers::connect(&plain, false, None).await?;
    let timeout_ms = (address.answer_timeout / 2).min(WAIT_MAX).as_millis().to_string();
    for link in servers.all() {
        let connection = link.connection().await?;
        let ask = async |arguments: &[&[u8]]| {
            let lost = |failure| Error::new(Kind::Unavailable, CONFIRMING).because(failure);
            connection.ask(resp::command(arguments), 0).await.map_err(lost)
        };
        if confirmation.synced {
            let answer = ask(&[b"WAITAOF", b"1", b"0", timeout_ms.as_bytes()]).await?;
            no_error("waitaof=on", &answer, &connection.greeting.version)?;
        }
        if confirmation.replicas > 0 {
            let replicas = confirmation.replicas.to_string();
            let answer = ask(&[b"WAIT", replicas.as_bytes(), timeout_ms.as_bytes()]).await?;
            no_error("wait", &answer, &connection.greeting.version)?;
            let have = answer.number().unwrap_or(0);
            if have < i64::from(confirmation.replicas) {
                let cause = format!(
                    "the store's URL says wait={replicas}, and {have} replicas follow the server that takes writes: no write could be \
                     confirmed. Start the replicas, or lower wait"
                );
                return Err(Error::new(Kind::Unavailable, CONFIRMING).because(cause));
            }
        }
    }
    servers.close().await;
    Ok(())
}

fn no_error(parameter: &str, answer: &Value, version: &str) -> Result<(), Error> {
    let Value::Error(text) = answer else { return Ok(()) };
    let cause = if text.contains("unknown command") {
        format!(
            "the store's URL says {parameter}, and the server (version {version}) does not have that command. Use Redis 7.2 or later or \
             Valkey, or remove it and set appendfsync to always"
        )
    } else {
        format!("the store's URL says {parameter}, and the server answered `{text}`")
    };
    Err(Error::new(Kind::Unfit, CONFIRMING).because(cause))
}
