//! The marks of processed messages.

use super::{Inbox, Message};
use crate::patterns::connection::PatternConnection;
use crate::patterns::dialect::Dialect;
use crate::patterns::error::{PatternError, failed, unsettled};
use crate::patterns::value::{Bind, Column};
use std::collections::BTreeMap;

pub(super) const TABLE: &str = "inbox_marks";
/// How often a mark is tried again if the one that refused it has disappeared.
pub(super) const TRIES_MAX: u32 = 5;

/// What was found under an ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing: it is marked now.
    New,
    /// The same message.
    Same,
    /// Another one.
    Other,
}

/// The statements that mark one message, and their binds.
pub(super) struct MarkStatements {
    pub(super) insert: String,
    pub(super) find: String,
    /// For `find`: group, topic and id.
    pub(super) key: Vec<Bind>,
    /// For `insert`: the same, and the fingerprint.
    pub(super) marked: Vec<Bind>,
}

/// Topic and id.
pub(super) type MessageKey = (String, String);

impl Inbox {
    /// Marks one message, or finds the existing mark.
    pub(super) async fn mark<C: PatternConnection, B>(
        &self,
        connection: &mut C,
        message: &Message<B>,
    ) -> Result<Found, PatternError> {
        let MarkStatements { insert, find, key, marked } = self.statements::<C, B>(message);
        for _ in 0..TRIES_MAX {
            let inserted = connection.insert_waiting(insert.clone(), marked.clone(), self.wait).await;
            if inserted.map_err(failed::<C>)? == 1 {
                return Ok(Found::New);
            }
            let rows = connection.rows(find.clone(), key.clone()).await.map_err(failed::<C>)?;
            if let Some(row) = rows.first() {
                let found = C::bytes(row, 0).map_err(failed::<C>)?.unwrap_or_default();
                return Ok(compared(&found, message));
            }
        }
        Err(unsettled())
    }

    /// The statements that mark one message.
    pub(super) fn statements<C: Dialect, B>(&self, message: &Message<B>) -> MarkStatements {
        let (marks, now) = (C::table(&self.tables, TABLE), C::now(&self.tables));
        let key = vec![Bind::from(&*self.group), message.topic.as_str().into(), message.id.as_str().into()];
        let mut marked = key.clone();
        marked.push(message.fingerprint.as_bytes().as_slice().into());
        MarkStatements {
            insert: format!(
                "INSERT INTO {marks} (consumer_group, topic, message_id, fingerprint, processed_at) \
                 VALUES ($1, $2, $3, $4, {now}) ON CONFLICT DO NOTHING"
            ),
            find: format!(
                "SELECT fingerprint FROM {marks} WHERE consumer_group = $1 AND topic = $2 AND message_id = $3"
            ),
            key,
            marked,
        }
    }

    /// Marks all of `keys`, which are sorted, with one statement, and returns those that were not marked
    /// before.
    pub(super) async fn mark_all<C: PatternConnection>(
        &self,
        connection: &mut C,
        keys: &BTreeMap<MessageKey, Vec<u8>>,
    ) -> Result<Vec<MessageKey>, PatternError> {
        let (marks, now) = (C::table(&self.tables, TABLE), C::now(&self.tables));
        let mut binds = vec![Bind::from(&*self.group)];
        let columns = vec![
            Column::Texts(keys.keys().map(|(topic, _)| topic.clone()).collect()),
            Column::Texts(keys.keys().map(|(_, id)| id.clone()).collect()),
            Column::Blobs(keys.values().cloned().collect()),
        ];
        let listed = C::rowset(&mut binds, columns);
        let sql = format!(
            "INSERT INTO {marks} (consumer_group, topic, message_id, fingerprint, processed_at) \
             SELECT $1, column1, column2, column3, {now} FROM ({listed}) AS listed WHERE TRUE \
             ON CONFLICT DO NOTHING RETURNING topic, message_id"
        );
        let former = connection.bound_waits(self.wait, keys.len()).await.map_err(failed::<C>)?;
        let rows = connection.rows(sql, binds).await.map_err(failed::<C>)?;
        connection.restore_waits(former).await.map_err(failed::<C>)?;
        rows.iter().map(|row| message_key::<C>(row).map_err(failed::<C>)).collect()
    }

    /// The fingerprints of messages that were marked before.
    pub(super) async fn marked<C: PatternConnection>(
        &self,
        connection: &mut C,
        keys: Vec<MessageKey>,
    ) -> Result<BTreeMap<MessageKey, Vec<u8>>, PatternError> {
        if keys.is_empty() {
            return Ok(BTreeMap::new());
        }
        let (sql, binds) = self.at::<C>("SELECT topic, message_id, fingerprint", keys);
        let rows = connection.rows(sql, binds).await.map_err(failed::<C>)?;
        let read = |row| Ok((message_key::<C>(row)?, C::bytes(row, 2)?.unwrap_or_default()));
        rows.iter().map(|row| read(row).map_err(failed::<C>)).collect()
    }

    /// Removes the marks of failed messages.
    pub(super) async fn unmark<C: PatternConnection>(
        &self,
        connection: &mut C,
        keys: Vec<MessageKey>,
    ) -> Result<(), PatternError> {
        if keys.is_empty() {
            return Ok(());
        }
        let (sql, binds) = self.at::<C>("DELETE", keys);
        connection.run(sql, binds).await.map(drop).map_err(failed::<C>)
    }

    fn at<C: PatternConnection>(&self, verb: &str, keys: Vec<MessageKey>) -> (String, Vec<Bind>) {
        let mut binds = vec![Bind::from(&*self.group)];
        let (topics, ids) = keys.into_iter().unzip();
        let listed = C::rowset(&mut binds, vec![Column::Texts(topics), Column::Texts(ids)]);
        let marks = C::table(&self.tables, TABLE);
        (
            format!("{verb} FROM {marks} WHERE consumer_group = $1 AND (topic, message_id) IN ({listed})"),
            binds,
        )
    }
}

pub(super) fn compared<B>(found: &[u8], message: &Message<B>) -> Found {
    if found == message.fingerprint.as_bytes() { Found::Same } else { Found::Other }
}

/// What the caller of a message gets whose ID another one has.
pub(super) fn mismatch() -> PatternError {
    PatternError::Mismatch("a message with this id and another body was processed before".to_owned())
}

fn message_key<C: PatternConnection>(
    row: &crate::patterns::connection::PatternRow<C>,
) -> Result<MessageKey, sqlx::Error> {
    Ok((C::text(row, 0)?.unwrap_or_default(), C::text(row, 1)?.unwrap_or_default()))
}
