//! Kills real processes in the middle of real commands, and audits the result.
//!
//! What lives here: one program with two roles. The *worker* runs commands through the engine on a real
//! store; the *judge* starts workers, kills them, and compares their journals with the store. What must
//! never: product code, or a check that a killed process would have to make itself.

mod arguments;
mod audit;
mod chance;
mod client;
mod clock;
mod evidence;
mod journal;
mod judge;
mod observer;
mod plan;
mod power;
mod sabotage;
mod summary;
mod victim;
mod worker;
mod workspace;

use arguments::Role;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let role = arguments::read(&arguments).unwrap_or_else(|error| error.exit());
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: no runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    let ended = match role {
        Role::Worker(options) if options.read_only => runtime.block_on(observer::run(options)),
        Role::Worker(options) => runtime.block_on(worker::run(options)),
        Role::Judge(options) => runtime.block_on(judge::run(options)),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
