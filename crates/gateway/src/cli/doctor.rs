//! `semel doctor`: prints the report of [`doctor`](crate::doctor).

use super::cli_error::CliError;
use super::config::{render_mistakes, text};
use super::table::{Cell, Column, Screen, Table, Tone, WhenNarrow};
use super::user;
use crate::config::{self, Config, Overrides};
use crate::doctor::{self, ClockDifference, Finding, Latency, NotMeasured, Options, Report, Severity};
use crate::serve::say;
use crate::stores::Url;
use clap::ValueEnum as _;
use semel::archive::rfc3339;
use semel::core::store::{self, AcceptedLoss, Clock as _, Store};
use semel::core::time::Time;
use semel::time::{self, ClockComparison};
use semel::{ClockSettings, SystemClock};
use semel_admin::moment::{age, away, written};
use semel_text::printable::{printable, printable_json};
use semel_text::size;
use semel_text::wrap::wrapped;
use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use thiserror::Error;

const EXIT_CODES: &str = "Exit codes: 0 no errors (there may be warnings); 1 findings of severity error; 2 \
    the command line is wrong";

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES, group(clap::ArgGroup::new("decision").args(["confirm_clock", "accept_loss"])))]
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
    /// Confirm that a clock is right, after it jumped or was not trusted at start: every gateway whose clock shows the
    /// same uses it within seconds, and any other refuses new keys. If this machine's clock and the gateways' differ,
    /// both are shown, and you have to say which one is right. Check it first: what is expired by it is removed, and
    /// those keys can run again
    #[arg(long, value_name = "WHICH", num_args = 0..=1, requires = "reason")]
    #[expect(clippy::option_option, reason = "a flag with an optional value")]
    confirm_clock: Option<Option<WhichClock>>,
    /// Accept that the store has lost data: a server was emptied, came back without its data, or removed keys. Gateways
    /// use the lost parts again, and commands that were recorded there can run again. Restore the data first, if you can
    #[arg(long, requires = "reason")]
    accept_loss: bool,
    /// With --confirm-clock or --accept-loss: why the clock is right, or what was lost. Kept in the store
    #[arg(long, value_name = "TEXT", requires = "decision", value_parser = semel_admin::reason::parse)]
    reason: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A clock that can be confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum WhichClock {
    /// The store's clock as this machine reads it: of a file, this machine's own
    ThisMachine,
    /// The clock of the gateway that runs on this machine
    Gateway,
}

