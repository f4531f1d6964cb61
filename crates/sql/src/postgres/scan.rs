//! Lists and counts records, a bounded part at a time.

use super::changes::text;
use super::own_row::OPERATION_ID;
use super::reader::{proved, unreadable};
use super::slot::{Slot, owned};
use super::time::ServerTime;
use crate::columns::{self, MARKER};
use bytes::Bytes;
use semel_core::codec;
use semel_core::id::CommandId;
use semel_core::record::StateName;
use semel_core::store::{
    Census, Count, Counted, Cursor, Error, Filter, Item, Kind, OperationIds, PAGE_BYTES_MAX, Page, Tallied,
    Tally,
};
use semel_core::time::Time;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

/// How many rows one page reads, matching or not.
const READS_MAX: i64 = 10_000;
/// How many records one page has at most.
const LIMIT_MAX: usize = 10_000;
/// How many rows are counted exactly; beyond that the server's statistics are used.
const COUNT_MAX: i64 = 100_000;

/// Lists and counts, on their own connection.
pub(super) struct Scanner {
    pub(super) slot: Arc<Slot>,
    pub(super) schema: String,
    pub(super) time: ServerTime,
    /// A standby is sufficient.
    pub(super) any_server: bool,
}

/// Where a page ended: the sort value, and a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    at: i64,
    seq: i64,
}

impl Mark {
    const START: Self = Self { at: i64::MIN, seq: i64::MIN };
    /// For listings with the newest first.
    const END: Self = Self { at: i64::MAX, seq: i64::MAX };

    fn cursor(self) -> Cursor {
        Cursor::from_bytes([self.at.to_be_bytes(), self.seq.to_be_bytes()].concat())
    }

    /// Cursors come from clients, so they may contain anything.
    fn read(cursor: Option<&Cursor>) -> Result<Option<Self>, Error> {
        let Some(cursor) = cursor else { return Ok(None) };
        let number = |bytes: &[u8]| bytes.try_into().ok().map(i64::from_be_bytes);
        let parts = cursor.as_bytes().split_at_checked(8).and_then(|(at, seq)| number(at).zip(number(seq)));
        let forged = || Error::new(Kind::Unfit, "continuing from a cursor that this store did not create");
        parts.map(|(at, seq)| Some(Self { at, seq })).ok_or_else(forged)
    }
}

/// A row that may be on a page, with the length of its entry.
struct Candidate {
    mark: Mark,
    bytes: usize,
}

/// The result of a page's first query.
struct PageScan {
    candidates: Vec<Candidate>,
    /// Where the query ended; `None` if there was nothing more.
    end: Option<Mark>,
}

