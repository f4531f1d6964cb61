//! Times each of the store's calls. It writes only on request, and only to its own record.

use super::{Finding, Options, Report};
use crate::stores::{OpenError, Url};
use semel::core::fingerprint::Fingerprint;
use semel::core::id::{CallerHash, CommandId, KeyHash, OperationId};
use semel::core::machine::{self, Begin, Command, Decision, Found, NewAttempt, Stamp, Unchanged};
use semel::core::policy::{AfterExpiry, Class, Policy, PolicyError};
use semel::core::record::{Record, Token};
use semel::core::store::{Change, Count, Error, Filter, Setting, Store, Written};
use semel::core::time::Time;
use semel::{Clock as _, Random as _, SystemClock, SystemRandom};
use serde::Serialize;
use std::time::Duration;
use thiserror::Error as ThisError;

/// How often each call is made.
const SAMPLES: usize = 7;
/// After this time, no more samples of the same call are taken.
const ENOUGH: Duration = Duration::from_secs(2);
/// The operation of the record for measuring writes, and the setting.
const OPERATION: &str = "(doctor)";
const SETTING: &str = "doctor";
/// If this process is killed, the record is removed soon after: nothing began under it.
const LEASE: Duration = Duration::from_secs(5);

/// The latency of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Latency {
    /// The call.
    pub call: &'static str,
    /// The median, in microseconds.
    pub median_us: u64,
    /// The maximum, in microseconds.
    pub slowest_us: u64,
}

/// A call that was not measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NotMeasured {
    /// The calls.
    pub calls: String,
    /// Why.
    pub why: String,
}

