//! How a starting node judges its clock by the store's mark.

use super::mark::Mark;
use super::span::millis;
use super::watch::ClockWatch;
use super::{ClockChange, TrustState, Watch, clamped};
use crate::settings::ClockSettings;
use semel_core::time::Time;
use std::fmt;
use std::time::Duration;

/// Why a clock is not trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DistrustReason {
    /// It is behind the last time in the store.
    Behind(Duration),
    /// It is further ahead of that time than a downtime may last.
    Ahead(Duration),
    /// Another node used a time that differs from it, and was there first.
    Contradicted(Duration),
    /// The last time in the store cannot be read.
    Unreadable,
}

impl fmt::Display for DistrustReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Behind(by) => {
                write!(
                    f,
                    "the clock is {} behind the time that gateways on this store last used",
                    rounded(*by)
                )
            }
            Self::Ahead(by) => {
                write!(
                    f,
                    "the clock is {} ahead of the time that gateways on this store last used",
                    rounded(*by)
                )
            }
            Self::Contradicted(by) => {
                write!(
                    f,
                    "the clock differs by {} from that of a gateway that was running when this one started",
                    rounded(*by)
                )
            }
            Self::Unreadable => f.write_str("the time that gateways on this store last used cannot be read"),
        }
    }
}

/// A duration for people, rounded to a whole number of the largest unit that fits twice.
fn rounded(span: Duration) -> String {
    let seconds = span.as_secs();
    let units: [(u64, &str); 3] = [(86_400, "d"), (3_600, "h"), (60, "m")];
    let (unit, name) = units.into_iter().find(|(unit, _)| seconds >= 2 * unit).unwrap_or((1, "s"));
    format!("{}{name}", (seconds + unit / 2) / unit)
}

pub(super) struct Started {
    pub(super) now: Time,
    pub(super) watch: ClockWatch,
    pub(super) trust: TrustState,
    pub(super) change: Option<ClockChange>,
}

/// Why a clock is wrong. It showed `shown` at a moment `between` these two, counted from the reading of `mark`, and may
/// be ahead by `ahead_max`. The moment is unknown if the process was suspended before it read the answer.
pub(super) fn contradicts(
    settings: &ClockSettings,
    mark: &Mark,
    shown: Time,
    between: (Duration, Duration),
    ahead_max: Duration,
) -> Option<DistrustReason> {
    let (earliest, latest) = (mark.at() + between.0, mark.at() + between.1);
    if shown + settings.watch_allowance() < latest {
        return Some(DistrustReason::Behind(latest.since(shown)));
    }
    let ahead = shown.since(earliest);
    let why =
        if ahead_max < settings.downtime_max { DistrustReason::Contradicted } else { DistrustReason::Ahead };
    (ahead > ahead_max).then(|| why(ahead))
}

/// How far a clock may be ahead of `mark` at a start.
///
/// A node whose clock was found wrong while another one lived is at least as far ahead after a restart. After a stop
/// that is as long, a right clock looks like that one, and an operator has to tell.
pub(super) fn ahead_max(settings: &ClockSettings, mark: &Mark) -> Duration {
    let Some(ahead) = mark.contradicted_ahead() else { return settings.downtime_max };
    // It was measured against a mark that was up to this old.
    let inaccuracy = settings.peers_seen_within() + settings.watch_allowance();
    ahead.saturating_sub(inaccuracy).max(settings.peers_seen_within()).min(settings.downtime_max)
}

/// Whether a clock is so far ahead of the last time in the store that the node has to watch that time before it writes
/// its own: a live node would have written since.
pub(super) fn has_to_watch(settings: &ClockSettings, mark: &Mark, shown: Time, passed: Duration) -> bool {
    shown.since(mark.now() + passed) > settings.peers_seen_within()
}

