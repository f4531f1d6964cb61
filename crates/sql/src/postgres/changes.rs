//! A batch of writes as one statement, and its answer.

use super::doubts::WITH_WARNINGS;
use super::fault::Fault;
use super::job::{Answer, Job, NO_TOKEN, token};
use super::session::Parameter;
use super::time::ServerTime;
use crate::columns;
use bytes::Bytes;
use semel_core::codec;
use semel_core::store::{Error, Kind, Reading, Written};
use std::borrow::Cow;
use thiserror::Error as ThisError;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

/// Longer entries are not returned with a refusal: a batch of refused writes would load all of them into
/// memory at once.
const ENTRY_MAX: i32 = 16 << 10;

/// The columns of a batch, one value per write.
pub(super) struct Changes<'a> {
    kinds: Vec<i16>,
    operation_ids: Vec<Uuid>,
    command_ids: Vec<&'a [u8]>,
    expected_versions: Vec<Option<i64>>,
    expected_tokens: Vec<Option<Uuid>>,
    expected_states: Vec<Option<i16>>,
    versions: Vec<Option<i64>>,
    tokens: Vec<Option<Uuid>>,
    states: Vec<Option<i16>>,
    due_ats: Vec<Option<i64>>,
    updated_ats: Vec<Option<i64>>,
    callers: Vec<Option<i64>>,
    keys: Vec<Option<i64>>,
    operations: Vec<Option<Cow<'a, str>>>,
    digests: Vec<Option<&'a [u8]>>,
    entries: Vec<Option<&'a [u8]>>,
    lock_wait: &'static str,
}

impl<'a> Changes<'a> {
    /// `lock_wait` is how long a row may be locked by another session, in the format of the server's
    /// `lock_timeout`.
    pub(super) fn of(jobs: &'a [Job], lock_wait: &'static str) -> Self {
        let row = |job: &'a Job| job.change.record();
        let each =
            |of: fn(&columns::Row) -> Option<i64>| jobs.iter().map(|job| row(job).and_then(of)).collect();
        Self {
            kinds: jobs.iter().map(Job::kind).collect(),
            operation_ids: jobs.iter().map(|job| Uuid::from_bytes(*job.operation_id.as_bytes())).collect(),
            command_ids: jobs.iter().map(|job| &job.id.as_bytes()[..]).collect(),
            expected_versions: jobs.iter().map(|job| job.expected().map(|is| number(is.version))).collect(),
            expected_tokens: jobs.iter().map(|job| job.expected().map(token)).collect(),
            expected_states: jobs
                .iter()
                .map(|job| job.expected().map(|is| i16::from(is.state.number())))
                .collect(),
            versions: each(|row| row.unchanged.map(|is| number(is.version))),
            tokens: jobs
                .iter()
                .map(|job| row(job).map(|row| row.unchanged.as_ref().map_or(NO_TOKEN, token)))
                .collect(),
            states: jobs.iter().map(|job| row(job).and_then(|row| i16::try_from(row.state).ok())).collect(),
            due_ats: each(|row| row.due_at),
            updated_ats: each(|row| row.updated_at),
            callers: each(|row| row.caller),
            keys: each(|row| row.key),
            operations: jobs
                .iter()
                .map(|job| row(job).and_then(|row| row.operation.as_deref()).map(text))
                .collect(),
            digests: jobs.iter().map(|job| job.digest.as_ref().map(|digest| &digest[..])).collect(),
            entries: jobs.iter().map(|job| row(job).map(|row| &row.entry[..])).collect(),
            lock_wait,
        }
    }

    pub(super) fn parameters(&self) -> [Parameter<'_>; 18] {
        [
            (&self.kinds, Type::INT2_ARRAY),
            (&self.operation_ids, Type::UUID_ARRAY),
            (&self.command_ids, Type::BYTEA_ARRAY),
            (&self.expected_versions, Type::INT8_ARRAY),
            (&self.expected_tokens, Type::UUID_ARRAY),
            (&self.expected_states, Type::INT2_ARRAY),
            (&self.versions, Type::INT8_ARRAY),
            (&self.tokens, Type::UUID_ARRAY),
            (&self.states, Type::INT2_ARRAY),
            (&self.due_ats, Type::INT8_ARRAY),
            (&self.updated_ats, Type::INT8_ARRAY),
            (&self.callers, Type::INT8_ARRAY),
            (&self.keys, Type::INT8_ARRAY),
            (&self.operations, Type::TEXT_ARRAY),
            (&self.digests, Type::BYTEA_ARRAY),
            (&self.entries, Type::BYTEA_ARRAY),
            (&self.lock_wait, Type::TEXT),
            (&ENTRY_MAX, Type::INT4),
        ]
    }

