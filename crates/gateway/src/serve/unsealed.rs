//! Warns a gateway without sealing keys whose store contains sealed responses. It samples a few records; `semel
//! doctor` reads all of them.

use semel::core::outcome::Body;
use semel::core::record::{Record, State, StateName};
use semel::core::store::{Filter, Item, Store};
use semel::core::time::Time;
use std::time::Duration;
use tracing::warn;

/// How many responses are checked: the oldest of all, and the oldest of the last hour.
const LOOKED_AT: usize = 100;
const LATELY: Duration = Duration::from_hours(1);

/// Warns if sealed responses are found. For a gateway that has no keys.
pub(super) async fn warn_if_sealed_by_others(store: &dyn Store, now: Time, timeout: Duration) {
    if tokio::time::timeout(timeout, is_sealed_by_others(store, now)).await == Ok(true) {
        warn!(
            "the store contains sealed responses, but this gateway has no key: it answers them as not \
                retained, and STORES NEW ONES UNSEALED; every node on a store needs the keys of [sealing]"
        );
    }
}

async fn is_sealed_by_others(store: &dyn Store, now: Time) -> bool {
    for updated_from in [Some(now - LATELY), None] {
        let filter = Filter { state: Some(StateName::Succeeded), updated_from, ..Filter::default() };
        let page = store.page(&filter, None, LOOKED_AT).await;
        if page.is_ok_and(|page| page.items.iter().filter_map(Item::record).any(is_sealed)) {
            return true;
        }
    }
    false
}

fn is_sealed(record: &Record) -> bool {
    matches!(record.state(), State::Succeeded { outcome, .. } if matches!(outcome.body, Body::Sealed(_)))
}
