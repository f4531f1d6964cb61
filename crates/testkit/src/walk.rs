//! Walks through a store, page by page.
//!
//! Follows cursors, and detects a store that returns the same cursor forever.

use semel_core::store::{Cursor, Filter, Item, Page, Store};

/// More pages than any walk of the suite needs.
const PAGES_MAX: usize = 20_000;

/// Every item of a walk, in order.
pub(crate) async fn page(store: &dyn Store, filter: &Filter, limit: usize) -> Vec<Item> {
    let mut walk = Walk::new(limit);
    while walk.has_next() {
        walk.take(store.page(filter, walk.after(), limit).await.expect("an answer"));
    }
    walk.items
}

/// Everything that is due, in order.
pub(crate) async fn due(store: &dyn Store, limit: usize) -> Vec<Item> {
    let mut walk = Walk::new(limit);
    while walk.has_next() {
        walk.take(store.due(walk.after(), limit).await.expect("an answer"));
    }
    walk.items
}

/// Every marker.
pub(crate) async fn markers(store: &dyn Store, limit: usize) -> Vec<Item> {
    let mut walk = Walk::new(limit);
    while walk.has_next() {
        walk.take(store.markers(walk.after(), limit).await.expect("an answer"));
    }
    walk.items
}

struct Walk {
    items: Vec<Item>,
    limit: usize,
    pages: usize,
    next: Option<Cursor>,
}

impl Walk {
    fn new(limit: usize) -> Self {
        Self { items: Vec::new(), limit, pages: 0, next: None }
    }

    fn has_next(&self) -> bool {
        self.pages == 0 || self.next.is_some()
    }

    fn after(&self) -> Option<&Cursor> {
        self.next.as_ref()
    }

    fn take(&mut self, page: Page) {
        self.pages += 1;
        assert!(self.pages < PAGES_MAX, "the pages never end");
        let count = page.items.len();
        assert!(count <= self.limit, "{count} items on a page of {} at most", self.limit);
        self.items.extend(page.items);
        self.next = page.next;
    }
}