/// Judges the clock by the store's mark: `None` for a new store, an error if the mark cannot be read.
pub(super) fn start(
    settings: &ClockSettings,
    boot: Option<&str>,
    remembered: Result<Option<Mark>, ()>,
    shown: Time,
    asked: Duration,
    received: Duration,
) -> Started {
    // How much longer to wait for other nodes after a recent gap.
    let unseen = |mark: &Mark, now: Time| {
        let since = mark.steady_since().filter(|since| *since <= now);
        since.map_or(Duration::ZERO, |since| (since + settings.peers_seen_within()).since(now))
    };
    let watch = |at| ClockWatch::new(settings.watch_allowance(), settings.steady_for, at, asked, received);
    let untrusted = |why, mark: Option<Mark>| Started {
        now: mark.as_ref().map_or(shown, |mark| shown.max(mark.at())),
        watch: watch(shown),
        trust: TrustState::Untrusted {
            why,
            ahead_max: mark.as_ref().map_or(Duration::ZERO, |mark| ahead_max(settings, mark)),
            mark: mark.map(Box::new),
            reference: None,
            contradiction: None,
            since: received,
        },
        change: Some(ClockChange::Distrusted(why)),
    };
    let known = remembered.as_ref().ok().and_then(Option::as_ref);
    let replaced_at = known.and_then(Mark::replaced_at);
    let replaced_up_to =
        known.and_then(Mark::replaced_up_to).map(|up_to| up_to + settings.peers_seen_within());
    let trusted = |starting: Duration, steady_since| TrustState::Trusted {
        starting_until: received + starting,
        settling_until: received + settings.settle.max(starting),
        confirmed_at: None,
        watch: None,
        steady_since,
        replaced_at,
        replaced_up_to,
    };
    let mark = match remembered {
        Err(()) => return untrusted(DistrustReason::Unreadable, None),
        Ok(None) => {
            let trust = trusted(Duration::ZERO, None);
            return Started { now: shown, watch: watch(shown), trust, change: None };
        }
        Ok(Some(mark)) => mark,
    };
    // On the same boot, the uptime shows how long the node that wrote the mark has been gone.
    let shares_uptime = boot.is_some() && mark.boot.as_deref() == boot && mark.uptime() <= received;
    let measured = shares_uptime.then(|| {
        let allowance = settings.watch_allowance();
        let (at, uptime) = (mark.now(), mark.uptime());
        let mut watch = ClockWatch::new(allowance, settings.steady_for, at, uptime, uptime);
        let (now, _) = watch.feed(shown, asked, received);
        (now, watch)
    });
    let is_right = measured.as_ref().is_some_and(|(_, watch)| watch.off().is_none());
    let ahead_max = ahead_max(settings, &mark);
    if !is_right && let Some(why) = contradicts(settings, &mark, shown, Default::default(), ahead_max) {
        return untrusted(why, Some(mark));
    }
    if let Some((now, watch)) = measured {
        // As if this node had been running all the time.
        let change = watch.off().map(|by| ClockChange::Moved { by_ms: clamped(by) });
        let trust = trusted(unseen(&mark, now), mark.steady_since());
        return Started { now, watch, trust, change };
    }
    // Only the clock itself shows how long nobody wrote.
    let silence = millis(shown.since(mark.now()));
    let is_fresh = silence <= millis(settings.peers_seen_within() + settings.skew);
    let mut trust = if is_fresh {
        trusted(unseen(&mark, shown), mark.steady_since())
    } else {
        trusted(settings.peers_seen_within(), Some(shown))
    };
    if has_to_watch(settings, &mark, shown, Duration::ZERO)
        && let TrustState::Trusted { watch, .. } = &mut trust
    {
        *watch = Some(Watch::begin(asked));
    }
    Started { now: shown, watch: watch(shown), trust, change: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distrusted_clock_is_described_by_a_rounded_difference() {
        let rounded = |seconds| rounded(Duration::from_secs(seconds));
        assert_eq!([6, 119, 120, 7_199].map(rounded), ["6s", "119s", "2m", "120m"]);
        assert_eq!([7_200, 172_799, 172_800, 3_455_999].map(rounded), ["2h", "48h", "2d", "40d"]);
        let ahead = DistrustReason::Ahead(Duration::from_secs(3_455_999));
        assert_eq!(
            ahead.to_string(),
            "the clock is 40d ahead of the time that gateways on this store last used"
        );
    }
}
