//! Records and markers, page by page.

use super::{Error, Progress};
use crate::runtime::clock::Clock;
use futures_util::future::try_join_all;
use semel_core::id::OperationId;
use semel_core::record::{Entry, StateName};
use semel_core::store::{self, Change, Filter, Item, Kind, Page, Store, Written};
use std::collections::BTreeMap;
use std::time::Duration;

/// How many entries are read and written at a time. The store limits the bytes of a page.
const PAGE: usize = 256;
/// How many unreadable entries an error names.
const NAMED_MAX: usize = 5;
/// How often a write without an answer is retried.
const TRIES: u32 = 6;
const PAUSE: Duration = Duration::from_millis(200);

pub(super) struct Entries<'a> {
    pub(super) source: &'a dyn Store,
    pub(super) target: &'a dyn Store,
    pub(super) clock: &'a dyn Clock,
}

/// The contents of a store.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Counted {
    pub(super) records: BTreeMap<StateName, u64>,
    pub(super) markers: u64,
}

impl Counted {
    fn add(&mut self, entry: &Entry) {
        match entry {
            Entry::Record(record) => *self.records.entry(record.state_name()).or_default() += 1,
            Entry::Moved => self.markers += 1,
        }
    }

    fn total(&self) -> u64 {
        self.records.values().sum::<u64>() + self.markers
    }
}

/// The two lists that together contain everything in a store.
#[derive(Clone, Copy)]
enum List {
    Records,
    Markers,
}

impl Entries<'_> {
    /// Copies every entry that is not in the target. Returns how many already were.
    pub(super) async fn copy(&self, progress: &mut (dyn FnMut(Progress) + Send)) -> Result<u64, Error> {
        let (mut copied, mut found_there) = (0, 0);
        for list in [List::Records, List::Markers] {
            let mut after = None;
            loop {
                let page = self.page(self.source, list, after.as_ref()).await.map_err(Error::Source)?;
                let entries = readable(&page)?;
                let written = try_join_all(entries.iter().map(|(item, entry)| self.put(item, entry))).await?;
                copied += written.len() as u64;
                found_there += written.iter().filter(|is_new| !**is_new).count() as u64;
                progress(Progress::Copied(copied));
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
        }
        Ok(found_there)
    }

    /// Reads every entry of the source back from the target, and checks that there are no others.
    pub(super) async fn verify(&self, progress: &mut (dyn FnMut(Progress) + Send)) -> Result<Counted, Error> {
        let mut counted = Counted::default();
        for list in [List::Records, List::Markers] {
            let mut after = None;
            loop {
                let page = self.page(self.source, list, after.as_ref()).await.map_err(Error::Source)?;
                let entries = readable(&page)?;
                try_join_all(entries.iter().map(|(item, entry)| self.compare(item, entry))).await?;
                for (_, entry) in &entries {
                    counted.add(entry);
                }
                progress(Progress::Verified(counted.total()));
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
        }
        let there = self.count_target().await?;
        if there != counted {
            return Err(Error::Miscounted { source: counted.total(), target: there.total() });
        }
        Ok(counted)
    }

    async fn page(
        &self,
        store: &dyn Store,
        list: List,
        after: Option<&store::Cursor>,
    ) -> Result<Page, store::Error> {
        match list {
            List::Records => store.page(&Filter::default(), after, PAGE).await,
            List::Markers => store.markers(after, PAGE).await,
        }
    }

    /// Inserts an entry. Returns whether it was absent.
    async fn put(&self, item: &Item, entry: &Entry) -> Result<bool, Error> {
        let change = match entry {
            Entry::Record(record) => Change::Insert(&**record),
            Entry::Moved => Change::InsertMarker,
        };
        let (mut tries, mut pause) = (TRIES, PAUSE);
        loop {
            tries -= 1;
            match self.target.write(item.id, change).await {
                Ok(Written::Done { .. }) => return Ok(true),
                Ok(Written::Refused(reading)) if reading.entry.as_ref() == Some(&item.entry) => {
                    return Ok(false);
                }
                Ok(Written::Refused(_)) => return Err(Error::Differs(OperationId::of(&item.id))),
                Err(error) if is_worth_a_retry(&error) && tries > 0 => {
                    self.clock.sleep(pause).await;
                    pause *= 2;
                }
                Err(error) => return Err(Error::Target(error)),
            }
        }
    }

    async fn compare(&self, item: &Item, entry: &Entry) -> Result<(), Error> {
        let (mut tries, mut pause) = (TRIES, PAUSE);
        loop {
            tries -= 1;
            match self.target.get(item.id).await {
                Ok(reading) if matches!(&reading.entry, Some(Ok(there)) if there == entry) => return Ok(()),
                Ok(_) => return Err(Error::Differs(OperationId::of(&item.id))),
                Err(error) if is_worth_a_retry(&error) && tries > 0 => {
                    self.clock.sleep(pause).await;
                    pause *= 2;
                }
                Err(error) => return Err(Error::Target(error)),
            }
        }
    }

    /// Counted one by one: a store's own counts may be estimates.
    async fn count_target(&self) -> Result<Counted, Error> {
        let mut counted = Counted::default();
        let mut after = None;
        loop {
            let tally = self.target.tally(None, after.as_ref(), PAGE).await.map_err(Error::Target)?;
            for part in tally.counts {
                *counted.records.entry(part.state).or_default() += part.count;
            }
            after = tally.next;
            if after.is_none() {
                break;
            }
        }
        loop {
            let page = self.target.markers(after.as_ref(), PAGE).await.map_err(Error::Target)?;
            counted.markers += page.items.len() as u64;
            after = page.next;
            if after.is_none() {
                return Ok(counted);
            }
        }
    }
}

/// The entries of a page, if all of them can be read.
fn readable(page: &Page) -> Result<Vec<(&Item, &Entry)>, Error> {
    let mut unreadable =
        page.items.iter().filter_map(|item| Some((item, item.entry.as_ref().err()?))).peekable();
    if let Some((_, why)) = unreadable.peek() {
        let why = why.to_string();
        let operation_ids = unreadable.take(NAMED_MAX).map(|(item, _)| OperationId::of(&item.id)).collect();
        return Err(Error::Unreadable { operation_ids, why });
    }
    Ok(page.items.iter().filter_map(|item| Some((item, item.entry.as_ref().ok()?))).collect())
}

fn is_worth_a_retry(error: &store::Error) -> bool {
    matches!(error.kind(), Kind::Unavailable | Kind::Ambiguous)
}
