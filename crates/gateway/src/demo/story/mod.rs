//! The story: eight customers, each of whom wants to pay once.
//!
//! No outcome is written in advance. The acts say what the clients *do*; what came of it is read from the responses and
//! from the ledger.

mod acts;
mod balance;
mod cast;
mod doubt;
mod invitation;
mod notebook;
mod voice;
mod without;

pub use balance::{Account, Balance, Row, Totals};
pub use invitation::print_commands;
pub use voice::Pace;

use crate::demo::client::{Client, fresh_key};
use crate::demo::payments::Ledger;
use cast::CAST;
use semel::Engine;
use std::io::{self, Write};
use std::net::SocketAddr;
use voice::StoryWriter;

/// What the story needs: a payment service, a gateway in front of it, and the gateway's engine, which resolves the
/// unknown outcomes.
///
/// The engine has no reconciler for `POST /charges`: in the story a person checks, and the text says when.
#[derive(Clone)]
pub struct Stage {
    /// What a shell runs this program by: its name, or the path of it, quoted where necessary.
    pub program: String,
    /// Where the gateway listens. An unspecified address is reached by the loopback one.
    pub gateway: SocketAddr,
    /// The gateway's admin address, if it has one.
    pub admin: Option<SocketAddr>,
    /// Where the payment service listens.
    pub upstream: SocketAddr,
    /// The payment service's ledger. Its books are closed after the act without Semel.
    pub ledger: Ledger,
    /// The gateway's engine.
    pub engine: Engine,
    /// How long the pauses are.
    pub pace: Pace,
    /// Whether the output may have colours.
    pub has_colour: bool,
    /// Whether the gateway keeps running afterwards, so that the reader can try it.
    pub keeps_running: bool,
}

/// Plays the story and prints it as it happens. The ledger comes last, after the commands to try, because the last lines
/// stay on the screen.
///
/// An error comes from the writer, or from the file in which a client stores its key. What goes wrong on the network is
/// part of the story and shows in the balance.
pub async fn play(stage: Stage, out: &mut impl Write) -> io::Result<Balance> {
    let gateway = reachable(stage.gateway);
    let mut voice = StoryWriter::new(out, stage.pace, stage.has_colour);
    voice.say("")?;
    voice.title("Eight customers, one bad afternoon").await?;
    voice.say("A shop charges eight customers, once each. The network loses responses,")?;
    voice.say("people click twice, programs crash. All of it is real HTTP on real sockets.")?;
    voice.say("")?;
    voice.say(&format!("payments  http://{:<21}  charges for every request", stage.upstream.to_string()))?;
    voice.say(&format!("semel     http://{:<21}  in front of it", gateway.to_string()))?;

    let clients = |to| CAST.map(|part| Client::new(part.customer, part.amount, fresh_key(), to));
    stage.ledger.close_books();
    let unprotected = clients(stage.upstream);
    without::play(&mut voice, &stage.ledger, &unprotected).await?;
    let charged_alone = stage.ledger.close_books();

    // The same customers with the same intents, now through the gateway.
    let guarded = clients(gateway);
    let stage = Stage { gateway, ..stage };
    acts::play(&mut voice, &stage, &guarded).await?;
    let balance = Balance::of((&unprotected, &charged_alone), (&guarded, &stage.ledger.charges()));
    if stage.keeps_running {
        voice.act("Your turn. The gateway keeps running: try these in another terminal.").await?;
        let mut commands = Vec::new();
        let (program, colour) = (&stage.program, stage.has_colour);
        print_commands(program, &balance, stage.gateway, stage.admin, colour, &mut commands)?;
        voice.raw(&commands)?;
    }
    balance.print(&mut voice).await?;
    if stage.keeps_running {
        voice.say("")?;
        voice.say("Scroll up for commands to try. Ctrl-C ends the demo and removes its files.")?;
    }
    Ok(balance)
}

/// The address by which clients on this machine reach a listener on `address`.
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
    fn a_listener_on_every_address_is_reached_by_loopback() {
        let at = |address: &str| reachable(address.parse().expect("an address")).to_string();
        assert_eq!(at("0.0.0.0:8080"), "127.0.0.1:8080");
        assert_eq!(at("[::]:8080"), "[::1]:8080");
        assert_eq!(at("192.0.2.7:8080"), "192.0.2.7:8080");
    }
}
