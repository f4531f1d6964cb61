//! Examines a store and reports what is wrong, with a fix for each finding. It changes nothing.

mod advice;
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

/// The options of an examination.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Skip the checks that read the whole store.
    pub is_quick: bool,
    /// Measure writes too, on a separate record that is removed.
    pub measures_writes: bool,
    /// The keys that should seal stored responses, if there is a configuration.
    pub sealing: Option<KeyRing>,
    /// The routes of that configuration, some of which seal responses.
    pub routes: Option<Routes>,
    /// Whether there was a configuration that could be read.
    pub is_configured: bool,
    /// When the clock is trusted.
    pub clock: ClockSettings,
}

/// The report of an examination.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The store, if one was examined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,
    /// How far the server's clock differs from this machine's, if the store uses a server's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockDifference>,
    /// The latency of the store's calls.
    pub latency: Vec<Latency>,
    /// Which calls were not measured, and why.
    pub not_measured: Vec<NotMeasured>,
    /// The store's time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub now: Option<String>,
    /// What the store is built with: a library and its version.
    pub library: Option<String>,
    /// The schema of the store, if it is known, and the one that this program needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Schema>,
    /// The size of the file, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_bytes: Option<u64>,
    /// The size of its log, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_bytes: Option<u64>,
    /// How many records there are in each state.
    pub records: BTreeMap<&'static str, u64>,
    /// The oldest unknown outcome.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_unknown: Option<RecordSince>,
    /// How many attempts have a dead lease.
    pub dead_leases: u64,
    /// How long the most overdue record has been due, in milliseconds. Unknown outcomes are not included: they wait
    /// for a probe or an operator.
    pub sweep_lag_ms: u64,
    /// The state of the hashing secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<secrets::HashingSecretReport>,
    /// How many entries were read; none in a quick examination.
    pub scanned: u64,
    /// How many of them cannot be read.
    pub unreadable: u64,
    /// How many stored responses are sealed.
    pub sealed: u64,
    /// The findings, the worst first.
    pub findings: Vec<Finding>,
}

/// The schema of a store, and the one that is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "said in one line above")]
pub struct Schema {
    pub have: usize,
    pub wanted: usize,
}

/// A record, with a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordSince {
    /// The record.
    pub operation_id: String,
    /// The time.
    pub since: String,
}

impl Report {
    fn of(url: &Url) -> Self {
        let library = url.backend().library();
        Self { store: Some(url.to_string()), library, ..Self::of_no_store() }
    }

    /// A report without a store.
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

    /// Whether there is a finding of severity error.
    pub fn has_errors(&self) -> bool {
        self.findings.iter().any(|finding| finding.severity == Severity::Error)
    }

    /// Adds findings from elsewhere.
    pub fn find(&mut self, finding: Finding) {
        self.findings.push(finding);
        self.findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    }
}

/// Examines the store. A failed check is a finding, too.
pub async fn examine(url: &Url, ask: &Options) -> Report {
    let mut report = Report::of(url);
    let mut found = Vec::new();
    if let Some(look) = file::open(url, &mut report, &mut found).await {
        if let Err(error) = examine_store(url, &*look, ask, &mut report, &mut found).await {
            found.push(unanswered(url, &error));
        }
        latency::measure(url, &*look, ask, &mut report, &mut found).await;
    }
    for finding in found {
        report.find(finding);
    }
    report
}

async fn examine_store(
    url: &Url,
    look: &dyn Inspection,
    ask: &Options,
    report: &mut Report,
    found: &mut Vec<Finding>,
) -> Result<(), store::Error> {
    found.extend(look.hazards().await?.into_iter().map(Finding::from));
    // Damage first, because it can explain later findings.
    if !ask.is_quick {
        file::verify(url, look, found).await?;
    }
    let trust = clock::check(url, look, &ask.clock, found).await?;
    server_clock::compare(look, &ask.clock, report, found).await?;
    let judged = |at: Time| Now { trust, skew: ask.clock.skew, ..at.into() };
    let now = records::count(look, report).await?;
    report.now = Some(rfc3339::text(now));
    records::unknown(look, now, report, found).await?;
    records::due(look, judged, report, found).await?;
    secrets::check(look, report, found).await?;
    if !ask.is_quick {
        scan::all(url, look, ask, judged(now), report, found).await?;
    }
    Ok(())
}

fn unanswered(url: &Url, error: &store::Error) -> Finding {
    Finding::error(
        "store-unanswered",
        format!("the store did not answer, so the remaining checks were skipped: {error}"),
        advice::unanswered(url),
    )
}

/// The milliseconds between two times.
fn millis(later: Time, earlier: Time) -> u64 {
    later.as_millis().saturating_sub(earlier.as_millis())
}