/// Why writes were not measured.
#[derive(Debug, ThisError)]
enum UnmeasuredError {
    #[error(transparent)]
    Unopened(#[from] OpenError),
    #[error(transparent)]
    Store(#[from] Error),
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error("{0:?}")]
    Renewal(machine::Refusal),
    #[error("the clock does not allow a claim")]
    Clock,
    #[error("another process changed the record used for measuring")]
    RecordChanged,
    #[error("another process is measuring at the same time")]
    SettingChanged,
}

const WRITES: &str = "claim, swap, remove, set";

pub(super) async fn measure(
    url: &Url,
    look: &dyn Store,
    ask: &Options,
    report: &mut Report,
    found: &mut Vec<Finding>,
) {
    reads(look, report).await;
    if ask.measures_writes {
        let measured = match url.open().await {
            Ok(store) => {
                let measured = writes(&*store, report).await;
                store.close().await;
                measured
            }
            Err(why) => Err(why.into()),
        };
        if let Err(why) = measured {
            report.not_measured.push(NotMeasured { calls: WRITES.to_owned(), why: why.to_string() });
        }
    } else {
        let why = "writes are measured only with --measure-writes, on a separate record".to_owned();
        report.not_measured.push(NotMeasured { calls: WRITES.to_owned(), why });
        return;
    }
    if let Some(first) = report.not_measured.first() {
        found.push(Finding::warning(
            "latency-unverified",
            format!("the latency of {} could not be measured: {}", first.calls, first.why),
            "try again with a role that may write, on a server that accepts writes",
        ));
    }
}

async fn reads(look: &dyn Store, report: &mut Report) {
    let (id, all) = (CommandId::from_bytes([0; 32]), Filter::default());
    let operation_id = OperationId::of(&id);
    let timed = [
        ("read", timed(async || look.get(id).await.map(drop)).await),
        ("find", timed(async || look.find(operation_id).await.map(drop)).await),
        ("page", timed(async || look.page(&all, None, 1).await.map(drop)).await),
        ("due", timed(async || look.due(None, 1).await.map(drop)).await),
        ("markers", timed(async || look.markers(None, 1).await.map(drop)).await),
        ("count", timed(async || look.count(Count::Records, 1_000).await.map(drop)).await),
        ("settings", timed(async || look.settings().await.map(drop)).await),
    ];
    for (call, timed) in timed {
        match timed {
            Ok(samples) => report.latency.push(summarize(call, samples)),
            Err(error) => {
                report.not_measured.push(NotMeasured { calls: call.to_owned(), why: error.to_string() });
            }
        }
    }
}

/// How long each of a few calls took.
async fn timed(mut call: impl AsyncFnMut() -> Result<(), Error>) -> Result<Vec<Duration>, Error> {
    let begun = SystemClock.uptime();
    let mut samples = Vec::with_capacity(SAMPLES);
    while samples.is_empty() || samples.len() < SAMPLES && SystemClock.uptime().saturating_sub(begun) < ENOUGH
    {
        let started = SystemClock.uptime();
        call().await?;
        samples.push(SystemClock.uptime().saturating_sub(started));
    }
    Ok(samples)
}

fn summarize(call: &'static str, mut samples: Vec<Duration>) -> Latency {
    samples.sort_unstable();
    let micros =
        |span: Option<&Duration>| span.map_or(0, |span| u64::try_from(span.as_micros()).unwrap_or(u64::MAX));
    Latency { call, median_us: micros(samples.get(samples.len() / 2)), slowest_us: micros(samples.last()) }
}

/// Measures writes on a separate record and setting, and removes both.
async fn writes(store: &dyn Store, report: &mut Report) -> Result<(), UnmeasuredError> {
    let mut id = [0; 32];
    id[..16].copy_from_slice(&SystemRandom.bits().to_be_bytes());
    id[16..].copy_from_slice(&SystemRandom.bits().to_be_bytes());
    let id = CommandId::from_bytes(id);
    let now = store.get(id).await?.now;
    let mut stands = None;
    let measured = records(store, id, now, &mut stands, report).await;
    if let Some(record) = &stands {
        // If this fails, a sweeper removes it soon after its lease.
        let _ = store.write(id, Change::Remove(Unchanged::of(record))).await;
    }
    measured?;
    settings(store, report).await
}

async fn records(
    store: &dyn Store,
    id: CommandId,
    now: Time,
    stands: &mut Option<Record>,
    report: &mut Report,
) -> Result<(), UnmeasuredError> {
    let (mut claims, mut swaps, mut removals) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..SAMPLES {
        let first = claim(id, now)?;
        *stands = Some(first.clone());
        claims.push(write(store, id, Change::Insert(&first)).await?);
        let renewed = machine::renew(&first, first.token(), now).map_err(UnmeasuredError::Renewal)?;
        swaps.push(write(store, id, Change::from(&renewed)).await?);
        *stands = Some(renewed.next.clone());
        removals.push(write(store, id, Change::Remove(Unchanged::of(&renewed.next))).await?);
        *stands = None;
    }
    report.latency.extend([
        summarize("claim", claims),
        summarize("swap", swaps),
        summarize("remove", removals),
    ]);
    Ok(())
}

async fn write(
    store: &dyn Store,
    id: CommandId,
    change: Change<&Record>,
) -> Result<Duration, UnmeasuredError> {
    let started = SystemClock.uptime();
    match store.write(id, change).await {
        Ok(Written::Done { .. }) => Ok(SystemClock.uptime().saturating_sub(started)),
        Ok(Written::Refused(_)) => Err(UnmeasuredError::RecordChanged),
        Err(error) => Err(error.into()),
    }
}

/// A claim under which nothing ever begins.
fn claim(id: CommandId, now: Time) -> Result<Record, UnmeasuredError> {
    let policy = Policy::new(Class::Local).with(|policy| {
        policy.lease = LEASE;
        policy.after_expiry = AfterExpiry::RunAsNew;
    });
    let fingerprint = Fingerprint::from_bytes([0; 32]);
    let command = Command {
        id,
        operation_id: OperationId::of(&id),
        key_hash: KeyHash::from_bytes([0; 32]),
        caller_hash: CallerHash::from_bytes([0; 32]),
        operation: OPERATION.into(),
        policy: policy?.into(),
        fingerprint,
        payload: &fingerprint,
        generation: 0,
    };
    let new_attempt = NewAttempt { token: Token::from_random(SystemRandom.bits()), begin: Begin::Claimed };
    let stamp = Stamp::new(now, OPERATION, "measured");
    match machine::decide(Found::Nothing, &command, new_attempt, stamp) {
        Decision::Run(write) => Ok(write.next),
        _ => Err(UnmeasuredError::Clock),
    }
}

async fn settings(store: &dyn Store, report: &mut Report) -> Result<(), UnmeasuredError> {
    let (mut samples, value) = (Vec::new(), &b"measured"[..]);
    // A process that was killed may have left it.
    let _ = store.set(SETTING, Some(value), None).await;
    for _ in 0..SAMPLES {
        for (expect, next) in [(None, Some(value)), (Some(value), None)] {
            let started = SystemClock.uptime();
            match store.set(SETTING, expect, next).await {
                Ok(Setting::Done) => samples.push(SystemClock.uptime().saturating_sub(started)),
                Ok(Setting::Refused(_)) => return Err(UnmeasuredError::SettingChanged),
                Err(error) => return Err(error.into()),
            }
        }
    }
    report.latency.push(summarize("set", samples));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_and_the_maximum_are_reported() {
        let millis = Duration::from_millis;
        let summarize = summarize("read", vec![millis(9), millis(1), millis(2)]);
        assert_eq!(summarize, Latency { call: "read", median_us: 2_000, slowest_us: 9_000 });
    }

    #[test]
    fn nothing_is_begun_under_the_record_that_is_measured_on() {
        let now = Time::from_millis(1_800_000_000_000);
        let record = claim(CommandId::from_bytes([7; 32]), now).expect("a claim");
        let dead = Stamp::new(now + LEASE + LEASE, "a sweeper", "swept");
        let lapsed = machine::lapse(&record, dead).expect("its lease is dead").next;
        assert_eq!(lapsed.state_name().as_str(), "FAILED_NOT_REPLAYABLE", "its outcome is never unknown");
    }
}
