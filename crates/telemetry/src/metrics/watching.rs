//! Which event adds to which metric. The layer names operations by bounded labels; the engine's events name them by
//! what the record contains, which is not bounded.

use super::{CALLS, Metrics};
use semel::core::record::StateName;
use semel::time::ClockChange;
use semel::{Call, Event, Resolver};
use semel_http::{EventKind, ShadowOutcome, is_shadow};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Events that should never happen.
pub(super) const ALARMS: [&str; 15] = [
    "archive_failed",
    "clock_disagrees",
    "clock_distrusted",
    "clock_moved",
    "failed_open",
    "left_to_operator",
    "odd_word",
    "overran",
    "panicked",
    "record_lost",
    "secrets_behind",
    "store_lost",
    "unopened",
    "unreadable",
    "unstored",
];

/// The states that an unknown outcome can be resolved to.
pub(super) const RESOLVED: [StateName; 3] =
    [StateName::Succeeded, StateName::FailedReplayable, StateName::FailedNotReplayable];

/// Who resolved an unknown outcome, as a label.
pub(super) const fn name_of(by: Resolver) -> &'static str {
    match by {
        Resolver::Reconciler => "probe",
        Resolver::Operator => "operator",
    }
}

/// A request's outcome in one word. `None` if another event reports it.
pub const fn outcome(kind: EventKind) -> Option<&'static str> {
    Some(match kind {
        EventKind::Unprotected => "unprotected",
        EventKind::Ran(_) => "ran",
        EventKind::Replayed => "replayed",
        EventKind::Rebuilt => "rebuilt",
        EventKind::Accepted => "accepted",
        EventKind::Refused { code, .. } => code.as_str(),
        EventKind::Unread(_) => "unread",
        EventKind::NotAuthorized => "not_authorized",
        EventKind::FailedOpen => "failed_open",
        EventKind::Shadow(_) => "shadow",
        _ => return None,
    })
}

impl Metrics {
    fn set_sweep_lag(&self, lag: Duration) {
        let micros = u64::try_from(lag.as_micros()).unwrap_or(u64::MAX);
        self.0.sweep_lag_micros.store(micros, Ordering::Relaxed);
    }

    /// A call to the store was answered, or failed.
    pub(super) fn store_answered(&self, call: Call, took: Duration, is_error: bool) {
        if let Some(at) = CALLS.iter().position(|known| *known == call) {
            self.0.store_took[at].record(took);
        }
        if is_error {
            self.0.store_errors.add(&[("call", call.name())]);
        }
    }

    fn alarm(&self, name: &str) {
        debug_assert!(ALARMS.contains(&name), "{name} is missing from ALARMS");
        self.0.alarms.add(&[("what", name)]);
    }
}

impl semel_http::Observer for Metrics {
    fn observe(&self, event: &semel_http::Event<'_>) {
        let numbers = &self.0;
        let operation = ("operation", event.operation);
        match event.what {
            EventKind::Refused { code, caller } => {
                if let Some(caller) = caller {
                    numbers.mismatches.add(&[operation, ("caller", &caller.prefix())]);
                }
                numbers.refusals.add(&[("code", code.as_str())]);
            }
            EventKind::Unread(_) => self.refused(None),
            EventKind::FailedOpen => self.alarm("failed_open"),
            EventKind::Shadow(shadow_outcome) => {
                let shadow_outcome = match shadow_outcome {
                    ShadowOutcome::Run => "run",
                    ShadowOutcome::Replay => "replay",
                    ShadowOutcome::Refuse(code) => code.as_str(),
                    ShadowOutcome::RunAgain => "run_again",
                    _ => "not_judged",
                };
                numbers.shadow.add(&[operation, ("would", shadow_outcome)]);
            }
            EventKind::OddWord => self.alarm("odd_word"),
            _ => {}
        }
        let Some(outcome) = outcome(event.what) else { return };
        numbers.claims.add(&[operation, ("outcome", outcome)]);
        if matches!(event.what, EventKind::Replayed | EventKind::Rebuilt) {
            numbers.replays.add(&[operation]);
        }
    }

    fn began(&self, operation: &str) {
        self.0.under_way.add(operation, 1);
    }

    fn ended(&self, operation: &str) {
        self.0.under_way.add(operation, -1);
    }
}

