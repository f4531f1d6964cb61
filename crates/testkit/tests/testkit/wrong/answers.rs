//! Wrong answers.

use super::{Store, Wrong};
use semel_core::id::{CommandId, OperationId};
use semel_core::machine::Found;
use semel_core::record::{Entry, StateName};
use semel_core::store::{
    Census, Count, Counted, Cursor, Error, Filter, Item, Page, Reading, Store as _, Written,
};
use semel_core::time::Time;

impl Store {
    /// The answer to the caller of a write.
    pub(super) fn shown(&self, written: Written) -> Written {
        match (self.wrong, written) {
            (Wrong::RefusalShowsNothing, Written::Refused(reading)) => {
                Written::Refused(Reading::nothing(reading.now))
            }
            (Wrong::RefusalsOutOfTime, Written::Refused(reading)) => {
                Written::Refused(Reading { now: Time::from_millis(0), ..reading })
            }
            (Wrong::OwnTime, Written::Done { .. }) => Written::Done { now: Time::from_millis(1) },
            (_, written) => written,
        }
    }

    pub(super) fn wrong_reading(&self, id: CommandId, reading: Reading) -> Reading {
        match self.wrong {
            Wrong::StaleReads if reading.entry.is_some() => {
                let mut first = self.first_readings.lock().expect("no panic");
                first.entry(id).or_insert(reading).clone()
            }
            Wrong::UnreadableIsAbsent if reading.found() == Found::Unreadable => {
                Reading::nothing(reading.now)
            }
            _ => reading,
        }
    }

    pub(super) async fn wrong_find(&self, operation_id: OperationId) -> Result<(Time, Option<Item>), Error> {
        let (now, found) = self.inner.find(operation_id).await?;
        let first = self.first_writes.lock().expect("no panic").clone();
        let item = match (self.wrong, found) {
            (Wrong::FindsFirstWriteOnly, Some(item)) => first
                .get(&item.id)
                .map(|first| Item { id: item.id, entry: Ok(Entry::Record(Box::new(first.clone()))) }),
            (_, found) => found,
        };
        Ok((now, item))
    }

    pub(super) async fn wrong_page(
        &self,
        filter: &Filter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page, Error> {
        let any = Filter::default();
        let folded = |text: &str| text.to_lowercase();
        match (self.wrong, &filter.operation) {
            (Wrong::FilterIgnoresCase, Some(operation)) => {
                let wider = Filter { operation: None, ..filter.clone() };
                let mut page = self.inner.page(&wider, after, limit).await?;
                let same = |item: &Item| {
                    item.record().is_some_and(|record| folded(record.operation()) == folded(operation))
                };
                page.items.retain(same);
                return Ok(page);
            }
            (Wrong::FilterIgnoresIds, _) => {
                return self.inner.page(&Filter { ids: None, ..filter.clone() }, after, limit).await;
            }
            (Wrong::OldestAlwaysFirst, _) => {
                return self
                    .inner
                    .page(&Filter { newest_first: false, ..filter.clone() }, after, limit)
                    .await;
            }
            (Wrong::FilterIgnoresTime, _) => {
                let wider = Filter { updated_from: None, updated_before: None, ..filter.clone() };
                return self.inner.page(&wider, after, limit).await;
            }
            _ => {}
        }
        let limit = if self.is(Wrong::PageUnbounded) { limit + 1 } else { limit };
        let mut page = self.inner.page(filter, after, limit).await?;
        match self.wrong {
            Wrong::PageTooHeavy => {
                while let Some(next) = page.next.take_if(|_| page.items.len() < limit) {
                    let more = self.inner.page(filter, Some(&next), limit - page.items.len()).await?;
                    page.items.extend(more.items);
                    page.next = more.next;
                }
            }
            Wrong::PageSkips if page.next.is_some() => drop(page.items.pop()),
            Wrong::PageRepeats if after.is_some() => {
                page.items = self
                    .inner
                    .page(&any, None, 1)
                    .await?
                    .items
                    .into_iter()
                    .chain(page.items)
                    .take(limit)
                    .collect();
            }
            Wrong::PageNeverEnds => {
                page.next = Some(after.cloned().unwrap_or_else(|| Cursor::from_bytes(vec![0; 40])));
            }
            Wrong::UnreadableIsSkipped => page.items.retain(|item| item.entry.is_ok()),
            _ => {}
        }
        Ok(page)
    }

    pub(super) async fn wrong_due(&self, after: Option<&Cursor>, limit: usize) -> Result<Page, Error> {
        let limit = if self.is(Wrong::DueUnbounded) { limit * 2 } else { limit };
        let mut page = self.inner.due(after, limit).await?;
        match self.wrong {
            Wrong::DueSkips => drop(page.items.pop()),
            Wrong::DueBackwards => page.items.reverse(),
            _ => {}
        }
        Ok(page)
    }

    pub(super) async fn wrong_census(&self) -> Result<Census, Error> {
        let right = self.inner.census().await?;
        let mut census = Census::empty(right.now);
        for (state, count) in right.states() {
            if !(self.is(Wrong::CensusWithoutTombstones) && state == StateName::Expired) {
                census.add(state, count);
            }
        }
        Ok(census)
    }

    pub(super) async fn wrong_count(&self, what: Count, at_most: u64) -> Result<Counted, Error> {
        let limit = if self.is(Wrong::CountUnbounded) { u64::MAX } else { at_most };
        let mut counted = self.inner.count(what, limit).await?;
        if self.is(Wrong::MarkersCountAsRecords) && what == Count::Records {
            counted.count += self.inner.count(Count::Markers, at_most).await?.count;
        }
        Ok(counted)
    }
}
