//! A store in front of another one.

use super::{
    Capabilities, Census, Change, Count, Counted, Cursor, Filter, Hazard, InboxCensus, Item, Page, Pending,
    Reading, RemainingCopies, Setting, SideRow, SideTable, Store, StoreSize, Tally, Written,
};
use crate::id::{CommandId, OperationId};
use crate::record::{Record, StateName};
use crate::time::Time;
use bytes::Bytes;
use std::pin::Pin;
use std::time::Duration;

/// A store that wraps another one and changes some of its calls. Calls that are not overridden are passed on. Every
/// implementor is a [`Store`].
#[expect(missing_docs, reason = "documented at the methods of Store")]
pub trait Delegate: Send + Sync + 'static {
    /// The store that calls are passed on to.
    fn inner(&self) -> &dyn Store;

    fn name(&self) -> String {
        self.inner().name()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner().capabilities()
    }

    fn hazards(&self) -> Pending<'_, Vec<Hazard>> {
        self.inner().hazards()
    }

    fn check(&self) -> Pending<'_, ()> {
        self.inner().check()
    }

    fn write<'a>(&'a self, id: CommandId, change: Change<&'a Record>) -> Pending<'a, Written> {
        self.inner().write(id, change)
    }

    fn get(&self, id: CommandId) -> Pending<'_, Reading> {
        self.inner().get(id)
    }

    fn find(&self, operation_id: OperationId) -> Pending<'_, (Time, Option<Item>)> {
        self.inner().find(operation_id)
    }

    fn page<'a>(&'a self, filter: &'a Filter, after: Option<&'a Cursor>, limit: usize) -> Pending<'a, Page> {
        self.inner().page(filter, after, limit)
    }

    fn due<'a>(&'a self, after: Option<&'a Cursor>, limit: usize) -> Pending<'a, Page> {
        self.inner().due(after, limit)
    }

    fn markers<'a>(&'a self, after: Option<&'a Cursor>, limit: usize) -> Pending<'a, Page> {
        self.inner().markers(after, limit)
    }

    fn count(&self, what: Count, at_most: u64) -> Pending<'_, Counted> {
        self.inner().count(what, at_most)
    }

    fn census(&self) -> Pending<'_, Census> {
        self.inner().census()
    }

    fn tally<'a>(
        &'a self,
        state: Option<StateName>,
        after: Option<&'a Cursor>,
        limit: usize,
    ) -> Pending<'a, Tally> {
        self.inner().tally(state, after, limit)
    }

    fn inboxes(&self, window: Duration) -> Pending<'_, Option<InboxCensus>> {
        self.inner().inboxes(window)
    }

    fn side_rows<'a>(
        &'a self,
        table: &'static SideTable,
        after: Option<&'a SideRow>,
        limit: usize,
    ) -> Pending<'a, Option<Vec<SideRow>>> {
        self.inner().side_rows(table, after, limit)
    }

    fn add_side_rows(&self, table: &'static SideTable, rows: Vec<SideRow>) -> Pending<'_, u64> {
        self.inner().add_side_rows(table, rows)
    }

    fn usage(&self) -> Pending<'_, StoreSize> {
        self.inner().usage()
    }

    fn settings(&self) -> Pending<'_, Vec<(String, Bytes)>> {
        self.inner().settings()
    }

    fn set<'a>(
        &'a self,
        name: &'a str,
        expect: Option<&'a [u8]>,
        next: Option<&'a [u8]>,
    ) -> Pending<'a, Setting> {
        self.inner().set(name, expect, next)
    }

    fn scrub(&self) -> Pending<'_, RemainingCopies> {
        self.inner().scrub()
    }

    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.inner().close()
    }

    fn changed(&self, id: CommandId) -> Option<Pin<Box<dyn Future<Output = ()> + Send + '_>>> {
        self.inner().changed(id)
    }

    fn wake(&self, id: CommandId) {
        self.inner().wake(id);
    }

    fn confirm<'a>(&'a self, timeline: &'a str) -> Pending<'a, ()> {
        self.inner().confirm(timeline)
    }

    fn doubt(&self, id: CommandId) {
        self.inner().doubt(id);
    }

    fn is_in_doubt(&self, id: CommandId) -> bool {
        self.inner().is_in_doubt(id)
    }
}

