//! What waits for somebody: unknown outcomes, dead leases, what is past its time.

use super::{Finding, RecordSince, Report, millis};
use semel::archive::rfc3339;
use semel::core::machine;
use semel::core::record::{State, StateName};
use semel::core::store::{Error, Filter, Store};
use semel::core::time::{Now, Time};
use semel_text::duration;
use std::time::Duration;

/// How many records are read at once, and how many pages of due ones.
const PAGE: usize = 500;
const PAGES_MAX: usize = 200;
/// After this time, only an operator will resolve it.
const UNKNOWN_TOO_LONG: Duration = Duration::from_hours(24);
/// A running sweeper is never this late.
const LAG_MAX: Duration = Duration::from_mins(1);

/// Counts the records in each state. Returns the store's time.
pub(super) async fn count(store: &dyn Store, report: &mut Report) -> Result<Time, Error> {
    let census = store.census().await?;
    report.records.extend(census.states().map(|(state, count)| (state.as_str(), count)));
    Ok(census.now)
}

/// Unknown outcomes.
pub(super) async fn unknown(
    store: &dyn Store,
    now: Time,
    report: &mut Report,
    found: &mut Vec<Finding>,
) -> Result<(), Error> {
    let filter = Filter { state: Some(StateName::Unknown), ..Filter::default() };
    let (mut after, mut oldest, mut count) = (None, None::<(Time, String)>, 0_u64);
    for _ in 0..PAGES_MAX {
        let page = store.page(&filter, after.as_ref(), PAGE).await?;
        for record in page.items.iter().filter_map(|item| item.record()) {
            let State::Unknown { since, .. } = record.state() else { continue };
            count += 1;
            if oldest.as_ref().is_none_or(|(at, _)| since < at) {
                oldest = Some((*since, record.operation_id().to_string()));
            }
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let Some((since, operation_id)) = oldest else { return Ok(()) };
    let age = Duration::from_millis(millis(now, since));
    let problem = format!(
        "{} with an unknown outcome; the oldest, {operation_id}, for {}",
        many(count, "record"),
        rough(age)
    );
    let fix = "list them with `semel records list --state UNKNOWN`, check in the service what happened, and \
        enter the result with `semel records resolve`";
    let finding = if age >= UNKNOWN_TOO_LONG { Finding::error } else { Finding::warning };
    found.push(finding("unknown-outcomes", &problem, fix));
    report.oldest_unknown = Some(RecordSince { operation_id, since: rfc3339::text(since) });
    Ok(())
}

/// What a sweeper should have done by now. `judged` is the store's time, and what may be concluded from it.
pub(super) async fn due(
    store: &dyn Store,
    judged: impl Fn(Time) -> Now,
    report: &mut Report,
    found: &mut Vec<Finding>,
) -> Result<(), Error> {
    let (mut after, mut lag, mut dead) = (None, Duration::ZERO, 0_u64);
    for _ in 0..PAGES_MAX {
        let page = store.due(after.as_ref(), PAGE).await?;
        for record in page.items.iter().filter_map(|item| item.record()) {
            // Unknown outcomes wait for a probe or an operator, not for a sweeper.
            if let Some(due_at) = record.due_at()
                && record.state_name() != StateName::Unknown
            {
                lag = lag.max(page.now.since(due_at));
            }
            dead += u64::from(machine::is_lease_dead(record, judged(page.now)));
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    report.dead_leases = dead;
    report.sweep_lag_ms = u64::try_from(lag.as_millis()).unwrap_or(u64::MAX);
    if dead > 0 {
        found.push(Finding::warning(
            "dead-leases",
            format!("{} whose owner is gone (crashed or paused)", many(dead, "attempt")),
            "a gateway on this store that trusts its clock marks them as unknown within seconds; start one if none runs",
        ));
    }
    if lag > LAG_MAX {
        found.push(Finding::warning(
            "sweep-lag",
            format!(
                "a record has been due for {}: no gateway sweeps this store, or sweeping cannot keep up",
                rough(lag)
            ),
            "start a gateway on it; if one is running, check its log for errors about the clock and the archive",
        ));
    }
    Ok(())
}

/// `3 records`, `1 record`.
pub(super) fn many(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// A duration, rounded.
pub(super) fn rough(span: Duration) -> String {
    let seconds = span.as_secs();
    let unit = [86_400, 3_600, 60].into_iter().find(|unit| seconds >= 2 * unit).unwrap_or(1);
    duration::text(Duration::from_secs(seconds / unit * unit))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use semel::core::classify::Ending;
    use semel::core::fingerprint::Fingerprint;
    use semel::core::id::{CallerHash, CommandId, KeyHash, OperationId};
    use semel::core::machine::{Begin, Command, Decision, Found, NewAttempt, Stamp};
    use semel::core::policy::{Class, Policy};
    use semel::core::record::Token;
    use semel::core::store::{Change, Clock, Written};
    use semel::memory;
    use std::sync::Arc;

    pub(crate) const NOW: Time = Time::from_millis(1_794_916_800_000);
    const HOURS: Duration = Duration::from_hours(2);

    struct Fixed;

    impl Clock for Fixed {
        fn now(&self) -> Time {
            NOW
        }
    }

    /// A store with attempts that began two hours ago. Those that `ended` reported an unknown outcome; the others are
    /// silent since.
    async fn store(ended: &[bool]) -> memory::Store {
        let store = memory::Store::with_clock(Arc::new(Fixed));
        for (number, ended) in (1_u8..).zip(ended) {
            let (id, fingerprint) = (CommandId::from_bytes([number; 32]), Fingerprint::from_bytes([0; 32]));
            let command = Command {
                id,
                operation_id: OperationId::of(&id),
                key_hash: KeyHash::from_bytes([0; 32]),
                caller_hash: CallerHash::from_bytes([0; 32]),
                operation: "charge".into(),
                policy: Policy::new(Class::External).into(),
                fingerprint,
                payload: &fingerprint,
                generation: 0,
            };
            let stamp = Stamp::new(NOW - HOURS, "node", "");
            let token = Token::from_random(u128::from(number));
            let new_attempt = NewAttempt { token, begin: Begin::Processing };
            let Decision::Run(claim) = machine::decide(Found::Nothing, &command, new_attempt, stamp) else {
                panic!("a claim")
            };
            let record = if *ended {
                machine::finish(&claim.next, token, Ending::InDoubt, stamp).expect("its own attempt").next
            } else {
                claim.next
            };
            let written = store.write(id, Change::Insert(&record)).await.expect("an answer");
            assert!(matches!(written, Written::Done { .. }), "{written:?}");
        }
        store
    }

    /// The findings about the records of such a store.
    pub(crate) async fn looked_at(ended: &[bool]) -> Report {
        let store = store(ended).await;
        let (mut report, mut found) = (Report::of_no_store(), Vec::new());
        let now = count(&store, &mut report).await.expect("an answer");
        unknown(&store, now, &mut report, &mut found).await.expect("an answer");
        due(&store, Now::from, &mut report, &mut found).await.expect("an answer");
        for finding in found {
            report.find(finding);
        }
        report
    }

    #[tokio::test]
    async fn an_unknown_outcome_without_probe_is_no_lag() {
        let report = looked_at(&[true]).await;
        let codes: Vec<_> = report.findings.iter().map(|finding| finding.code).collect();
        assert_eq!((codes, report.sweep_lag_ms), (vec!["unknown-outcomes"], 0));
        let report = looked_at(&[true, false]).await;
        let codes: Vec<_> = report.findings.iter().map(|finding| finding.code).collect();
        assert_eq!(codes, ["unknown-outcomes", "dead-leases", "sweep-lag"]);
        assert!(report.sweep_lag_ms > 7_000_000, "{}", report.sweep_lag_ms);
    }

    #[test]
    fn durations_are_shown_roughly() {
        let texts = [0, 59, 119, 120, 7_199, 7_201, 200_000].map(|secs| rough(Duration::from_secs(secs)));
        assert_eq!(texts, ["0s", "59s", "119s", "2m", "119m", "2h", "2d"]);
    }
}
