//! Whether the clock goes with what the store remembers, and what may be concluded from it.

use super::Finding;
use super::records::rough;
use crate::stores::Url;
use semel::core::store::{Error, Store};
use semel::core::time::Trust;
use semel::time::{ClockStatus, DistrustReason, examine_clock};
use semel::{ClockSettings, SystemClock};
use std::time::Duration;

pub(super) async fn check(
    url: &Url,
    store: &dyn Store,
    settings: &ClockSettings,
    found: &mut Vec<Finding>,
) -> Result<Trust, Error> {
    let status = examine_clock(store, &SystemClock, settings).await?;
    let problem = match status {
        ClockStatus::Trusted => return Ok(Trust::Trusted),
        ClockStatus::Moved { by_ms } => {
            let by = rough(Duration::from_millis(by_ms.unsigned_abs()));
            let which = if by_ms < 0 { "back" } else { "forward" };
            format!("the clock was set {which} by {by}; gateways on this store continue with the time before")
        }
        ClockStatus::Untrusted(DistrustReason::Contradicted(by)) => format!(
            "the clock is {} ahead of the time that gateways on this store last used, and another one contradicted a clock that \
                was as far ahead; a gateway that starts now refuses new keys",
            rough(by)
        ),
        ClockStatus::Untrusted(why) => format!("{why}; a gateway that starts now refuses new keys"),
    };
    let fix = format!(
        "set this machine's clock. If it is right and the gateways' clock is wrong, run `semel doctor --store {url} --confirm-clock \
         this-machine --reason \"…\"`; gateways with another clock then refuse new keys until their clock is set"
    );
    found.push(Finding::error("clock-not-trusted", problem, fix));
    // Gateways use another time than this machine's clock, or no clock at all.
    Ok(Trust::Untrusted)
}
