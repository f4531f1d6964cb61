//! The marks of processed messages.

use super::{Inbox, Message};
use crate::patterns::connection::PatternConnection;
use crate::patterns::dialect::Dialect;
use crate::patterns::error::{PatternError, failed, unsettled};
use crate::patterns::value::{Bind, Column};
use std::collections::BTreeMap;

pub(super) const TABLE: &str = "inbox_marks";
/// How often a mark is tried that was refused by one which is gone the moment after.
pub(super) const TRIES_MAX: u32 = 5;

/// What stands under an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing did: it is marked now.
    New,
    /// The same message.
    Same,
    /// Another one.
    Other,
}

/// The statements that mark one message, and what is bound to them.
pub(super) struct MarkStatements {
    pub(super) insert: String,
    pub(super) find: String,
    /// For `find`: group, topic and id.
    pub(super) place: Vec<Bind>,
    /// For `insert`: the same, and the fingerprint.
    pub(super) marked: Vec<Bind>,
}

/// Topic and id.
pub(super) type Place = (String, String);

impl Inbox {
    /// Marks one message, or finds what is there.
    pub(super) async fn mark<C: PatternConnection, B>(
        &self,
        connection: &mut C,
        message: &Message<B>,
    ) -> Result<Found, PatternError> {
        let MarkStatements { insert, find, place, marked } = self.statements::<C, B>(message);
        for _ in 0..TRIES_MAX {
            let inserted = connection.insert_waiting(insert.clone(), marked.clone(), self.wait).await;
            if inserted.map_err(failed::<C>)? == 1 {
                return Ok(Found::New);
            }
            let rows = connection.rows(find.clone(), place.clone()).await.map_err(failed::<C>)?;
            if let Some(row) = rows.first() {
                let found = C::bytes(row, 0).map_err(failed::<C>)?.unwrap_or_default();
                return Ok(compared(&found, message));
            }
        }
        Err(unsettled())
    }

    /// What marks one message.
    pub(super) fn statements<C: Dialect, B>(&self, message: &Message<B>) -> MarkStatements {
        let (marks, now) = (C::table(&self.tables, TABLE), C::now(&self.tables));
        let place = vec![Bind::from(&*self.group), message.topic.as_str().into(), message.id.as_str().into()];
        let mut marked = place.clone();
        marked.push(message.fingerprint.as_bytes().as_slice().into());
        MarkStatements {
            insert: format!(
                "INSERT INTO {marks} (consumer_group, topic, message_id, fingerprint, processed_at) \
                 VALUES ($1, $2, $3, $4, {now}) ON CONFLICT DO NOTHING"
            ),
            find: format!(
                "SELECT fingerprint FROM {marks} WHERE consumer_group = $1 AND topic = $2 AND message_id = $3"
            ),
            place,
            marked,
        }
    }

    /// Marks all of `places`, which are in order, with one statement, and answers with those that were not marked before.
    pub(super) async fn mark_all<C: PatternConnection>(
        &self,
        connection: &mut C,
        places: &BTreeMap<Place, Vec<u8>>,
    ) -> Result<Vec<Place>, PatternError> {
        let (marks, now) = (C::table(&self.tables, TABLE), C::now(&self.tables));
        let mut binds = vec![Bind::from(&*self.group)];
        let columns = vec![
            Column::Texts(places.keys().map(|(topic, _)| topic.clone()).collect()),
            Column::Texts(places.keys().map(|(_, id)| id.clone()).collect()),
            Column::Blobs(places.values().cloned().collect()),
        ];
        let listed = C::rowset(&mut binds, columns);
        let sql = format!(
            "INSERT INTO {marks} (consumer_group, topic, message_id, fingerprint, processed_at) \
             SELECT $1, column1, column2, column3, {now} FROM ({listed}) AS listed WHERE TRUE \
             ON CONFLICT DO NOTHING RETURNING topic, message_id"
        );
        let former = connection.bound_waits(self.wait, places.len()).await.map_err(failed::<C>)?;
        let rows = connection.rows(sql, binds).await.map_err(failed::<C>)?;
        connection.restore_waits(former).await.map_err(failed::<C>)?;
        rows.iter().map(|row| place::<C>(row).map_err(failed::<C>)).collect()
    }

    /// The fingerprints of messages that were marked before.
    pub(super) async fn marked<C: PatternConnection>(
        &self,
        connection: &mut C,
        places: Vec<Place>,
    ) -> Result<BTreeMap<Place, Vec<u8>>, PatternError> {
        if places.is_empty() {
            return Ok(BTreeMap::new());
        }
        let (sql, binds) = self.at::<C>("SELECT topic, message_id, fingerprint", places);
        let rows = connection.rows(sql, binds).await.map_err(failed::<C>)?;
        let read = |row| Ok((place::<C>(row)?, C::bytes(row, 2)?.unwrap_or_default()));
        rows.iter().map(|row| read(row).map_err(failed::<C>)).collect()
    }

    /// Takes marks back whose messages have failed.
    pub(super) async fn unmark<C: PatternConnection>(
        &self,
        connection: &mut C,
        places: Vec<Place>,
    ) -> Result<(), PatternError> {
        if places.is_empty() {
            return Ok(());
        }
        let (sql, binds) = self.at::<C>("DELETE", places);
        connection.run(sql, binds).await.map(drop).map_err(failed::<C>)
    }

    fn at<C: PatternConnection>(&self, verb: &str, places: Vec<Place>) -> (String, Vec<Bind>) {
        let mut binds = vec![Bind::from(&*self.group)];
        let (topics, ids) = places.into_iter().unzip();
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

fn place<C: PatternConnection>(
    row: &crate::patterns::connection::PatternRow<C>,
) -> Result<Place, sqlx::Error> {
    Ok((C::text(row, 0)?.unwrap_or_default(), C::text(row, 1)?.unwrap_or_default()))
}
