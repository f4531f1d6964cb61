//! Logs the engine's events that somebody has to know about. Events that happen with every request are not logged
//! here.

use super::repeated::{Line, Repeated};
use semel::time::ClockChange;
use semel::{Event, Observer, Resolver};
use semel_http::{EventKind, ShadowOutcome, is_shadow};
use semel_telemetry::metrics::Metrics;
use semel_text::duration;
use std::sync::Arc;
use std::time::Duration;
use tracing::{error, info, warn};

/// Logs events. In each line, `operation` is the configured operation and `operation_id` names one command.
#[derive(Debug, Clone)]
pub(super) struct Alarms {
    metrics: Metrics,
    secrets: Arc<Repeated>,
    archive: Arc<Repeated>,
}

impl Alarms {
    /// `metrics` knows the names of operations.
    pub(super) fn new(metrics: Metrics) -> Self {
        Self { metrics, secrets: Arc::default(), archive: Arc::default() }
    }
}

impl Observer for Alarms {
    fn observe(&self, event: &Event<'_>) {
        // Shadow mode's own records are irrelevant here: the request was forwarded, and nobody is answered from them.
        if event.operation().is_some_and(is_shadow) {
            return;
        }
        let operation = event.operation().map(|operation| self.metrics.label_of(operation));
        match event {
            Event::Fenced { operation_id, differs: true, .. } => error!(
                operation, %operation_id,
                "conflict: an attempt ended differently from what its record says; somebody has to look at it"
            ),
            Event::RecordLost { operation_id, .. } => {
                error!(operation, %operation_id, "the record of an attempt that took effect is missing in the store");
            }
            Event::Unreadable { operation_id } => {
                error!(%operation_id, "a record cannot be read by this node; it is answered as unknown and left unchanged");
            }
            Event::Unopened { operation_id } => {
                error!(%operation_id, "a sealed response cannot be opened and is answered as not retained: every node on a store needs the keys of [sealing]");
            }
            Event::Panicked { operation_id, .. } => {
                error!(operation, %operation_id, "an attempt panicked; its outcome is unknown as soon as its lease ends");
            }
            Event::Overran { operation_id, .. } => {
                warn!(operation, %operation_id, "an attempt took longer than its deadline; its outcome is unknown");
            }
            Event::Lapsed { operation_id, .. } => {
                warn!(operation, %operation_id, "the owner of an attempt went silent and its lease ran out; the outcome is unknown");
            }
            Event::LeaseLost { operation_id, .. } => {
                warn!(operation, %operation_id, "an attempt lost its lease");
            }
            Event::Unstored { operation_id, error, .. } => {
                error!(operation, %operation_id, %error, "an outcome is not stored yet; the gateway keeps trying");
            }
            Event::Clock(change) => clock(change),
            Event::StoreRefuses { error } => {
                error!(%error, "the store accepts no writes; requests with a key are refused with 503 until it does");
            }
            Event::StoreLost { error } => {
                error!(%error, "the store has lost data; requests whose records may be lost are refused with 503, because they could run again");
            }
            Event::StoreIntact => info!("no part of the store is missing any more"),
            Event::StoreWrites => info!("the store accepts writes again"),
            Event::SecretsBehind { error } => match self.secrets.again(&error.to_string()) {
                Some(Line::First) => {
                    error!(%error, "the state of the hashing secret cannot be read from the store");
                }
                Some(Line::Still(failures)) => {
                    error!(failures, "the state of the hashing secret still cannot be read from the store");
                }
                None => {}
            },
            Event::SecretsCurrent => {
                let failures = self.secrets.over();
                info!(failures, "the state of the hashing secret can be read from the store again");
            }
            Event::ArchiveFailed { error } => match self.archive.again(&error.to_string()) {
                Some(Line::First) => error!(%error, "records could not be archived; none of them is deleted"),
                Some(Line::Still(failures)) => {
                    error!(failures, "records still cannot be archived; none of them is deleted");
                }
                None => {}
            },
            Event::Swept(report) if report.purged > 0 => {
                let failures = self.archive.over();
                if failures > 0 {
                    info!(failures, "records can be archived again");
                }
            }
            // Operators' actions are in the audit log.
            Event::Reconciled { operation_id, state, by: Resolver::Reconciler, .. } => {
                info!(operation, %operation_id, state = state.as_str(), "a probe resolved an unknown outcome");
            }
            Event::LeftToOperator { operation_id } => {
                warn!(%operation_id, "no probe could resolve an unknown outcome; an operator has to");
            }
            _ => {}
        }
    }
}

/// How wrong a clock is.
fn difference(by_ms: i64) -> String {
    let length = duration::text(Duration::from_millis(by_ms.unsigned_abs()));
    if by_ms < 0 { format!("-{length}") } else { format!("+{length}") }
}

/// Whether the clock is trusted now.
fn clock(change: &ClockChange) {
    match change {
        ClockChange::Moved { by_ms } => error!(
            by = difference(*by_ms),
            "the clock jumped and is not trusted; the gateway continues from the time before. Set the clock right, or confirm it \
             with semel doctor --confirm-clock --reason \"…\""
        ),
        ClockChange::Back => info!("the clock is right again, and is trusted"),
        ClockChange::Followed { by_ms } => {
            warn!(
                by = difference(*by_ms),
                "the clock had jumped ahead by less than an hour and stayed there; it is trusted now"
            );
        }
        ClockChange::Distrusted(why) => error!(
            %why,
            "the clock is not trusted: new keys are refused with 503, and nothing expires. Set the clock right, or confirm it with \
             semel doctor --confirm-clock --reason \"…\""
        ),
        ClockChange::Plausible => info!("the clock is plausible again, and is trusted"),
        ClockChange::Confirmed => warn!("an operator confirmed the clock; it is trusted from now on"),
        ClockChange::Disagrees { by_ms } => error!(
            by = difference(*by_ms),
            "another node on this store has a different time; no lease counts as ended until they agree. Set the clocks right, or \
             confirm the right one with semel doctor --confirm-clock --reason \"…\""
        ),
    }
}

/// Requests in shadow mode that protection would have treated differently.
impl semel_http::Observer for Alarms {
    fn observe(&self, event: &semel_http::Event<'_>) {
        let EventKind::Shadow(outcome) = event.what else { return };
        let operation = event.operation;
        match outcome {
            ShadowOutcome::Replay => {
                info!(operation, "shadow: ran again; protection would have replayed the stored response");
            }
            ShadowOutcome::Refuse(code) => {
                info!(operation, code = code.as_str(), "shadow: ran; protection would have refused it");
            }
            ShadowOutcome::RunAgain => {
                info!(operation, "shadow: ran without a key, after another request with the same payload");
            }
            ShadowOutcome::NotJudged => {
                info!(operation, "shadow: ran; what protection would have done is not known");
            }
            _ => {}
        }
    }
}
