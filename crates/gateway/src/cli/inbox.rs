//! `semel inbox`: what consumers have processed. Duplicates write nothing, so they are not counted.

use super::cli_error::CliError;
use super::table::{Cell, Column, Screen, Table, Tone, WhenNarrow};
use super::target::{Gateway, ask};
use crate::config::flags::Refusal;
use crate::invalid_value::InvalidValue;
use crate::serve::say;
use crate::stores::Url;
use clap::Subcommand;
use http::Method;
use semel::core::store;
use semel_admin::inboxes::{InboxStats, InboxTopic};
use semel_admin::moment::away;
use semel_text::duration;
use semel_text::printable::printable_json;
use std::process::ExitCode;
use std::time::Duration;

const EXIT_CODES: &str =
    "Exit codes: 0 done; 1 failed, or the store has no inboxes; 2 the command line is wrong";

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Count the marks of processed messages, by consumer group and topic
    #[command(after_help = EXIT_CODES)]
    Stats(Args),
}

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    gateway: Gateway,
    /// Read the store itself, such as `sqlite:PATH` or `postgres://USER@HOST/DATABASE`, also while others write to it
    #[arg(long, value_name = "URL", conflicts_with_all = ["admin", "token_file", "ca"], help_heading = "Where")]
    store: Option<Url>,
    /// How long the consumers remember messages: older marks wait for a purge
    #[arg(long, value_name = "TIME", value_parser = window, default_value = "7d")]
    window: Duration,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The limits are the admin API's, which takes whole seconds.
fn window(text: &str) -> Result<Duration, Refusal> {
    let window = duration::parse(text)?;
    if window.subsec_nanos() != 0 {
        let problem = format!("`{text}` is not in whole seconds");
        return Err(InvalidValue::new(problem, "write a whole number with s, m, h or d").into());
    }
    semel_admin::inboxes::check_window(window)?;
    Ok(window)
}

pub(super) fn main(command: &Command) -> Result<ExitCode, CliError> {
    let Command::Stats(arguments) = command;
    let runtime = super::runtime()?;
    let stats = runtime.block_on(async {
        match &arguments.store {
            Some(store) => read(store, arguments.window).await,
            None => fetch_stats(arguments).await,
        }
    })?;
    if arguments.json {
        say(&printable_json(&serde_json::to_string(&stats)?));
    } else {
        say(&lines(&stats, arguments.window, Screen::of_stdout()).join("\n"));
    }
    Ok(ExitCode::SUCCESS)
}

async fn fetch_stats(arguments: &Args) -> Result<InboxStats, CliError> {
    let client = arguments.gateway.client()?;
    let path = format!("/v1/inboxes?windowSeconds={}", arguments.window.as_secs());
    let document = ask(&client, Method::GET, &path, None, arguments.json).await?;
    serde_json::from_value(document).map_err(|_| super::target::foreign())
}

/// Reads the store without changing it.
async fn read(url: &Url, window: Duration) -> Result<InboxStats, CliError> {
    let no_inboxes =
        || CliError::failed(format!("{url} has no inboxes: they are in SQLite and PostgreSQL only"));
    let steps = url.backend().schema_steps().len();
    if steps == 0 {
        return Err(no_inboxes());
    }
    let unread = |error: &store::Error| CliError::failed(format!("{url} cannot be read: {error}"));
    let look = url.inspect().await.map_err(|error| unread(&error))?;
    let schema = look.schema().await.map_err(|error| unread(&error))?;
    if schema.have < schema.wanted {
        let have = if schema.have == 0 {
            "no tables of Semel".to_owned()
        } else {
            format!("schema {}", schema.have)
        };
        return Err(CliError::failed(format!(
            "{url} has {have}, but inboxes need schema 2: run `semel schema apply --store {url}`"
        )));
    }
    let census = look.inboxes(window).await.map_err(|error| unread(&error))?.ok_or_else(no_inboxes)?;
    Ok(InboxStats::of(census, window))
}

fn lines(stats: &InboxStats, window: Duration, screen: Screen) -> Vec<String> {
    if stats.inboxes.is_empty() {
        return vec!["no message is marked as processed".to_owned()];
    }
    let columns = vec![
        Column::text("GROUP", WhenNarrow::Shorten),
        Column::text("TOPIC", WhenNarrow::Shorten),
        Column::number("MARKS", WhenNarrow::Keep),
        Column::text("OLDEST", WhenNarrow::Keep),
        Column::text("NEWEST", WhenNarrow::Keep),
        Column::number("OVERDUE", WhenNarrow::Keep),
    ];
    let now = semel::archive::rfc3339::parse(&stats.counted_at).unwrap_or_default();
    let row = |inbox: &InboxTopic| {
        let tone = if inbox.overdue == 0 { Tone::Quiet } else { Tone::Doubtful };
        vec![
            Cell::new(&inbox.group),
            Cell::new(&inbox.topic),
            Cell::new(inbox.marks.to_string()),
            Cell::new(away(&inbox.oldest, now)),
            Cell::new(away(&inbox.newest, now)),
            Cell::new(inbox.overdue.to_string()).tone(tone),
        ]
    };
    let rows: Vec<_> = stats.inboxes.iter().map(row).collect();
    let mut lines = Table::new(screen, columns).lines(&rows);
    if stats.other_marks > 0 {
        lines.push(format!("and {} marks of further groups and topics", stats.other_marks));
    }
    let overdue: u64 = stats.inboxes.iter().map(|inbox| inbox.overdue).sum();
    if overdue > 0 {
        lines.push(String::new());
        lines.push(format!(
            "{overdue} marks are older than {}. If that is the consumers' window, no consumer calls `purge` often enough.",
            duration::text(window)
        ));
    }
    lines
}
