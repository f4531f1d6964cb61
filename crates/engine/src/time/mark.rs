//! The mark: a setting with the latest time, written by every node.

use bytes::Bytes;
use semel_core::store::{Error, Kind, Setting, Store};
use semel_core::time::Time;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The setting's name.
pub(crate) const NAME: &str = "clock";
const FORMAT: u8 = 1;

/// How often a write is retried after a conflict.
const TRIES: usize = 16;

/// The latest time of any node, and the clock that gave it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark {
    format: u8,
    /// Grows with every write, so that no value occurs twice.
    pub(super) beat: u64,
    /// The latest time of any node. Only a confirmation sets it back.
    at_ms: u64,
    /// The time of the node that wrote this.
    now_ms: u64,
    /// What that node's clock showed. Differs from its time if the clock jumped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shown_ms: Option<u64>,
    /// The run of the node that wrote this.
    pub(super) node: String,
    /// The boot that the node's uptime belongs to, if other processes can share it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) boot: Option<String>,
    uptime_ms: u64,
    /// Since when time has passed without a gap.
    #[serde(skip_serializing_if = "Option::is_none")]
    steady_since_ms: Option<u64>,
    /// The last confirmation of the clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) confirmed: Option<Confirmed>,
    /// A node that gave way because its time contradicted this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) contradiction: Option<Contradiction>,
}

/// A node that started with another time than a live one, and gave way. Kept until that node agrees or an operator
/// confirms a time: after a restart nothing else would show that its clock was found wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Contradiction {
    /// How far that node's time was ahead; of several nodes, the smallest.
    ahead_ms: u64,
    /// The latest date that it may have given.
    up_to_ms: u64,
    /// The run of the node that reported it.
    node: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    boot: Option<String>,
}

/// What a node reports that gives way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ContradictionReport {
    /// How far its time is ahead of the other node's.
    pub(super) ahead: Duration,
    /// Its own time.
    pub(super) up_to: Time,
}

/// An operator's confirmation of the clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Confirmed {
    /// The number of confirmations.
    pub(super) count: u64,
    at_ms: u64,
    /// The latest time of any node before the confirmation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    before_ms: Option<u64>,
    who: String,
    why: String,
}

/// What a node writes about its time.
#[derive(Debug, Clone)]
pub(super) struct TimeReport<'a> {
    pub(super) now: Time,
    pub(super) shown: Time,
    pub(super) node: &'a str,
    pub(super) boot: Option<&'a str>,
    pub(super) uptime: Duration,
    pub(super) steady_since: Option<Time>,
}

impl Mark {
    /// The mark that follows `before`. It never goes back.
    pub(super) fn after(before: Option<&Self>, beat: &TimeReport<'_>) -> Self {
        let now_ms = beat.now.as_millis();
        let steady_since_ms = beat.steady_since.map(Time::as_millis);
        Self {
            format: FORMAT,
            beat: before.map_or(0, |mark| mark.beat) + 1,
            at_ms: before.map_or(0, |mark| mark.at_ms).max(now_ms),
            now_ms,
            shown_ms: Some(beat.shown.as_millis()),
            node: beat.node.to_owned(),
            boot: beat.boot.map(str::to_owned),
            uptime_ms: u64::try_from(beat.uptime.as_millis()).unwrap_or(u64::MAX),
            steady_since_ms: before.and_then(|mark| mark.steady_since_ms).max(steady_since_ms),
            confirmed: before.and_then(|mark| mark.confirmed.clone()),
            // A node that writes its time agrees with the others.
            contradiction: before
                .and_then(|mark| mark.contradiction.clone())
                .filter(|it| it.node != beat.node && (it.boot.is_none() || it.boot.as_deref() != beat.boot)),
        }
    }

    /// This mark with the report of the node `node` that gives way, if the mark does not have it yet. The time and the
    /// node that wrote it stay.
    pub(super) fn contradicted(
        &self,
        report: ContradictionReport,
        node: &str,
        boot: Option<&str>,
    ) -> Option<Self> {
        let ahead_ms = u64::try_from(report.ahead.as_millis()).unwrap_or(u64::MAX);
        let up_to_ms = report.up_to.as_millis();
        let is_same_machine =
            |known: &Contradiction| known.node == node || boot.is_some() && known.boot.as_deref() == boot;
        let contradiction = match &self.contradiction {
            Some(known) => {
                let is_covered = known.ahead_ms <= ahead_ms && up_to_ms <= known.up_to_ms;
                let is_same = is_same_machine(known);
                if is_covered && (is_same || known.node.is_empty()) {
                    return None;
                }
                Contradiction {
                    ahead_ms: ahead_ms.min(known.ahead_ms),
                    up_to_ms: up_to_ms.max(known.up_to_ms),
                    // What several machines reported, no single one takes back.
                    node: if is_same { node.to_owned() } else { String::new() },
                    boot: boot.filter(|_| is_same).map(str::to_owned),
                }
            }
            None => {
                Contradiction { ahead_ms, up_to_ms, node: node.to_owned(), boot: boot.map(str::to_owned) }
            }
        };
        Some(Self { beat: self.beat + 1, contradiction: Some(contradiction), ..self.clone() })
    }

