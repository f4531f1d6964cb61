//! The act in which nobody can prove anything.
//!
//! What lives here: two clients whose connections broke, and the one who looks into the ledger for them. What must never: a
//! verdict that the ledger does not bear out.

use super::Stage;
use super::voice::{Tone, Voice};
use crate::demo::client::{Answer, Client, Heard, look};
use crate::demo::payments::Trouble;
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
    voice.request(fay, "the service breaks off, no answer", &fays).await?;
    let guss = gus.ask(Some(Trouble::Crash)).await;
    voice.request(gus, "the service breaks off, no answer", &guss).await?;
    voice.say("")?;
    let ledger = stage.ledger.charges();
    let charged = [fay, gus].map(|client| ledger.iter().any(|charge| charge.customer == client.customer));
    voice.say(match charged {
        [false, false] => "Neither was charged, but nobody on the wire can tell. Semel does not",
        [true, true] => "Both were charged, but nobody on the wire can tell. Semel does not",
        _ => "One of them was charged, but on the wire both look the same. Semel does not",
    })?;
    voice.say("guess: it says \"unknown\", and holds the key until somebody has looked.")?;
    voice.say("")?;
    for client in [fay, gus] {
        let heard = client.ask(None).await;
        voice.request(client, "asks again", &heard).await?;
    }
    voice.say("")?;
    voice.say("So somebody looks: is the Operation-Id that Semel sent along in the ledger?")?;
    voice.say("")?;
    for (client, heard) in [(fay, &fays), (gus, &guss)] {
        settle(voice, stage, client, heard).await?;
    }
    voice.say("")?;
    for client in [fay, gus] {
        let heard = client.ask(None).await;
        voice.request(client, "asks once more", &heard).await?;
    }
    Ok(())
}

/// Settles what `heard` left open, by what the ledger says.
async fn settle<W: Write>(
    voice: &mut Voice<'_, W>,
    stage: &Stage,
    client: &Client,
    heard: &Heard,
) -> io::Result<()> {
    let Heard::Answer(Answer { operation_id: Some(id), .. }) = heard else { return Ok(()) };
    let (found, verdict, tone) = match looked(stage, *id).await {
        Ok(Some(charge)) => (charge, "it happened".to_owned(), Tone::Strong),
        Ok(None) => ("not there".to_owned(), "it did not happen".to_owned(), Tone::Strong),
        Err(why) => ("?".to_owned(), why, Tone::Bad),
    };
    voice.point(&format!("{:<4} {id}  {found:<9}  ", client.customer), &verdict, tone).await
}

/// Asks the ledger for an operation and settles its record accordingly. Gives the charge, if there is one.
async fn looked(stage: &Stage, id: OperationId) -> Result<Option<String>, String> {
    // The store's time before the question: that something is not there says nothing of what comes later.
    let looked = stage.engine.look_up(id).await.map_err(|error| error.to_string())?;
    let shown = look(stage.upstream, &format!("/charges?operation_id={id}")).await;
    let charges: Vec<Value> =
        shown.and_then(|shown| serde_json::from_slice(&shown).ok()).ok_or("the ledger does not answer")?;
    let charge = charges.first().map(|receipt| receipt["id"].as_str().unwrap_or_default().to_owned());
    let (verdict, why) = match (charges.first(), &charge) {
        (Some(receipt), Some(charge)) => {
            (Verdict::Applied(Some(answer(receipt, charge))), "the ledger has it")
        }
        _ => (
            Verdict::NotApplied { asked_at: looked.now.at },
            "the service broke off; its ledger does not have it",
        ),
    };
    stage.engine.resolve(id, verdict, WHO, why).await.map_err(|error| error.to_string())?;
    Ok(charge)
}

/// The answer that the service would have given.
fn answer(receipt: &Value, charge: &str) -> Outcome {
    let headers =
        [("content-type", "application/json".to_owned()), ("location", format!("/charges/{charge}"))];
    Outcome::http(201, headers, format!("{receipt}\n"))
}
