//! The command line.
//!
//! What lives here: names, flags, environment variables and exit codes. What must never: what a command does.
//!
//! Exit codes: 0 where all went well, 1 where something failed, 2 where the command line is wrong.

mod config;
mod fingerprint;
mod key;
mod serve;
pub mod size;
pub mod span;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use std::process::ExitCode;

/// Makes side effects happen once.
#[derive(Debug, Parser)]
#[command(name = "semel", version, disable_help_subcommand = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Stand in front of a service, and have each request with an idempotency key take effect once.
    Serve(Box<serve::Args>),
    /// The configuration file: what can stand in it, and what is wrong with one.
    #[command(subcommand)]
    Config(config::Command),
    /// What makes two requests the same: a body's canonical form and hash, and where two bodies differ.
    Fingerprint(fingerprint::Args),
    /// Make idempotency keys.
    #[command(subcommand)]
    Key(key::Command),
}

/// Does what the command line says.
pub fn main() -> ExitCode {
    let matches = Cli::command().get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let done = match cli.command {
        Command::Serve(arguments) => {
            let given = matches.subcommand_matches("serve").map(serve::Given::of).unwrap_or_default();
            serve::main(*arguments, &given)
        }
        Command::Config(command) => config::main(&command),
        Command::Fingerprint(arguments) => Ok(fingerprint::main(&arguments)),
        Command::Key(command) => key::main(&command),
    };
    done.unwrap_or_else(|why| {
        eprintln!("error: {why}");
        ExitCode::FAILURE
    })
}
