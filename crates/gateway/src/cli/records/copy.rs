//! `semel records copy`.
//!
//! What lives here: which two stores, what is shown meanwhile, and the exit code. What must never: how a record is copied.

use super::super::cli_error::CliError;
use super::super::target::UnusedTarget;
use crate::serve::say;
use crate::stores::Url;
use semel::copy::{Copy, Error, Progress, Report, TableReport};
use semel::core::store::{Inspection, Store};
use semel::time::{ClockStatus, examine_clock};
use semel::{Clock as _, ClockSettings, SystemClock};
use serde_json::json;
use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

pub(super) const EXIT_CODES: &str = "Exit codes: 0 copied and verified; 1 failed: do what the message says, which is to run it again if a \
                                     store did not answer; 2 the command line is wrong; 4 refused: a gateway works on the source, or \
                                     the target is not empty";

/// How often progress is shown: on a terminal, and in a file.
const SHOWN_EVERY: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(10)];

#[derive(Debug, Clone, clap::Args)]
pub(super) struct Args {
    /// The store with the records. It is opened for reading only
    #[arg(long, value_name = "URL")]
    from: Url,
    /// The store to copy them to. It is created if it does not exist, and must not hold other records
    #[arg(long, value_name = "URL")]
    to: Url,
    /// You know that gateways that did not sign off have ended: watch them for 15 seconds only, not until their
    /// registration lapses
    #[arg(long)]
    gateways_stopped: bool,
    #[command(flatten)]
    _unused: UnusedTarget,
}

impl Args {
    pub(super) async fn run(&self, is_json: bool) -> Result<(), CliError> {
        let Self { from, to, gateways_stopped, .. } = self;
        for url in [from, to] {
            if url.backend().is_in_process() {
                return Err(CliError::usage(format!(
                    "{url} ends with the process that opened it: it cannot be copied"
                )));
            }
        }
        if from == to {
            return Err(CliError::usage("--from and --to name the same store"));
        }
        let source = source(from).await?;
        let target = to.open().await?;
        let copy = Copy {
            source: &*source,
            target: &*target,
            clock: &SystemClock,
            nodes_have_ended: *gateways_stopped,
        };
        let total = source.census().await.map(|census| census.states().map(|(_, count)| count).sum()).ok();
        let mut shown = Shown::new(total);
        let copied = copy.run(&mut |progress| shown.show(progress)).await;
        shown.end();
        let clock = if copied.is_ok() { clock_warning(&*target).await } else { None };
        target.close().await;
        let report = copied.map_err(|error| stop(&error))?;
        say(&if is_json { document(self, &report) } else { lines(self, &report) });
        if let Some(warning) = clock {
            eprintln!("warning: {warning}");
        }
        Ok(())
    }
}

/// The store with the records, if it is there and can be read as a whole.
async fn source(url: &Url) -> Result<Box<dyn Inspection>, CliError> {
    let unusable =
        |error: semel::core::store::Error| CliError::failed(format!("{url} cannot be read: {error}"));
    if !url.exists().await.map_err(unusable)? {
        return Err(CliError::failed(format!("{url} does not exist, or holds no records of Semel")));
    }
    let source = url.inspect().await.map_err(unusable)?;
    let schema = source.schema().await.map_err(unusable)?;
    if schema.have != schema.wanted {
        return Err(CliError::failed(format!(
            "{url} has schema {}, and this version copies schema {}: run semel schema apply --store {url} first",
            schema.have, schema.wanted
        )));
    }
    if source.is_replica().await.map_err(unusable)? {
        return Err(CliError::refused(format!(
            "{url} is answered by a standby, which may lag behind: name the server that takes writes"
        )));
    }
    Ok(source)
}

fn stop(error: &Error) -> CliError {
    match error {
        Error::MayBeInUse(_) => CliError::refused(format!("{error}, and add --gateways-stopped")),
        error if error.is_refusal() => CliError::refused(error.to_string()),
        Error::Source(_) | Error::Target(_) => {
            CliError::failed(format!("{error}. Run the same command again: it goes on where this one ended"))
        }
        error => CliError::failed(error.to_string()),
    }
}

/// What gateways on the target will think of its clock, where that is worth knowing before they start.
async fn clock_warning(target: &dyn Store) -> Option<String> {
    match examine_clock(target, &SystemClock, &ClockSettings::default()).await {
        Ok(ClockStatus::Untrusted(why)) => Some(format!(
            "gateways will not trust the target's clock: {why}. Set it right, or confirm it with semel doctor \
             --confirm-clock --reason \"…\""
        )),
        _ => None,
    }
}

