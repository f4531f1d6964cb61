//! `cargo xtask crash`: kills processes in the middle of commands, and audits what is left.
//!
//! What lives here: the call. What must never: what is killed and what is checked; that is `torture/`.

use crate::cargo;
use crate::command::Failure;

pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let mut command = cargo::cargo();
    command.args(["run", "--quiet", "--package", "semel-torture", "--", "judge"]).args(arguments);
    cargo::pass_through(command)
}
