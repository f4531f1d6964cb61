//! Faults put in on purpose, to see that the judge finds them.
//!
//! What lives here: what each sabotage is called, and the store that lies. What must never: a way into these from
//! anywhere but the torture's own command line.

use bytes::Bytes;
use semel::core::id::{CommandId, OperationId};
use semel::core::machine::Expect;
use semel::core::record::Record;
use semel::core::store::{
    Capabilities, Clock as _, Count, Counted, Cursor, Filter, Fresh, Hazard, Item, Page, Pending, Reading,
    Setting, Store, Written,
};
use semel::core::time::Time;
use std::sync::Arc;
use std::time::Duration;

/// A fault put in on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sabotage {
    /// Outcomes are acknowledged before they are stored.
    AnswerEarly,
    /// Every process begins with an empty store.
    Forget,
    /// An effect that nobody deduplicates is run again after its owner died.
    TakeOver,
    /// A lease as long as a retention period.
    Wedge,
    /// Work ends in doubt, and nobody has written down why.
    SilentDoubt,
    /// The disk says "synced" and syncs nothing, as it is with `synchronous=OFF`.
    NoSync,
}

const NAMES: &[(Sabotage, &str)] = &[
    (Sabotage::AnswerEarly, "answer-early"),
    (Sabotage::Forget, "forget"),
    (Sabotage::TakeOver, "take-over"),
    (Sabotage::Wedge, "wedge"),
    (Sabotage::SilentDoubt, "silent-doubt"),
    (Sabotage::NoSync, "no-sync"),
];

impl Sabotage {
    pub(crate) fn name(self) -> &'static str {
        NAMES.iter().find(|(known, _)| *known == self).map_or("?", |(_, name)| name)
    }

    pub(crate) fn by_name(name: &str) -> Option<Self> {
        NAMES.iter().find(|(_, known)| *known == name).map(|(sabotage, _)| *sabotage)
    }
}

/// A store that says "done" to a final outcome, and writes it a moment later.
pub(crate) struct AnswersEarly(pub(crate) Arc<dyn Store>);

impl Store for AnswersEarly {
    fn swap<'a>(&'a self, id: CommandId, expect: Expect, next: &'a Record) -> Pending<'a, Written> {
        if !next.is_terminal() {
            return self.0.swap(id, expect, next);
        }
        let (store, next) = (Arc::clone(&self.0), next.clone());
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(40)).await;
            drop(store.swap(id, expect, &next).await);
        });
        Box::pin(async { Ok(Written::Done { now: semel::SystemClock.now() }) })
    }

    fn name(&self) -> String {
        self.0.name()
    }
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }
    fn hazards(&self) -> Pending<'_, Vec<Hazard>> {
        self.0.hazards()
    }
    fn insert<'a>(&'a self, id: CommandId, fresh: Fresh<'a>) -> Pending<'a, Written> {
        self.0.insert(id, fresh)
    }
    fn remove(&self, id: CommandId, expect: Expect) -> Pending<'_, Written> {
        self.0.remove(id, expect)
    }
    fn remove_marker(&self, id: CommandId) -> Pending<'_, Written> {
        self.0.remove_marker(id)
    }
    fn get(&self, id: CommandId) -> Pending<'_, Reading> {
        self.0.get(id)
    }
    fn find(&self, operation_id: OperationId) -> Pending<'_, (Time, Option<Item>)> {
        self.0.find(operation_id)
    }
    fn page<'a>(&'a self, filter: &'a Filter, after: Option<&'a Cursor>, limit: usize) -> Pending<'a, Page> {
        self.0.page(filter, after, limit)
    }
    fn due<'a>(&'a self, after: Option<&'a Cursor>, limit: usize) -> Pending<'a, Page> {
        self.0.due(after, limit)
    }
    fn markers<'a>(&'a self, after: Option<&'a Cursor>, limit: usize) -> Pending<'a, Page> {
        self.0.markers(after, limit)
    }
    fn count(&self, what: Count, at_most: u64) -> Pending<'_, Counted> {
        self.0.count(what, at_most)
    }
    fn settings(&self) -> Pending<'_, Vec<(String, Bytes)>> {
        self.0.settings()
    }
    fn set<'a>(
        &'a self,
        name: &'a str,
        expect: Option<&'a [u8]>,
        next: Option<&'a [u8]>,
    ) -> Pending<'a, Setting> {
        self.0.set(name, expect, next)
    }
}
