//! Commands that the reader can copy, with the addresses and keys of this run. The tests run each of them.

use super::balance::Balance;
use super::reachable;
use super::voice::{Pace, StoryWriter, Tone};
use std::io::{self, Write};
use std::net::SocketAddr;

/// Prints commands to try against `gateway`, which keeps running, and its admin address, if it has one. `program` is what
/// a shell runs this program by.
pub fn print_commands(
    program: &str,
    balance: &Balance,
    gateway: SocketAddr,
    admin: Option<SocketAddr>,
    has_colour: bool,
    out: &mut impl Write,
) -> io::Result<()> {
    let site = format!("http://{}", reachable(gateway));
    let charge = format!("curl -i {site}/charges \\");
    let mut list = CommandList { voice: StoryWriter::new(out, Pace::BRISK, has_colour) };
    list.print(
        "Buy an umbrella, then send the same request as often as you like:",
        &[&charge, "  -H 'Idempotency-Key: my-first-umbrella' -d 'amount=2500&currency=eur'"],
    )?;
    list.print(
        "Reuse the key for another amount:",
        &[&charge, "  -H 'Idempotency-Key: my-first-umbrella' -d 'amount=9900&currency=eur'"],
    )?;
    list.print(
        "Let the service charge and then drop the connection. Send it twice:",
        &[
            &charge,
            "  -H 'Idempotency-Key: my-second-umbrella' -d 'amount=2500&currency=eur' \\",
            "  -H 'Demo-Trouble: hang-up'",
        ],
    )?;
    list.print("See what was really charged:", &[&format!("curl {site}/ledger")])?;
    if let Some(admin) = admin {
        let admin = format!("  --admin http://{}", reachable(admin));
        list.print(
            "The second umbrella is there. Say so, and send its request again:",
            &[
                &format!("{program} records resolve --operation 'POST /charges' \\"),
                "  --outcome applied --reason 'the ledger has the charge' \\",
                &admin,
            ],
        )?;
    }
    let fay = balance.rows.iter().find(|row| row.customer == "fay");
    let settled = fay.and_then(|row| Some((row, row.with.charges.first()?.operation_id.as_deref()?)));
    if let Some((row, operation_id)) = settled {
        let key = format!("curl -H 'Idempotency-Key: {}' \\", row.key);
        list.print(
            "See what became of fay's payment:",
            &[&key, &format!("  {site}/operations/{operation_id}")],
        )?;
    }
    list.print(
        "Read what is promised here, and what each error means:",
        &[&format!("curl {site}/.well-known/idempotency")],
    )?;
    list.print("Open a page with a button that you can press too often:", &[&format!("{site}/")])?;
    list.print(
        "Use Stripe's Python package, with a short timeout and its own retries:",
        &[
            "import stripe",
            &format!("stripe.api_base, stripe.api_key = \"{site}\", \"sk_demo\""),
            "stripe.default_http_client = stripe.RequestsClient(timeout=0.2)",
            "print(stripe.Charge.create(amount=2500, currency=\"eur\", source=\"tok_slow\"))",
        ],
    )
}

struct CommandList<'w, W> {
    voice: StoryWriter<'w, W>,
}

impl<W: Write> CommandList<'_, W> {
    fn print(&mut self, text: &str, commands: &[&str]) -> io::Result<()> {
        self.voice.say("")?;
        self.voice.say(text)?;
        for command in commands {
            self.voice.say_as(&format!("  {command}"), Tone::Again)?;
        }
        Ok(())
    }
}