    /// The statement, for a schema.
    pub(super) fn sql(schema: &str) -> String {
        format!(
            "SELECT place, at_ms, written, found_command_id, found_bytes, found_entry, {WITH_WARNINGS} FROM {schema}.write(\
             $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)"
        )
    }
}

/// A version is incremented by every write, so it never exceeds the column.
pub(super) fn number(version: u64) -> i64 {
    i64::try_from(version).unwrap_or(i64::MAX)
}

/// Text that the server accepts. The entry has the operation's real name.
pub(super) fn text(operation: &str) -> Cow<'_, str> {
    if operation.contains('\0') { operation.replace('\0', "\u{fffd}").into() } else { operation.into() }
}

/// The result of each write of a committed batch. If the answer does not match exactly these writes, it
/// proves nothing about any of them.
pub(super) fn answers(
    jobs: &[Job],
    rows: &[Row],
    time: &ServerTime,
) -> Result<Vec<Result<Answer, Error>>, Fault> {
    let unexpected = |problem: Mismatch| {
        Fault::new(Kind::Ambiguous, format!("the answer to {} writes {problem}", jobs.len()))
    };
    if rows.len() != jobs.len() {
        return Err(unexpected(Mismatch::Rows(rows.len())));
    }
    let mut answers = Vec::with_capacity(jobs.len());
    for (at, (job, row)) in jobs.iter().zip(rows).enumerate() {
        let position: i64 = row.try_get(0).map_err(|_| unexpected(Mismatch::Position))?;
        if usize::try_from(position) != Ok(at + 1) {
            return Err(unexpected(Mismatch::Order));
        }
        answers.push(answer(job, row, time).map_err(unexpected)?);
    }
    Ok(answers)
}

/// How an answer does not match the writes of its batch.
#[derive(Debug, ThisError)]
enum Mismatch {
    #[error("has {0} rows")]
    Rows(usize),
    #[error("cannot be read")]
    Position,
    #[error("is in another order")]
    Order,
    #[error("cannot be read: {0}")]
    Column(#[from] tokio_postgres::Error),
    #[error("names another attempt")]
    OtherAttempt,
}

fn answer(job: &Job, row: &Row, time: &ServerTime) -> Result<Result<Answer, Error>, Mismatch> {
    let now = time.at(row.try_get(1)?);
    // Recognised by the token that is or was there, so that no other write is mistaken for this one.
    if let Some(written) = row.try_get::<_, Option<Uuid>>(2)? {
        if written != job.token_when_done() {
            return Err(Mismatch::OtherAttempt);
        }
        return Ok(Ok(Answer::Written(Written::Done { now })));
    }
    let found_id: Option<&[u8]> = row.try_get(3)?;
    match found_id {
        None => return Ok(job.refused(Reading::nothing(now))),
        Some(id) if id != job.id.as_bytes() => return Ok(Err(other_command())),
        Some(_) => {}
    }
    let entry: Option<&[u8]> = row.try_get(5)?;
    Ok(match entry {
        None => Ok(Answer::RefusedByLargeEntry),
        Some(entry) => {
            let entry = Some(codec::decode(&Bytes::copy_from_slice(entry)));
            job.refused(Reading { now, entry })
        }
    })
}

/// Two commands cannot share an operation ID, unless the table was changed manually.
pub(super) fn other_command() -> Error {
    Error::new(Kind::Unfit, "looking up a command in PostgreSQL").because(
        "another command's ID is stored under this operation ID; it was left unchanged. Restore the table from a backup, or find \
         out what the command did and remove the row by hand",
    )
}
