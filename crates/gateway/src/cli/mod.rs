//! The command line: names, flags, environment variables and exit codes.
//!
//! Exit codes: 0 where all went well, 1 where something failed, 2 where the command line is wrong, 3 where there is no such
//! record, 4 where a record does not allow what was asked for. `semel once` passes on its program's, and has its own.

mod cli_error;
mod completions;
mod config;
mod confirm;
mod doctor;
mod fingerprint;
mod flags;
#[cfg(test)]
mod help_texts;
mod inbox;
mod key;
#[cfg(target_os = "linux")]
mod once;
mod records;
mod schema;
mod secret_parser;
mod serve;
mod shadow;
mod table;
mod target;
mod user;

use crate::stores;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use cli_error::CliError;
use std::process::ExitCode;
use std::sync::LazyLock;

const AFTER_HELP: &str = "\
Start here:
  semel serve --demo                            see what Semel does
  semel serve --upstream http://127.0.0.1:3000  protect a service
  semel config init                             write a short configuration file
  semel records list --state UNKNOWN            find unknown outcomes

`semel help COMMAND` explains each command and its flags.";

/// Makes side effects happen once.
///
/// Runs in front of an HTTP service. A request with an idempotency key takes effect once: retries get the first response, and if
/// nobody can prove what happened, Semel reports that instead of guessing.
#[derive(Debug, Parser)]
#[command(name = "semel", version, long_version = long_version(), max_term_width = 100)]
#[command(subcommand_value_name = "COMMAND", after_help = AFTER_HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Protect a service: each request with an idempotency key takes effect once
    Serve(Box<serve::Args>),
    /// Write, check and show configuration files
    #[command(subcommand)]
    Config(config::Command),
    /// List, show, watch, resolve, release and erase records
    Records(Box<records::Args>),
    /// Run a program once per key: cron jobs, migrations, deployment steps, payouts
    ///
    /// The first call with a key runs the program and stores its exit code and the end of its output. Later calls get
    /// both again, without running it. If nobody can know whether the program took effect, because it was killed or
    /// the machine went down, later calls are refused until somebody settles that with `semel records`.
    #[cfg(target_os = "linux")]
    Once(Box<once::Args>),
    /// Examine a store, and report problems and how to fix them
    Doctor(doctor::Args),
    /// Summarise what shadow mode has seen, and what to enforce
    Shadow(shadow::Args),
    /// Show what consumers have processed with an inbox
    #[command(subcommand)]
    Inbox(inbox::Command),
    /// Print a store's tables, or create and upgrade them
    #[command(subcommand)]
    Schema(schema::Command),
    /// Show a body's canonical form and hash, and where two bodies differ
    Fingerprint(fingerprint::Args),
    /// Generate idempotency keys, and tokens for the admin address
    #[command(subcommand)]
    Key(key::Command),
    /// Print a completion script for your shell
    Completions(completions::Completions),
    /// Print the manual page, or write one page per command
    Man(completions::Man),
}

/// The version, with those of the libraries of the stores.
fn long_version() -> &'static str {
    static LONG_VERSION: LazyLock<String> =
        LazyLock::new(|| format!("{}\n{}", env!("CARGO_PKG_VERSION"), stores::libraries().join("\n")));
    &LONG_VERSION
}

/// The command line. Its help names environment variables but not what they hold: a store's URL may hold a password.
fn command() -> clap::Command {
    without_values(Cli::command())
}

fn without_values(command: clap::Command) -> clap::Command {
    let names: Vec<_> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    let command = command.mut_args(|arg| arg.hide_env_values(true));
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, without_values))
}

/// What a command runs on that waits for a server.
fn runtime() -> Result<tokio::runtime::Runtime, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| CliError::failed(format!("the runtime cannot be started: {error}")))
}

/// Prints a document for programs. A person may read it on a terminal, too.
fn say_document(document: &serde_json::Value) {
    crate::serve::say(&semel_text::printable::printable_json(&document.to_string()));
}

