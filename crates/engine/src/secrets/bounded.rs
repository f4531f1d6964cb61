//! A store with a timeout.
//!
//! The calls for reading and rotating the secret, each with a timeout. All of them go through this.

use crate::runtime::clock::{Clock, within};
use bytes::Bytes;
use semel_core::id::CommandId;
use semel_core::store::{
    Change, Count, Counted, Cursor, Error, Filter, Kind, Page, Pending, Setting, Store, Written,
};
use std::time::Duration;

/// A store, and the timeout of each call.
#[derive(Clone, Copy)]
pub struct Bounded<'a> {
    store: &'a dyn Store,
    limit: Option<(&'a dyn Clock, Duration)>,
}

impl<'a> Bounded<'a> {
    /// `store` with a `timeout`, usually the same as [elsewhere](crate::Settings::store_timeout).
    pub fn new(store: &'a dyn Store, clock: &'a dyn Clock, timeout: Duration) -> Self {
        Self { store, limit: Some((clock, timeout)) }
    }

    /// `store` without a timeout, for a caller with its own one.
    pub(super) fn by_the_caller(store: &'a dyn Store) -> Self {
        Self { store, limit: None }
    }
}

impl Bounded<'_> {
    pub(super) async fn settings(self) -> Result<Vec<(String, Bytes)>, Error> {
        self.read(self.store.settings()).await
    }

    pub(super) async fn set(
        self,
        name: &str,
        expect: Option<&[u8]>,
        next: Option<&[u8]>,
    ) -> Result<Setting, Error> {
        self.write(self.store.set(name, expect, next)).await
    }

    pub(super) async fn page(
        self,
        filter: &Filter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page, Error> {
        self.read(self.store.page(filter, after, limit)).await
    }

    pub(super) async fn markers(self, after: Option<&Cursor>, limit: usize) -> Result<Page, Error> {
        self.read(self.store.markers(after, limit)).await
    }

    pub(super) async fn count(self, what: Count, at_most: u64) -> Result<Counted, Error> {
        self.read(self.store.count(what, at_most)).await
    }

    pub(super) async fn remove_marker(self, id: CommandId) -> Result<Written, Error> {
        self.write(self.store.write(id, Change::RemoveMarker)).await
    }

    async fn read<T>(self, answer: Pending<'_, T>) -> Result<T, Error> {
        self.bounded(Kind::Unavailable, answer).await
    }

    /// A write that times out may still be carried out.
    async fn write<T>(self, answer: Pending<'_, T>) -> Result<T, Error> {
        self.bounded(Kind::Ambiguous, answer).await
    }

    async fn bounded<T>(self, otherwise: Kind, answer: Pending<'_, T>) -> Result<T, Error> {
        let Some((clock, timeout)) = self.limit else { return answer.await };
        let late =
            || Err(Error::new(otherwise, "waiting for the store to read or change the state of its secret"));
        within(clock, timeout, answer).await.unwrap_or_else(late)
    }
}
