//! Lists and counts records, a bounded part at a time, over all buckets.
//!
//! Every list of a bucket is sorted. A page reads a few entries of each list, up to the last position that is
//! known for all of them.

use crate::fault::unexpected;
use crate::layout::{Head, ListPosition, MARKER, caller};
use crate::resp::{Value, text};
use crate::scripts;
use crate::servers::Effect;
use crate::shared::{READING, Shared};
use bytes::Bytes;
use futures_util::future::{join_all, try_join_all};
use semel_core::id::{CallerHash, OperationId};
use semel_core::record::StateName;
use semel_core::store::{
    Census, Count, Counted, Cursor, Error, Filter, Item, Kind, PAGE_BYTES_MAX, Page, Tallied, Tally,
};
use semel_core::time::Time;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// How many records one page reads at most, matching or not.
const READS_MAX: usize = 5_000;
/// How many records one page has at most.
const LIMIT_MAX: usize = 5_000;
/// How many are read with one command.
const TOGETHER_MAX: usize = 500;

/// What is listed, and from which position.
pub(crate) struct Walk {
    /// The number of a state or of markers; none for due records.
    lists: Vec<Option<u8>>,
    buckets: RangeInclusive<u16>,
    is_downwards: bool,
}

impl Walk {
    /// Through one list of a bucket.
    pub(crate) fn upwards(list: u8, bucket: u16) -> Self {
        Self { lists: vec![Some(list)], buckets: bucket..=bucket, is_downwards: false }
    }
}

/// A part of a walk.
struct Part {
    now: Time,
    positions: Vec<(ListPosition, Option<u8>)>,
    /// The position after which the next part begins; `None` at the end.
    end: Option<ListPosition>,
}

/// A record's head, and the length of its value.
type HeadAndLength = (Option<Head>, usize);

fn all_states() -> Vec<Option<u8>> {
    StateName::ALL.iter().map(|state| Some(state.number())).collect()
}

/// Cursors come from clients, so they may contain anything.
fn position_after(cursor: Option<&Cursor>) -> Result<Option<ListPosition>, Error> {
    let forged = || Error::new(Kind::Unfit, "continuing from a cursor that this store did not create");
    cursor.map(|cursor| ListPosition::read(cursor.as_bytes()).ok_or_else(forged)).transpose()
}

fn cursor(position: ListPosition) -> Cursor {
    Cursor::from_bytes(Bytes::copy_from_slice(&position.0))
}

/// What was read from each bucket. What is due in the others does not wait for a bucket that is lost; any other list
/// would claim to be complete.
fn present<T>(parts: Vec<Result<T, Error>>, walk: &Walk) -> Result<Vec<T>, Error> {
    let is_lost = |part: &Result<T, Error>| matches!(part, Err(error) if error.kind() == Kind::DataLost);
    if walk.lists != [None] || parts.iter().all(is_lost) {
        return parts.into_iter().collect();
    }
    parts.into_iter().filter(|part| !is_lost(part)).collect()
}

impl Shared {
    /// The identity to compare in lists. An inspection shows what is left.
    fn identity_of_lists(&self) -> &[u8] {
        if self.address.any_server { b"" } else { self.identity.as_bytes() }
    }

    fn every_bucket(&self) -> RangeInclusive<u16> {
        0..=self.layout.buckets().end.saturating_sub(1)
    }

    /// The next `limit` positions of a walk, or fewer.
    async fn part(&self, walk: &Walk, after: Option<ListPosition>, limit: usize) -> Result<Part, Error> {
        let few = (2 * limit / walk.buckets.len().max(1) + 4).min(limit + 1);
        let part = self.part_with(walk, after, limit, few).await?;
        // Records of the same time are sorted by their IDs, and so are all in one bucket: read more of it.
        let is_short = part.end.is_some() && part.positions.len() < limit / 2 && few <= limit;
        if is_short { self.part_with(walk, after, limit, limit + 1).await } else { Ok(part) }
    }

