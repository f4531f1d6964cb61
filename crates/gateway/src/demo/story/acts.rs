//! The acts through the gateway, except the last.
//!
//! The texts say what each client does. What came of it is read from the response.

use super::cast::{ADA, BEN, CAST, CLEO, DAN, EVE, FAY, GUS, HAL};
use super::voice::StoryWriter;
use super::without::{self, DELIVERIES};
use super::{Stage, doubt};
use crate::demo::client::{Client, Reply};
use crate::demo::payments::Trouble;
use std::io::{self, Write};

pub(super) async fn play<W: Write>(
    voice: &mut StoryWriter<'_, W>,
    stage: &Stage,
    clients: &[Client; CAST.len()],
) -> io::Result<()> {
    lost_answers(voice, stage, &clients[ADA], &clients[CLEO]).await?;
    repeats(voice, &clients[BEN], &clients[DAN]).await?;
    other_amount(voice, &clients[EVE]).await?;
    busy(voice, &clients[HAL]).await?;
    doubt::play(voice, stage, &clients[FAY], &clients[GUS]).await
}

async fn lost_answers<W: Write>(
    voice: &mut StoryWriter<'_, W>,
    stage: &Stage,
    ada: &Client,
    cleo: &Client,
) -> io::Result<()> {
    voice.act("The response is lost. A retry gets exactly that response.").await?;
    voice.columns()?;
    let reply = without::gives_up(ada, &stage.ledger).await;
    voice.request(ada, "times out and disconnects", &reply).await?;
    let reply = ada.ask(None).await;
    voice.request(ada, "retries with the same key", &reply).await?;
    let restarted = without::crashes(cleo, &stage.ledger).await?;
    voice.request(cleo, "stores the key, sends, crashes", &Reply::Nothing).await?;
    let reply = restarted.ask(None).await;
    voice.request(&restarted, "restarts, reads the key, retries", &reply).await
}

async fn repeats<W: Write>(voice: &mut StoryWriter<'_, W>, ben: &Client, dan: &Client) -> io::Result<()> {
    voice.act("Three requests, at once or one after the other. One runs.").await?;
    for (index, reply) in without::clicks(ben).await.iter().enumerate() {
        let action =
            if index == 0 { "three clicks at once: one runs" } else { "  another waits for its response" };
        voice.request(ben, action, reply).await?;
    }
    for delivery in 1..=DELIVERIES {
        let action = match delivery {
            1 => "a queue delivers it, ack is lost",
            DELIVERIES => "redelivered, acknowledged",
            _ => "redelivered, ack is lost again",
        };
        let reply = dan.ask(None).await;
        voice.request(dan, action, &reply).await?;
    }
    Ok(())
}

async fn other_amount<W: Write>(voice: &mut StoryWriter<'_, W>, eve: &Client) -> io::Result<()> {
    voice.act("The same key for another amount is a bug, not a retry. It is refused.").await?;
    let reply = eve.ask(None).await;
    voice.request(eve, "pays", &reply).await?;
    let amount = without::too_much(eve);
    let reply = eve.ask_for(amount, None).await;
    voice.request_for(eve, amount, "\"retries\", decimal point slipped", &reply).await
}

async fn busy<W: Write>(voice: &mut StoryWriter<'_, W>, hal: &Client) -> io::Result<()> {
    voice.act("503 with Retry-After means that nothing happened. The retry runs.").await?;
    let reply = hal.ask(Some(Trouble::Busy)).await;
    voice.request(hal, "gets 503, Retry-After: 1", &reply).await?;
    let reply = hal.ask(None).await;
    voice.request(hal, "retries", &reply).await
}
