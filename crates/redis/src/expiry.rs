//! Removes the server's own expiry from records. Older versions of Semel set one, and can still do so while
//! gateways are upgraded one by one.
//!
//! A server expires keys by its own clock. If that clock is wrong, it removes an outcome early, and the command
//! runs again. So a task walks through all lists of records, slowly, until a pass has found no expiry; then
//! daily, and as soon as more keys of the server have one.

use crate::fault::unexpected;
use crate::layout::ListPosition;
use crate::link::Link;
use crate::resp::{self, Value, text};
use crate::scan::Walk;
use crate::scripts;
use crate::server_info;
use crate::servers::Effect;
use crate::shared::Shared;
use semel_core::record::StateName;
use semel_core::store::{Error, Hazard, Kind, Severity};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::sleep;

const WALKING: &str = "removing the server's expiry from records";
/// How many records are checked with one command, and in a second.
const CHUNK: usize = 200;
const RECORDS_PER_SECOND_MAX: u32 = 2_000;
/// How often the server is asked whether any key expires.
const LOOK_EVERY: Duration = Duration::from_mins(1);
/// The shortest pause between two passes.
const PAUSE: Duration = Duration::from_mins(10);
/// How long a pass that found none counts.
const PASS_VALID: Duration = Duration::from_hours(24);
/// The same for an inspection, which comes between two passes of the gateways.
const PASS_VALID_FOR_INSPECTION: Duration = Duration::from_hours(48);

/// What is known about records with an expiry.
#[derive(Default)]
pub(crate) struct Expiries(Mutex<Findings>);

#[derive(Debug, Clone, Default)]
struct Findings {
    /// How many the last pass found, or the running one has found so far.
    found: u64,
    /// Whether a pass has ended since the start, or another node's still counts.
    is_checked: bool,
    /// Why the last pass ended early.
    failure: Option<String>,
}

/// A pass that found no expiry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CleanPass {
    age: Duration,
    /// How many keys of the servers had an expiry, which belong to others.
    others: u64,
}

impl CleanPass {
    /// Whether it still proves that no record has an expiry. `expiring` is the current number of keys, if it can
    /// be read.
    fn is_valid(self, for_at_most: Duration, expiring: Option<u64>) -> bool {
        self.age < for_at_most && expiring.is_none_or(|expiring| expiring <= self.others)
    }
}

impl Expiries {
    fn findings(&self) -> MutexGuard<'_, Findings> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the end of a pass, and returns whether it found nothing. The pass before found `before` records.
    fn ended(&self, result: &Result<(), Error>, before: u64) -> bool {
        let mut findings = self.findings();
        match result {
            Ok(()) => {
                (findings.is_checked, findings.failure) = (true, None);
                if findings.found > 0 {
                    let records = findings.found;
                    tracing::warn!(
                        records,
                        "records had an expiry that an older version set; it was removed"
                    );
                }
            }
            Err(error) => {
                // What was found before is not disproved.
                findings.found = findings.found.max(before);
                findings.failure = Some(error.to_string());
                tracing::warn!(%error, "not all records could be checked for an expiry; another pass follows");
            }
        }
        result.is_ok() && findings.found == 0
    }

    /// The hazard, unless it is known that no record has an expiry.
    pub(crate) async fn hazard(&self, shared: &Shared) -> Option<Hazard> {
        let expiring = shared.expiring_keys().await;
        if expiring == Some(0) {
            return None;
        }
        if shared.address.any_server {
            let last = shared.last_clean_pass(None).await.ok().flatten();
            let is_clean = last.is_some_and(|last| last.is_valid(PASS_VALID_FOR_INSPECTION, expiring));
            return (!is_clean).then(|| hazard(&Findings::default()));
        }
        let findings = self.findings().clone();
        (findings.found > 0 || !findings.is_checked).then(|| hazard(&findings))
    }
}

fn hazard(findings: &Findings) -> Hazard {
    let Findings { found, failure, .. } = findings;
    if *found > 0 {
        return Hazard {
            severity: Severity::Danger,
            code: "redis-expiry",
            what: format!(
                "an older version of Semel has set an expiry on records; the last pass removed {found}. If the clock of the server is \
                 wrong, it removes such a record early, and its command runs again"
            ),
            fix: "upgrade every gateway on this store; the gateways remove the rest, and repeat this until they find none"
                .to_owned(),
        };
    }
    let reason = match failure {
        Some(failure) => format!("the pass over all records ended early ({failure})"),
        None => "no pass over all records has ended yet".to_owned(),
    };
    Hazard {
        severity: Severity::Unverified,
        code: "redis-expiry",
        what: format!(
            "keys on the server have an expiry, and it is not known whether records are among them: {reason}. If the clock of the server \
             is wrong, it removes such a record early, and its command runs again"
        ),
        fix: "keep a gateway of this version running on the store until its pass has ended".to_owned(),
    }
}

/// Runs as long as the store exists.
pub(crate) async fn run(shared: Arc<Shared>, expiries: Arc<Expiries>) {
    let mut last_clean = shared.last_clean_pass(None).await.ok().flatten();
    let mut rest = Duration::ZERO;
    loop {
        let expiring = shared.expiring_keys().await;
        if last_clean.is_some_and(|last| last.is_valid(PASS_VALID, expiring)) {
            expiries.findings().is_checked = true;
        } else if expiring != Some(0) && rest.is_zero() {
            let others = expiring.unwrap_or(u64::MAX);
            let is_clean = pass(&shared, &expiries, others).await;
            last_clean = is_clean.then_some(CleanPass { age: Duration::ZERO, others });
            rest = PAUSE;
        }
        sleep(LOOK_EVERY).await;
        rest = rest.saturating_sub(LOOK_EVERY);
        if let Some(last) = &mut last_clean {
            last.age += LOOK_EVERY;
        }
    }
}

