//! `semel schema`.
//!
//! What lives here: the tables as SQL, and having them made. What must never: a migration of its own; a store makes its
//! tables as it is opened.

use super::stop::Stop;
use crate::serve::say;
use crate::stores::{Opened, Url};
use clap::Subcommand;
use semel_sql::sqlite::{self, Look};
use std::path::Path;
use std::process::ExitCode;

const EXIT_CODES: &str = "Exit codes: 0 done; 1 failed, and nothing was changed; 2 the command line is wrong";

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Print the tables as SQL, step by step. The store need not be there
    #[command(after_help = EXIT_CODES)]
    Print {
        /// The store: sqlite:PATH
        #[arg(long, value_name = "URL", env = "SEMEL_STORE", default_value_t = Url::default())]
        store: Url,
    },
    /// Bring a store to this version's tables; one that has them is left as it is. `semel serve` does the same at start
    #[command(after_help = EXIT_CODES)]
    Apply {
        /// The store: sqlite:PATH
        #[arg(long, value_name = "URL", env = "SEMEL_STORE", default_value_t = Url::default())]
        store: Url,
    },
}

pub(super) fn main(command: &Command) -> Result<ExitCode, Stop> {
    match command {
        Command::Print { store } => {
            file(store)?;
            for (at, step) in sqlite::steps().iter().enumerate() {
                say(&format!("-- schema {}\n{}", at + 1, step.trim_end()));
            }
        }
        Command::Apply { store } => apply(store)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn file(url: &Url) -> Result<&Path, Stop> {
    match url {
        Url::Sqlite(path) => Ok(path),
        Url::Memory => Err(Stop::usage("memory: has no tables")),
    }
}

fn apply(url: &Url) -> Result<(), Stop> {
    let path = file(url)?;
    let before = if path.exists() { Some(version(url, path)?.have) } else { None };
    let wanted = sqlite::steps().len();
    if before == Some(wanted) {
        say(&format!("{url} has schema {wanted} already: nothing to do"));
        return Ok(());
    }
    drop(Opened::open(url)?);
    let now = version(url, path)?.have;
    let before = match before {
        None => "no file".to_owned(),
        Some(0) => "no tables".to_owned(),
        Some(number) => format!("schema {number}"),
    };
    say(&format!("{url}: {before} before, schema {now} now"));
    Ok(())
}

fn version(url: &Url, path: &Path) -> Result<sqlite::Schema, Stop> {
    let look = Look::open(path, sqlite::Options::default());
    let schema = look.and_then(|look| look.schema());
    schema.map_err(|error| Stop::failed(format!("{url} was left as it is: {error}")))
}