/// The text without characters that change how it looks, except the ends of its lines.
fn printable_lines(text: &str) -> String {
    text.split('\n').map(semel_text::printable::printable).collect::<Vec<_>>().join("\n")
}

/// Ends the process as clap does, and names the variable if a refused value is not on the command line.
fn refuse(error: &clap::Error) -> ! {
    let text = error.to_string();
    let shown = printable_lines(&text);
    if error.use_stderr() && shown != text {
        eprint!("{shown}");
    } else {
        let _ = error.print();
    }
    let given: Vec<_> = std::env::args_os().collect();
    let is_given = |flag: &str| given.iter().any(|word| word.to_string_lossy().starts_with(flag));
    for flag in crate::config::flags::FLAGS {
        let name = format!("--{}", flag.name);
        let is_named = text.contains(&format!("'{name}'")) || text.contains(&format!("'{name} "));
        if is_named && !is_given(&name) && std::env::var_os(flag.variable).is_some() {
            eprintln!("\n{name} is set by the environment variable {}", flag.variable);
        }
    }
    std::process::exit(error.exit_code())
}

/// Runs the command.
pub fn main() -> ExitCode {
    #[cfg(target_os = "linux")]
    if let Some(code) = once::become_program() {
        return code;
    }
    let read = command().try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = read.unwrap_or_else(|error| refuse(&error));
    let done = match cli.command {
        Command::Serve(arguments) => serve::main(*arguments),
        Command::Config(command) => config::main(&command),
        Command::Records(arguments) => records::main(&arguments),
        #[cfg(target_os = "linux")]
        Command::Once(arguments) => once::main(&arguments),
        Command::Doctor(arguments) => doctor::main(&arguments),
        Command::Shadow(arguments) => shadow::main(&arguments),
        Command::Inbox(command) => inbox::main(&command),
        Command::Schema(command) => schema::main(&command),
        Command::Fingerprint(arguments) => fingerprint::main(&arguments),
        Command::Key(command) => key::main(&command),
        Command::Completions(arguments) => Ok(completions::completions(&arguments, command())),
        Command::Man(arguments) => completions::man(&arguments, command()),
    };
    match done {
        Ok(_) if crate::serve::is_output_lost() => {
            eprintln!("error: the output could not be written; it is incomplete");
            ExitCode::FAILURE
        }
        Ok(code) => code,
        Err(stop) => {
            // A name in it may come from anywhere.
            eprintln!("error: {}", printable_lines(&stop.to_string()));
            stop.code()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every command and its flags, with the words of the command.
    pub(super) fn every(command: &clap::Command, words: &str, visit: &mut impl FnMut(&str, &clap::Command)) {
        visit(words, command);
        for sub in command.get_subcommands() {
            every(sub, &format!("{words} {}", sub.get_name()), visit);
        }
    }

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_guide_names_every_command_and_every_flag() {
        let guide = include_str!("../../../../docs/guide/src/command-line.md");
        let records = include_str!("../../../../docs/guide/src/records.md");
        every(&Cli::command(), "semel", &mut |words, command| {
            let page = if words.starts_with("semel records") { records } else { guide };
            assert!(page.contains(&format!("`{words}")), "the guide does not name `{words}`");
            // The page of `serve` has its own test for its flags.
            if words == "semel serve" {
                return;
            }
            let section = if page == records { records } else { section(guide, words) };
            for flag in command.get_arguments().filter_map(clap::Arg::get_long) {
                let is_common = ["help", "version"].contains(&flag);
                assert!(
                    is_common || section.contains(&format!("`--{flag}")),
                    "{words}: no --{flag} in {section}"
                );
            }
        });
    }

    /// The text under the heading of the command's first two words.
    fn section<'g>(guide: &'g str, words: &str) -> &'g str {
        let command = words.split(' ').nth(1).unwrap_or_default();
        let from = guide.find(&format!("## `semel {command}")).unwrap_or(0);
        let rest = &guide[from..];
        rest[1..].find("\n## ").map_or(rest, |end| &rest[..=end])
    }
}
