//! Whether a store contains sealed responses, for those who have no keys: a gateway warns, and the command line stores no
//! response beside them. A few records are checked; `semel doctor` reads all of them.

use semel::core::id::CommandId;
use semel::core::outcome::{Body, Outcome};
use semel::core::record::{Record, State, StateName};
use semel::core::store::{Error, Filter, Store};
use semel::core::time::Time;
use std::time::Duration;
use tracing::warn;

/// How many responses a gateway checks at start: the oldest of all, and the oldest of the last hour.
const LOOKED_AT: usize = 100;
/// The most that are read at once.
const PAGE: usize = 500;
const LATELY: Duration = Duration::from_hours(1);

/// Warns if sealed responses are found. For a gateway that has no keys.
pub(crate) async fn warn_if_sealed_by_others(store: &dyn Store, now: Time, timeout: Duration) {
    if matches!(tokio::time::timeout(timeout, contains_sealed(store, now, LOOKED_AT)).await, Ok(Ok(true))) {
        // Where the search was before: people search logs by it.
        warn!(
            target: "semel_gateway::serve::unsealed",
            "the store contains sealed responses, but this gateway has no key: it answers them as not \
                retained, and STORES NEW ONES UNSEALED; every node on a store needs the keys of [sealing]"
        );
    }
}

/// Whether one of the checked responses is sealed.
pub(crate) async fn contains_sealed(store: &dyn Store, now: Time, looked_at: usize) -> Result<bool, Error> {
    any_sealed(store, now, looked_at, |_, _| true).await
}

/// Whether `test` holds for one of the sealed responses among those that are checked: of the last hour, of all, and of
/// refusals, the oldest `looked_at`.
pub(crate) async fn any_sealed(
    store: &dyn Store,
    now: Time,
    looked_at: usize,
    test: impl Fn(&CommandId, &Outcome) -> bool,
) -> Result<bool, Error> {
    for (state, updated_from) in [
        (StateName::Succeeded, Some(now - LATELY)),
        (StateName::Succeeded, None),
        (StateName::FailedReplayable, None),
    ] {
        let filter = Filter { state: Some(state), updated_from, ..Filter::default() };
        let (mut left, mut after) = (looked_at, None);
        while left > 0 {
            let page = store.page(&filter, after.as_ref(), left.min(PAGE)).await?;
            let mut sealed = page.items.iter().filter_map(|item| Some((&item.id, sealed(item.record()?)?)));
            if sealed.any(|(id, outcome)| test(id, outcome)) {
                return Ok(true);
            }
            // A page may be empty and have a next one.
            left = left.saturating_sub(page.items.len().max(1));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
    }
    Ok(false)
}

/// The outcome, if it is sealed.
fn sealed(record: &Record) -> Option<&Outcome> {
    let (State::Succeeded { outcome, .. } | State::FailedReplayable { outcome, .. }) = record.state() else {
        return None;
    };
    matches!(outcome.body, Body::Sealed(_)).then_some(outcome)
}