    /// The same, with this many entries of each list.
    async fn part_with(
        &self,
        walk: &Walk,
        after: Option<ListPosition>,
        limit: usize,
        per_list: usize,
    ) -> Result<Part, Error> {
        let parts =
            join_all(walk.buckets.clone().map(|bucket| self.part_of(bucket, walk, after, per_list))).await;
        let parts = present(parts, walk)?;
        let (mut positions, mut horizon, mut now) = (Vec::new(), None::<ListPosition>, Time::default());
        for (at, lists) in parts {
            now = now.max(at);
            for (list, found) in walk.lists.iter().zip(lists) {
                if found.len() >= per_list
                    && let Some(last) = found.last()
                {
                    let nearer = |known: ListPosition| {
                        if walk.is_downwards { known.max(*last) } else { known.min(*last) }
                    };
                    horizon = Some(horizon.map_or(*last, nearer));
                }
                positions.extend(found.into_iter().map(|position| (position, *list)));
            }
        }
        let is_known = |position: &ListPosition| {
            horizon.is_none_or(|end| if walk.is_downwards { *position >= end } else { *position <= end })
        };
        positions.retain(|(position, _)| is_known(position));
        positions.sort_unstable();
        if walk.is_downwards {
            positions.reverse();
        }
        let is_more = horizon.is_some() || positions.len() > limit;
        positions.truncate(limit);
        let end = positions.last().map(|(position, _)| *position).filter(|_| is_more);
        Ok(Part { now, positions, end })
    }

    /// The next entries of each list of a bucket.
    pub(crate) async fn part_of(
        &self,
        bucket: u16,
        walk: &Walk,
        after: Option<ListPosition>,
        per_list: usize,
    ) -> Result<(Time, Vec<Vec<ListPosition>>), Error> {
        let mut keys = vec![self.layout.proof(bucket), self.layout.marker(bucket)];
        keys.extend(walk.lists.iter().map(|list| match list {
            Some(state) => self.layout.list(bucket, *state),
            None => self.layout.due(bucket),
        }));
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let is_due = walk.lists == [None];
        let replaced = self.replaced_time().map(|now| now.as_millis().to_be_bytes());
        let upper: &[u8] = match &replaced {
            Some(now) if is_due => now,
            None if is_due => b"now",
            _ => b"",
        };
        let (after, per_list) = (after.map(|position| position.0), per_list.to_string());
        let after = after.as_ref().map_or(&b""[..], |position| &position[..]);
        let direction: &[u8] = if walk.is_downwards { b"down" } else { b"up" };
        let proof = if self.address.any_server { &b""[..] } else { b"0" };
        let arguments = [proof, direction, after, upper, per_list.as_bytes(), self.identity_of_lists()];
        let (now, lists) = self.asked(bucket, &scripts::LIST, &keys, &arguments).await?;
        let positions = |list: &Value| {
            list.array()
                .iter()
                .filter_map(|position| ListPosition::read(position.bytes()?))
                .collect::<Vec<_>>()
        };
        Ok((now, lists.array().iter().map(positions).collect()))
    }

    async fn asked(
        &self,
        bucket: u16,
        script: &scripts::Script,
        keys: &[&[u8]],
        arguments: &[&[u8]],
    ) -> Result<(Time, Value), Error> {
        let (part, question) = ((self.reading(), bucket), (keys, arguments));
        let answer = self.run_in_part(part, script, Effect::Reads, question, READING).await?;
        let Value::Array(mut parts) = answer else { return Err(unexpected(&answer)) };
        match parts.as_mut_slice() {
            [status, seconds, micros, found] if status.text() == Some("found") => {
                Ok((self.time(seconds, micros), std::mem::replace(found, Value::Nil)))
            }
            _ => Err(unexpected(&Value::Array(parts))),
        }
    }

    /// The heads of these records. A record that the server removed is removed from its list.
    async fn heads(
        &self,
        positions: &[(ListPosition, Option<u8>)],
    ) -> Result<BTreeMap<ListPosition, HeadAndLength>, Error> {
        let mut by_bucket: BTreeMap<u16, Vec<(ListPosition, Option<u8>)>> = BTreeMap::new();
        for (position, list) in positions {
            by_bucket
                .entry(self.layout.bucket(position.operation_id()))
                .or_default()
                .push((*position, *list));
        }
        let per_bucket = by_bucket.iter().map(|(bucket, positions)| self.heads_of(*bucket, positions));
        Ok(try_join_all(per_bucket).await?.into_iter().flatten().collect())
    }

