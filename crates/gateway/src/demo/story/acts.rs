//! The acts through the gateway, but for the last.
//!
//! What lives here: what each client does, and the sentence that goes with it. What must never: what came of it; that is
//! read off the answer.

use super::cast::{ADA, BEN, CAST, CLEO, DAN, EVE, FAY, GUS, HAL};
use super::voice::Voice;
use super::without::{self, DELIVERIES};
use super::{Stage, doubt};
use crate::demo::client::{Client, Heard};
use crate::demo::payments::Trouble;
use std::io::{self, Write};

pub(super) async fn play<W: Write>(
    voice: &mut Voice<'_, W>,
    stage: &Stage,
    clients: &[Client; CAST.len()],
) -> io::Result<()> {
    lost_answers(voice, stage, &clients[ADA], &clients[CLEO]).await?;
    repeats(voice, &clients[BEN], &clients[DAN]).await?;
    other_amount(voice, &clients[EVE]).await?;
    not_now(voice, &clients[HAL]).await?;
    doubt::play(voice, stage, &clients[FAY], &clients[GUS]).await
}

async fn lost_answers<W: Write>(
    voice: &mut Voice<'_, W>,
    stage: &Stage,
    ada: &Client,
    cleo: &Client,
) -> io::Result<()> {
    voice.act("The answer is lost. Whoever asks again is given that very answer.").await?;
    voice.columns()?;
    let heard = without::gives_up(ada, &stage.ledger).await;
    voice.request(ada, "gives up waiting, hangs up", &heard).await?;
    let heard = ada.ask(None).await;
    voice.request(ada, "asks again, same key", &heard).await?;
    let restarted = without::crashes(cleo, &stage.ledger).await?;
    voice.request(cleo, "writes the key down, asks, crashes", &Heard::Nothing).await?;
    let heard = restarted.ask(None).await;
    voice.request(&restarted, "restarts, reads it back, asks again", &heard).await
}

async fn repeats<W: Write>(voice: &mut Voice<'_, W>, ben: &Client, dan: &Client) -> io::Result<()> {
    voice.act("Asked three times, at once or in a row. It runs once.").await?;
    for (index, heard) in without::clicks(ben).await.iter().enumerate() {
        let what =
            if index == 0 { "three clicks at once: one gets in" } else { "  another waits for its answer" };
        voice.request(ben, what, heard).await?;
    }
    for delivery in 1..=DELIVERIES {
        let what = match delivery {
            1 => "a queue delivers it, ack is lost",
            DELIVERIES => "redelivered, acknowledged",
            _ => "redelivered, ack is lost again",
        };
        let heard = dan.ask(None).await;
        voice.request(dan, what, &heard).await?;
    }
    Ok(())
}

async fn other_amount<W: Write>(voice: &mut Voice<'_, W>, eve: &Client) -> io::Result<()> {
    voice.act("The same key for another amount is no retry. It is a bug, and is refused.").await?;
    let heard = eve.ask(None).await;
    voice.request(eve, "asks", &heard).await?;
    let amount = without::too_much(eve);
    let heard = eve.ask_for(amount, None).await;
    voice.request_for(eve, amount, "\"retries\", decimal point slipped", &heard).await
}

async fn not_now<W: Write>(voice: &mut Voice<'_, W>, hal: &Client) -> io::Result<()> {
    voice.act("\"Busy, come back\" is taken at its word: nothing happened, so the key may run.").await?;
    let heard = hal.ask(Some(Trouble::Busy)).await;
    voice.request(hal, "is told: busy, Retry-After: 1", &heard).await?;
    let heard = hal.ask(None).await;
    voice.request(hal, "comes back", &heard).await
}
