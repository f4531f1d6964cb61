//! What the reader can try.
//!
//! What lives here: commands to copy, with the addresses and keys of this very run. What must never: a command that nobody
//! ran before it was written here.

use super::balance::Balance;
use super::reachable;
use super::voice::{Pace, Tone, Voice};
use std::io::{self, Write};
use std::net::SocketAddr;

/// Tells what to try against `gateway`, now that it keeps running.
pub fn invite(
    balance: &Balance,
    gateway: SocketAddr,
    has_colour: bool,
    out: &mut impl Write,
) -> io::Result<()> {
    let site = format!("http://{}", reachable(gateway));
    let mut voice = Voice::new(out, Pace::BRISK, has_colour);
    let mut tell = |text: &str, commands: &[String]| -> io::Result<()> {
        voice.say("")?;
        voice.say(text)?;
        for command in commands {
            voice.say_as(&format!("  {command}"), Tone::Again)?;
        }
        Ok(())
    };
    tell(
        "Your turn. Charge yourself; then send the very same again, as often as you like:",
        &[
            format!("curl -i {site}/charges \\"),
            "  -H 'Idempotency-Key: my-first-umbrella' \\".to_owned(),
            "  -H 'Content-Type: application/json' \\".to_owned(),
            "  -d '{\"amount\": 2500, \"currency\": \"eur\", \"customer\": \"you\"}'".to_owned(),
        ],
    )?;
    tell("With 9900 instead of 2500 it is refused. Without the key nothing is promised.", &[])?;
    tell("With a new key and  -H 'Demo-Trouble: hang-up'  the outcome is unknown.", &[])?;
    tell("What was really charged:", &[format!("curl {site}/ledger")])?;
    let fay = balance.rows.iter().find(|row| row.customer == "fay");
    let settled = fay.and_then(|row| Some((row, row.with.charges.first()?.operation_id.as_deref()?)));
    if let Some((row, operation_id)) = settled {
        tell(
            "What became of fay's payment:",
            &[
                format!("curl {site}/operations/{operation_id} \\"),
                format!("  -H 'Idempotency-Key: {}'", row.key),
            ],
        )?;
    }
    tell(
        "What is promised here, and what every refusal means:",
        &[format!("curl {site}/.well-known/idempotency")],
    )?;
    tell("A page with a button, for impatient people:", &[format!("{site}/")])?;
    tell(
        "The stripe package for Python, with its own retries:",
        &[
            format!("stripe.api_base = \"{site}\"; stripe.api_key = \"sk_demo\""),
            "stripe.Charge.create(amount=2500, currency=\"eur\", source=\"tok_visa\")".to_owned(),
        ],
    )?;
    tell("Ctrl-C ends it, and leaves nothing behind.", &[])
}
