//! `cargo xtask bench`: the benchmarks.
//!
//! What lives here: the call. What must never: a benchmark; those are in `bench/benches/`.

use crate::cargo;
use crate::command::{Failure, expect_no_arguments};

pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let name = match arguments.split_first() {
        // A pattern, so that only benchmark programs run: the library's unit tests have nothing to measure.
        None => "*",
        Some((name, rest)) => {
            expect_no_arguments(rest)?;
            name
        }
    };
    let mut command = cargo::cargo();
    command.args(["bench", "--package", "semel-bench", "--bench", name]);
    cargo::pass_through(command)
}
