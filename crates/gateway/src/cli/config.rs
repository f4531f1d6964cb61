//! `semel config`.
//!
//! What lives here: what is printed about a file. What must never: another way to read it than `serve` has.

use crate::config::{self, Mistake, Overrides};
use clap::Subcommand;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Print the default file, which explains every key.
    Default,
    /// Tell every mistake in a file, with its line and what mends it.
    Check {
        /// The file.
        file: PathBuf,
    },
}

pub(super) fn main(command: &Command) -> Result<ExitCode, String> {
    match command {
        Command::Default => crate::serve::say(config::DEFAULT.trim_end()),
        Command::Check { file } => {
            let text = text(file)?;
            let read = config::read(&text, &Overrides::default(), &config::environment);
            let config = read.map_err(|mistakes| told(file, &mistakes))?;
            let upstream = match &config.target {
                Some(target) => format!("in front of {target}"),
                None => "it names no upstream; `semel serve` needs --upstream with it".to_owned(),
            };
            let operations = config.operations.len();
            let operations =
                if operations == 1 { "1 operation".to_owned() } else { format!("{operations} operations") };
            crate::serve::say(&format!("{}: no mistakes; {operations}; {upstream}", file.display()));
            for warning in config.warnings() {
                crate::serve::say(&format!("  warning: {warning}"));
            }
            for operation in &config.operations {
                if let Some(callers) = operation.callers() {
                    crate::serve::say(&format!("  {}: {callers}", operation.title()));
                }
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The text of a configuration file.
pub(super) fn text(file: &Path) -> Result<String, String> {
    std::fs::read_to_string(file).map_err(|error| format!("{} cannot be read: {error}", file.display()))
}

/// All that is wrong, for people.
pub(super) fn told(file: &Path, mistakes: &[Mistake]) -> String {
    let count =
        if mistakes.len() == 1 { "a mistake".to_owned() } else { format!("{} mistakes", mistakes.len()) };
    let name = file.display().to_string();
    let lines: Vec<_> = mistakes.iter().map(|mistake| mistake.told(&name)).collect();
    format!("{name} has {count}\n{}", lines.join("\n"))
}