    /// The mark that replaces `before` when `who` confirms the time `beat.now`.
    pub(super) fn confirmed(before: Option<&Self>, beat: &TimeReport<'_>, who: &str, why: &str) -> Self {
        let at_ms = beat.now.as_millis();
        let count = before.and_then(|mark| mark.confirmed.as_ref()).map_or(0, |last| last.count) + 1;
        let before_ms =
            before.map(|mark| mark.at_ms.max(mark.contradicted_up_to().map_or(0, Time::as_millis)));
        let confirmed = Some(Confirmed { count, at_ms, before_ms, who: who.to_owned(), why: why.to_owned() });
        let steady_since_ms = Some(at_ms);
        Self { at_ms, steady_since_ms, confirmed, contradiction: None, ..Self::after(before, beat) }
    }

    /// The latest time of any node.
    pub(super) fn at(&self) -> Time {
        Time::from_millis(self.at_ms)
    }

    /// The time of the node that wrote this.
    pub(super) fn now(&self) -> Time {
        Time::from_millis(self.now_ms)
    }

    /// That node's uptime at the time of writing.
    pub(super) fn uptime(&self) -> Duration {
        Duration::from_millis(self.uptime_ms)
    }

    pub(super) fn steady_since(&self) -> Option<Time> {
        self.steady_since_ms.map(Time::from_millis)
    }

    /// When the clock was last confirmed: earlier dates may be wrong.
    pub(super) fn replaced_at(&self) -> Option<Time> {
        self.confirmed.as_ref().map(Confirmed::at)
    }

    /// The latest date that a replaced time, or the time of a node that gave way, may have given.
    pub(super) fn replaced_up_to(&self) -> Option<Time> {
        let replaced = self.confirmed.as_ref().and_then(|confirmed| confirmed.before_ms);
        replaced.map(Time::from_millis).max(self.contradicted_up_to())
    }

    /// The latest date that a node that gave way may have given.
    pub(super) fn contradicted_up_to(&self) -> Option<Time> {
        self.contradiction.as_ref().map(|it| Time::from_millis(it.up_to_ms))
    }

    /// How far the time of a node that gave way was ahead.
    pub(super) fn contradicted_ahead(&self) -> Option<Duration> {
        self.contradiction.as_ref().map(|it| Duration::from_millis(it.ahead_ms))
    }

    /// What the clock showed of the node that wrote this; `None` of an earlier version.
    pub(super) fn shown(&self) -> Option<Time> {
        self.shown_ms.map(Time::from_millis)
    }

    /// Whether no node wrote its time between `self` and `other`.
    pub(super) fn has_time_of(&self, other: &Self) -> bool {
        let time = |mark: &Self| (mark.now_ms, mark.uptime_ms, mark.confirmations());
        self.node == other.node && time(self) == time(other)
    }

    /// The number of confirmations.
    pub(super) fn confirmations(&self) -> u64 {
        self.confirmed.as_ref().map_or(0, |confirmed| confirmed.count)
    }

    fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let unreadable = |why: &str| {
            let context = format!(
                "reading the setting `{NAME}`, which contains the last time of a node: {why}. Nothing is claimed \
                 without it; confirm the clock to replace it"
            );
            Error::new(Kind::Unfit, context)
        };
        let mark: Self = serde_json::from_slice(bytes).map_err(|error| unreadable(&error.to_string()))?;
        if mark.format != FORMAT {
            return Err(unreadable("it was written by a newer version"));
        }
        Ok(mark)
    }

    fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

impl Confirmed {
    /// The confirmed time.
    pub(super) fn at(&self) -> Time {
        Time::from_millis(self.at_ms)
    }
}

/// The mark of one store for a copy, at `now` by the copy's clock: the latest time of any node, and the last
/// confirmation. The clocks may differ, so the uptime is dropped, and time has a gap here. An unreadable mark is
/// copied unchanged: nodes then do not trust their clock.
pub(crate) fn carried_over(bytes: &[u8], now: Time) -> Vec<u8> {
    match Mark::decode(bytes) {
        Ok(mark) => {
            let steady_since_ms = Some(now.as_millis());
            Mark { beat: mark.beat + 1, shown_ms: None, boot: None, uptime_ms: 0, steady_since_ms, ..mark }
                .encode()
        }
        Err(_) => bytes.to_vec(),
    }
}

/// A stored mark, for compare-and-swap.
#[derive(Debug, Clone, Default)]
pub(super) struct Stored {
    bytes: Option<Bytes>,
}

