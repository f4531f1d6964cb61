//! The project's own commands: `cargo xtask <command>`.
//!
//! **What lives here**: thin callers of cargo, and the project's rules (`tidy`), so that CI runs nothing that
//! a contributor cannot run. **What must never**: product code, or a check that only CI knows.

mod bench;
mod campaign;
mod cargo;
mod command;
mod crash;
mod dist;
mod failure;
mod fuzz;
mod model;
mod mutants;
mod programs;
mod report;
mod selection;
mod services;
mod sim;
mod stopwatch;
mod tally;
mod test;
mod tidy;
mod tools;
mod torture;
mod workspace;

use std::process::ExitCode;

use failure::Failure;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match command::dispatch(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Reported) => ExitCode::FAILURE,
        Err(Failure::Stopped(reason)) => {
            eprintln!("error: {reason}");
            ExitCode::FAILURE
        }
        Err(Failure::Usage(reason)) => {
            eprintln!("error: {reason}\n\n{}", command::help());
            ExitCode::from(2)
        }
    }
}
