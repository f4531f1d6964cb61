//! By how much the server's clock differs from this machine's.

use super::records::rough;
use super::{Finding, Report};
use semel::core::id::CommandId;
use semel::core::store::{Clock as _, ClockSource, Error, Store};
use semel::{Clock as _, ClockSettings, SystemClock};
use serde::Serialize;
use std::time::Duration;

/// How often the server is asked. The fastest answer is the most exact.
const ASKED: usize = 5;

/// A difference between two clocks, with its error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClockDifference {
    /// How many milliseconds the server's clock is ahead of this machine's; negative if it is behind.
    pub ahead_ms: i64,
    /// The error in milliseconds: half of the round trip, plus rounding.
    pub uncertainty_ms: u64,
}

/// Compares the clocks if the store uses a server's clock.
pub(super) async fn compare(
    store: &dyn Store,
    settings: &ClockSettings,
    report: &mut Report,
    found: &mut Vec<Finding>,
) -> Result<(), Error> {
    if store.capabilities().clock != ClockSource::One {
        return Ok(());
    }
    let mut best: Option<ClockDifference> = None;
    for _ in 0..ASKED {
        let (started, here) = (SystemClock.uptime(), SystemClock.now().as_millis());
        let there = store.get(CommandId::from_bytes([0; 32])).await?.now.as_millis();
        let difference = difference(here, there, SystemClock.uptime().saturating_sub(started));
        if best.is_none_or(|best| difference.uncertainty_ms < best.uncertainty_ms) {
            best = Some(difference);
        }
    }
    report.clock = best;
    let Some(ClockDifference { ahead_ms, uncertainty_ms }) = best else { return Ok(()) };
    let apart = Duration::from_millis(ahead_ms.unsigned_abs().saturating_sub(uncertainty_ms));
    // How far the clocks of gateways may differ; leases are judged by the server's clock alone.
    let ClockSettings { skew: allowed, .. } = settings;
    if apart > *allowed {
        let which = if ahead_ms < 0 { "behind" } else { "ahead of" };
        found.push(Finding::warning(
            "clock-difference",
            format!(
                "the server's clock is {} {which} this machine's. Leases and retention use the server's \
                    clock, so times in this machine's logs differ from those in records",
                rough(apart)
            ),
            "synchronise both machines with a time server",
        ));
    }
    Ok(())
}

/// The server read its clock between question and answer.
fn difference(here_ms: u64, there_ms: u64, round_trip: Duration) -> ClockDifference {
    let half = u64::try_from(round_trip.as_micros().div_ceil(2_000)).unwrap_or(u64::MAX);
    let middle = i128::from(here_ms) + i128::from(half);
    let ahead = i128::from(there_ms) - middle;
    let ahead_ms = i64::try_from(ahead).unwrap_or(if ahead < 0 { i64::MIN } else { i64::MAX });
    ClockDifference { ahead_ms, uncertainty_ms: half.saturating_add(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_known_to_within_half_a_round_trip() {
        let measured = difference(1_000, 1_050, Duration::from_millis(100));
        assert_eq!(measured, ClockDifference { ahead_ms: 0, uncertainty_ms: 51 });
        let measured = difference(100_000, 90_000, Duration::from_micros(300));
        assert_eq!(measured, ClockDifference { ahead_ms: -10_001, uncertainty_ms: 2 });
        let measured = difference(0, u64::MAX, Duration::ZERO);
        assert_eq!(measured, ClockDifference { ahead_ms: i64::MAX, uncertainty_ms: 1 });
    }
}
