//! `cargo xtask crash`: kills processes in the middle of commands, and audits what is left.
//!
//! What lives here: the calls, and the server that `--store postgres` means. What must never: what is killed and what is checked; that
//! is `torture/`, and `crates/tx/tests` for local commands.

use crate::cargo;
use crate::command::Failure;
use crate::report::Verdict;
use crate::services::{self, TestServers};

pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    if let [name] = arguments
        && name == "transactions"
    {
        return transactions();
    }
    let mut arguments = arguments.to_vec();
    for at in 1..arguments.len() {
        if arguments[at - 1] == "--store" && !arguments[at].contains(':') {
            arguments[at] = services::url_of(&arguments[at])?;
        }
    }
    let mut command = cargo::cargo();
    command.args(["run", "--quiet", "--package", "semel-torture", "--", "judge"]).args(arguments);
    cargo::pass_through(command)
}

/// Which test program, and how many times its processes are killed.
const TRANSACTIONS: [(&str, &str); 2] = [("sqlite", "100"), ("postgres", "30")];

/// The rounds of local commands: the test run plays a few of each.
fn transactions() -> Result<(), Failure> {
    let mut servers = TestServers::default();
    let result = match servers.up_named(&["postgres"]) {
        Verdict::Failed(reasons) => Err(Failure::Stopped(reasons.join("\n"))),
        _ => TRANSACTIONS.into_iter().try_for_each(|(program, rounds)| {
            let mut command = cargo::cargo();
            servers.hand_to(&mut command);
            command.args(["test", "--quiet", "--package=semel-tx", "--all-features", "--test", program]);
            command.args(["--", "--nocapture", "crash::killed"]).env("SEMEL_TX_ROUNDS", rounds);
            cargo::pass_through(command)
        }),
    };
    servers.down();
    result
}
