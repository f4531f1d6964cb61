//! What somebody has to be told of, as log lines.
//!
//! What lives here: which of the engine's events are worth a line, and how loud. What must never: an event that happens with
//! every request.

use semel::time::ClockChange;
use semel::{Event, Observer};
use semel_http::{EventKind, ShadowOutcome, is_shadow};
use tracing::{error, info, warn};

/// Writes log lines.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Alarms;

impl Observer for Alarms {
    fn observe(&self, event: &Event<'_>) {
        // Whatever becomes of shadow mode's own records, the request was handed on and nobody is answered from them.
        if event.operation().is_some_and(is_shadow) {
            return;
        }
        match event {
            Event::Fenced { operation_id, differs: true, .. } => error!(
                operation = %operation_id,
                "conflict: an attempt ended otherwise than its record says; somebody has to look"
            ),
            Event::RecordLost { operation_id, .. } => {
                error!(operation = %operation_id, "the record of an attempt that took effect is gone from the store");
            }
            Event::Unreadable { operation_id } => {
                error!(operation = %operation_id, "a record cannot be read here; it is answered as unknown and left alone");
            }
            Event::Unopened { operation_id } => {
                error!(operation = %operation_id, "a sealed outcome cannot be opened; it is answered as not retained: every node on a store needs the keys of [sealing]");
            }
            Event::Panicked { operation_id, .. } => {
                error!(operation = %operation_id, "an attempt panicked; its outcome is unknown once its lease is over");
            }
            Event::Overran { operation_id, .. } => {
                warn!(operation = %operation_id, "an attempt took longer than its deadline; its outcome is unknown");
            }
            Event::LeaseLost { operation_id, .. } => {
                warn!(operation = %operation_id, "an attempt lost its lease");
            }
            Event::Unstored { operation_id, error, .. } => {
                error!(operation = %operation_id, %error, "an outcome is not stored yet; trying on");
            }
            Event::Clock(change) => clock(change),
            Event::StoreRefuses { error } => {
                error!(%error, "the store takes no writes; requests with a key are refused with 503 until it does");
            }
            Event::StoreWrites => info!("the store takes writes again"),
            Event::SecretsBehind { error } => error!(%error, "the hashing secret cannot be kept up with"),
            Event::ArchiveFailed { error } => {
                error!(%error, "records could not be archived; none of them is deleted");
            }
            Event::Reconciled { operation_id, state } => {
                info!(operation = %operation_id, state = state.as_str(), "an unknown outcome was settled");
            }
            Event::LeftToOperator { operation_id } => {
                warn!(operation = %operation_id, "no reconciler could settle an unknown outcome; an operator has to");
            }
            _ => {}
        }
    }
}

/// What is thought of the clock now.
fn clock(change: &ClockChange) {
    match change {
        ClockChange::Moved { by_ms } => error!(
            by_ms,
            "the clock jumped and is not followed; time goes on from where it was. Set the clock right, or confirm it with semel \
             doctor --confirm-clock"
        ),
        ClockChange::Back => info!("the clock is back where it should be, and is followed again"),
        ClockChange::Followed { by_ms } => {
            warn!(
                by_ms,
                "the clock had jumped ahead by less than an hour and stayed there; it is followed now"
            );
        }
        ClockChange::Distrusted(why) => error!(
            %why,
            "the clock is not trusted: new keys are refused with 503, and nothing expires. Set the clock right, or confirm it with \
             semel doctor --confirm-clock"
        ),
        ClockChange::Plausible => info!("the clock is plausible again, and is followed"),
        ClockChange::Confirmed => warn!("somebody confirmed the clock; it is followed from now on"),
        ClockChange::Disagrees { by_ms } => error!(
            by_ms,
            "another node on this store goes by another time; no lease is judged dead until they agree. Set the clocks right, or \
             confirm the right one with semel doctor --confirm-clock"
        ),
    }
}

/// What shadow mode is there to show: requests that would not simply have run.
impl semel_http::Observer for Alarms {
    fn observe(&self, event: &semel_http::Event<'_>) {
        let EventKind::Shadow(would) = event.what else { return };
        let operation = event.operation;
        match would {
            ShadowOutcome::Replay => {
                info!(operation, "shadow: would have been answered with the stored outcome, and ran again");
            }
            ShadowOutcome::Refuse(code) => {
                info!(operation, code = code.as_str(), "shadow: would have been refused, and ran");
            }
            ShadowOutcome::RunAgain => {
                info!(operation, "shadow: ran again without a key; one with the same payload ran before");
            }
            ShadowOutcome::NotJudged => {
                info!(operation, "shadow: ran, and nobody can tell what would have become of it");
            }
            _ => {}
        }
    }
}