    async fn heads_of(
        &self,
        bucket: u16,
        positions: &[(ListPosition, Option<u8>)],
    ) -> Result<Vec<(ListPosition, HeadAndLength)>, Error> {
        let mut keys = vec![self.layout.proof(bucket), self.layout.marker(bucket)];
        keys.extend(positions.iter().map(|(position, _)| self.layout.record(position.operation_id())));
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let proof = if self.address.any_server { &b""[..] } else { b"0" };
        let (_, found) =
            self.asked(bucket, &scripts::HEADS, &keys, &[proof, self.identity_of_lists()]).await?;
        let mut heads = Vec::new();
        for ((position, list), head) in positions.iter().zip(found.array()) {
            match head.array() {
                [head, length] => {
                    let length = length.number().and_then(|length| usize::try_from(length).ok()).unwrap_or(0);
                    let head = head.bytes().and_then(Head::read).map(|(head, _)| head);
                    heads.push((*position, (head, length)));
                }
                _ => self.forget(bucket, *position, *list).await,
            }
        }
        Ok(heads)
    }

    async fn forget(&self, bucket: u16, position: ListPosition, list: Option<u8>) {
        if self.address.any_server {
            return;
        }
        let list = list.map_or_else(|| self.layout.due(bucket), |state| self.layout.list(bucket, state));
        let record = self.layout.record(position.operation_id());
        let slot = self.layout.slot(bucket);
        let marker = self.layout.marker(bucket);
        let (keys, arguments): ([&[u8]; 3], [&[u8]; 2]) =
            ([&record, &list, &marker], [&position.0, self.identity.as_bytes()]);
        if let Err(fault) = self.writes.run(slot, &scripts::FORGET, Effect::Writes, &keys, &arguments).await {
            let error = fault.error("taking a removed record out of its list");
            tracing::debug!(%error, "a later list tries again");
        }
    }

    pub(crate) async fn page(
        &self,
        filter: &Filter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page, Error> {
        let buckets = filter.ids.map_or_else(
            || self.every_bucket(),
            |ids| self.layout.bucket(ids.first)..=self.layout.bucket(ids.last),
        );
        let lists = filter.state.map_or_else(all_states, |state| vec![Some(state.number())]);
        let walk = Walk { lists, buckets, is_downwards: filter.newest_first };
        let has_id = |id: OperationId| filter.ids.is_none_or(|ids| ids.has(&id));
        let is_wanted = |position: &ListPosition, head: Option<&Head>| {
            has_id(position.operation_id()) && head.is_none_or(|head| head.may_be_wanted(filter))
        };
        self.listed(&walk, position_after(after)?, limit, is_wanted, |item, _| filter.shows(item)).await
    }

    pub(crate) async fn due(&self, after: Option<&Cursor>, limit: usize) -> Result<Page, Error> {
        let walk = Walk { lists: vec![None], buckets: self.every_bucket(), is_downwards: false };
        let is_due = |item: &Item, now: Time| {
            item.record().is_none_or(|record| record.due_at().is_some_and(|due_at| due_at <= now))
        };
        self.listed(&walk, position_after(after)?, limit, |_, _| true, is_due).await
    }

    pub(crate) async fn markers(&self, after: Option<&Cursor>, limit: usize) -> Result<Page, Error> {
        let walk = Walk { lists: vec![Some(MARKER)], buckets: self.every_bucket(), is_downwards: false };
        let is_marker = |_: &ListPosition, head: Option<&Head>| head.is_some_and(|head| head.state == MARKER);
        self.listed(&walk, position_after(after)?, limit, is_marker, |_, _| true).await
    }

    /// A page of a walk: `may_be_wanted` filters by heads, `shows` by entries.
    async fn listed(
        &self,
        walk: &Walk,
        mut after: Option<ListPosition>,
        limit: usize,
        may_be_wanted: impl Fn(&ListPosition, Option<&Head>) -> bool,
        shows: impl Fn(&Item, Time) -> bool,
    ) -> Result<Page, Error> {
        let limit = limit.clamp(1, LIMIT_MAX);
        let (mut chosen, mut bytes, mut looked, mut now) = (Vec::new(), 0, 0, Time::default());
        let next = 'looking: loop {
            let part = self.part(walk, after, limit.clamp(50, TOGETHER_MAX)).await?;
            now = now.max(part.now);
            let heads = self.heads(&part.positions).await?;
            for (at, _) in &part.positions {
                let headed = heads.get(at).filter(|(head, _)| may_be_wanted(at, head.as_ref()));
                if let Some((_, length)) = headed {
                    let is_full = chosen.len() >= limit;
                    if is_full || (bytes + length > PAGE_BYTES_MAX && !chosen.is_empty()) {
                        break 'looking after;
                    }
                    bytes += length;
                    chosen.push((*at, *length));
                }
                after = Some(*at);
                looked += 1;
            }
            if part.end.is_none() || looked >= READS_MAX {
                break part.end;
            }
        };
        let read = chosen.iter().map(|(at, length)| self.stored_of_length(at.operation_id(), *length));
        let read = try_join_all(read).await?;
        let mut items = Vec::with_capacity(read.len());
        for ((position, _), (at, stored)) in chosen.iter().zip(read) {
            now = now.max(at);
            // Records that were removed meanwhile are left out; changed ones are shown as they are now.
            let item = stored.map(|stored| stored.item(position.operation_id()));
            items.extend(item.filter(|item| shows(item, now)));
        }
        Ok(Page { now, items, next: next.map(cursor) })
    }

