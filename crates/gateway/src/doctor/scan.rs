//! Every record, one by one: what cannot be read, what cannot be opened, what was written in the future.

use super::records::{many, rough};
use super::{Finding, Options, Report, advice};
use crate::stores::Url;
use semel::core::id::{CommandId, OperationId};
use semel::core::machine;
use semel::core::outcome::{Body, Outcome};
use semel::core::record::{Record, State};
use semel::core::store::{Error, Filter, Page, Store};
use semel::core::time::Now;
use semel::sealing::UnsealError;
use semel_http::Routes;
use std::collections::BTreeMap;
use std::time::Duration;

/// How many are read at once.
const PAGE: usize = 500;
/// How many of a kind are named.
const NAMES_MAX: usize = 3;
/// Gateways write during the scan: this much later than its start does not count as the future.
const SCAN_ALLOWANCE: Duration = Duration::from_secs(5);

#[derive(Default)]
struct ScanResult {
    unreadable: Kind,
    unopened: BTreeMap<String, Kind>,
    unsealed: Kind,
    /// How far in the future the latest write is.
    future: Option<Duration>,
}

/// The number of a kind, and the first few.
#[derive(Default)]
struct Kind {
    count: u64,
    names: Vec<String>,
    why: String,
}

impl Kind {
    fn add(&mut self, id: &CommandId, why: String) {
        self.count += 1;
        if self.names.len() < NAMES_MAX {
            self.names.push(OperationId::of(id).to_string());
        }
        if self.why.is_empty() {
            self.why = why;
        }
    }

    fn describe(&self) -> String {
        let more = if self.count > NAMES_MAX as u64 { ", …" } else { "" };
        format!("{}{more}", self.names.join(", "))
    }
}

pub(super) async fn all(
    url: &Url,
    store: &dyn Store,
    ask: &Options,
    now: Now,
    report: &mut Report,
    found: &mut Vec<Finding>,
) -> Result<(), Error> {
    let now = Now { skew: now.skew.max(SCAN_ALLOWANCE), ..now };
    let (filter, mut after, mut seen) = (Filter::default(), None, ScanResult::default());
    loop {
        let Page { items, next, .. } = store.page(&filter, after.as_ref(), PAGE).await?;
        for item in &items {
            report.scanned += 1;
            match (&item.entry, item.record()) {
                (Err(error), _) => seen.unreadable.add(&item.id, error.to_string()),
                (Ok(_), Some(record)) => {
                    seen.future = seen.future.max(machine::written_ahead_by(record, now));
                    sealed(&item.id, record, ask, report, &mut seen);
                }
                // A marker is no record.
                (Ok(_), None) => {}
            }
        }
        after = next;
        if after.is_none() {
            break;
        }
    }
    report.unreadable = seen.unreadable.count;
    report_findings(url, &seen, ask, report, found);
    Ok(())
}

fn sealed(id: &CommandId, record: &Record, ask: &Options, report: &mut Report, seen: &mut ScanResult) {
    let Some(outcome) = outcome(record) else { return };
    match outcome.body {
        Body::Sealed(_) => report.sealed += 1,
        Body::Kept(_) => {
            let must_be = |routes: &Routes| routes.must_seal(record.operation());
            // Workers' reports are always sealed if there is a key.
            let is_workers = ask.sealing.is_some() && semel_admin::is_claim(record.operation());
            if is_workers || ask.routes.as_ref().is_some_and(must_be) {
                seen.unsealed.add(id, String::new());
            }
            return;
        }
        Body::NotRetained => return,
    }
    let Some(ring) = &ask.sealing else { return };
    if let Err(why) = ring.open(id, outcome) {
        let code = match &why {
            UnsealError::KeyMissing(name) => format!("key {name}"),
            UnsealError::Newer(_) | UnsealError::Damaged => String::new(),
        };
        seen.unopened.entry(code).or_default().add(id, why.to_string());
    }
}

fn outcome(record: &Record) -> Option<&Outcome> {
    match record.state() {
        State::Succeeded { outcome, .. } | State::FailedReplayable { outcome, .. } => Some(outcome),
        State::FailedNotReplayable { outcome, .. } => outcome.as_ref(),
        _ => None,
    }
}

fn report_findings(url: &Url, seen: &ScanResult, ask: &Options, report: &Report, found: &mut Vec<Finding>) {
    let ScanResult { unreadable, unopened, unsealed, future } = seen;
    if unreadable.count > 0 {
        found.push(Finding::error(
            "records-unreadable",
            format!(
                "{} cannot be read ({}): {}",
                many(unreadable.count, "record"),
                unreadable.describe(),
                unreadable.why
            ),
            "they are answered as unknown and left alone; upgrade, or restore them from a backup",
        ));
    }
    for (key, kind) in unopened {
        let code = if key.is_empty() { "seals-broken" } else { "sealing-key-missing" };
        found.push(Finding::error(
            code,
            format!(
                "{} cannot be opened ({}): {}",
                many(kind.count, "stored response"),
                kind.describe(),
                kind.why
            ),
            "add the key again under its name; until then they are answered as not retained",
        ));
    }
    if report.sealed > 0 && ask.sealing.is_none() {
        let problem = format!("{} sealed", are(report.sealed));
        found.push(if ask.is_configured {
            let fix = "add their keys again under [sealing]; until then they are answered as not retained, \
                and a gateway with this configuration stores responses unsealed";
            Finding::error("sealing-key-missing", format!("{problem}, but the configuration has no key"), fix)
        } else {
            Finding::notice("answers-sealed", problem, "--config FILE checks whether its keys open them")
        });
    }
    if unsealed.count > 0 {
        let problem = format!(
            "{} stored unsealed ({}), although this configuration seals them: they were stored before that, \
                or by a node without its keys",
            are(unsealed.count),
            unsealed.describe()
        );
        let fix = format!(
            "they stay unsealed: {}. Every node on the store, including semel records with --store, needs the keys",
            advice::unsealed(url)
        );
        found.push(Finding::warning("answers-unsealed", problem, fix));
    }
    if let Some(future) = future {
        found.push(Finding::error(
            "clock-behind",
            format!(
                "a record was last written {} in the future: this machine's clock is wrong or was set back",
                rough(*future)
            ),
            "set the clock; until then leases and expiries are judged wrongly",
        ));
    }
}

fn are(count: u64) -> String {
    format!("{} {}", many(count, "stored response"), if count == 1 { "is" } else { "are" })
}
