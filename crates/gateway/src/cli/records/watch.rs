//! `semel records watch`.
//!
//! What lives here: looking again and again for records that changed. What must never: more than so many pages in one look, however
//! many records there are, or a change that is shown twice.

use super::super::cli_error::CliError;
use super::super::say_document;
use super::super::table::Screen;
use super::filters::StateAndFilters;
use super::list::{records_table, row};
use super::pages::{PAGE_MAX, Page, page};
use crate::admin_client::AdminClient;
use crate::config::flags::Refusal;
use crate::invalid_value::InvalidValue;
use crate::serve::say;
use semel::SystemClock;
use semel::archive::rfc3339;
use semel::core::store::Clock as _;
use semel::core::time::Time;
use serde_json::Value;
use std::collections::HashMap;
use std::time::Duration;

/// How many pages one look reads. What is left is read by the next look.
const PAGES_PER_LOOK: usize = 10;
/// Writes that were dated earlier can become visible later by about this much.
const OVERLAP: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    filters: StateAndFilters,
    /// How long to wait between two looks
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = interval)]
    interval: Duration,
}

fn interval(text: &str) -> Result<Duration, Refusal> {
    let interval = semel_text::duration::parse(text)?;
    let is_fit = (Duration::from_millis(100)..=Duration::from_hours(1)).contains(&interval);
    is_fit.then_some(interval).ok_or_else(|| InvalidValue::without_fix("write 100ms to 1h").into())
}

impl Args {
    /// Shows every change until Ctrl-C.
    pub(super) async fn run(&self, client: &AdminClient, is_json: bool) -> Result<(), CliError> {
        let now = SystemClock.now();
        // Checked before anything is shown.
        self.filters.query(now, None)?;
        let from = match &self.filters.others.since {
            Some(text) => semel_admin::moment::parse(text, now).map_err(CliError::usage)?,
            None => now,
        };
        let mut changes = Changes { from, ..Changes::default() };
        let screen = Screen::of_stdout();
        let mut table = records_table(screen);
        if !is_json {
            eprintln!("watching for changes since {}; press Ctrl-C to stop", rfc3339::text(from));
        }
        let mut stopped = std::pin::pin!(tokio::signal::ctrl_c());
        loop {
            tokio::select! {
                biased;
                _ = &mut stopped => return Ok(()),
                listed = self.look(client, &mut changes, is_json) => {
                    let records = listed?;
                    let now = SystemClock.now();
                    if is_json {
                        for record in &records {
                            say_document(record);
                        }
                    } else if !records.is_empty() {
                        let rows: Vec<_> = records.iter().map(|record| row(record, now, screen)).collect();
                        say(&table.lines(&rows).join("\n"));
                    }
                }
            }
            tokio::select! {
                _ = &mut stopped => return Ok(()),
                () = tokio::time::sleep(self.interval) => {}
            }
        }
    }

    /// Reads so many pages, and gives back what changed.
    async fn look(
        &self,
        client: &AdminClient,
        changes: &mut Changes,
        is_json: bool,
    ) -> Result<Vec<Value>, CliError> {
        let query = self.filters.query(SystemClock.now(), Some(changes.from))?;
        let mut new = Vec::new();
        for _ in 0..PAGES_PER_LOOK {
            let Page { records, next, .. } =
                page(client, &query, PAGE_MAX, changes.after.as_deref(), is_json).await?;
            new.extend(records.into_iter().filter(|record| changes.is_new(record)));
            changes.after = next;
            if changes.after.is_none() {
                changes.begin_again();
                break;
            }
        }
        new.sort_by(|one, other| one["updatedAt"].as_str().cmp(&other["updatedAt"].as_str()));
        Ok(new)
    }
}

/// What was seen.
#[derive(Debug, Default)]
struct Changes {
    /// Earlier changes are not asked for.
    from: Time,
    /// Where the next page begins.
    after: Option<String>,
    /// The latest change seen.
    latest: Time,
    /// The version of each record that could be found again.
    seen: HashMap<String, (u64, Time)>,
}

impl Changes {
    fn is_new(&mut self, record: &Value) -> bool {
        let text = |name: &str| record[name].as_str().unwrap_or_default();
        let (version, at) =
            (record["version"].as_u64().unwrap_or_default(), rfc3339::parse(text("updatedAt")));
        let at = at.unwrap_or(self.from);
        self.latest = self.latest.max(at);
        self.seen.insert(text("operationId").to_owned(), (version, at)).is_none_or(|(seen, _)| seen < version)
    }

    /// Every page was read: the next look begins at the latest change, and what it cannot find again is forgotten.
    fn begin_again(&mut self) {
        let from = self.from.max(self.latest - OVERLAP);
        self.from = from;
        self.seen.retain(|_, (_, at)| *at >= from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn record(id: &str, version: u64, at: u64) -> Value {
        json!({ "operationId": id, "version": version, "updatedAt": rfc3339::text(Time::from_millis(at)) })
    }

    #[test]
    fn each_change_is_shown_once_and_what_is_past_is_forgotten() {
        let mut changes = Changes::default();
        assert!(changes.is_new(&record("a", 1, 1_000)));
        assert!(!changes.is_new(&record("a", 1, 1_000)), "the same version");
        assert!(changes.is_new(&record("a", 2, 2_000)));
        assert!(changes.is_new(&record("b", 1, 60_000)));
        changes.begin_again();
        assert_eq!(changes.from, Time::from_millis(55_000));
        assert_eq!(changes.seen.len(), 1, "records that cannot be listed again are forgotten");
        assert!(!changes.is_new(&record("b", 1, 60_000)));
        assert!(changes.is_new(&record("c", 1, 56_000)), "written earlier, and visible later");
    }
}
