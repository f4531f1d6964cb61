//! `semel records`: what operators do.
//!
//! What lives here: the commands and their flags. What must never: a way to a record past the admin API.

mod copy;
mod erase;
mod filters;
mod list;
mod many;
mod pages;
mod settle;
mod show;
mod watch;

use super::cli_error::{CliError, EXIT_CODES};
use super::table::Tone;
use super::target::Target;
use crate::admin_client::AdminClient;
use crate::invalid_value::InvalidValue;
use clap::Subcommand;
use pages::{Page, page};
use semel::core::id::OperationId;
use semel::core::store::OperationIds;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    target: Target,
    /// Print JSON, as the admin API has it. `list --all` and `watch` print one record per line
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List records, oldest first unless --newest-first is given
    #[command(after_help = EXIT_CODES)]
    List(list::Args),
    /// Show a record with its history
    #[command(after_help = EXIT_CODES)]
    Show(show::Args),
    /// Resolve an unknown outcome: `UNKNOWN`, or `PROCESSING` with a dead lease
    ///
    /// First look up the operation ID in the system where the effect happens. If the worker went silent, `not-applied` and `failed`
    /// are refused until it can no longer act. Several IDs, or filters, resolve many records after a confirmation.
    #[command(after_help = EXIT_CODES)]
    Resolve(settle::Resolve),
    /// Release a key whose attempts had no effect, so that it accepts another payload
    ///
    /// Works on `FAILED_NOT_REPLAYABLE`, and on `CLAIMED` with a dead lease.
    #[command(after_help = EXIT_CODES)]
    Release(settle::Release),
    /// Erase a stored response, or a whole record up to a tombstone. Nothing can run again because of it
    ///
    /// Works on `SUCCEEDED`, `FAILED_REPLAYABLE` and `FAILED_NOT_REPLAYABLE`. Other gateways on the store may replay what they have
    /// in memory for up to a minute. Archives and backups keep what they have.
    #[command(after_help = EXIT_CODES)]
    Erase(erase::Erase),
    /// Show records as they change, until Ctrl-C
    #[command(after_help = EXIT_CODES)]
    Watch(watch::Args),
    /// Copy every record from one store to another, while no gateway works on either
    ///
    /// The target is a new store, or the unfinished copy of an earlier run: an interrupted copy is completed by running it again. If
    /// the source has changed since, empty the target first.
    /// Every record is read back and compared. Gateways start on the target only after that.
    ///
    /// The tables that services use through semel-tx (inbox marks, fences, business references, counters) are copied too if both
    /// are SQL stores. Stop these services first: what they write during the copy may be missing.
    #[command(after_help = copy::EXIT_CODES)]
    Copy(copy::Args),
}

pub(super) fn main(arguments: &Args) -> Result<ExitCode, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| CliError::failed(format!("nothing can be run: {error}")))?;
    runtime.block_on(run(arguments))?;
    Ok(ExitCode::SUCCESS)
}

async fn run(arguments: &Args) -> Result<(), CliError> {
    let Args { command, target, json } = arguments;
    if let Command::Copy(copy) = command {
        target.check_unused()?;
        return copy.run(*json).await;
    }
    let with_bodies = matches!(command, Command::Show(show) if show.body);
    if let Command::Resolve(resolve) = command {
        resolve.check(target)?;
    }
    let client = target.client(with_bodies).await?;
    let done = match command {
        Command::List(list) => list.run(&client, *json).await,
        Command::Show(show) => show.run(&client, *json).await,
        Command::Resolve(resolve) => resolve.run(&client, *json).await,
        Command::Release(release) => release.run(&client, *json).await,
        Command::Erase(erase) => erase.run(&client, *json).await,
        Command::Watch(watch) => watch.run(&client, *json).await,
        Command::Copy(_) => Ok(()),
    };
    client.close().await;
    done
}

/// An operation id or its first digits, as the command line has them.
fn beginning(text: &str) -> Result<String, InvalidValue> {
    OperationIds::beginning(text).map(|_| text.to_ascii_lowercase()).ok_or_else(|| {
        InvalidValue::without_fix(format!(
            "`{text}` is not an operation ID. That is a UUID, which clients find in the header Operation-Id; its first {} digits or \
             more are enough if no other ID starts with them",
            OperationIds::DIGITS_MIN
        ))
    })
}

/// The one operation whose id begins so.
async fn find_operation_id(
    client: &AdminClient,
    beginning: &str,
    is_json: bool,
) -> Result<OperationId, CliError> {
    if let Ok(id) = beginning.parse() {
        return Ok(id);
    }
    let query = format!("&id={beginning}");
    let (mut found, mut after) = (Vec::new(), None::<String>);
    // A page may be empty and have a next one.
    while found.len() < SHOWN_MAX {
        let Page { records, unreadable, next } =
            page(client, &query, SHOWN_MAX, after.as_deref(), is_json).await?;
        let items = records.iter().chain(&unreadable);
        found.extend(items.filter_map(|item| item["operationId"].as_str()?.parse::<OperationId>().ok()));
        after = next;
        if after.is_none() {
            break;
        }
    }
    match *found {
        [] => Err(CliError::not_found(format!("no operation ID starts with {beginning}"))),
        [id] => Ok(id),
        _ => {
            let ids = found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n  ");
            Err(CliError::usage(format!(
                "several operation IDs start with {beginning}; give more digits:\n  {ids}"
            )))
        }
    }
}

/// How many of the ids that begin alike are named.
const SHOWN_MAX: usize = 5;

/// How a state looks.
fn tone(state: &str) -> Tone {
    match state {
        "SUCCEEDED" => Tone::Good,
        // The only state that waits for a person; a refusal is an outcome like any other.
        "UNKNOWN" => Tone::Attention,
        "EXPIRED" => Tone::Quiet,
        _ => Tone::Plain,
    }
}
