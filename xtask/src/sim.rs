//! `cargo xtask sim`: seeded histories of the engine, with optimisation.
//!
//! What lives here: the call. What must never: what a history is; that is `sim/`.

use crate::cargo;
use crate::command::Failure;

pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let mut command = cargo::cargo();
    command.args(["run", "--release", "--package", "semel-sim", "--bin", "histories", "--"]).args(arguments);
    cargo::pass_through(command)
}