impl Stored {
    pub(super) fn mark(&self) -> Result<Option<Mark>, Error> {
        self.bytes.as_deref().map(Mark::decode).transpose()
    }
}

/// The stored mark.
pub(super) async fn read(store: &dyn Store) -> Result<Stored, Error> {
    let settings = store.settings().await?;
    let bytes = settings.into_iter().find_map(|(name, bytes)| (name == NAME).then_some(bytes));
    Ok(Stored { bytes })
}

/// The mark after a try to replace it.
pub(super) struct AfterWrite {
    /// What is in the store, or was when `next` changed nothing.
    pub(super) stored: Stored,
    pub(super) is_written: bool,
}

/// Replaces the mark by the result of `next`, also after a conflict, unless `next` changes nothing.
pub(super) async fn write(
    store: &dyn Store,
    mut stored: Stored,
    mut next: impl FnMut(Result<Option<Mark>, Error>) -> Result<Option<Mark>, Error>,
) -> Result<AfterWrite, Error> {
    for _ in 0..TRIES {
        let Some(mark) = next(stored.mark())? else { return Ok(AfterWrite { stored, is_written: false }) };
        let bytes = mark.encode();
        match store.set(NAME, stored.bytes.as_deref(), Some(&bytes)).await? {
            Setting::Done => {
                let stored = Stored { bytes: Some(bytes.into()) };
                return Ok(AfterWrite { stored, is_written: true });
            }
            Setting::Refused(others) => stored = Stored { bytes: others },
        }
    }
    Err(Error::new(Kind::Unavailable, "writing the time, which others keep changing"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beat(now: u64) -> TimeReport<'static> {
        let (now, uptime) = (Time::from_millis(now), Duration::from_secs(1));
        TimeReport { now, shown: now, node: "a", boot: None, uptime, steady_since: None }
    }

    #[test]
    fn only_a_confirmation_moves_a_mark_back() {
        let first = Mark::after(None, &beat(100));
        let second = Mark::after(Some(&first), &beat(50));
        assert_eq!((second.at(), second.now()), (Time::from_millis(100), Time::from_millis(50)));
        let confirmed = Mark::confirmed(Some(&second), &beat(50), "ann", "the time server was wrong");
        assert_eq!((confirmed.at(), confirmed.confirmations()), (Time::from_millis(50), 1));
        assert_eq!(confirmed.steady_since(), Some(Time::from_millis(50)));
        let third = Mark::after(Some(&confirmed), &beat(60));
        assert_eq!((third.confirmations(), third.steady_since()), (1, Some(Time::from_millis(50))));
        assert_eq!(Mark::decode(&third.encode()).expect("its own bytes"), third);
    }

    #[test]
    fn a_contradiction_stays_until_its_node_agrees_or_a_time_is_confirmed() {
        let report = |ahead: u64, up_to: u64| {
            let (ahead, up_to) = (Duration::from_millis(ahead), Time::from_millis(up_to));
            ContradictionReport { ahead, up_to }
        };
        let of = |node: &'static str, now: u64| TimeReport { node, ..beat(now) };
        let first = Mark::after(None, &of("live", 100));
        let told = first.contradicted(report(600, 700), "late", None).expect("a change");
        assert!(told.has_time_of(&first) && told != first && told.at() == first.at());
        assert_eq!(told.contradicted(report(600, 700), "late", None), None, "once");
        assert_eq!(Mark::decode(&told.encode()).expect("its own bytes"), told);
        let kept = Mark::after(Some(&told), &of("live", 110));
        assert_eq!(
            (kept.contradicted_ahead(), kept.at()),
            (Some(Duration::from_millis(600)), Time::from_millis(110))
        );
        assert_eq!(Mark::after(Some(&kept), &of("late", 120)).contradiction, None, "it agrees");
        let confirmed = Mark::confirmed(Some(&kept), &of("ann", 120), "ann", "compared");
        assert_eq!(
            (&confirmed.contradiction, confirmed.replaced_up_to()),
            (&None, Some(Time::from_millis(700)))
        );
        // Of two, neither takes back what the other reported.
        let both = kept.contradicted(report(500, 650), "other", None).expect("a change");
        assert_eq!(both.contradicted_ahead(), Some(Duration::from_millis(500)));
        assert_eq!(both.contradicted_up_to(), Some(Time::from_millis(700)));
        assert!(Mark::after(Some(&both), &of("late", 120)).contradiction.is_some());
        assert_eq!(both.contradicted(report(500, 650), "other", None), None);
    }

    #[test]
    fn an_unreadable_mark_is_an_error_with_advice() {
        for bytes in [&b"nonsense"[..], br#"{"format":2}"#] {
            let error = Mark::decode(bytes).expect_err("not a mark").to_string();
            assert!(error.contains("confirm the clock"), "{error}");
        }
    }
}
