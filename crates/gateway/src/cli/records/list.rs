//! `semel records list`.
//!
//! What lives here: filters, pages and the table. What must never: more of a list in memory than a page, or a record left
//! out because it cannot be read.

use super::super::moment::age;
use super::super::place::{ask, foreign};
use super::super::stop::Stop;
use super::super::table::{Cell, Column, Gives, Screen, Table, Tone, clean};
use super::filters::{Filters, push};
use super::tone;
use crate::admin_client::{Desk, encoded};
use crate::serve::say;
use http::Method;
use semel::SystemClock;
use semel::archive::rfc3339;
use semel::core::record::StateName;
use semel::core::store::Clock as _;
use semel::core::time::Time;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// The most records of one page.
const PAGE_MAX: usize = 500;

#[derive(Debug, Clone, clap::Args)]
pub(super) struct Args {
    /// Only records in this state
    #[arg(long, value_name = "STATE", ignore_case = true, help_heading = "Filters", value_parser = StateName::ALL.map(StateName::as_str))]
    state: Option<String>,
    #[command(flatten)]
    filters: Filters,
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
    #[arg(long, value_name = "CURSOR")]
    after: Option<String>,
}

impl Args {
    pub(super) async fn run(&self, desk: &Desk, is_json: bool) -> Result<(), Stop> {
        let now = SystemClock.now();
        let filter = self.filter(now)?;
        let mut out = Out::new(is_json, self.all, now);
        let mut left = if self.all { usize::MAX } else { self.limit as usize };
        let mut after = self.after.clone();
        let mut callers = BTreeSet::new();
        loop {
            let mut path = format!("/v1/records?limit={}{filter}", left.min(PAGE_MAX));
            if let Some(cursor) = &after {
                let _ = write!(path, "&after={}", encoded(cursor));
            }
            let mut page = ask(desk, Method::GET, &path, None, is_json).await?;
            let records = taken(&mut page, "records").ok_or_else(foreign)?;
            let unreadable = taken(&mut page, "unreadable").unwrap_or_default();
            left = left.saturating_sub(records.len());
            after = page["next"].as_str().map(str::to_owned);
            if self.filters.caller.is_some() {
                let hashes = records.iter().filter_map(|record| record["callerHash"].as_str());
                callers.extend(hashes.map(clean));
            }
            out.take(records, unreadable);
            if after.is_none() || left == 0 {
                break;
            }
        }
        out.end(after.as_deref());
        if callers.len() > 1 {
            let (count, callers) = (callers.len(), callers.into_iter().collect::<Vec<_>>().join("\n  "));
            eprintln!(
                "the hashes of {count} callers start with these digits, and the list shows the records of all of them. Give more digits \
                 to see one caller:\n  {callers}"
            );
        }
        Ok(())
    }

    fn filter(&self, now: Time) -> Result<String, Stop> {
        let mut query = self.filters.query(now, None)?;
        if let Some(state) = &self.state {
            push(&mut query, "state", &state.to_ascii_uppercase());
        }
        if self.newest_first {
            push(&mut query, "newestFirst", "true");
        }
        Ok(query)
    }
}

/// Takes a list out of a page.
pub(super) fn taken(page: &mut Value, name: &str) -> Option<Vec<Value>> {
    page.get_mut(name)?.as_array_mut().map(std::mem::take)
}

/// Where records go as they come.
enum Out {
    /// One document, at the end.
    Document {
        records: Vec<Value>,
        unreadable: Vec<Value>,
    },
    /// One line each.
    Lines,
    Table {
        table: Table,
        now: Time,
        count: usize,
        unreadable: Vec<Value>,
        resolvable: usize,
    },
}

impl Out {
    fn new(is_json: bool, is_all: bool, now: Time) -> Self {
        match (is_json, is_all) {
            (true, true) => Self::Lines,
            (true, false) => Self::Document { records: Vec::new(), unreadable: Vec::new() },
            (false, _) => {
                let table = records_table(Screen::of_stdout());
                Self::Table { table, now, count: 0, unreadable: Vec::new(), resolvable: 0 }
            }
        }
    }

    fn take(&mut self, came: Vec<Value>, cannot: Vec<Value>) {
        match self {
            Self::Document { records, unreadable } => {
                records.extend(came);
                unreadable.extend(cannot);
            }
            Self::Lines => {
                for record in came {
                    say(&record.to_string());
                }
                for item in cannot {
                    say(&json!({ "operationId": item["operationId"], "unreadable": item["reason"] })
                        .to_string());
                }
            }
            Self::Table { table, now, count, unreadable, resolvable } => {
                *count += came.len();
                *resolvable += came.iter().filter(|record| record["canResolve"] == true).count();
                unreadable.extend(cannot);
                if !came.is_empty() {
                    let rows: Vec<_> =
                        came.iter().map(|record| row(record, *now, Screen::of_stdout())).collect();
                    say(&table.lines(&rows).join("\n"));
                }
            }
        }
    }

    fn end(self, next: Option<&str>) {
        match self {
            Self::Lines => {}
            Self::Document { records, unreadable } => {
                let mut document = json!({ "records": records });
                if !unreadable.is_empty() {
                    document["unreadable"] = unreadable.into();
                }
                if let Some(next) = next {
                    document["next"] = next.into();
                }
                say(&document.to_string());
            }
            Self::Table { count, unreadable, resolvable, .. } => {
                if count == 0 && unreadable.is_empty() {
                    say("no records");
                }
                for item in &unreadable {
                    let text = |name: &str| clean(item[name].as_str().unwrap_or_default());
                    let id = Screen::of_stdout().tinted(&text("operationId"), Tone::Bad);
                    say(&format!("{id}  {}", text("reason")));
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
                    say("");
                    say(&notes.join("\n"));
                }
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
        Column::text("OPERATION ID", Gives::Nothing),
        Column::text("STATE", Gives::Nothing),
        Column::text("OPERATION", Gives::Ends),
        Column::number("ATTEMPT", Gives::Way(2)),
        Column::number("UPDATED", Gives::Nothing),
        Column::text("REASON", Gives::Ends),
        Column::text("KEY", Gives::Way(1)),
        Column::text("CALLER", Gives::Way(3)),
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