fn document(arguments: &Args, report: &Report) -> String {
    let records: serde_json::Map<_, _> =
        report.records.iter().map(|(state, count)| (state.as_str().to_owned(), json!(count))).collect();
    let table = |table: &TableReport| {
        (table.name.to_owned(), json!({ "rows": table.rows, "copied": table.is_copied }))
    };
    let tables: serde_json::Map<_, _> = report.tables.iter().map(table).collect();
    json!({
        "from": arguments.from.to_string(),
        "to": arguments.to.to_string(),
        "records": records,
        "recordsTotal": report.records_total(),
        "markers": report.markers,
        "copiedBefore": report.found_there,
        "settings": report.settings,
        "tables": tables,
    })
    .to_string()
}

fn lines(arguments: &Args, report: &Report) -> String {
    let Args { from, to, .. } = arguments;
    let mut lines = vec![format!("copied {from} to {to}")];
    for (state, count) in &report.records {
        lines.push(format!("  {:<22} {count:>10}", state.as_str()));
    }
    if report.markers > 0 {
        lines.push(format!("  {:<22} {:>10}", "markers", report.markers));
    }
    lines.push(format!("  {:<22} {:>10}", "records", report.records_total()));
    for table in &report.tables {
        let note = if table.is_copied || table.rows == 0 { "" } else { "  not copied" };
        lines.push(format!("  {:<22} {:>10}{note}", table.name, table.rows));
    }
    lines.push("every record was read back and compared".to_owned());
    if report.found_there > 0 {
        lines.push(format!("{} had been copied before, by a copy that was interrupted", report.found_there));
    }
    lines.push(about_tables(&report.tables).to_owned());
    lines.push(format!(
        "start gateways with --store {to} now, and none on {from} again: what they did there would not be known here"
    ));
    lines.join("\n")
}

/// What to know about the rows that services keep beside the records.
fn about_tables(tables: &[TableReport]) -> &'static str {
    if tables.is_empty() {
        "not copied: marks of messages that services set with MessageDedup. Those messages count as new in another store"
    } else if tables.iter().all(|table| table.rows == 0) {
        "the tables that services use through semel-tx are empty"
    } else if tables.iter().all(|table| table.is_copied) {
        "the tables that services use through semel-tx were copied too. What services write to the old ones from now on \
         is not known here"
    } else {
        "not copied: the tables that services use through semel-tx, because the new store has no such tables. Let services \
         keep them where they are; elsewhere their messages and references count as new"
    }
}

/// What is shown on standard error meanwhile.
struct Shown {
    total: Option<u64>,
    is_terminal: bool,
    last: Option<Duration>,
    stage: u8,
}

impl Shown {
    fn new(total: Option<u64>) -> Self {
        Self { total, is_terminal: std::io::stderr().is_terminal(), last: None, stage: 0 }
    }

    fn show(&mut self, progress: Progress) {
        let now = SystemClock.uptime();
        let of = self.total.map_or(String::new(), |total| format!(" of about {total}"));
        let (stage, text) = match progress {
            Progress::Watching { nodes, left } => {
                let nodes = if nodes == 1 { "1 gateway".to_owned() } else { format!("{nodes} gateways") };
                let left = left.as_secs();
                (
                    1,
                    format!(
                        "{nodes} did not sign off from the source: watching for signs of life, {left} s at most"
                    ),
                )
            }
            Progress::Copied(count) => (2, format!("copied {count}{of}")),
            Progress::Verified(count) => (3, format!("verified {count}{of}")),
        };
        let every = SHOWN_EVERY[usize::from(!self.is_terminal)];
        let is_due = self.last.is_none_or(|last| now.saturating_sub(last) >= every);
        if stage == self.stage && !is_due {
            return;
        }
        let begins = stage != self.stage && self.stage != 0;
        (self.stage, self.last) = (stage, Some(now));
        let mut err = std::io::stderr().lock();
        // A terminal's line is written over; nobody reads on whether that works.
        let _ = if self.is_terminal {
            write!(err, "{}\r\x1b[K{text}", if begins { "\n" } else { "" }).and_then(|()| err.flush())
        } else {
            writeln!(err, "{text}")
        };
    }

    fn end(&self) {
        if self.is_terminal && self.stage != 0 {
            eprintln!();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_follows_from_what_was_found() {
        let table = |rows, is_copied| TableReport { name: "inbox_marks", rows, is_copied };
        assert!(about_tables(&[]).contains("MessageDedup"));
        assert!(about_tables(&[table(0, false), table(0, false)]).contains("are empty"));
        assert!(about_tables(&[table(0, true), table(3, true)]).contains("were copied too"));
        assert!(about_tables(&[table(0, false), table(3, false)]).contains("not copied"));
    }
}
