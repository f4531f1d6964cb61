//! What shadow mode has counted per route: requests that would have been replayed or refused, likely duplicates
//! without a key, and [what follows from that](advise).
//!
//! The table is bounded, and contains no keys, callers or payloads.

mod advice;

pub use advice::{Advice, Verdict, advise};

use semel::archive::rfc3339;
use semel::core::time::Time;
use semel_http::{Code, Event, EventKind, Observer, ShadowDetails, ShadowOutcome};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use utoipa::ToSchema;

/// The maximum number of routes; others are counted together.
pub const ROUTES_MAX: usize = 200;

/// The label for routes without room, and for requests without an operation.
const OTHER: &str = "other";

/// Counts in shadow mode. Cheap to clone; clones share their numbers.
#[derive(Clone)]
pub struct Tally(Arc<Counting>);

struct Counting {
    since: Time,
    routes: Mutex<BTreeMap<Name, Counts>>,
}

/// A configured operation, or method and path if there is none.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Name {
    operation: String,
    route: Option<(String, String)>,
}

#[derive(Debug, Clone, Default)]
struct Counts {
    requests: u64,
    with_key: u64,
    would_run: u64,
    would_replay: u64,
    would_refuse: BTreeMap<&'static str, u64>,
    likely_duplicates: u64,
    not_judged: u64,
}

impl Tally {
    /// Starts counting.
    pub fn new(now: Time) -> Self {
        Self(Arc::new(Counting { since: now, routes: Mutex::default() }))
    }

    /// The counts so far.
    pub fn summary(&self) -> Summary {
        let routes = self.0.routes.lock().unwrap_or_else(PoisonError::into_inner);
        let routes = routes.iter().map(|(name, counts)| Route::of(name, counts)).collect();
        Summary { since: rfc3339::text(self.0.since), routes }
    }

    fn count(&self, operation: &str, seen: &ShadowDetails<'_>, outcome: ShadowOutcome) {
        let route = (operation == OTHER).then(|| (seen.method.to_owned(), seen.path.to_owned()));
        let name = Name { operation: operation.to_owned(), route };
        let mut routes = self.0.routes.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = routes.len() >= ROUTES_MAX && !routes.contains_key(&name);
        let name = if is_full { Name { operation: OTHER.to_owned(), route: None } } else { name };
        let counts = routes.entry(name).or_default();
        counts.requests += 1;
        counts.with_key += u64::from(seen.has_key);
        counts.likely_duplicates += u64::from(seen.is_repeat);
        match outcome {
            ShadowOutcome::Run | ShadowOutcome::RunAgain => counts.would_run += 1,
            ShadowOutcome::Replay => counts.would_replay += 1,
            ShadowOutcome::Refuse(code) => *counts.would_refuse.entry(code.as_str()).or_default() += 1,
            _ => counts.not_judged += 1,
        }
    }
}

impl Observer for Tally {
    fn observe(&self, event: &Event<'_>) {
        if let (EventKind::Shadow(outcome), Some(seen)) = (event.what, &event.seen) {
            self.count(event.operation, seen, outcome);
        }
    }
}

impl fmt::Debug for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tally").finish_non_exhaustive()
    }
}

/// The counts of shadow mode since the process started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Shadow)]
pub struct Summary {
    /// Since when (RFC 3339).
    pub since: String,
    /// Every route in shadow mode that had requests.
    pub routes: Vec<Route>,
}

/// The counts of one route.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ShadowRoute)]
pub struct Route {
    /// The operation's name or template; `other` if none is configured.
    pub operation: String,
    /// The method, if no operation is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The path without IDs, if no operation is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// How many requests there were. Each would have run, been replayed, blocked or refused, or was not judged.
    pub requests: u64,
    /// How many of them had a key.
    pub with_key: u64,
    /// How many would have run.
    pub would_run: u64,
    /// How many would have been replayed, and ran again.
    pub would_replay: u64,
    /// How many would have waited for a running duplicate, and ran in parallel.
    pub would_block: u64,
    /// How many would have been refused, by code.
    pub would_refuse: BTreeMap<String, u64>,
    /// How many had no key, and the same payload as another request of the same caller within ten minutes.
    pub likely_duplicates: u64,
    /// How many could not be judged.
    pub not_judged: u64,
}

impl Route {
    fn of(name: &Name, counts: &Counts) -> Self {
        let mut would_refuse = counts.would_refuse.clone();
        let would_block = would_refuse.remove(Code::InProgress.as_str()).unwrap_or(0);
        let (method, path) = name.route.clone().unzip();
        Self {
            operation: name.operation.clone(),
            method,
            path,
            requests: counts.requests,
            with_key: counts.with_key,
            would_run: counts.would_run,
            would_replay: counts.would_replay,
            would_block,
            would_refuse: would_refuse.into_iter().map(|(code, count)| (code.to_owned(), count)).collect(),
            likely_duplicates: counts.likely_duplicates,
            not_judged: counts.not_judged,
        }
    }

    /// How many would have been refused.
    pub fn refused(&self) -> u64 {
        self.would_refuse.values().sum()
    }

    /// The route for people: `charge`, `POST /charges`.
    pub fn render(&self) -> String {
        match (&self.method, &self.path) {
            (Some(method), Some(path)) => format!("{method} {path}"),
            _ => self.operation.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
