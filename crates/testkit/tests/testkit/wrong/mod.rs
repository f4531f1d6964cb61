//! The memory store, wrong in one way at a time.

mod answers;
mod writes;

use semel::memory;
use semel_core::id::{CommandId, OperationId};
use semel_core::record::Record;
use semel_core::store::{
    self, Capabilities, Census, Change, Count, Counted, Cursor, Delegate, Filter, Hazard, Item, Page,
    Pending, Reading, Setting, Store as _, Written,
};
use semel_core::time::Time;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

macro_rules! ways {
    ($($way:ident)*) => {
        /// How a store is wrong.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Wrong {
            $($way,)*
        }

        impl Wrong {
            pub(crate) const ALL: &'static [Self] = &[$(Self::$way),*];
        }
    };
}

ways! {
    Nowhere
    InsertWritesOver InsertLooksThenWrites InsertHiddenRetry RefusalShowsNothing
    IgnoresVersion IgnoresToken IgnoresState SwapInserts SwapLooksThenWrites SwapLosesWrites
    RemovesRegardless RemovalOfNothingDone
    UnreadableIsAbsent UnreadableIsWrittenOver UnreadableIsSkipped
    StaleReads OwnTime RefusalsOutOfTime
    DueSkips DueBackwards DueUnbounded
    PageSkips PageRepeats PageUnbounded PageTooHeavy PageNeverEnds FilterIgnoresCase FilterIgnoresTime FilterIgnoresIds OldestAlwaysFirst
    RecordOverMarker RecordGoesAsMarker MarkersCountAsRecords CountUnbounded CensusWithoutTombstones
    SettingWritesOver SettingLooksThenWrites EmptySettingIsNone
    FindsFirstWriteOnly FoldsIds
    OutcomesAreText EmptyOutcomesAreDropped
    ForgetsOnRestart HidesItsDanger HazardsWithoutAdvice SaysItNotifies
    HalvesTokens
}

pub(crate) struct Store {
    inner: Arc<memory::Store>,
    wrong: Wrong,
    writes: AtomicU64,
    first_readings: Mutex<BTreeMap<CommandId, Reading>>,
    first_writes: Mutex<BTreeMap<CommandId, Record>>,
}

impl Store {
    pub(crate) fn new(inner: Arc<memory::Store>, wrong: Wrong) -> Self {
        Self {
            inner,
            wrong,
            writes: AtomicU64::new(0),
            first_readings: Mutex::default(),
            first_writes: Mutex::default(),
        }
    }

    pub(crate) fn wrong(&self) -> Wrong {
        self.wrong
    }

    fn is(&self, wrong: Wrong) -> bool {
        self.wrong == wrong
    }

    fn nth_write(&self) -> u64 {
        self.writes.fetch_add(1, Ordering::SeqCst)
    }

    /// The ID that this store uses for `id`.
    fn taken_for(&self, id: CommandId) -> CommandId {
        if self.is(Wrong::FoldsIds) {
            CommandId::from_bytes(id.as_bytes().map(|byte| byte.to_ascii_lowercase()))
        } else {
            id
        }
    }
}

impl Delegate for Store {
    fn inner(&self) -> &dyn store::Store {
        &*self.inner
    }

    fn name(&self) -> String {
        format!("wrong:{:?}", self.wrong)
    }

    fn capabilities(&self) -> Capabilities {
        let (durable, notifies) = (self.is(Wrong::ForgetsOnRestart), self.is(Wrong::SaysItNotifies));
        Capabilities { durable, notifies, ..self.inner.capabilities() }
    }

    fn hazards(&self) -> Pending<'_, Vec<Hazard>> {
        Box::pin(async move {
            let mut hazards = self.inner.hazards().await?;
            match self.wrong {
                Wrong::HidesItsDanger => hazards.clear(),
                Wrong::HazardsWithoutAdvice => hazards.iter_mut().for_each(|hazard| hazard.fix.clear()),
                _ => {}
            }
            Ok(hazards)
        })
    }

    fn write<'a>(&'a self, id: CommandId, change: Change<&'a Record>) -> Pending<'a, Written> {
        Box::pin(async move { Ok(self.shown(self.wrong_write(self.taken_for(id), change).await?)) })
    }

    fn get(&self, id: CommandId) -> Pending<'_, Reading> {
        Box::pin(async move { Ok(self.wrong_reading(id, self.inner.get(self.taken_for(id)).await?)) })
    }

    fn find(&self, operation_id: OperationId) -> Pending<'_, (Time, Option<Item>)> {
        Box::pin(self.wrong_find(operation_id))
    }

    fn page<'a>(&'a self, filter: &'a Filter, after: Option<&'a Cursor>, limit: usize) -> Pending<'a, Page> {
        Box::pin(self.wrong_page(filter, after, limit))
    }

    fn due<'a>(&'a self, after: Option<&'a Cursor>, limit: usize) -> Pending<'a, Page> {
        Box::pin(self.wrong_due(after, limit))
    }

    fn count(&self, what: Count, at_most: u64) -> Pending<'_, Counted> {
        Box::pin(self.wrong_count(what, at_most))
    }

    fn census(&self) -> Pending<'_, Census> {
        Box::pin(self.wrong_census())
    }

    fn set<'a>(
        &'a self,
        name: &'a str,
        expect: Option<&'a [u8]>,
        next: Option<&'a [u8]>,
    ) -> Pending<'a, Setting> {
        Box::pin(self.wrong_set(name, expect, next))
    }
}
