//! The story: eight customers, each of whom wants to pay once.
//!
//! What lives here: who appears, in which order, and how it is told. What must never: an outcome written in advance. The
//! acts say what the clients *do*; what came of it is read off the wire and out of the ledger.

mod acts;
mod balance;
mod cast;
mod doubt;
mod invitation;
mod notebook;
mod voice;
mod without;

pub use balance::{Account, Balance, Row, Totals};
pub use invitation::invite;
pub use voice::{Pace, stdout_has_colour};

use crate::demo::client::{Client, fresh_key};
use crate::demo::payments::Ledger;
use cast::CAST;
use semel::Engine;
use std::io::{self, Write};
use std::net::SocketAddr;
use voice::Voice;

/// What the story is played on: a payment service, a gateway in front of it, and the gateway's engine, for the one who
/// settles what nobody can prove.
///
/// The engine has no reconciler of its own for `POST /charges`: in the story somebody looks, and it is told when.
#[derive(Clone)]
pub struct Stage {
    /// Where the gateway listens. An unspecified address is reached by the loopback one.
    pub gateway: SocketAddr,
    /// Where the payment service listens.
    pub upstream: SocketAddr,
    /// The payment service's ledger. Its books are closed after the act without Semel.
    pub ledger: Ledger,
    /// The gateway's engine.
    pub engine: Engine,
    /// How long the pauses are.
    pub pace: Pace,
    /// Whether what is written may have colours.
    pub has_colour: bool,
    /// Whether the gateway keeps running afterwards, so that there is something to try.
    pub keeps_running: bool,
}

/// Plays the story and tells it as it happens. The ledger comes last, after what there is to try: it is what stays on the screen.
///
/// An error is the writer's, or the file's that a client keeps its key in. What goes wrong on the wire is part of the
/// story, and shows in the balance.
pub async fn tell(stage: Stage, out: &mut impl Write) -> io::Result<Balance> {
    let gateway = reachable(stage.gateway);
    let mut voice = Voice::new(out, stage.pace, stage.has_colour);
    voice.say("")?;
    voice.title("Eight customers, one bad afternoon").await?;
    voice.say("A shop wants to charge eight customers, once each. The network loses answers,")?;
    voice.say("people click twice, programs crash. All of it is real HTTP over real sockets.")?;
    voice.say("")?;
    voice.say(&format!(
        "payments  http://{:<21}  charges whenever it is asked to",
        stage.upstream.to_string()
    ))?;
    voice.say(&format!("semel     http://{:<21}  stands in front of it", gateway.to_string()))?;

    let clients = |to| CAST.map(|part| Client::new(part.customer, part.amount, fresh_key(), to));
    stage.ledger.close_books();
    let alone = clients(stage.upstream);
    without::play(&mut voice, &stage.ledger, &alone).await?;
    let charged_alone = stage.ledger.close_books();

    // The same people with the same intents; through the gateway this time.
    let guarded = clients(gateway);
    let stage = Stage { gateway, ..stage };
    acts::play(&mut voice, &stage, &guarded).await?;
    let balance = Balance::of((&alone, &charged_alone), (&guarded, &stage.ledger.charges()));
    if stage.keeps_running {
        voice.act("Your turn. The gateway keeps running: try these in another terminal.").await?;
        let mut sheet = Vec::new();
        invite(&balance, stage.gateway, stage.has_colour, &mut sheet)?;
        voice.raw(&sheet)?;
    }
    balance.tell(&mut voice).await?;
    if stage.keeps_running {
        voice.say("")?;
        voice.say("Commands to try are above. Ctrl-C ends it, and leaves nothing behind.")?;
    }
    Ok(balance)
}

/// Where clients on this machine find what listens on `address`.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_listens_everywhere_is_reached_on_this_machine() {
        let at = |address: &str| reachable(address.parse().expect("an address")).to_string();
        assert_eq!(at("0.0.0.0:8080"), "127.0.0.1:8080");
        assert_eq!(at("[::]:8080"), "[::1]:8080");
        assert_eq!(at("192.0.2.7:8080"), "192.0.2.7:8080");
    }
}
