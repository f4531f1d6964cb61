//! `cargo xtask model`: the model checker, with optimisation.
//!
//! What lives here: the call. What must never: what is explored; that is `sim/`.

use crate::cargo;
use crate::command::Failure;

pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let mut command = cargo::cargo();
    command.args(["run", "--release", "--package", "semel-sim", "--"]).args(arguments);
    cargo::pass_through(command)
}
