//! The act in which nobody can prove anything.
//!
//! What lives here: two clients whose connections broke, and the one who looks into the ledger for them. What must never: a
//! verdict that the ledger does not bear out.

use super::Stage;
use super::voice::{Tone, Voice};
use crate::demo::client::{Client, Heard, look};
use crate::demo::payments::Trouble;
use semel::NotDone;
use semel::core::id::OperationId;
use semel::core::machine::Verdict;
use semel::core::outcome::Outcome;
use serde_json::Value;
use std::io::{self, Write};

const WHO: &str = "the demo's bookkeeper";

pub(super) async fn play<W: Write>(
    voice: &mut Voice<'_, W>,
    stage: &Stage,
    fay: &Client,
    gus: &Client,
) -> io::Result<()> {
    voice.act("The service dies in mid-request. Was it charged? Nobody can prove it.").await?;
    let fays = fay.ask(Some(Trouble::HangUp)).await;
    voice.request(fay, "service breaks off without an answer", &fays).await?;
    let guss = gus.ask(Some(Trouble::Crash)).await;
    voice.request(gus, "service breaks off without an answer", &guss).await?;
    voice.say("")?;
    voice.say("One of the two was charged. On the wire they look the same, so Semel will not")?;
    voice.say("guess: it says \"unknown\" and holds the key until somebody has looked.")?;
    voice.say("")?;
    for client in [fay, gus] {
        let heard = client.ask(None).await;
        voice.request(client, "asks again", &heard).await?;
    }
    voice.say("")?;
    voice.say("Somebody looks. The service was sent an Operation-Id; its ledger is asked for it.")?;
    voice.say("")?;
    for (client, heard) in [(fay, &fays), (gus, &guss)] {
        settle(voice, stage, client, heard).await?;
    }
    for client in [fay, gus] {
        let heard = client.ask(None).await;
        voice.request(client, "asks once more", &heard).await?;
    }
    Ok(())
}

/// Looks whether the ledger has the operation, and settles its record accordingly.
async fn settle<W: Write>(
    voice: &mut Voice<'_, W>,
    stage: &Stage,
    client: &Client,
    heard: &Heard,
) -> io::Result<()> {
    let Heard::Answer(answer) = heard else { return Ok(()) };
    let Some(id) = answer.operation_id else { return Ok(()) };
    let (found, settled) = match looked(stage, id).await {
        Ok(found) => found,
        Err(why) => {
            return voice.point(&format!("{:<5} {id}  ", client.customer), &why, Tone::Bad).await;
        }
    };
    voice.point(&format!("{:<5} {id}  {found:<16} ", client.customer), settled, Tone::Strong).await
}

async fn looked(stage: &Stage, id: OperationId) -> Result<(String, &'static str), String> {
    // The store's time before the question: that something is not there says nothing of what comes later.
    let asked_at = stage.engine.look_up(id).await.map_err(told)?.now;
    let shown = look(stage.upstream, &format!("/charges?operation_id={id}")).await;
    let charges: Vec<Value> =
        shown.and_then(|shown| serde_json::from_slice(&shown).ok()).ok_or("the ledger does not answer")?;
    let (verdict, found, settled, why) = match charges.first() {
        Some(receipt) => {
            let charge = receipt["id"].as_str().unwrap_or_default().to_owned();
            let headers =
                [("content-type", "application/json".to_owned()), ("location", format!("/charges/{charge}"))];
            let outcome = Outcome::http(201, headers, format!("{receipt}\n"));
            (Verdict::Applied(Some(outcome)), charge, "settled: it happened", "it is in the ledger")
        }
        None => {
            let verdict = Verdict::NotApplied { asked_at };
            (
                verdict,
                "not there".to_owned(),
                "settled: it did not",
                "it is not in the ledger, and the service is gone",
            )
        }
    };
    stage.engine.resolve(id, verdict, WHO, why).await.map_err(told)?;
    Ok((found, settled))
}

#[expect(clippy::needless_pass_by_value, reason = "it is the end of the error")]
fn told(not_done: NotDone) -> String {
    not_done.to_string()
}
