//! A store whose answers get lost, and between whose calls other nodes run.

use super::world::{Dice, Hands, REFRESH};
use bytes::Bytes;
use semel::Clock;
use semel::core::id::{CommandId, OperationId};
use semel::core::record::Record;
use semel::core::store::{
    Change, Count, Counted, Cursor, Delegate, Error, Filter, Item, Kind, Page, Pending, Reading, Setting,
    Store, Written,
};
use semel::core::time::Time;
use std::sync::Arc;
use std::task::Poll;

/// Another node gets a turn before and after every answer. Of a hundred writes, `lost` get no answer; every second of
/// those is not applied. A write that took too long is not applied.
pub(crate) struct Faulty {
    pub(crate) inner: Arc<dyn Store>,
    pub(crate) clock: Hands,
    pub(crate) dice: Dice,
    pub(crate) lost: u64,
}

enum Fate {
    Fine,
    AnswerLost,
    RequestLost,
    Refused,
}

/// Lets another node go first.
pub(crate) async fn give_way() {
    let mut has_waited = false;
    std::future::poll_fn(move |context| {
        if has_waited {
            return Poll::Ready(());
        }
        has_waited = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl Faulty {
    fn fate(&self) -> Fate {
        match (self.dice.below(100) < self.lost, self.dice.below(3)) {
            (false, _) => Fate::Fine,
            (true, 0) => Fate::AnswerLost,
            (true, 1) => Fate::RequestLost,
            (true, _) => Fate::Refused,
        }
    }

    fn writing<'a, T: Send + 'a>(&'a self, write: Pending<'a, T>) -> Pending<'a, T> {
        Box::pin(async move {
            let sent = self.clock.uptime();
            give_way().await;
            let too_late = self.clock.uptime() >= sent + REFRESH.in_flight;
            let fate = if too_late { Fate::RequestLost } else { self.fate() };
            let ambiguous = || Error::new(Kind::Ambiguous, "a test's write");
            let result = match fate {
                Fate::Fine => write.await,
                Fate::AnswerLost => write.await.and_then(|_| Err(ambiguous())),
                Fate::RequestLost => Err(ambiguous()),
                Fate::Refused => Err(Error::new(Kind::Unavailable, "a test's write")),
            };
            give_way().await;
            result
        })
    }

    fn read<'a, T: Send + 'a>(&'a self, read: Pending<'a, T>) -> Pending<'a, T> {
        Box::pin(async move {
            give_way().await;
            let result = match self.fate() {
                Fate::Fine | Fate::AnswerLost => read.await,
                Fate::RequestLost | Fate::Refused => Err(Error::new(Kind::Unavailable, "a test's call")),
            };
            give_way().await;
            result
        })
    }
}

impl Delegate for Faulty {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn write<'a>(&'a self, id: CommandId, change: Change<&'a Record>) -> Pending<'a, Written> {
        self.writing(self.inner.write(id, change))
    }

    fn get(&self, id: CommandId) -> Pending<'_, Reading> {
        self.read(self.inner.get(id))
    }

    fn find(&self, operation_id: OperationId) -> Pending<'_, (Time, Option<Item>)> {
        self.read(self.inner.find(operation_id))
    }

    fn page<'a>(&'a self, filter: &'a Filter, after: Option<&'a Cursor>, limit: usize) -> Pending<'a, Page> {
        self.read(self.inner.page(filter, after, limit))
    }

    fn due<'a>(&'a self, after: Option<&'a Cursor>, limit: usize) -> Pending<'a, Page> {
        self.read(self.inner.due(after, limit))
    }

    fn markers<'a>(&'a self, after: Option<&'a Cursor>, limit: usize) -> Pending<'a, Page> {
        self.read(self.inner.markers(after, limit))
    }

    fn count(&self, what: Count, at_most: u64) -> Pending<'_, Counted> {
        self.read(self.inner.count(what, at_most))
    }

    fn settings(&self) -> Pending<'_, Vec<(String, Bytes)>> {
        self.read(self.inner.settings())
    }

    fn set<'a>(
        &'a self,
        name: &'a str,
        expect: Option<&'a [u8]>,
        next: Option<&'a [u8]>,
    ) -> Pending<'a, Setting> {
        self.writing(self.inner.set(name, expect, next))
    }
}
