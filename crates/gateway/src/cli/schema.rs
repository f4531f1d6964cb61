//! `semel schema`: prints the tables as SQL, or creates them. The stores do the migration.

use super::cli_error::CliError;
use crate::serve::say;
use crate::stores::Url;
use clap::Subcommand;
use semel::core::store::{self, SchemaVersion};
use serde_json::json;
use std::process::ExitCode;

const EXIT_CODES: &str = "Exit codes: 0 done; 1 failed, and nothing was changed; 2 the command line is wrong";

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Print the SQL that creates a store of this version in an empty database. The store need not exist
    #[command(after_help = EXIT_CODES)]
    Print {
        /// The store, such as sqlite:semel.db
        #[arg(long, value_name = "URL", env = "SEMEL_STORE", default_value_t = Url::default())]
        store: Url,
    },
    /// Bring a store's tables to this version; if they already are, nothing changes. `semel serve` does the same at
    /// start
    #[command(after_help = EXIT_CODES)]
    Apply {
        /// The store, such as sqlite:semel.db
        #[arg(long, value_name = "URL", env = "SEMEL_STORE", default_value_t = Url::default())]
        store: Url,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

pub(super) fn main(command: &Command) -> Result<ExitCode, CliError> {
    let runtime = super::runtime()?;
    runtime.block_on(run(command))
}

async fn run(command: &Command) -> Result<ExitCode, CliError> {
    match command {
        Command::Print { store } => {
            steps(store)?;
            say(store.schema_script().trim_end());
        }
        Command::Apply { store, json } => apply(store, *json).await?,
    }
    Ok(ExitCode::SUCCESS)
}

fn steps(url: &Url) -> Result<&'static [&'static str], CliError> {
    let steps = url.backend().schema_steps();
    if steps.is_empty() { Err(CliError::usage(format!("{url} has no tables"))) } else { Ok(steps) }
}

async fn apply(url: &Url, is_json: bool) -> Result<(), CliError> {
    let latest = steps(url)?.len();
    let exists = url.exists().await.map_err(|error| unchanged(url, &error))?;
    let before = if exists { Some(version(url).await?.have) } else { None };
    // Opening also finds tables that were changed by hand.
    url.open().await?.close().await;
    let now = version(url).await?.have;
    if is_json {
        // A store that did not exist had schema 0.
        let before = before.unwrap_or(0);
        say(&json!({ "store": url.to_string(), "schemaBefore": before, "schema": now }).to_string());
        return Ok(());
    }
    say(&match before {
        Some(before) if before == latest => format!("{url} has schema {latest} already: nothing to do"),
        // Another process may have created or upgraded them meanwhile: this says only what was seen.
        None | Some(0) => format!("{url} has schema {now} now; it had no tables"),
        Some(before) => format!("{url} has schema {now} now; it had schema {before}"),
    });
    Ok(())
}

async fn version(url: &Url) -> Result<SchemaVersion, CliError> {
    let look = url.inspect().await.map_err(|error| unchanged(url, &error))?;
    look.schema().await.map_err(|error| unchanged(url, &error))
}

fn unchanged(url: &Url, error: &store::Error) -> CliError {
    CliError::failed(format!("{url} was left as it is: {error}"))
}