/// Walks through all records once. Returns whether none had an expiry: the `others` keys that have one are not
/// records.
async fn pass(shared: &Shared, expiries: &Expiries, others: u64) -> bool {
    let before = std::mem::take(&mut expiries.findings().found);
    let result = shared.remove_all_expiries(|found| expiries.findings().found += found).await;
    let is_clean = expiries.ended(&result, before);
    if is_clean && let Err(error) = shared.last_clean_pass(Some(others)).await {
        tracing::debug!(%error, "other nodes do not learn that no record has an expiry");
    }
    is_clean
}

impl Shared {
    /// How many keys have an expiry, on all servers that take writes; `None` if a server does not say so.
    async fn expiring_keys(&self) -> Option<u64> {
        let mut sum = 0;
        for link in self.reading().all() {
            sum += expiring_keys_of(&link, self.address.database).await?;
        }
        Some(sum)
    }

    /// The last pass of any node that found no expiry. `others` notes one that ends now.
    async fn last_clean_pass(&self, others: Option<u64>) -> Result<Option<CleanPass>, Error> {
        let (slot, key) = self.layout.of_store("meta");
        let note = others.map_or_else(String::new, |others| others.to_string());
        let (servers, effect) =
            if others.is_some() { (&self.writes, Effect::Writes) } else { (self.reading(), Effect::Reads) };
        let asked = servers.run(slot, &scripts::PASSED, effect, &[&key], &[note.as_bytes()]).await;
        let answer = asked.map_err(|fault| fault.error(WALKING))?;
        match answer.array() {
            [status, now, note] if status.text() == Some("found") => Ok(read_note(&text(now), &text(note))),
            _ => Err(unexpected(&answer)),
        }
    }

    /// Every record is in the list of its state. One that changes its list during the walk was written without
    /// an expiry, or by an older version, whose records the next pass finds.
    ///
    /// A bucket that is lost fails the pass, after the others.
    async fn remove_all_expiries(&self, mut found: impl FnMut(u64)) -> Result<(), Error> {
        let mut result = Ok(());
        for bucket in self.layout.buckets() {
            match self.remove_expiries_in(bucket, &mut found).await {
                Err(error) if error.kind() == Kind::DataLost => result = Err(error),
                walked => walked?,
            }
        }
        result
    }

    async fn remove_expiries_in(&self, bucket: u16, found: &mut impl FnMut(u64)) -> Result<(), Error> {
        for state in StateName::ALL {
            let walk = Walk::upwards(state.number(), bucket);
            let mut after = None;
            loop {
                let (_, lists) = self.part_of(bucket, &walk, after, CHUNK).await?;
                let positions = lists.into_iter().next().unwrap_or_default();
                if !positions.is_empty() {
                    found(self.remove_expiries(bucket, &positions).await?);
                }
                throttle(positions.len()).await;
                after = positions.last().copied().filter(|_| positions.len() >= CHUNK);
                if after.is_none() {
                    break;
                }
            }
        }
        Ok(())
    }

    async fn remove_expiries(&self, bucket: u16, positions: &[ListPosition]) -> Result<u64, Error> {
        let keys: Vec<_> =
            positions.iter().map(|position| self.layout.record(position.operation_id())).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let slot = self.layout.slot(bucket);
        let asked = self.writes.run(slot, &scripts::PERSIST, Effect::Writes, &keys, &[]).await;
        let answer = asked.map_err(|fault| fault.error(WALKING))?;
        match answer.array() {
            [status, had] if status.text() == Some("found") => {
                Ok(had.number().and_then(|had| u64::try_from(had).ok()).unwrap_or(0))
            }
            _ => Err(unexpected(&answer)),
        }
    }
}

async fn expiring_keys_of(link: &Link, database: u32) -> Option<u64> {
    let connection = link.connection().await.ok()?;
    let answer = connection.ask(resp::command(&[b"INFO", b"keyspace"]), 0).await.ok()?;
    if matches!(answer, Value::Error(_)) {
        return None;
    }
    expiring_in(&server_info::info_fields(&text(&answer)), database)
}

/// `db0:keys=7,expires=2,avg_ttl=0`. A database without keys is not listed.
fn expiring_in(fields: &server_info::InfoFields, database: u32) -> Option<u64> {
    let Some(line) = fields.get(&format!("db{database}")) else { return Some(0) };
    line.split(',').find_map(|pair| pair.strip_prefix("expires="))?.parse().ok()
}

fn read_note(now: &str, note: &str) -> Option<CleanPass> {
    let (at, others) = note.split_once(' ')?;
    // A note from the future was written under another clock.
    let age = now.parse::<u64>().ok()?.checked_sub(at.parse().ok()?)?;
    Some(CleanPass { age: Duration::from_millis(age), others: others.parse().ok()? })
}

/// Bounds the rate. An empty list counts as one record.
async fn throttle(checked: usize) {
    let checked = u32::try_from(checked.max(1)).unwrap_or(u32::MAX);
    sleep(Duration::from_secs(1).saturating_mul(checked) / RECORDS_PER_SECOND_MAX).await;
}