    pub(crate) async fn tally(
        &self,
        state: Option<StateName>,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Tally, Error> {
        let lists = state.map_or_else(all_states, |state| vec![Some(state.number())]);
        let walk = Walk { lists, buckets: self.every_bucket(), is_downwards: false };
        let part = self.part(&walk, position_after(after)?, limit.clamp(1, TOGETHER_MAX)).await?;
        let mut counts: BTreeMap<(String, u8), Tallied> = BTreeMap::new();
        for (head, _) in self.heads(&part.positions).await?.into_values() {
            let Some((head, named)) = head.and_then(|head| Some((head.clone(), head.state_name()?))) else {
                continue;
            };
            if state.is_some_and(|filter| filter != named) {
                continue;
            }
            let operation = text(&Value::Bytes(head.operation));
            let fresh = || Tallied { operation: operation.clone(), state: named, count: 0 };
            counts.entry((operation.clone(), head.state)).or_insert_with(fresh).count += 1;
        }
        Ok(Tally { now: part.now, counts: counts.into_values().collect(), next: part.end.map(cursor) })
    }

    /// The sizes of the lists, over all buckets: states, markers, and last the caller's.
    async fn sums(&self, of: &CallerHash) -> Result<(Time, Vec<u64>), Error> {
        let parts = try_join_all(self.layout.buckets().map(|bucket| self.counts_of(bucket, of))).await?;
        let (mut now, mut sums) = (Time::default(), vec![0_u64; usize::from(MARKER) + 2]);
        for (at, counts) in parts {
            now = now.max(at);
            for (sum, count) in sums.iter_mut().zip(counts) {
                *sum = sum.saturating_add(count);
            }
        }
        Ok((now, sums))
    }

    async fn counts_of(&self, bucket: u16, of: &CallerHash) -> Result<(Time, Vec<u64>), Error> {
        let mut keys =
            vec![self.layout.proof(bucket), self.layout.callers(bucket), self.layout.marker(bucket)];
        keys.extend((0..=MARKER).map(|state| self.layout.list(bucket, state)));
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let proof = if self.address.any_server { &b""[..] } else { b"0" };
        let (now, counts) = self
            .asked(bucket, &scripts::COUNT, &keys, &[proof, &caller(of), self.identity_of_lists()])
            .await?;
        let number = |value: &Value| value.number().and_then(|count| u64::try_from(count).ok()).unwrap_or(0);
        let mut counts: Vec<u64> = counts.array().iter().map(number).collect();
        counts.rotate_left(1);
        Ok((now, counts))
    }

    pub(crate) async fn count(&self, what: Count, at_most: u64) -> Result<Counted, Error> {
        let nobody = CallerHash::from_bytes([0; 32]);
        let of = if let Count::Caller(caller) = &what { caller } else { &nobody };
        let (now, sums) = self.sums(of).await?;
        let count = match what {
            Count::Records => sums[..usize::from(MARKER)].iter().sum(),
            Count::State(state) => sums[usize::from(state.number())],
            Count::Markers => sums[usize::from(MARKER)],
            Count::Caller(_) => sums[usize::from(MARKER) + 1],
        };
        Ok(Counted { now, count: count.min(at_most) })
    }

    pub(crate) async fn census(&self) -> Result<Census, Error> {
        let (now, sums) = self.sums(&CallerHash::from_bytes([0; 32])).await?;
        let mut census = Census::empty(now);
        for state in StateName::ALL {
            census.add(state, sums[usize::from(state.number())]);
        }
        Ok(census)
    }
}