impl semel::Observer for Metrics {
    fn observe(&self, event: &Event<'_>) {
        let numbers = &self.0;
        // The layer's events count shadow mode; its records are not attempts.
        if event.operation().is_some_and(is_shadow) {
            return;
        }
        match event {
            Event::Finished { operation, state } => self.with_label(operation, |label| {
                numbers.ended.add(&[("operation", label), ("state", state.as_str())]);
            }),
            Event::Lapsed { operation, .. } => self.with_label(operation, |label| {
                numbers.ended.add(&[("operation", label), ("state", StateName::Unknown.as_str())]);
            }),
            Event::Reconciled { state, by, .. } => {
                numbers.reconciled.add(&[("state", state.as_str()), ("by", name_of(*by))]);
            }
            Event::QuotaExceeded { operation, caller } => self.with_label(operation, |label| {
                numbers.quota.add(&[("operation", label), ("caller", &caller.prefix())]);
            }),
            Event::LeaseLost { .. } => numbers.lease_losses.add(&[]),
            Event::Fenced { differs, .. } => {
                numbers.fenced.add(&[("differs", if *differs { "true" } else { "false" })]);
            }
            Event::Asked { call, took, error } => {
                self.store_answered(*call, *took, error.is_some());
            }
            Event::Expired { operation } => {
                self.with_label(operation, |label| numbers.expired.add(&[("operation", label)]));
            }
            Event::Swept(swept) => {
                numbers.purged.add_many(&[], swept.purged);
                self.set_sweep_lag(swept.lag);
            }
            Event::SweptChunk { at, lag } => {
                numbers.swept_millis.store(at.as_millis(), Ordering::Relaxed);
                self.set_sweep_lag(*lag);
            }
            Event::RecordLost { .. } => self.alarm("record_lost"),
            Event::Unreadable { .. } => self.alarm("unreadable"),
            Event::Unopened { .. } => self.alarm("unopened"),
            Event::Panicked { .. } => self.alarm("panicked"),
            Event::Overran { .. } => self.alarm("overran"),
            Event::Unstored { .. } => self.alarm("unstored"),
            Event::Clock(change) => {
                let is_trusted = match change {
                    ClockChange::Moved { .. } => {
                        self.alarm("clock_moved");
                        false
                    }
                    ClockChange::Distrusted(_) => {
                        self.alarm("clock_distrusted");
                        false
                    }
                    ClockChange::Disagrees { .. } => return self.alarm("clock_disagrees"),
                    ClockChange::Back
                    | ClockChange::Followed { .. }
                    | ClockChange::Plausible
                    | ClockChange::Confirmed => true,
                };
                numbers.is_clock_trusted.store(is_trusted, Ordering::Relaxed);
            }
            Event::SecretsBehind { .. } => self.alarm("secrets_behind"),
            Event::StoreLost { .. } => self.alarm("store_lost"),
            Event::ArchiveFailed { .. } => self.alarm("archive_failed"),
            Event::LeftToOperator { .. } => self.alarm("left_to_operator"),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Kinds;
    use semel::core::id::{CallerHash, OperationId};
    use semel::core::record::StateName;
    use semel::core::time::Time;
    use semel_http::{RouteSettings, Routes};

    fn metrics() -> Metrics {
        let named = RouteSettings { name: Some("charge".to_owned()), ..RouteSettings::default() };
        let routes = Routes::new(RouteSettings::default())
            .and_then(|routes| routes.with("/accounts/{id}/refunds", RouteSettings::default()))
            .and_then(|routes| routes.with("/charges", named))
            .expect("fit for use");
        let metrics = Metrics::new(
            Time::from_millis(1_500),
            Kinds { upstream_errors: &["dns"], admin_refusals: &["role"] },
        );
        metrics.call_by(&routes);
        metrics
    }

    fn observe(metrics: &Metrics, event: Event<'_>) {
        semel::Observer::observe(metrics, &event);
    }

    #[test]
    fn no_path_of_a_record_becomes_a_label() {
        let metrics = metrics();
        for operation in ["POST /accounts/4711/refunds", "POST /accounts/4712/refunds", "charge", "PUT /x"] {
            observe(&metrics, Event::Finished { operation, state: StateName::Unknown });
            observe(&metrics, Event::Expired { operation });
            let caller = CallerHash::from_bytes([7; 32]);
            observe(&metrics, Event::QuotaExceeded { operation, caller });
        }
        let text = metrics.text(0);
        for line in [
            "idempotency_attempts_total{operation=\"/accounts/{id}/refunds\",state=\"UNKNOWN\"} 2\n",
            "idempotency_attempts_total{operation=\"charge\",state=\"UNKNOWN\"} 1\n",
            "idempotency_attempts_total{operation=\"other\",state=\"UNKNOWN\"} 1\n",
            "idempotency_expired_total{operation=\"/accounts/{id}/refunds\"} 2\n",
            "idempotency_quota_refusals_total{operation=\"charge\",caller=\"07070707\"} 1\n",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
        assert!(!text.contains("4711"), "{text}");
    }

    #[test]
    fn shadow_records_are_not_counted_and_raise_no_alarm() {
        let metrics = metrics();
        let before = metrics.text(0);
        let operation_id = OperationId::from_bytes([7; 16]);
        for operation in ["(shadow) POST /charges", "(shadow, without a key) charge"] {
            observe(&metrics, Event::Finished { operation, state: StateName::Succeeded });
            observe(&metrics, Event::Expired { operation });
            observe(&metrics, Event::Overran { operation_id, operation });
            observe(&metrics, Event::LeaseLost { operation_id, operation });
            observe(&metrics, Event::Fenced { operation_id, operation, differs: true });
        }
        assert_eq!(steady(&metrics.text(0)), steady(&before));
        observe(&metrics, Event::Overran { operation_id, operation: "POST /charges" });
        assert!(metrics.text(0).contains("idempotency_alarms_total{what=\"overran\"} 1\n"));
    }

    /// Values that do not change while nothing happens.
    fn steady(text: &str) -> Vec<&str> {
        text.lines().filter(|line| !line.starts_with("process_")).collect()
    }

    #[test]
    fn alerted_series_exist_from_the_start() {
        let text = metrics().text(0);
        for line in [
            "process_start_time_seconds 1.5\n",
            "idempotency_refusals_total{code=\"IDEMPOTENCY_RECORD_EXPIRED\"} 0\n",
            "idempotency_alarms_total{what=\"unstored\"} 0\n",
            "idempotency_fenced_writes_total{differs=\"true\"} 0\n",
            "idempotency_lease_losses_total 0\n",
            "idempotency_store_errors_total{call=\"insert\"} 0\n",
            "idempotency_in_progress{operation=\"charge\"} 0\n",
            "idempotency_store_up 0\n",
            "semel_upstream_errors_total{kind=\"dns\"} 0\n",
            "semel_admin_refusals_total{reason=\"role\"} 0\n",
            "semel_admin_refusals_total{reason=\"unreadable\"} 0\n",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
    }

    #[test]
    fn the_sweeps_timestamp_starts_with_the_process() {
        let metrics = metrics();
        let name = "idempotency_swept_timestamp_seconds";
        assert!(!metrics.text(0).contains(&format!("{name} ")), "nothing is swept here");
        metrics.expect_sweeps();
        assert!(metrics.text(0).contains(&format!("{name} 1.5\n")));
        // A long round does not mean that the sweeper has stopped.
        observe(&metrics, Event::SweptChunk { at: Time::from_millis(61_500), lag: Duration::from_secs(7) });
        assert!(metrics.text(0).contains(&format!("{name} 61.5\n")));
        assert!(metrics.text(0).contains("idempotency_sweep_lag_seconds 7\n"), "and its lag is known");
        // Without a trusted time there is no progress.
        let at = Some(Time::from_millis(90_000));
        observe(
            &metrics,
            Event::Swept(&semel::SweepReport { stopped: true, at, ..semel::SweepReport::default() }),
        );
        assert!(metrics.text(0).contains(&format!("{name} 61.5\n")));
    }

    #[test]
    fn whether_the_clock_is_trusted_is_a_gauge() {
        let metrics = metrics();
        let is_trusted = || metrics.text(0).contains("idempotency_clock_trusted 1\n");
        assert!(is_trusted());
        for (change, trusted) in [
            (ClockChange::Moved { by_ms: 7_200_000 }, false),
            (ClockChange::Disagrees { by_ms: 60_000 }, false),
            (ClockChange::Back, true),
            (ClockChange::Distrusted(semel::time::DistrustReason::Unreadable), false),
            (ClockChange::Plausible, true),
            (ClockChange::Moved { by_ms: -1 }, false),
            (ClockChange::Confirmed, true),
            (ClockChange::Disagrees { by_ms: 60_000 }, true),
        ] {
            observe(&metrics, Event::Clock(change));
            assert_eq!(is_trusted(), trusted, "{change:?}");
        }
        assert!(metrics.text(0).contains("idempotency_alarms_total{what=\"clock_moved\"} 2\n"));
    }

    #[test]
    fn work_is_in_progress_from_its_beginning_to_its_end() {
        let metrics = metrics();
        semel_http::Observer::began(&metrics, "charge");
        assert!(metrics.text(1).contains("idempotency_in_progress{operation=\"charge\"} 1\n"));
        semel_http::Observer::ended(&metrics, "charge");
        assert!(metrics.text(0).contains("idempotency_in_progress{operation=\"charge\"} 0\n"));
    }
}
