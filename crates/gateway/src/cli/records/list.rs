//! `semel records list`.
//!
//! What lives here: filters, pages and the table. What must never: more of a list in memory than a page, or a record left
//! out because it cannot be read.

use super::super::moment::{age, parse};
use super::super::place::{ask, foreign};
use super::super::stop::Stop;
use super::super::table::{Cell, Column, Gives, Screen, Table, Tone, clean};
use super::tone;
use crate::admin_client::{Desk, encoded};
use crate::serve::say;
use http::Method;
use semel::SystemClock;
use semel::archive::rfc3339;
use semel::core::record::StateName;
use semel::core::store::{Callers, Clock as _};
use semel::core::time::Time;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// The most records of one page.
const PAGE_MAX: usize = 500;

#[derive(Debug, Clone, clap::Args)]
pub(super) struct Args {
    /// In this state
    #[arg(long, value_name = "STATE", ignore_case = true, value_parser = StateName::ALL.map(StateName::as_str))]
    state: Option<String>,
    /// Of this operation: its name, or method and path as in `POST /charges`
    #[arg(long, value_name = "NAME")]
    operation: Option<String>,
    /// Of the caller whose hash begins with these digits: 8 of its 64 at least, as tables, logs and metrics show them. Where the
    /// hashes of several callers begin so, these are named
    #[arg(long, value_name = "HASH", value_parser = beginning)]
    caller: Option<String>,
    /// Of this key, which is hashed where the records are
    #[arg(long, value_name = "KEY", conflicts_with = "key_hash")]
    key: Option<String>,
    /// Of the key with this hash, all 64 digits of it
    #[arg(long, value_name = "HASH", value_parser = hash)]
    key_hash: Option<String>,
    /// Last written then or later: 2026-11-15T19:05:00Z, or how long ago, as in 2h
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// Last written before then
    #[arg(long, value_name = "WHEN")]
    until: Option<String>,
    /// With an operation id that begins so: 4 digits of it at least
    #[arg(long, value_name = "ID", value_parser = super::beginning)]
    id: Option<String>,
    /// Whose outcome is about this kind of thing, in the words of the service: order
    #[arg(long, value_name = "TYPE")]
    resource_type: Option<String>,
    /// Whose outcome is about the thing of this id
    #[arg(long, value_name = "ID")]
    resource_id: Option<String>,
    /// Whose outcome has this error code, as in `OUT_OF_STOCK`
    #[arg(long, value_name = "CODE")]
    error_code: Option<String>,
    /// The newest first
    #[arg(long)]
    newest_first: bool,
    /// How many at most
    #[arg(long, value_name = "NUMBER", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// All of them
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    /// Go on where an earlier list ended
    #[arg(long, value_name = "CURSOR")]
    after: Option<String>,
}

fn hash(text: &str) -> Result<String, String> {
    let is_hash = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash.then(|| text.to_owned()).ok_or_else(|| {
        "a key's hash has 64 hexadecimal digits. Tables and logs show the first 8 of them, by which no key can be looked up: \
         the whole is in `semel records show`, and in each line of `semel records list --all --json`"
            .to_owned()
    })
}

fn beginning(text: &str) -> Result<String, String> {
    Callers::beginning(text).map(|_| text.to_ascii_lowercase()).ok_or_else(|| {
        "a caller is looked up by the beginning of its hash: 8 hexadecimal digits, as tables, logs and metrics show them, or more, \
         up to all 64"
            .to_owned()
    })
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
            if self.caller.is_some() {
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
                "the hashes of {count} callers begin so, and these are records of them all; --caller with more digits shows one's:\n  \
                 {callers}"
            );
        }
        Ok(())
    }

    fn filter(&self, now: Time) -> Result<String, Stop> {
        let moment = |text: &Option<String>| -> Result<Option<String>, Stop> {
            let moment = text.as_ref().map(|text| parse(text, now)).transpose();
            Ok(moment.map_err(Stop::usage)?.map(rfc3339::text))
        };
        let (since, until) = (moment(&self.since)?, moment(&self.until)?);
        let state = self.state.as_ref().map(|state| state.to_ascii_uppercase());
        let newest_first = self.newest_first.then(|| "true".to_owned());
        let wanted = [
            ("id", &self.id),
            ("newestFirst", &newest_first),
            ("state", &state),
            ("operation", &self.operation),
            ("callerHash", &self.caller),
            ("key", &self.key),
            ("keyHash", &self.key_hash),
            ("updatedFrom", &since),
            ("updatedBefore", &until),
            ("resourceType", &self.resource_type),
            ("resourceId", &self.resource_id),
            ("errorCode", &self.error_code),
        ];
        let mut filter = String::new();
        for (name, value) in wanted {
            if let Some(value) = value {
                let _ = write!(filter, "&{name}={}", encoded(value));
            }
        }
        Ok(filter)
    }
}

fn taken(page: &mut Value, name: &str) -> Option<Vec<Value>> {
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
                let columns = vec![
                    Column::text("OPERATION ID", Gives::Nothing),
                    Column::text("STATE", Gives::Nothing),
                    Column::text("OPERATION", Gives::Ends),
                    Column::number("ATTEMPT", Gives::Way(2)),
                    Column::number("UPDATED", Gives::Nothing),
                    Column::text("KEY", Gives::Way(1)),
                    Column::text("CALLER", Gives::Way(3)),
                ];
                let table = Table::new(Screen::of_stdout(), columns);
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
                    let rows: Vec<_> = came.iter().map(|record| row(record, *now)).collect();
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
                        "{resolvable} can be settled: semel records resolve OPERATION_ID --outcome …"
                    ));
                }
                if !unreadable.is_empty() {
                    notes.push(format!("{} cannot be read: semel doctor tells more", unreadable.len()));
                }
                if let Some(next) = next {
                    notes.push(format!("there are more: --after {next}, --limit or --all"));
                }
                if !notes.is_empty() {
                    say("");
                    say(&notes.join("\n"));
                }
            }
        }
    }
}

fn row(record: &Value, now: Time) -> Vec<Cell> {
    let text = |name: &str| record[name].as_str().unwrap_or_default();
    let hash = |name: &str| Cell::new(text(name).get(..8).unwrap_or_default()).tone(Tone::Quiet);
    let updated = rfc3339::parse(text("updatedAt")).map(|at| age(now.since(at)));
    vec![
        Cell::new(text("operationId")),
        Cell::new(text("state")).tone(tone(text("state"))),
        Cell::new(text("operation")),
        Cell::new(record["attempt"].to_string()),
        Cell::new(updated.unwrap_or_default()),
        hash("keyHash"),
        hash("callerHash"),
    ]
}
