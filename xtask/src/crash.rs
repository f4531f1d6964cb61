//! `cargo xtask crash`: kills processes in the middle of commands, and audits the result.
//!
//! The programs are in `torture/`, and in `crates/tx/tests` for local commands and the patterns.

use crate::cargo;
use crate::failure::Failure;
use crate::report::Verdict;
use crate::services::{self, TestServers};

pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    if let [name] = arguments {
        match name.as_str() {
            "transactions" => return rounds(&TRANSACTIONS),
            "patterns" => return rounds(&PATTERNS),
            _ => {}
        }
    }
    let arguments = services::with_urls(arguments)?;
    let mut command = cargo::cargo();
    command.args(["run", "--quiet", "--package", "semel-torture", "--", "judge"]).args(arguments);
    cargo::pass_through(command)
}

/// A test program, a filter for its tests, and how many times its processes are killed.
type Rounds = (&'static str, &'static str, &'static str);

const TRANSACTIONS: [Rounds; 2] =
    [("transactions", "sqlite::crash::killed", "100"), ("transactions", "postgres::crash::killed", "30")];
const PATTERNS: [Rounds; 2] =
    [("patterns", "crash::killed_on_sqlite", "100"), ("patterns", "crash::killed_on_postgres", "30")];

/// The rounds of local commands, and of the patterns in the caller's transaction. The test run does only a
/// few of each.
fn rounds(programs: &[Rounds]) -> Result<(), Failure> {
    let mut servers = TestServers::default();
    let result = match servers.up_named(&["postgres"]) {
        Verdict::Failed(reasons) => Err(Failure::Stopped(reasons.join("\n"))),
        _ => programs.iter().try_for_each(|(program, test, rounds)| {
            let mut command = cargo::cargo();
            servers.hand_to(&mut command);
            command.args(["test", "--quiet", "--package=semel-tx", "--all-features", "--test", program]);
            command.args(["--", "--nocapture", test]).env("SEMEL_TX_ROUNDS", rounds);
            cargo::pass_through(command)
        }),
    };
    servers.down();
    result
}
