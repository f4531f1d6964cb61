//! What the gateway counts.
//!
//! What lives here: which event adds to which number, and the text that Prometheus reads. What must never: a key, a path with
//! somebody's id in it, or a label without a bound.

mod family;

use family::{Counters, Histogram, seconds};
use semel::{Call, Event};
use semel_http::{What, Would};
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const CALLS: [Call; 7] =
    [Call::Insert, Call::Swap, Call::Remove, Call::Get, Call::Find, Call::Due, Call::Count];

/// What was counted since the process began. Cheap to clone; every clone counts into the same numbers.
#[derive(Debug, Clone, Default)]
pub struct Metrics(Arc<Numbers>);

#[derive(Debug, Default)]
struct Numbers {
    claims: Counters,
    replays: Counters,
    mismatches: Counters,
    shadow: Counters,
    ended: Counters,
    expired: Counters,
    purged: Counters,
    store_took: [Histogram; CALLS.len()],
    store_errors: Counters,
    lease_losses: Counters,
    fenced: Counters,
    quota: Counters,
    alarms: Counters,
    sweep_lag_micros: AtomicU64,
}

impl Metrics {
    /// Everything, as Prometheus reads it. `under_way`: how many attempts this node has running.
    pub fn text(&self, under_way: usize) -> String {
        let numbers = &self.0;
        let mut text = String::new();
        let families: [(&Counters, &str, &str); 12] = [
            (
                &numbers.claims,
                "idempotency_claims_total",
                "Requests on protected routes, by what became of them.",
            ),
            (&numbers.replays, "idempotency_replays_total", "Requests that got a stored outcome."),
            (
                &numbers.mismatches,
                "idempotency_fingerprint_mismatch_total",
                "Keys that came with another payload, by the caller's hash.",
            ),
            (
                &numbers.shadow,
                "idempotency_shadow_total",
                "Requests in shadow mode, by what would have become of them.",
            ),
            (
                &numbers.ended,
                "idempotency_attempts_total",
                "Attempts that ended, by the state that they led to.",
            ),
            (&numbers.expired, "idempotency_expired_total", "Outcomes past their time."),
            (&numbers.purged, "idempotency_purged_total", "Records removed."),
            (&numbers.store_errors, "idempotency_store_errors_total", "Calls to the store that failed."),
            (&numbers.lease_losses, "idempotency_lease_losses_total", "Attempts that lost their lease."),
            (
                &numbers.fenced,
                "idempotency_fenced_writes_total",
                "Endings that were refused; differs=true is a conflict that somebody has to look at.",
            ),
            (&numbers.quota, "idempotency_quota_refusals_total", "New keys refused by a quota."),
            (&numbers.alarms, "idempotency_alarms_total", "What should never happen, by what it was."),
        ];
        for (family, name, help) in families {
            family.write(name, help, &mut text);
        }
        let took = "idempotency_store_seconds";
        let _ = write!(text, "# HELP {took} How long calls to the store took.\n# TYPE {took} histogram\n");
        for (call, histogram) in CALLS.iter().zip(&numbers.store_took) {
            histogram.write(took, ("call", call.name()), &mut text);
        }
        let lag = seconds(numbers.sweep_lag_micros.load(Ordering::Relaxed));
        let gauges = [
            ("idempotency_in_progress", "Attempts under way on this node.", under_way.to_string()),
            ("idempotency_sweep_lag_seconds", "By how much the longest overdue record was overdue.", lag),
        ];
        for (name, help, value) in gauges {
            let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}\n");
        }
        text
    }

    fn alarm(&self, what: &str) {
        self.0.alarms.add(&[("what", what)]);
    }
}

impl semel_http::Observer for Metrics {
    fn observe(&self, event: &semel_http::Event<'_>) {
        let numbers = &self.0;
        let operation = ("operation", event.operation);
        let outcome = match event.what {
            What::Unprotected => "unprotected",
            What::Ran(_) => "ran",
            What::Replayed => "replayed",
            What::Rebuilt => "rebuilt",
            What::Accepted => "accepted",
            What::Refused { code, caller } => {
                if let Some(caller) = caller {
                    numbers.mismatches.add(&[operation, ("caller", &caller.prefix())]);
                }
                code.as_str()
            }
            What::NotAuthorized => "not_authorized",
            What::FailedOpen => "failed_open",
            What::Shadow(would) => {
                let would = match would {
                    Would::Run => "run",
                    Would::Replay => "replay",
                    Would::Refuse(code) => code.as_str(),
                    Would::RunAgain => "run_again",
                    _ => "not_judged",
                };
                numbers.shadow.add(&[operation, ("would", would)]);
                "shadow"
            }
            // These come beside what became of the request.
            What::OddWord => return self.alarm("odd_word"),
            _ => return,
        };
        numbers.claims.add(&[operation, ("outcome", outcome)]);
        if matches!(event.what, What::Replayed | What::Rebuilt) {
            numbers.replays.add(&[operation]);
        }
    }
}

impl semel::Observer for Metrics {
    fn observe(&self, event: &Event<'_>) {
        let numbers = &self.0;
        match event {
            // The name of the operation may be a path: here it is not a label.
            Event::Finished { state, .. } | Event::Reconciled { state, .. } => {
                numbers.ended.add(&[("state", state.as_str())]);
            }
            Event::QuotaExceeded { .. } => numbers.quota.add(&[]),
            Event::LeaseLost { .. } => numbers.lease_losses.add(&[]),
            Event::Fenced { differs, .. } => {
                numbers.fenced.add(&[("differs", if *differs { "true" } else { "false" })]);
            }
            Event::Asked { call, took, error } => {
                if let Some(at) = CALLS.iter().position(|known| known == call) {
                    numbers.store_took[at].record(*took);
                }
                if error.is_some() {
                    numbers.store_errors.add(&[("call", call.name())]);
                }
            }
            Event::Swept(swept) => {
                numbers.expired.add_many(&[], swept.expired);
                numbers.purged.add_many(&[], swept.purged);
                let lag = u64::try_from(swept.lag.as_micros()).unwrap_or(u64::MAX);
                numbers.sweep_lag_micros.store(lag, Ordering::Relaxed);
            }
            Event::RecordLost { .. } => self.alarm("record_lost"),
            Event::Unreadable { .. } => self.alarm("unreadable"),
            Event::Unopened { .. } => self.alarm("unopened"),
            Event::Panicked { .. } => self.alarm("panicked"),
            Event::Overran { .. } => self.alarm("overran"),
            Event::Unstored { .. } => self.alarm("unstored"),
            Event::ClockMoved { .. } => self.alarm("clock_moved"),
            Event::SecretsBehind { .. } => self.alarm("secrets_behind"),
            Event::ArchiveFailed { .. } => self.alarm("archive_failed"),
            Event::LeftToOperator { .. } => self.alarm("left_to_operator"),
            _ => {}
        }
    }
}
