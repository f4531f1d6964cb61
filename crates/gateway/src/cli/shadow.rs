//! `semel shadow`: the table of shadow mode, with advice on what to enforce.

use super::cli_error::{CliError, EXIT_CODES};
use super::say_document;
use super::table::{Cell, Column, Screen, Table, Tone, WhenNarrow};
use super::target::{Gateway, ask};
use crate::serve::say;
use http::Method;
use semel::SystemClock;
use semel::core::store::Clock as _;
use semel_admin::moment::{away, written};
use semel_admin::shadow::{Route, Summary, Verdict, advise};
use semel_text::printable::printable;
use semel_text::wrap::wrapped;
use serde_json::json;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct Args {
    #[command(flatten)]
    gateway: Gateway,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn main(arguments: &Args) -> Result<ExitCode, CliError> {
    let runtime = super::runtime()?;
    let client = arguments.gateway.client()?;
    let document = runtime.block_on(ask(&client, Method::GET, "/v1/shadow", None, arguments.json))?;
    let summary: Summary = serde_json::from_value(document)
        .map_err(|error| CliError::failed(format!("this is not a summary of shadow mode: {error}")))?;
    if arguments.json {
        let routes = summary.routes.iter().map(|route| json!({ "seen": route, "advice": advise(route) }));
        say_document(&json!({ "since": summary.since, "routes": routes.collect::<Vec<_>>() }));
    } else {
        say(&lines(&summary, Screen::of_stdout()).join("\n"));
    }
    Ok(ExitCode::SUCCESS)
}

fn lines(summary: &Summary, screen: Screen) -> Vec<String> {
    let since = format!("{} ({})", written(&summary.since), away(&summary.since, SystemClock.now()));
    if summary.routes.is_empty() {
        return vec![
            format!("no requests in shadow mode since {since}"),
            "write mode = \"shadow\" under [defaults], or into an operation, to try it".to_owned(),
        ];
    }
    let columns = vec![
        Column::text("ROUTE", WhenNarrow::Shorten),
        Column::number("REQUESTS", WhenNarrow::Keep),
        Column::number("WITH KEY", WhenNarrow::Keep),
        Column::number("REPLAYED", WhenNarrow::Keep),
        Column::number("BLOCKED", WhenNarrow::Keep),
        Column::number("REFUSED", WhenNarrow::Keep),
        Column::number("DUPLICATES", WhenNarrow::Keep),
        Column::number("NOT JUDGED", WhenNarrow::Omit(1)),
    ];
    let rows: Vec<_> = summary.routes.iter().map(row).collect();
    let mut lines = vec![
        format!("what protection would have done with requests in shadow mode since {since}"),
        String::new(),
    ];
    lines.extend(Table::new(screen, columns).lines(&rows));
    for route in &summary.routes {
        lines.push(String::new());
        let advice = advise(route);
        let tone = match advice.verdict {
            Verdict::Enforce => Tone::Good,
            Verdict::LookFirst => Tone::Doubtful,
            Verdict::AskForKeys => Tone::Quiet,
        };
        let name = screen.tinted(&printable(&route.render()), Tone::Strong);
        lines.push(format!("{name}: {}", screen.tinted(advice.verdict.text(), tone)));
        let width = screen.width.map_or(usize::MAX, |width| width.saturating_sub(4).max(30));
        for reason in &advice.reasons {
            for (at, line) in wrapped(&printable(reason), width).into_iter().enumerate() {
                lines.push(format!("  {} {line}", if at == 0 { '-' } else { ' ' }));
            }
        }
        if let Some(config) = advice.config {
            lines.push(String::new());
            lines.extend(config.lines().map(|line| format!("      {}", printable(line))));
        }
    }
    lines
}

fn row(route: &Route) -> Vec<Cell> {
    let number = |count: u64, tone: Tone| {
        let tone = if count == 0 { Tone::Quiet } else { tone };
        Cell::new(count.to_string()).tone(tone)
    };
    vec![
        Cell::new(route.render()),
        number(route.requests, Tone::Plain),
        number(route.with_key, Tone::Plain),
        number(route.would_replay, Tone::Good),
        number(route.would_block, Tone::Good),
        number(route.refused(), Tone::Bad),
        number(route.likely_duplicates, Tone::Doubtful),
        number(route.not_judged, Tone::Plain),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, Overrides};

    #[test]
    fn the_advised_configuration_can_be_read() {
        for with_key in [4, 5] {
            let (method, path) = (Some("POST".to_owned()), Some("/accounts/{id}/charges".to_owned()));
            let route = Route { method, path, requests: 5, with_key, ..Route::default() };
            let lines = advise(&route).config.expect("a configuration");
            let read = config::read(&lines, &Overrides::default(), &|_| None);
            assert!(read.is_ok(), "{lines}");
        }
    }
}
