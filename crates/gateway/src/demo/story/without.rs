//! The act without Semel.
//!
//! The clients send the same requests as through the gateway; otherwise the comparison would not be fair.

use super::cast::{ADA, BEN, CAST, CLEO, DAN, EVE, FAY, GUS, HAL};
use super::notebook::Notebook;
use super::voice::{StoryWriter, Tone};
use crate::demo::client::{Client, Reply};
use crate::demo::payments::{Ledger, Trouble};
use futures_util::future::join_all;
use std::io::{self, Write};

pub(super) async fn play<W: Write>(
    voice: &mut StoryWriter<'_, W>,
    ledger: &Ledger,
    clients: &[Client; CAST.len()],
) -> io::Result<()> {
    voice.act("Without Semel: a retry after a lost response charges twice.").await?;
    for (index, (client, part)) in clients.iter().zip(&CAST).enumerate() {
        play_mishap(index, client, ledger).await?;
        let charged = ledger.charges().iter().filter(|charge| charge.customer == client.customer).count();
        let line = format!("{:<4} {:<47} {} sent  ", client.customer, part.mishap, client.sent());
        let tone = if charged == 1 { Tone::Good } else { Tone::Bad };
        let plural = if charged == 1 { "" } else { "s" };
        voice.point(&line, &format!("{charged} charge{plural}"), tone).await?;
    }
    voice.say("")?;
    voice.say("Now the same eight customers pay through Semel, each with one key.")?;
    voice.say("\"ran\": sent to the service. \"replayed\": answered with the stored response.")
}

/// What goes wrong for each customer, with and without Semel.
async fn play_mishap(index: usize, client: &Client, ledger: &Ledger) -> io::Result<()> {
    match index {
        ADA => {
            gives_up(client, ledger).await;
            client.ask(None).await;
        }
        BEN => drop(clicks(client).await),
        CLEO => drop(crashes(client, ledger).await?.ask(None).await),
        DAN => {
            for _ in 0..DELIVERIES {
                client.ask(None).await;
            }
        }
        EVE => {
            client.ask(None).await;
            client.ask_for(too_much(client), None).await;
        }
        FAY => {
            client.ask(Some(Trouble::HangUp)).await;
            client.ask(None).await;
        }
        GUS => {
            client.ask(Some(Trouble::Crash)).await;
            client.ask(None).await;
        }
        HAL => {
            client.ask(Some(Trouble::Busy)).await;
            client.ask(None).await;
        }
        _ => {}
    }
    Ok(())
}

/// How often a queue delivers a message whose acknowledgement is lost.
pub(super) const DELIVERIES: usize = 3;

/// The amount after the decimal point has slipped.
pub(super) fn too_much(client: &Client) -> u64 {
    client.amount * 10
}

/// The charge is made, but the response is slow and the client leaves before it arrives.
pub(super) async fn gives_up(client: &Client, ledger: &Ledger) -> Reply {
    let charged = ledger.until_charged(client.customer, 1);
    client.ask_and_leave(Some(Trouble::Slow), charged).await
}

/// Three clicks at once, while the response is slow. The one that ran comes first; any of the three may have run.
pub(super) async fn clicks(client: &Client) -> Vec<Reply> {
    let mut replies = join_all((0..3).map(|_| client.ask(Some(Trouble::Slow)))).await;
    replies.sort_by_key(|reply| matches!(reply, Reply::Answer(answer) if answer.is_replay));
    replies
}

/// Stores its key, sends the request, and crashes before the response. Returns the restarted client.
pub(super) async fn crashes(client: &Client, ledger: &Ledger) -> io::Result<Client> {
    let notebook = Notebook::with(&client.key)?;
    let charged = ledger.until_charged(client.customer, 1);
    client.ask_and_leave(None, charged).await;
    Ok(client.restarted(notebook.read()?))
}
