//! `semel records list`.
//!
//! What lives here: filters, pages and the table. What must never: more of a list in memory than a page, or a record left
//! out because it cannot be read.

use super::super::cli_error::CliError;
use super::super::table::{Cell, Column, Screen, Table, Tone, WhenNarrow};
use super::filters::{StateAndFilters, push};
use super::pages::{Page, page};
use super::tone;
use crate::admin_client::AdminClient;
use crate::serve::say;
use clap::builder::NonEmptyStringValueParser;
use semel::SystemClock;
use semel::archive::rfc3339;
use semel::core::store::Clock as _;
use semel::core::time::Time;
use semel_admin::moment::age;
use semel_text::printable::{printable, printable_json};
use serde_json::{Value, json};
use std::collections::BTreeSet;

#[derive(Debug, Clone, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    filters: StateAndFilters,
    /// Show the newest records first. The oldest come first otherwise
    #[arg(long)]
    newest_first: bool,
    /// Show at most this many records
    #[arg(long, value_name = "NUMBER", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Show all records
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    /// Continue where an earlier list ended
    #[arg(long, value_name = "CURSOR", value_parser = NonEmptyStringValueParser::new())]
    after: Option<String>,
}

impl Args {
    pub(super) async fn run(&self, client: &AdminClient, is_json: bool) -> Result<(), CliError> {
        let now = SystemClock.now();
        let filter = self.filter(now)?;
        let mut out = ListFormat::new(is_json, self.all, now);
        let mut left = if self.all { usize::MAX } else { self.limit as usize };
        let mut after = self.after.clone();
        let mut callers = BTreeSet::new();
        loop {
            let Page { records, unreadable, next } =
                page(client, &filter, left, after.as_deref(), is_json).await?;
            left = left.saturating_sub(records.len());
            after = next;
            if self.filters.others.caller.is_some() {
                let hashes = records.iter().filter_map(|record| record["callerHash"].as_str());
                callers.extend(hashes.map(printable));
            }
            print(&out.take(records, unreadable));
            if after.is_none() || left == 0 {
                break;
            }
        }
        print(&out.end(after.as_deref()));
        if callers.len() > 1 {
            let (count, callers) = (callers.len(), callers.into_iter().collect::<Vec<_>>().join("\n  "));
            eprintln!(
                "the hashes of {count} callers start with these digits, and the list shows the records of all of them. Give more digits \
                 to see one caller:\n  {callers}"
            );
        }
        Ok(())
    }

    fn filter(&self, now: Time) -> Result<String, CliError> {
        let mut query = self.filters.query(now, None)?;
        if self.newest_first {
            push(&mut query, "newestFirst", "true");
        }
        Ok(query)
    }
}

fn print(lines: &[String]) {
    if !lines.is_empty() {
        say(&lines.join("\n"));
    }
}

/// Where records go as they come.
enum ListFormat {
    /// One document, at the end.
    Document {
        records: Vec<Value>,
        unreadable: Vec<Value>,
    },
    /// One line each.
    Lines,
    Table {
        table: Table,
        screen: Screen,
        now: Time,
        count: usize,
        unreadable: Vec<Value>,
        resolvable: usize,
    },
}

impl ListFormat {
    fn new(is_json: bool, is_all: bool, now: Time) -> Self {
        match (is_json, is_all) {
            (true, true) => Self::Lines,
            (true, false) => Self::Document { records: Vec::new(), unreadable: Vec::new() },
            (false, _) => {
                let screen = Screen::of_stdout();
                Self::table(screen, now)
            }
        }
    }

    fn table(screen: Screen, now: Time) -> Self {
        let table = records_table(screen);
        Self::Table { table, screen, now, count: 0, unreadable: Vec::new(), resolvable: 0 }
    }

    /// Takes the records of a page, and gives back what is printed of them.
    fn take(&mut self, listed: Vec<Value>, cannot: Vec<Value>) -> Vec<String> {
        match self {
            Self::Document { records, unreadable } => {
                records.extend(listed);
                unreadable.extend(cannot);
                Vec::new()
            }
            Self::Lines => {
                let cannot = cannot
                    .iter()
                    .map(|item| json!({ "operationId": item["operationId"], "unreadable": item["reason"] }));
                listed.iter().cloned().chain(cannot).map(|item| printable_json(&item.to_string())).collect()
            }
            Self::Table { table, screen, now, count, unreadable, resolvable } => {
                *count += listed.len();
                *resolvable += listed.iter().filter(|record| record["canResolve"] == true).count();
                unreadable.extend(cannot);
                if listed.is_empty() {
                    return Vec::new();
                }
                let rows: Vec<_> = listed.iter().map(|record| row(record, *now, *screen)).collect();
                table.lines(&rows)
            }
        }
    }

