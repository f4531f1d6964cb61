//! `semel doctor`: prints the report of [`doctor`](crate::doctor).

use super::config::{render_mistakes, text};
use super::moment::{age, away, written};
use super::size;
use super::stop::Stop;
use super::table::{Cell, Column, Screen, Table, Tone, WhenNarrow, wrapped};
use super::user;
use crate::config::{self, Config, Overrides};
use crate::doctor::{self, ClockDifference, Finding, Latency, NotMeasured, Options, Report, Severity};
use crate::printable::{printable, printable_json};
use crate::serve::say;
use crate::stores::Url;
use semel::SystemClock;
use semel::archive::rfc3339;
use semel::core::store::Clock as _;
use semel::core::time::Time;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

const EXIT_CODES: &str = "Exit codes: 0 no errors (there may be warnings); 1 findings of severity error; 2 \
    the command line is wrong";

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(super) struct Args {
    /// The store, such as sqlite:semel.db. It is opened for reading only, also while gateways run on it
    /// [default: the configuration's, or sqlite:semel.db without one]
    #[arg(long, value_name = "URL", env = "SEMEL_STORE")]
    store: Option<Url>,
    /// The gateway's configuration file: it is checked, and its keys are tried on sealed responses
    #[arg(long, value_name = "FILE", env = "SEMEL_CONFIG")]
    config: Option<PathBuf>,
    /// Skip the checks that read the whole store
    #[arg(long)]
    quick: bool,
    /// Also measure how long writes take, on a separate record and setting that are removed again. Otherwise nothing
    /// is written
    #[arg(long)]
    measure_writes: bool,
    /// Confirm that the clock is right, after it jumped or was not trusted at start: every gateway on the store uses
    /// it within seconds. Check the clock first: what is expired by it is removed, and those keys can run again
    #[arg(long, requires = "reason")]
    confirm_clock: bool,
    /// With --confirm-clock: why the clock is right. Stored with the confirmation
    #[arg(long, value_name = "TEXT", requires = "confirm_clock", value_parser = crate::reason::parse)]
    reason: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn main(arguments: &Args) -> Result<ExitCode, Stop> {
    let mut findings = Vec::new();
    let config = arguments.config.as_deref().map(|file| read(file, &mut findings)).transpose()?.flatten();
    // A file with mistakes names no reliable store, and another store was not asked for.
    if config.is_none() && arguments.config.is_some() && arguments.store.is_none() {
        return print_report(arguments, Report::of_no_store(), findings);
    }
    let is_configured = config.is_some();
    let named = config.as_ref().map(|config| config.store.clone());
    let url = arguments.store.clone().or_else(|| named.clone()).unwrap_or_default();
    if let Some(named) = named.filter(|named| *named != url) {
        findings.push(Finding {
            severity: Severity::Warning,
            code: "config-of-another-store",
            what: format!("the configuration names the store {named}, but this is {url}"),
            fix: "give the configuration of the gateway that uses this store".to_owned(),
        });
    }
    for operation in config.iter().flat_map(|config| &config.operations) {
        if let Some(callers) = operation.callers() {
            findings.push(Finding {
                severity: Severity::Notice,
                code: "operation-callers",
                what: format!("{} has its own rule for callers: {callers}", operation.title()),
                fix: "none is needed if that is intended; without `callers` and `tenant`, [identity] applies"
                    .to_owned(),
            });
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("the runtime cannot be started: {error}"))?;
    if let Some(reason) = &arguments.reason {
        return runtime.block_on(confirm_clock(&url, reason));
    }
    let clock = config.as_ref().map(|config| config.storage.settings.clock.clone()).unwrap_or_default();
    let routes = config.as_ref().map(Config::routes).transpose().map_err(|error| error.to_string())?;
    let sealing = config.and_then(|config| config.sealing);
    let (is_quick, measures_writes) = (arguments.quick, arguments.measure_writes);
    let ask = Options { is_quick, measures_writes, sealing, routes, is_configured, clock };
    let report = runtime.block_on(doctor::examine(&url, &ask));
    print_report(arguments, report, findings)
}

/// Makes every gateway on the store use the clock as it is.
async fn confirm_clock(url: &Url, reason: &str) -> Result<ExitCode, Stop> {
    let exists = url.exists().await.map_err(|error| format!("nothing was confirmed: {error}"))?;
    if !exists {
        return Err(format!("{url} does not exist; nothing was confirmed").into());
    }
    let opened = url.open().await?;
    let confirmed = semel::time::confirm_clock(&*opened, &SystemClock, &user::name(), reason).await;
    opened.close().await;
    let confirmed = confirmed.map_err(|error| format!("nothing was confirmed: {error}"))?;
    say(&format!(
        "confirmed: it is {}. Gateways on {url} use it within seconds, and expire nothing for a few minutes.",
        written(&rfc3339::text(confirmed))
    ));
    Ok(ExitCode::SUCCESS)
}

/// Prints the report with the other findings.
fn print_report(arguments: &Args, mut report: Report, findings: Vec<Finding>) -> Result<ExitCode, Stop> {
    for finding in findings {
        report.find(finding);
    }
    if arguments.json {
        let document = serde_json::to_string(&report).map_err(|error| error.to_string())?;
        say(&printable_json(&document));
    } else {
        say(&lines(&report, arguments.quick, SystemClock.now(), Screen::of_stdout()).join("\n"));
    }
    Ok(if report.has_errors() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The configuration, if it has no mistakes; mistakes are findings.
fn read(file: &Path, findings: &mut Vec<Finding>) -> Result<Option<Config>, Stop> {
    match config::read(&text(file)?, &Overrides::default(), &config::environment) {
        Ok(config) => Ok(Some(config)),
        Err(mistakes) => {
            let problems = render_mistakes(file, &mistakes);
            findings.push(Finding::error(
                "config-mistakes",
                problems,
                "fix it; `semel config check` shows the same",
            ));
            Ok(None)
        }
    }
}

fn lines(report: &Report, is_quick: bool, now: Time, screen: Screen) -> Vec<String> {
    let mut lines = Vec::new();
    let mut fact = |label: &str, more: String| {
        lines.push(format!("  {} {}", screen.tinted(&format!("{label:<10}"), Tone::Quiet), printable(&more)));
    };
    fact("store", report.store.clone().unwrap_or_else(|| "none was checked".to_owned()));
    if let (Some(file), Some(log)) = (report.file_bytes, report.log_bytes) {
        let text = |bytes: u64| size::text(usize::try_from(rounded(bytes)).unwrap_or(usize::MAX));
        let library = report.library.as_ref().map(|library| format!("; {library}")).unwrap_or_default();
        fact("file", format!("{}, its log {}{library}", text(file), text(log)));
    }
    if let Some(schema) = report.schema {
        let fits = if schema.have == schema.wanted {
            "as this version needs it"
        } else {
            "not what this version needs"
        };
        fact("schema", format!("{}, {fits}", schema.have));
    }
    if !report.records.is_empty() {
        let count: u64 = report.records.values().sum();
        let by_state = report.records.iter().filter(|(_, count)| **count > 0);
        let by_state: Vec<_> = by_state.map(|(state, count)| format!("{count} {state}")).collect();
        let by_state = if by_state.is_empty() { String::new() } else { format!(": {}", by_state.join(", ")) };
        fact("records", format!("{count}{by_state}"));
    }
    if let Some(oldest) = &report.oldest_unknown {
        let since = &oldest.since;
        fact("unknown", format!("since {} ({}): {}", written(since), away(since, now), oldest.operation_id));
    }
    if let Some(secret) = &report.secret {
        let nodes = if secret.nodes.is_empty() { "nobody".to_owned() } else { secret.nodes.join(", ") };
        fact("secret", format!("{}; number {}", secret.phase, secret.generation + 1));
        fact("nodes", format!("{nodes}, as far as they have registered"));
    }
    if let Some(ClockDifference { ahead_ms, uncertainty_ms }) = report.clock {
        let which = if ahead_ms < 0 { "behind" } else { "ahead of" };
        let (by, within) = (length(ahead_ms.unsigned_abs()), length(uncertainty_ms));
        fact("clock", format!("the server's is {by} {which} this machine's (± {within})"));
    }
    if !report.latency.is_empty() {
        let millis = |us: u64| format!("{}.{} ms", us / 1_000, us % 1_000 / 100);
        let call =
            |it: &Latency| format!("{} {} (≤ {})", it.call, millis(it.median_us), millis(it.slowest_us));
        fact("latency", report.latency.iter().map(call).collect::<Vec<_>>().join(", "));
    }
    for NotMeasured { calls, why } in &report.not_measured {
        fact("unmeasured", format!("{calls}: {why}"));
    }
    if report.schema.is_some() {
        let read =
            format!("{} read, {} cannot be, {} sealed", report.scanned, report.unreadable, report.sealed);
        fact("read", if is_quick { "nothing: a quick look".to_owned() } else { read });
    }
    lines.push(String::new());
    if report.findings.is_empty() {
        lines.push(screen.tinted("nothing found", Tone::Good));
        return lines;
    }
    for (at, finding) in report.findings.iter().enumerate() {
        if at > 0 {
            lines.push(String::new());
        }
        let tone = match finding.severity {
            Severity::Error => Tone::Bad,
            Severity::Warning => Tone::Doubtful,
            Severity::Notice => Tone::Quiet,
        };
        let columns = vec![Column::text("", WhenNarrow::Keep), Column::text("", WhenNarrow::Keep)];
        let mut table = Table::new(Screen { width: None, ..screen }, columns);
        let name = finding.severity.name();
        let mut rows = vec![vec![
            Cell::new(format!("{name:<7}")).tone(tone),
            Cell::new(finding.code).tone(Tone::Strong),
        ]];
        // Output to a pipe is not wrapped.
        let width = screen.width.map_or(usize::MAX, |width| width.saturating_sub(9).max(30));
        for line in finding.what.lines().flat_map(|line| wrapped(line, width)) {
            rows.push(vec![Cell::new(""), Cell::new(line)]);
        }
        for (at, line) in wrapped(&finding.fix, width).into_iter().enumerate() {
            rows.push(vec![Cell::new(if at == 0 { "→" } else { "" }), Cell::new(line)]);
        }
        lines.extend(table.lines(&rows).into_iter().skip(1));
    }
    lines
}

/// Milliseconds for people: `12 ms`, `1.5 s`, `3m`.
fn length(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        _ => age(Duration::from_millis(ms)),
    }
}

/// Whole kibibytes, or mebibytes for large values.
fn rounded(bytes: u64) -> u64 {
    let unit: u64 = if bytes >= 10 << 20 { 1 << 20 } else { 1 << 10 };
    bytes.div_ceil(unit) * unit
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::records::tests::{NOW, looked_at};

    #[tokio::test]
    async fn pending_work_is_printed_with_what_to_do() {
        let mut report = looked_at(&[true, false]).await;
        report.store = Some("sqlite:semel.db".to_owned());
        report.clock = Some(ClockDifference { ahead_ms: -61_000, uncertainty_ms: 12 });
        let printed = lines(&report, true, NOW, Screen { width: Some(80), has_colour: false }).join("\n");
        let id = report.oldest_unknown.expect("one is unknown").operation_id;
        let printed = printed.replace(&id, "OPERATION_ID");
        crate::texts::assert_is("doctor", &printed);
    }

    #[test]
    fn lengths_are_for_people() {
        assert_eq!([0, 999, 1_500, 59_999, 61_000].map(length), ["0 ms", "999 ms", "1.5 s", "59.9 s", "1m"]);
    }
}
