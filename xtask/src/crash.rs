//! `cargo xtask crash`: kills processes in the middle of commands, and audits what is left.
//!
//! What lives here: the call, and the server that `--store postgres` means. What must never: what is killed and what is checked; that
//! is `torture/`.

use crate::cargo;
use crate::command::Failure;
use crate::services;

pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
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
