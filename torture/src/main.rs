//! Kills real processes in the middle of real commands, and audits what is left.
//!
//! What lives here: one program with two roles. The *worker* runs commands through the engine on a real store; the *judge*
//! starts workers, kills them, and holds what they wrote down against what the store says. What must never: product
//! code, or a check that a killed process would have to make itself.

mod arguments;
mod audit;
mod chance;
mod client;
mod clock;
mod evidence;
mod journal;
mod judge;
mod looker;
mod place;
mod plan;
mod power;
mod sabotage;
mod summary;
mod victim;
mod worker;

use arguments::Role;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--help") {
        println!("{}", arguments::HELP);
        return ExitCode::SUCCESS;
    }
    let role = match arguments::read(&arguments) {
        Ok(role) => role,
        Err(error) => {
            eprintln!("error: {error}\n\n{}", arguments::HELP);
            return ExitCode::from(2);
        }
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: no runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    let ended = match role {
        Role::Worker(orders) if orders.looks => runtime.block_on(looker::run(orders)),
        Role::Worker(orders) => runtime.block_on(worker::run(orders)),
        Role::Judge(case) => runtime.block_on(judge::run(case)),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
