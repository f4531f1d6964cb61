//! The act in which nobody can prove what happened: two connections break, and somebody looks into the ledger.

use super::Stage;
use super::voice::{StoryWriter, Tone};
use crate::demo::client::{Answer, Client, Reply, fetch};
use crate::demo::payments::Trouble;
use semel::OperatorError;
use semel::core::id::OperationId;
use semel::core::machine::Verdict;
use semel::core::outcome::Outcome;
use serde_json::Value;
use std::io::{self, Write};
use thiserror::Error;

const WHO: &str = "the demo's bookkeeper";

pub(super) async fn play<W: Write>(
    voice: &mut StoryWriter<'_, W>,
    stage: &Stage,
    fay: &Client,
    gus: &Client,
) -> io::Result<()> {
    voice.act("The service crashes during the request. Did it charge? Nobody can prove it.").await?;
    let fays = fay.ask(Some(Trouble::HangUp)).await;
    voice.request(fay, "the connection breaks, no response", &fays).await?;
    let guss = gus.ask(Some(Trouble::Crash)).await;
    voice.request(gus, "the connection breaks, no response", &guss).await?;
    voice.say("")?;
    let ledger = stage.ledger.charges();
    let charged = [fay, gus].map(|client| ledger.iter().any(|charge| charge.customer == client.customer));
    voice.say(match charged {
        [false, false] => "Neither was charged, but a client cannot know that. Semel does not guess:",
        [true, true] => "Both were charged, but a client cannot know that. Semel does not guess:",
        _ => "One of them was charged, but to a client both look the same. No guessing:",
    })?;
    voice.say("Semel answers \"unknown\" and holds the key until somebody has checked.")?;
    voice.say("")?;
    for client in [fay, gus] {
        let reply = client.ask(None).await;
        voice.request(client, "retries", &reply).await?;
    }
    voice.say("")?;
    voice.say("Somebody checks: does the ledger have the Operation-Id that Semel sent?")?;
    voice.say("")?;
    for (client, reply) in [(fay, &fays), (gus, &guss)] {
        settle(voice, stage, client, reply).await?;
    }
    voice.say("")?;
    for client in [fay, gus] {
        let reply = client.ask(None).await;
        voice.request(client, "retries", &reply).await?;
    }
    Ok(())
}

/// Resolves the operation behind `reply` by what the ledger says.
async fn settle<W: Write>(
    voice: &mut StoryWriter<'_, W>,
    stage: &Stage,
    client: &Client,
    reply: &Reply,
) -> io::Result<()> {
    let Reply::Answer(Answer { operation_id: Some(id), .. }) = reply else { return Ok(()) };
    let (found, verdict, tone) = match check_ledger(stage, *id).await {
        Ok(Some(charge)) => (charge, "it happened".to_owned(), Tone::Strong),
        Ok(None) => ("not found".to_owned(), "it did not happen".to_owned(), Tone::Strong),
        Err(why) => ("?".to_owned(), why.to_string(), Tone::Bad),
    };
    voice.point(&format!("{:<4} {id}  {found:<9}  ", client.customer), &verdict, tone).await
}

/// Why the bookkeeper settles nothing.
#[derive(Debug, Error)]
enum CheckError {
    #[error(transparent)]
    Record(#[from] OperatorError),
    #[error("the ledger did not answer")]
    Ledger,
}

/// Looks an operation up in the ledger and resolves its record. Returns the charge, if there is one.
async fn check_ledger(stage: &Stage, id: OperationId) -> Result<Option<String>, CheckError> {
    // The store's time before the question: an absent charge proves nothing about later moments.
    let found_record = stage.engine.look_up(id).await?;
    let shown = fetch(stage.upstream, &format!("/charges?operation_id={id}")).await;
    let charges: Vec<Value> =
        shown.and_then(|shown| serde_json::from_slice(&shown).ok()).ok_or(CheckError::Ledger)?;
    let charge = charges.first().map(|receipt| receipt["id"].as_str().unwrap_or_default().to_owned());
    let (verdict, why) = match (charges.first(), &charge) {
        (Some(receipt), Some(charge)) => {
            (Verdict::Applied(Some(answer(receipt, charge))), "the charge is in the ledger")
        }
        _ => (
            Verdict::NotApplied { asked_at: found_record.now.at },
            "the connection broke; the charge is not in the ledger",
        ),
    };
    stage.engine.resolve(id, verdict, WHO, why).await?;
    Ok(charge)
}

/// The response that the service would have sent.
fn answer(receipt: &Value, charge: &str) -> Outcome {
    let headers =
        [("content-type", "application/json".to_owned()), ("location", format!("/charges/{charge}"))];
    Outcome::http(201, headers, format!("{receipt}\n"))
}
