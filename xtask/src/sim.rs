//! `cargo xtask sim`: runs seeded histories of the engine (`sim/`), optimised.

use crate::cargo;
use crate::failure::Failure;

pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let mut command = cargo::cargo();
    command.args(["run", "--release", "--package", "semel-sim", "--bin", "histories", "--"]).args(arguments);
    cargo::pass_through(command)
}
