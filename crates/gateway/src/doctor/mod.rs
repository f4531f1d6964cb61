//! Examines a store and reports what is wrong, with a fix for each finding. It changes nothing.

mod clock;
mod file;
mod finding;
mod latency;
pub(crate) mod records;
mod scan;
mod secrets;
mod server_clock;

pub use finding::{Finding, Severity};
pub use latency::{Latency, NotMeasured};
pub use server_clock::ClockDifference;

use crate::stores::Url;
use semel::ClockSettings;
use semel::archive::rfc3339;
use semel::core::store::{self, Inspection};
use semel::core::time::{Now, Time};
use semel::sealing::KeyRing;
use semel_http::Routes;
use serde::Serialize;
use std::collections::BTreeMap;

/// How thoroughly to look, and with what.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Leave out what reads the whole file.
    pub is_quick: bool,
    /// Measure writes too, on a record of its own that is removed.
    pub measures_writes: bool,
    /// The keys that stored answers should be sealed with, where a configuration names them.
    pub sealing: Option<KeyRing>,
    /// The routes of that configuration, by which some answers must be sealed.
    pub routes: Option<Routes>,
    /// Whether there was a configuration that could be read.
    pub is_configured: bool,
    /// When the clock is believed.
    pub clock: ClockSettings,
}

/// What was looked at, and what was found.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The store, where one was looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,
    /// By how much the server's clock differs from this machine's, where the store goes by a server's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockDifference>,
    /// How long each of the store's calls takes.
    pub latency: Vec<Latency>,
    /// Which calls were not measured, and why.
    pub not_measured: Vec<NotMeasured>,
    /// Its time when it was looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub now: Option<String>,
    /// What the store is built with: a library and its version.
    pub library: Option<String>,
    /// Which schema the file has, where that is known, and which this program needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Schema>,
    /// How many bytes the file has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_bytes: Option<u64>,
    /// How many bytes its log has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_bytes: Option<u64>,
    /// How many records there are in each state.
    pub records: BTreeMap<&'static str, u64>,
    /// The oldest outcome that nobody can prove.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_unknown: Option<RecordSince>,
    /// How many attempts have an owner whose lease is dead.
    pub dead_leases: u64,
    /// By how much the longest overdue record is overdue, in milliseconds. Unknown outcomes are not counted: they wait for a probe
    /// or an operator.
    pub sweep_lag_ms: u64,
    /// How far the store has come in replacing its hashing secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<secrets::HashingSecretReport>,
    /// How many entries were read one by one; none in a quick look.
    pub scanned: u64,
    /// How many of them cannot be read.
    pub unreadable: u64,
    /// How many stored answers are sealed.
    pub sealed: u64,
    /// What was found, the worst first.
    pub findings: Vec<Finding>,
}

/// Which schema a file has, and which one is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "said in one line above")]
pub struct Schema {
    pub have: usize,
    pub wanted: usize,
}

/// A record, and a moment that matters about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordSince {
    /// The record.
    pub operation_id: String,
    /// Since when it is so.
    pub since: String,
}

impl Report {
    fn of(url: &Url) -> Self {
        let library = url.backend().library();
        Self { store: Some(url.to_string()), library, ..Self::of_no_store() }
    }

    /// Nothing was looked at.
    pub fn of_no_store() -> Self {
        Self {
            store: None,
            clock: None,
            latency: Vec::new(),
            not_measured: Vec::new(),
            now: None,
            library: None,
            schema: None,
            file_bytes: None,
            log_bytes: None,
            records: BTreeMap::new(),
            oldest_unknown: None,
            dead_leases: 0,
            sweep_lag_ms: 0,
            secret: None,
            scanned: 0,
            unreadable: 0,
            sealed: 0,
            findings: Vec::new(),
        }
    }

    /// Whether something was found that somebody has to see to.
    pub fn has_errors(&self) -> bool {
        self.findings.iter().any(|finding| finding.severity == Severity::Error)
    }

    /// Adds what was found elsewhere.
    pub fn find(&mut self, finding: Finding) {
        self.findings.push(finding);
        self.findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    }
}

/// Looks at the store. What cannot be looked at is a finding, too.
pub async fn examine(url: &Url, ask: &Options) -> Report {
    let mut report = Report::of(url);
    let mut found = Vec::new();
    if let Some(look) = file::open(url, &mut report, &mut found).await {
        if let Err(error) = whole(url, &*look, ask, &mut report, &mut found).await {
            found.push(unanswered(url, &error));
        }
        latency::measure(url, &*look, ask, &mut report, &mut found).await;
    }
    for finding in found {
        report.find(finding);
    }
    report
}

async fn whole(
    url: &Url,
    look: &dyn Inspection,
    ask: &Options,
    report: &mut Report,
    found: &mut Vec<Finding>,
) -> Result<(), store::Error> {
    found.extend(look.hazards().await?.into_iter().map(Finding::from));
    // Damage first: whatever is read after it may be told by it.
    if !ask.is_quick {
        file::verify(url, look, found).await?;
    }
    let trust = clock::check(look, &ask.clock, found).await?;
    server_clock::compare(look, &ask.clock, report, found).await?;
    let judged = |at: Time| Now { trust, skew: ask.clock.skew, ..at.into() };
    let now = records::count(look, report).await?;
    report.now = Some(rfc3339::text(now));
    records::unknown(look, now, report, found).await?;
    records::due(look, judged, report, found).await?;
    secrets::check(look, report, found).await?;
    if !ask.is_quick {
        scan::all(look, ask, judged(now), report, found).await?;
    }
    Ok(())
}

fn unanswered(url: &Url, error: &store::Error) -> Finding {
    Finding::error(
        "store-unanswered",
        format!("the store did not answer, so the remaining checks were skipped: {error}"),
        format!(
            "try again; if this remains, stop the gateways and restore the {} from a backup",
            file::noun(url)
        ),
    )
}

/// How many milliseconds lie between two moments.
fn millis(later: Time, earlier: Time) -> u64 {
    later.as_millis().saturating_sub(earlier.as_millis())
}