impl<D: Delegate> Store for D {
    fn name(&self) -> String {
        Delegate::name(self)
    }

    fn capabilities(&self) -> Capabilities {
        Delegate::capabilities(self)
    }

    fn hazards(&self) -> Pending<'_, Vec<Hazard>> {
        Delegate::hazards(self)
    }

    fn check(&self) -> Pending<'_, ()> {
        Delegate::check(self)
    }

    fn write<'a>(&'a self, id: CommandId, change: Change<&'a Record>) -> Pending<'a, Written> {
        Delegate::write(self, id, change)
    }

    fn get(&self, id: CommandId) -> Pending<'_, Reading> {
        Delegate::get(self, id)
    }

    fn find(&self, operation_id: OperationId) -> Pending<'_, (Time, Option<Item>)> {
        Delegate::find(self, operation_id)
    }

    fn page<'a>(&'a self, filter: &'a Filter, after: Option<&'a Cursor>, limit: usize) -> Pending<'a, Page> {
        Delegate::page(self, filter, after, limit)
    }

    fn due<'a>(&'a self, after: Option<&'a Cursor>, limit: usize) -> Pending<'a, Page> {
        Delegate::due(self, after, limit)
    }

    fn markers<'a>(&'a self, after: Option<&'a Cursor>, limit: usize) -> Pending<'a, Page> {
        Delegate::markers(self, after, limit)
    }

    fn count(&self, what: Count, at_most: u64) -> Pending<'_, Counted> {
        Delegate::count(self, what, at_most)
    }

    fn census(&self) -> Pending<'_, Census> {
        Delegate::census(self)
    }

    fn tally<'a>(
        &'a self,
        state: Option<StateName>,
        after: Option<&'a Cursor>,
        limit: usize,
    ) -> Pending<'a, Tally> {
        Delegate::tally(self, state, after, limit)
    }

    fn inboxes(&self, window: Duration) -> Pending<'_, Option<InboxCensus>> {
        Delegate::inboxes(self, window)
    }

    fn side_rows<'a>(
        &'a self,
        table: &'static SideTable,
        after: Option<&'a SideRow>,
        limit: usize,
    ) -> Pending<'a, Option<Vec<SideRow>>> {
        Delegate::side_rows(self, table, after, limit)
    }

    fn add_side_rows(&self, table: &'static SideTable, rows: Vec<SideRow>) -> Pending<'_, u64> {
        Delegate::add_side_rows(self, table, rows)
    }

    fn usage(&self) -> Pending<'_, StoreSize> {
        Delegate::usage(self)
    }

    fn settings(&self) -> Pending<'_, Vec<(String, Bytes)>> {
        Delegate::settings(self)
    }

    fn set<'a>(
        &'a self,
        name: &'a str,
        expect: Option<&'a [u8]>,
        next: Option<&'a [u8]>,
    ) -> Pending<'a, Setting> {
        Delegate::set(self, name, expect, next)
    }

    fn scrub(&self) -> Pending<'_, RemainingCopies> {
        Delegate::scrub(self)
    }

    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Delegate::close(self)
    }

    fn changed(&self, id: CommandId) -> Option<Pin<Box<dyn Future<Output = ()> + Send + '_>>> {
        Delegate::changed(self, id)
    }

    fn wake(&self, id: CommandId) {
        Delegate::wake(self, id);
    }

    fn confirm<'a>(&'a self, timeline: &'a str) -> Pending<'a, ()> {
        Delegate::confirm(self, timeline)
    }

    fn doubt(&self, id: CommandId) {
        Delegate::doubt(self, id);
    }

    fn is_in_doubt(&self, id: CommandId) -> bool {
        Delegate::is_in_doubt(self, id)
    }
}