    /// What is printed after the last page.
    fn end(self, next: Option<&str>) -> Vec<String> {
        match self {
            Self::Lines => Vec::new(),
            Self::Document { records, unreadable } => {
                let mut document = json!({ "records": records });
                if !unreadable.is_empty() {
                    document["unreadable"] = unreadable.into();
                }
                if let Some(next) = next {
                    document["next"] = next.into();
                }
                vec![printable_json(&document.to_string())]
            }
            Self::Table { screen, count, unreadable, resolvable, .. } => {
                let mut lines = Vec::new();
                if count == 0 && unreadable.is_empty() {
                    lines.push("no records".to_owned());
                }
                for item in &unreadable {
                    let text = |name: &str| printable(item[name].as_str().unwrap_or_default());
                    let id = screen.tinted(&text("operationId"), Tone::Bad);
                    lines.push(format!("{id}  {}", text("reason")));
                }
                let mut notes = Vec::new();
                if resolvable > 0 {
                    notes.push(format!(
                        "{resolvable} can be resolved: semel records resolve OPERATION_ID --outcome … --reason …"
                    ));
                }
                if !unreadable.is_empty() {
                    notes.push(format!("{} cannot be read: run semel doctor for details", unreadable.len()));
                }
                if let Some(next) = next {
                    notes.push(format!("there are more records: use --after {next}, --limit or --all"));
                }
                if !notes.is_empty() {
                    lines.push(String::new());
                    lines.extend(notes);
                }
                lines
            }
        }
    }
}

/// The width below which operation IDs are cut: commands take the first digits of one.
const WIDE_CHARS: usize = 110;
/// What is shown of them then.
const ID_CHARS: usize = 13;

/// An empty table of records.
pub(super) fn records_table(screen: Screen) -> Table {
    let columns = vec![
        Column::text("OPERATION ID", WhenNarrow::Keep),
        Column::text("STATE", WhenNarrow::Keep),
        Column::text("OPERATION", WhenNarrow::Shorten),
        Column::number("ATTEMPT", WhenNarrow::Omit(2)),
        Column::number("UPDATED", WhenNarrow::Keep),
        Column::text("REASON", WhenNarrow::Shorten),
        Column::text("KEY", WhenNarrow::Omit(1)),
        Column::text("CALLER", WhenNarrow::Omit(3)),
    ];
    Table::new(screen, columns)
}

/// A record as a row of that table.
pub(super) fn row(record: &Value, now: Time, screen: Screen) -> Vec<Cell> {
    let text = |name: &str| record[name].as_str().unwrap_or_default();
    let hash = |name: &str| Cell::new(text(name).get(..8).unwrap_or_default()).tone(Tone::Quiet);
    let updated = rfc3339::parse(text("updatedAt")).map(|at| age(now.since(at)));
    let id = text("operationId");
    let is_narrow = screen.width.is_some_and(|width| width < WIDE_CHARS);
    let id = if is_narrow { id.get(..ID_CHARS).unwrap_or(id) } else { id };
    vec![
        Cell::new(id),
        Cell::new(text("state")).tone(tone(text("state"))),
        Cell::new(text("operation")),
        Cell::new(record["attempt"].to_string()),
        Cell::new(updated.unwrap_or_default()),
        Cell::new(reason(&record["doubt"])),
        hash("keyHash"),
        hash("callerHash"),
    ]
}

/// Why an outcome is unknown. Empty for every other state.
fn reason(doubt: &Value) -> &str {
    match (doubt["reason"].as_str(), doubt["how"].as_str()) {
        // A sweeper's own word says less than how it came to this.
        (Some(reason), Some("owner")) => reason,
        (_, Some("owner")) => "the attempt could not tell",
        (_, Some(_)) => "the worker went silent",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records as the admin API has them: one of each kind that a table shows in another way.
    fn records() -> Vec<Value> {
        let record = |id: &str, operation: &str, state: &str, minutes: u64| {
            let updated = Time::from_millis(1_794_916_800_000 - minutes * 60_000);
            json!({
                "operationId": format!("{id}-5a4e-8d2b-b1c5-3a7d5e6f7a8b"), "operation": operation, "state": state,
                "attempt": 1, "updatedAt": rfc3339::text(updated), "keyHash": "5f0c9d6e".repeat(8),
                "callerHash": "a1b2c3d4".repeat(8),
            })
        };
        let mut silent = record("0190c1de", "charge", "UNKNOWN", 29);
        silent["doubt"] = json!({"how": "lapsed", "since": "2026-11-17T11:31:00.000Z"});
        silent["canResolve"] = true.into();
        let mut broken = record("7a3f9b02", "POST /accounts/4711/charges", "UNKNOWN", 3);
        broken["doubt"] = json!({
            "how": "owner", "since": "2026-11-17T11:57:00.000Z",
            "reason": "the connection closed, or the response was not valid HTTP",
        });
        broken["canResolve"] = true.into();
        let mut again = record("c4d1e8f7", "refund", "FAILED_NOT_REPLAYABLE", 61);
        again["attempt"] = 12.into();
        vec![record("51e8c2aa", "charge", "SUCCEEDED", 3_000), silent, broken, again]
    }

    fn listed(width: Option<usize>) -> String {
        let now = Time::from_millis(1_794_916_800_000);
        let mut out = ListFormat::table(Screen { width, has_colour: false }, now);
        let unreadable = json!({
            "operationId": "e9b7a6c5-5a4e-8d2b-b1c5-3a7d5e6f7a8b", "reason": "the record is damaged",
        });
        let mut lines = out.take(records(), vec![unreadable]);
        lines.extend(out.end(Some("eyJpZCI6NDJ9")));
        lines.join("\n")
    }

    #[test]
    fn a_list_equals_its_file_on_terminal_and_pipe() {
        let narrow = listed(Some(80));
        crate::texts::assert_is("list-80", &narrow);
        crate::texts::assert_fits("list-80", &narrow, 80);
        crate::texts::assert_is("list", &listed(None));
    }

    #[test]
    fn an_empty_list_says_so() {
        let out = ListFormat::table(Screen { width: Some(80), has_colour: false }, Time::from_millis(0));
        assert_eq!(out.end(None), ["no records"]);
    }
}