impl Scanner {
    pub(super) async fn page(
        &self,
        filter: &Filter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page, Error> {
        let start = if filter.newest_first { Mark::END } else { Mark::START };
        let mark = Mark::read(after)?.unwrap_or(start);
        let looked = self.scan_columns(filter, mark, limit).await?;
        self.read(looked, |item, _| filter.shows(item)).await
    }

    /// Reads the columns of the next rows.
    async fn scan_columns(&self, filter: &Filter, mark: Mark, limit: usize) -> Result<PageScan, Error> {
        let limit = i64::try_from(limit.clamp(1, LIMIT_MAX)).unwrap_or(1);
        let (direction, order) = if filter.newest_first { ("<", "DESC") } else { (">", "ASC") };
        // Uses an index: few rows, however many others there are.
        let among = match (&filter.ids, filter.state) {
            (Some(OperationIds { first, last }), _) => {
                let [first, last] = [first, last].map(|id| Uuid::from_bytes(*id.as_bytes()));
                format!("operation_id BETWEEN '{first}'::uuid AND '{last}'::uuid")
            }
            (None, Some(StateName::Unknown)) => "state = 5".to_owned(),
            _ => "true".to_owned(),
        };
        let sql = format!(
            "WITH looked AS MATERIALIZED (SELECT seq, pg_catalog.octet_length(entry) AS bytes, ({condition}) AS is_wanted \
             FROM {schema}.records WHERE {among} AND seq {direction} $2 ORDER BY seq {order} LIMIT {READS_MAX}) \
             SELECT pg_catalog.pg_is_in_recovery(), w.seq, w.bytes, l.last, l.looked FROM \
             (SELECT (pg_catalog.array_agg(seq ORDER BY seq {reverse}))[1] AS last, count(*) AS looked FROM looked) AS l \
             LEFT JOIN LATERAL (SELECT seq, bytes FROM looked WHERE is_wanted ORDER BY seq {order} LIMIT {more}) AS w ON true",
            condition = condition(filter),
            schema = self.schema,
            reverse = if filter.newest_first { "ASC" } else { "DESC" },
            more = limit + 1,
        );
        let operation = filter.operation.as_deref().map(|operation| text(operation).into_owned());
        let parameters = vec![owned(operation, Type::TEXT), owned(mark.seq, Type::INT8)];
        let rows = proved(&self.slot, &sql, parameters, self.any_server).await?;
        let mut candidates = Vec::new();
        let mut end = None;
        for row in &rows {
            let last: Option<i64> = get(row, 3)?;
            if get::<i64>(row, 4)? >= READS_MAX {
                end = last.map(|seq| Mark { at: 0, seq });
            }
            if let Some(seq) = get::<Option<i64>>(row, 1)? {
                let bytes = usize::try_from(get::<i32>(row, 2)?).unwrap_or(0);
                candidates.push(Candidate { mark: Mark { at: 0, seq }, bytes });
            }
        }
        Ok(bounded(candidates, end, limit))
    }

    pub(super) async fn due(&self, after: Option<&Cursor>, limit: usize) -> Result<Page, Error> {
        let mark = Mark::read(after)?.unwrap_or(Mark::START);
        let limit = i64::try_from(limit.clamp(1, LIMIT_MAX)).unwrap_or(1);
        let replaced = self.time.replaced().map(columns::time);
        let sql = format!(
            "WITH moment AS MATERIALIZED (SELECT coalesce($1, {schema}.now_ms()) AS at_ms) \
             SELECT pg_catalog.pg_is_in_recovery(), r.due_at, r.seq, pg_catalog.octet_length(r.entry), m.at_ms \
             FROM moment AS m LEFT JOIN LATERAL (SELECT due_at, seq, entry FROM {schema}.records WHERE due_at IS NOT NULL \
             AND due_at <= m.at_ms AND (due_at, seq) > ($2, $3) ORDER BY due_at, seq LIMIT {more}) AS r ON true \
             ORDER BY r.due_at, r.seq",
            schema = self.schema,
            more = limit + 1,
        );
        let parameters =
            vec![owned(replaced, Type::INT8), owned(mark.at, Type::INT8), owned(mark.seq, Type::INT8)];
        let rows = proved(&self.slot, &sql, parameters, self.any_server).await?;
        let (mut candidates, mut now) = (Vec::new(), Time::default());
        for row in &rows {
            now = self.time.at(get(row, 4)?);
            if let Some(seq) = get::<Option<i64>>(row, 2)? {
                let bytes = usize::try_from(get::<i32>(row, 3)?).unwrap_or(0);
                candidates.push(Candidate { mark: Mark { at: get(row, 1)?, seq }, bytes });
            }
        }
        let is_due = |item: &Item, _: i64| {
            item.record().is_none_or(|record| record.due_at().is_some_and(|due_at| due_at <= now))
        };
        let mut page = self.read(bounded(candidates, None, limit), is_due).await?;
        page.now = now;
        Ok(page)
    }

    pub(super) async fn markers(&self, after: Option<&Cursor>, limit: usize) -> Result<Page, Error> {
        let mark = Mark::read(after)?.unwrap_or(Mark::START);
        let limit = i64::try_from(limit.clamp(1, LIMIT_MAX)).unwrap_or(1);
        let sql = format!(
            "SELECT pg_catalog.pg_is_in_recovery(), r.seq, pg_catalog.octet_length(r.entry) FROM (SELECT 1) AS one LEFT JOIN \
             (SELECT seq, entry FROM {schema}.records WHERE state = {MARKER} AND seq > $1 \
             AND operation_id <> '{OPERATION_ID}' ORDER BY seq LIMIT {more}) AS r \
             ON true ORDER BY r.seq",
            schema = self.schema,
            more = limit + 1,
        );
        let rows = proved(&self.slot, &sql, vec![owned(mark.seq, Type::INT8)], self.any_server).await?;
        let mut candidates = Vec::new();
        for row in &rows {
            if let Some(seq) = get::<Option<i64>>(row, 1)? {
                let bytes = usize::try_from(get::<i32>(row, 2)?).unwrap_or(0);
                candidates.push(Candidate { mark: Mark { at: 0, seq }, bytes });
            }
        }
        self.read(bounded(candidates, None, limit), |_, state| state == MARKER).await
    }

    /// Reads the entries of the rows. Removed ones are left out; changed ones are shown as they are now.
    async fn read(&self, looked: PageScan, is_wanted: impl Fn(&Item, i64) -> bool) -> Result<Page, Error> {
        let PageScan { candidates, end } = looked;
        let sql = format!(
            "SELECT pg_catalog.pg_is_in_recovery(), {schema}.now_ms(), r.seq, r.command_id, r.state, r.entry \
             FROM (SELECT 1) AS one LEFT JOIN {schema}.records AS r ON r.seq = ANY ($1)",
            schema = self.schema
        );
        let seqs: Vec<i64> = candidates.iter().map(|candidate| candidate.mark.seq).collect();
        let rows =
            proved(&self.slot, &sql, vec![owned(seqs.clone(), Type::INT8_ARRAY)], self.any_server).await?;
        let (mut now, mut found) = (Time::default(), BTreeMap::new());
        for row in &rows {
            now = self.time.at(get(row, 1)?);
            if let Some(seq) = get::<Option<i64>>(row, 2)? {
                found.insert(seq, item(row)?);
            }
        }
        let in_order = seqs.iter().filter_map(|seq| found.remove(seq));
        let items = in_order.filter(|(item, state)| is_wanted(item, *state)).map(|(item, _)| item).collect();
        Ok(Page { now, items, next: end.map(Mark::cursor) })
    }

    pub(super) async fn tally(
        &self,
        state: Option<StateName>,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Tally, Error> {
        let mark = Mark::read(after)?.unwrap_or(Mark::START);
        let limit = i64::try_from(limit).unwrap_or(READS_MAX).clamp(1, READS_MAX);
        let among = if state == Some(StateName::Unknown) { "state = 5" } else { "true" };
        let sql = format!(
            "SELECT pg_catalog.pg_is_in_recovery(), {schema}.now_ms(), t.operation, t.state, t.count, t.last \
             FROM (SELECT 1) AS one LEFT JOIN (SELECT operation, state, count(*) AS count, max(seq) AS last FROM \
             (SELECT seq, operation, state FROM {schema}.records WHERE {among} AND seq > $1 ORDER BY seq LIMIT {limit}) AS w \
             GROUP BY operation, state) AS t ON true",
            schema = self.schema
        );
        let rows = proved(&self.slot, &sql, vec![owned(mark.seq, Type::INT8)], self.any_server).await?;
        let (mut counts, mut looked_at, mut last, mut now) = (Vec::new(), 0, mark.seq, Time::default());
        for row in &rows {
            now = self.time.at(get(row, 1)?);
            let Some(number) = get::<Option<i16>>(row, 3)? else { continue };
            let count: i64 = get(row, 4)?;
            looked_at += count;
            last = last.max(get(row, 5)?);
            // Moved markers, and unknown values of the column.
            let Some(named) = columns::state_name(number.into()) else { continue };
            if state.is_none_or(|wanted| wanted == named) {
                let operation = get::<Option<String>>(row, 2)?.unwrap_or_default();
                counts.push(Tallied { operation, state: named, count: count.unsigned_abs() });
            }
        }
        let next = (looked_at >= limit).then(|| Mark { at: 0, seq: last }.cursor());
        Ok(Tally { now, counts, next })
    }

    /// Exact up to a limit; beyond it, from the server's statistics.
    pub(super) async fn count(&self, what: Count, at_most: u64) -> Result<Counted, Error> {
        let moved = format!("state = $1 AND operation_id <> '{OPERATION_ID}'");
        let (condition, about) = match what {
            Count::Records => ("state <> $1", MARKER),
            Count::State(state) => ("state = $1", columns::state(state)),
            Count::Markers => (&*moved, MARKER),
            Count::Caller(caller) => ("caller = $1", columns::caller(&caller)),
        };
        let at_most = i64::try_from(at_most).unwrap_or(i64::MAX);
        let sql = format!(
            "SELECT pg_catalog.pg_is_in_recovery(), {schema}.now_ms(), (SELECT count(*) FROM (SELECT 1 FROM {schema}.records \
             WHERE {condition} LIMIT {bound}) AS counted)",
            schema = self.schema,
            bound = at_most.min(COUNT_MAX),
        );
        let rows = proved(&self.slot, &sql, vec![owned(about, Type::INT8)], self.any_server).await?;
        let row = rows.first().ok_or_else(no_answer)?;
        let (now, count) = (self.time.at(get(row, 1)?), get::<i64>(row, 2)?);
        let mut counted = Counted { now, count: count.unsigned_abs() };
        if count >= COUNT_MAX && at_most > COUNT_MAX {
            let estimates = self.estimates().await?;
            let estimate = match what {
                Count::Records => {
                    estimates.iter().filter(|(state, _)| **state != MARKER).map(|(_, rows)| rows).sum()
                }
                Count::State(_) | Count::Markers => estimates.get(&about).copied().unwrap_or(0),
                Count::Caller(_) => 0,
            };
            counted.count = counted.count.max(estimate).min(at_most.unsigned_abs());
        }
        Ok(counted)
    }

    /// By state; exact while there are few records, and always for UNKNOWN, which alerts operators.
    pub(super) async fn census(&self) -> Result<Census, Error> {
        let sql = format!(
            "SELECT pg_catalog.pg_is_in_recovery(), {schema}.now_ms(), s.state, s.count FROM (SELECT 1) AS one LEFT JOIN \
             (SELECT state, count(*) AS count FROM (SELECT state FROM {schema}.records LIMIT {COUNT_MAX}) AS counted \
             GROUP BY state) AS s ON true",
            schema = self.schema
        );
        let rows = proved(&self.slot, &sql, Vec::new(), self.any_server).await?;
        let mut census = Census::empty(Time::default());
        let (mut by_state, mut all) = (BTreeMap::new(), 0);
        for row in &rows {
            census.now = self.time.at(get(row, 1)?);
            if let Some(state) = get::<Option<i16>>(row, 2)? {
                let count = get::<i64>(row, 3)?.unsigned_abs();
                all += count;
                by_state.insert(i64::from(state), count);
            }
        }
        if all >= COUNT_MAX.unsigned_abs() {
            by_state = self.estimates().await?;
            let unknown = self.count(Count::State(StateName::Unknown), COUNT_MAX.unsigned_abs()).await?;
            by_state.insert(columns::state(StateName::Unknown), unknown.count);
        }
        for (state, count) in by_state {
            if let Some(state) = columns::state_name(state) {
                census.add(state, count);
            }
        }
        Ok(census)
    }

    /// How many rows there are in each state, by the planner's statistics.
    async fn estimates(&self) -> Result<BTreeMap<i64, u64>, Error> {
        let sql = "SELECT pg_catalog.pg_is_in_recovery(), v.state::int8, (f.share * greatest(c.reltuples, 0))::int8 \
                   FROM pg_catalog.pg_stats AS s \
                   JOIN pg_catalog.pg_class AS c ON c.oid = pg_catalog.to_regclass($1) \
                   CROSS JOIN LATERAL ROWS FROM (unnest(s.most_common_vals::text::text[])) \
                   WITH ORDINALITY AS v (state, place) \
                   JOIN LATERAL unnest(s.most_common_freqs) WITH ORDINALITY AS f (share, place) ON f.place = v.place \
                   WHERE s.schemaname = $2 AND s.tablename = 'records' AND s.attname = 'state'";
        let table = format!("{}.records", self.schema);
        let parameters = vec![owned(table, Type::TEXT), owned(self.schema.clone(), Type::TEXT)];
        let rows = proved(&self.slot, sql, parameters, self.any_server).await?;
        rows.iter().map(|row| Ok((get(row, 1)?, get::<i64>(row, 2)?.unsigned_abs()))).collect()
    }
}

/// As many candidates as fit on a page, by number and bytes, and where the next page begins.
fn bounded(mut candidates: Vec<Candidate>, end: Option<Mark>, limit: i64) -> PageScan {
    let limit = usize::try_from(limit).unwrap_or(1);
    let (mut kept, mut bytes) = (0, 0);
    for candidate in &candidates {
        if kept >= limit || bytes >= PAGE_BYTES_MAX {
            break;
        }
        kept += 1;
        bytes += candidate.bytes;
    }
    let is_cut = kept < candidates.len();
    candidates.truncate(kept);
    let end = if is_cut { candidates.last().map(|candidate| candidate.mark) } else { end };
    PageScan { candidates, end }
}

/// The entry of a row. One without a valid ID is returned too: as damaged, under an unused ID.
fn item(row: &Row) -> Result<(Item, i64), Error> {
    let state: i16 = get(row, 4)?;
    let id: &[u8] = row.try_get(3).map_err(|error| unreadable(&error))?;
    let entry: &[u8] = row.try_get(5).map_err(|error| unreadable(&error))?;
    let entry = codec::decode(&Bytes::copy_from_slice(entry));
    let item = match id.try_into() {
        Ok(id) => Item { id: CommandId::from_bytes(id), entry },
        Err(_) => Item {
            id: CommandId::from_bytes([0; 32]),
            entry: Err(codec::Error::Damaged { at: 0, what: "the id beside it is not 32 bytes" }),
        },
    };
    Ok((item, state.into()))
}

pub(super) fn get<'a, T: tokio_postgres::types::FromSql<'a>>(
    row: &'a Row,
    column: usize,
) -> Result<T, Error> {
    row.try_get(column).map_err(|error| unreadable(&error))
}

fn no_answer() -> Error {
    Error::new(Kind::Unfit, super::reader::READING).because("the server gave no answer")
}

/// The rows that match a filter by their columns. Numbers are literals in the statement; the operation is
/// parameter 1.
fn condition(filter: &Filter) -> String {
    let mut parts = vec![format!("state <> {MARKER}"), "($1::text IS NULL OR operation = $1)".to_owned()];
    if let Some(state) = filter.state {
        parts.push(format!("state = {}", columns::state(state)));
    }
    if let Some(callers) = &filter.caller {
        let (first, last) = (columns::caller(&callers.first), columns::caller(&callers.last));
        parts.push(format!("caller BETWEEN ({first})::int8 AND ({last})::int8"));
    }
    if let Some(key) = &filter.key {
        parts.push(format!("key = ({})::int8", columns::key(key)));
    }
    if let Some(from) = filter.updated_from {
        parts.push(format!("updated_at >= {}", columns::time(from)));
    }
    if let Some(before) = filter.updated_before {
        // Not "less than": the column's maximum stands for every later time.
        parts.push(format!("updated_at <= {}", columns::time(before)));
    }
    parts.join(" AND ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_survives_a_round_trip_to_a_client() {
        for mark in [Mark::START, Mark { at: 5, seq: -7 }, Mark::END] {
            assert_eq!(Mark::read(Some(&mark.cursor())).expect("ours"), Some(mark));
        }
        assert_eq!(Mark::read(None).expect("the start"), None);
    }

    #[test]
    fn a_forged_cursor_is_refused() {
        for length in [0, 1, 8, 15, 17, 40] {
            let refused = Mark::read(Some(&Cursor::from_bytes(vec![1; length])));
            assert_eq!(refused.map_err(|error| error.kind()), Err(Kind::Unfit), "{length}");
        }
    }

    #[test]
    fn a_full_page_ends_and_the_next_one_continues() {
        let candidates = |bytes: &[usize]| -> Vec<Candidate> {
            let candidate =
                |(seq, bytes): (i64, &usize)| Candidate { mark: Mark { at: 0, seq }, bytes: *bytes };
            (1..).zip(bytes).map(candidate).collect()
        };
        let cut = |bytes: &[usize], end, limit| {
            let looked = bounded(candidates(bytes), end, limit);
            (looked.candidates.len(), looked.end.map(|mark| mark.seq))
        };
        let end = Some(Mark { at: 0, seq: 99 });
        assert_eq!(cut(&[1, 1, 1], end, 3), (3, Some(99)));
        assert_eq!(cut(&[1, 1, 1], None, 3), (3, None));
        assert_eq!(cut(&[1, 1, 1], end, 2), (2, Some(2)));
        assert_eq!(cut(&[PAGE_BYTES_MAX, 1, 1], end, 9), (1, Some(1)));
        assert_eq!(cut(&[PAGE_BYTES_MAX - 1, PAGE_BYTES_MAX, 1], None, 9), (2, Some(2)));
        assert_eq!(cut(&[], end, 9), (0, Some(99)));
    }
}