pub(super) fn main(arguments: &Args) -> Result<ExitCode, CliError> {
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
    if let Some(unswept) = config.as_ref().and_then(|config| url.unswept(config.storage.settings.sweep.every))
    {
        let fix = "remove `every = \"0s\"` under [sweep] of at least one gateway on the store";
        findings.push(Finding::warning("sweeper-off", unswept, fix));
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
    let runtime = super::runtime()?;
    if let (true, Some(reason)) = (arguments.accept_loss, &arguments.reason) {
        return runtime.block_on(accept_loss(&url, reason));
    }
    let clock = config.as_ref().map(|config| config.storage.settings.clock.clone()).unwrap_or_default();
    if let (Some(which), Some(reason)) = (arguments.confirm_clock, &arguments.reason) {
        return runtime.block_on(confirm_clock(&url, which, &clock, reason));
    }
    let routes = config.as_ref().map(Config::routes).transpose()?;
    let sealing = config.and_then(|config| config.sealing);
    let (is_quick, measures_writes) = (arguments.quick, arguments.measure_writes);
    let ask = Options { is_quick, measures_writes, sealing, routes, is_configured, clock };
    let report = runtime.block_on(doctor::examine(&url, &ask));
    print_report(arguments, report, findings)
}

/// Makes every gateway on the store use the clock that is meant.
async fn confirm_clock(
    url: &Url,
    which: Option<WhichClock>,
    settings: &ClockSettings,
    reason: &str,
) -> Result<ExitCode, CliError> {
    if !url.exists().await.map_err(Unconfirmed)? {
        return Err(CliError::failed(format!("{url} does not exist; nothing was confirmed")));
    }
    let opened = url.open().await?;
    let confirmed = confirm_on(&*opened, which, settings, reason).await;
    opened.close().await;
    say(&format!(
        "confirmed: it is {}. Gateways on {url} whose clock shows the same use it within seconds, and expire nothing for a few \
         minutes.",
        written(&rfc3339::text(confirmed?))
    ));
    Ok(ExitCode::SUCCESS)
}

/// The store did not answer.
#[derive(Debug, Error)]
#[error("nothing was confirmed: {0}")]
struct Unconfirmed(#[source] store::Error);

/// Makes gateways use the lost parts of the store again.
async fn accept_loss(url: &Url, reason: &str) -> Result<ExitCode, CliError> {
    let why = format!("{} by {}: {reason}", rfc3339::text(SystemClock.now()), user::name());
    let unsettled = |error| {
        CliError::failed(format!("the loss is not accepted, and commands are still refused: {error}"))
    };
    let AcceptedLoss { parts, of, settings, secret } = url.accept_loss(&why).await.map_err(unsettled)?;
    let left_over = "Commands that were recorded there run again if they are retried.";
    say(&match (parts, settings, secret) {
        (0, false, _) => format!("nothing was changed: no part of {url} is lost"),
        // A store without buckets has one part.
        (_, false, _) if of == 1 => format!(
            "accepted: the records of {url} were lost. Gateways use the store again from now on. {left_over}"
        ),
        (_, false, _) => format!(
            "accepted: {parts} of {of} buckets of {url} were lost. Gateways use them again from now on. {left_over}"
        ),
        (_, true, false) => format!(
            "accepted: {parts} of {of} buckets of {url} and a part of its settings were lost. Gateways use them again from now on. {left_over}"
        ),
        (_, true, true) => format!(
            "accepted: {parts} of {of} buckets of {url} and its settings were lost, with the hashing secret. Restart every gateway: until \
             then, it refuses all keys. {left_over} Records that are left are found again only if the secret is configured \
             (hashing_secret). If the store had generated it, every command can run again."
        ),
    });
    Ok(ExitCode::SUCCESS)
}

async fn confirm_on(
    store: &dyn Store,
    which: Option<WhichClock>,
    settings: &ClockSettings,
    reason: &str,
) -> Result<Time, CliError> {
    let clocks = time::compare_clocks(store, &SystemClock).await.map_err(Unconfirmed)?;
    let which = match which {
        Some(which) => which,
        None if clocks.agrees(settings) => WhichClock::ThisMachine,
        None => ask_which(&clocks)?,
    };
    let who = user::name();
    match which {
        WhichClock::ThisMachine => time::confirm_clock(store, &SystemClock, &who, reason)
            .await
            .map_err(|error| Unconfirmed(error).into()),
        WhichClock::Gateway => {
            let confirmed = time::confirm_clock_of_nodes(store, &SystemClock, settings, &who, reason).await;
            confirmed.map_err(Unconfirmed)?.ok_or_else(|| {
                CliError::failed(
                    "nothing was confirmed: no gateway on this machine has written its time to this store recently. Run this on the \
                     gateway's machine, or send POST /v1/clock/confirm to its admin address",
                )
            })
        }
    }
}

/// Asks on the terminal which clock is right. Without a terminal, nothing is confirmed.
fn ask_which(clocks: &ClockComparison) -> Result<WhichClock, CliError> {
    let shown = two_clocks(clocks);
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Err(CliError::usage(format!(
            "{shown}\nnothing was confirmed: say which clock is right, with --confirm-clock this-machine or --confirm-clock gateway"
        )));
    }
    let mut err = std::io::stderr().lock();
    // If the question cannot be shown, no answer below is a choice.
    let _ =
        write!(err, "{shown}\nwhich clock is right, this-machine or gateway? ").and_then(|()| err.flush());
    let mut answer = String::new();
    let read = stdin.lock().read_line(&mut answer);
    read.map_err(|error| CliError::failed(format!("standard input cannot be read: {error}")))?;
    WhichClock::from_str(answer.trim(), false)
        .map_err(|_| CliError::failed("neither this-machine nor gateway; nothing was confirmed"))
}

/// The clocks that may be meant, on one line each.
fn two_clocks(clocks: &ClockComparison) -> String {
    let text = |time: Time| written(&rfc3339::text(time));
    let mut lines = vec![format!("this machine's clock shows         {}", text(clocks.shown))];
    match clocks.nodes {
        Some(nodes) => {
            let since = match nodes.written_ago {
                Some(ago) => format!("last heard of {} ago", age(ago)),
                None => "when they last wrote it".to_owned(),
            };
            lines.push(format!("gateways on this store use         {} ({since})", text(nodes.used)));
            if let Some(jumped_to) = nodes.jumped_to() {
                lines.push(format!("but their machine's clock shows    {}", text(jumped_to)));
            }
        }
        None => lines.push("the time of the gateways on this store cannot be read".to_owned()),
    }
    lines.join("\n")
}

/// Prints the report with the other findings.
fn print_report(arguments: &Args, mut report: Report, findings: Vec<Finding>) -> Result<ExitCode, CliError> {
    for finding in findings {
        report.find(finding);
    }
    if arguments.json {
        let document = serde_json::to_string(&report)?;
        say(&printable_json(&document));
    } else {
        say(&lines(&report, arguments.quick, SystemClock.now(), Screen::of_stdout()).join("\n"));
    }
    Ok(if report.has_errors() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The configuration, if it has no mistakes; mistakes are findings.
fn read(file: &Path, findings: &mut Vec<Finding>) -> Result<Option<Config>, CliError> {
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
    // A store without tables has no schema.
    if let Some(schema) = report.schema.filter(|schema| schema.wanted > 0) {
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
        let call = |it: &Latency| {
            format!("{} {} (≤ {})", it.call, short_length(it.median_us), short_length(it.slowest_us))
        };
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

/// Microseconds for people: `42 µs`, `1.2 ms`.
fn short_length(us: u64) -> String {
    if us < 1_000 { format!("{us} µs") } else { format!("{}.{} ms", us / 1_000, us % 1_000 / 100) }
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
    fn two_clocks_are_printed_with_what_each_shows() {
        use semel::time::NodesClock;
        let day = Duration::from_hours(24);
        let nodes =
            NodesClock { used: NOW, shown: Some(NOW + 40 * day), written_ago: Some(Duration::from_secs(3)) };
        let of = |shown, nodes| ClockComparison { shown, nodes, is_unreadable: false };
        let stopped = NodesClock { used: NOW, shown: None, written_ago: None };
        let printed = [
            two_clocks(&of(NOW, Some(nodes))),
            two_clocks(&of(NOW + 40 * day, Some(stopped))),
            two_clocks(&of(NOW, None)),
        ];
        crate::texts::assert_is("two-clocks", &printed.join("\n\n"));
        let settings = ClockSettings::default();
        assert!(
            !of(NOW, Some(nodes)).agrees(&settings) && !of(NOW + 40 * day, Some(stopped)).agrees(&settings)
        );
        let same = NodesClock { shown: Some(NOW), ..nodes };
        assert!(of(NOW, Some(same)).agrees(&settings) && of(NOW, None).agrees(&settings));
        assert!(of(NOW + Duration::from_secs(9), Some(stopped)).agrees(&settings), "a heartbeat ago");
        assert!(!ClockComparison { is_unreadable: true, ..of(NOW, None) }.agrees(&settings));
    }

    #[test]
    fn lengths_are_for_people() {
        assert_eq!([42, 999, 1_000, 12_345].map(short_length), ["42 µs", "999 µs", "1.0 ms", "12.3 ms"]);
        assert_eq!([0, 999, 1_500, 59_999, 61_000].map(length), ["0 ms", "999 ms", "1.5 s", "59.9 s", "1m"]);
    }
}
