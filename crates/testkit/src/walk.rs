//! Walks through a store, page by page.
//!
//! Contents: how the suite follows cursors. A store that returns the same cursor for ever is detected.

use semel_core::store::{Cursor, Filter, Item, Page, Store};

/// More pages than any walk of the suite has.
const PAGES_MAX: usize = 20_000;

/// Every item of a walk, in order.
pub(crate) async fn page(store: &dyn Store, filter: &Filter, limit: usize) -> Vec<Item> {
    let mut walk = Walk::new(limit);
    while walk.goes_on() {
        walk.take(store.page(filter, walk.after(), limit).await.expect("an answer"));
    }
    walk.items
}

/// Everything that is due, in order.
pub(crate) async fn due(store: &dyn Store, limit: usize) -> Vec<Item> {
    let mut walk = Walk::new(limit);
    while walk.goes_on() {
        walk.take(store.due(walk.after(), limit).await.expect("an answer"));
    }
    walk.items
}

/// Every marker.
pub(crate) async fn markers(store: &dyn Store, limit: usize) -> Vec<Item> {
    let mut walk = Walk::new(limit);
    while walk.goes_on() {
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

    fn goes_on(&self) -> bool {
        self.pages == 0 || self.next.is_some()
    }

    fn after(&self) -> Option<&Cursor> {
        self.next.as_ref()
    }

    fn take(&mut self, page: Page) {
        self.pages += 1;
        assert!(self.pages < PAGES_MAX, "the pages do not come to an end");
        let got = page.items.len();
        assert!(got <= self.limit, "{got} items on a page of {} at most", self.limit);
        self.items.extend(page.items);
        self.next = page.next;
    }
}
