//! A gateway without keys on a store whose answers others seal.
//!
//! What lives here: a look at what is stored, and a word about it. What must never: a start that hangs on it: what a store holds is
//! known for certain to `semel doctor` only, which reads all of it.

use semel::core::outcome::Body;
use semel::core::record::{Record, State, StateName};
use semel::core::store::{Filter, Item, Store};
use semel::core::time::Time;
use std::time::Duration;
use tracing::warn;

/// How many answers are looked at: the oldest of all, and the oldest of the last hour.
const LOOKED_AT: usize = 100;
const LATELY: Duration = Duration::from_hours(1);

/// Warns where answers are found that are sealed. For a gateway that has no keys.
pub(super) async fn warn_of_others(store: &dyn Store, now: Time, timeout: Duration) {
    if tokio::time::timeout(timeout, is_sealed_by_others(store, now)).await == Ok(true) {
        warn!(
            "the store holds sealed answers, and this gateway has no key: it answers them as not retained, and STORES AS THEY ARE \
             those that it gets, that workers report to it and that operators enter; every node on a store needs the keys of \
             [sealing]"
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
