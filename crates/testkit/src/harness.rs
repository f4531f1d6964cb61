//! What a store's author passes to the contract suite.
//!
//! A store under test, and functions to set its time, reopen it and damage its entries. No promise passes because such
//! a function is missing: declared capabilities are tested, and untestable ones are waived explicitly.

use crate::clock::FakeClock;
use bytes::Bytes;
use semel_core::id::CommandId;
use semel_core::store::{Backend, OpenOptions, Sharing, Store};
use semel_core::time::Time;
use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;

/// An asynchronous action of a harness.
pub type HarnessFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

type Open = Box<dyn Fn() -> HarnessFuture<Arc<dyn Store>> + Send + Sync>;
type Damage = Box<dyn Fn(CommandId, Bytes) -> HarnessFuture<()> + Send + Sync>;

/// Sets the time of a store.
pub trait TimeControl: Send + Sync + 'static {
    /// Sets the time to `to`, forwards or back. A store with its own clock may continue to run from there (the suite
    /// tolerates some minutes); an injected clock does not move.
    fn set_time(&self, to: Time) -> HarnessFuture<()>;
}

impl TimeControl for FakeClock {
    fn set_time(&self, to: Time) -> HarnessFuture<()> {
        self.set(to);
        Box::pin(std::future::ready(()))
    }
}

/// A fresh, empty store, and what the suite may do to it.
///
/// A durable store has to be [reopened](Self::reopened_by); a shared one needs [another handle](Self::joined_by); and
/// unreadable entries have to be tested by [damaging](Self::damaged_by) one, or [waived](Self::without_damage) with a
/// reason.
pub struct Subject {
    store: Arc<dyn Store>,
    time: Box<dyn TimeControl>,
    join: Option<Open>,
    reopen: Option<Open>,
    damage: Option<Damage>,
    damage_waived: Option<String>,
    belongings: Vec<Box<dyn Any + Send + Sync>>,
}

impl Subject {
    /// A fresh, empty store whose time is set by `time`.
    pub fn new(store: Arc<dyn Store>, time: impl TimeControl) -> Self {
        Self {
            store,
            time: Box::new(time),
            join: None,
            reopen: None,
            damage: None,
            damage_waived: None,
            belongings: Vec::new(),
        }
    }

    /// The store that `backend` opens at `address`, on a fake clock. It is opened again for a second node and after a
    /// restart. For a store with its own clock, or one that cannot be opened twice, use [`new`](Self::new).
    pub async fn opened_by(backend: &'static dyn Backend, address: &str) -> Self {
        backend.check(address).expect("an address of this kind of store");
        let clock = FakeClock::default();
        let options = OpenOptions { clock: Some(Arc::new(clock.clone())), ..OpenOptions::default() };
        let address = address.to_owned();
        let open = move || -> HarnessFuture<Arc<dyn Store>> {
            let (address, options) = (address.clone(), options.clone());
            Box::pin(async move { backend.open(&address, &options).await.expect("the store opens") })
        };
        Self::new(open().await, clock).joined_by(open.clone()).reopened_by(open)
    }

    /// The memory store on a fake clock: for tests above the store level.
    pub fn memory() -> Self {
        let clock = FakeClock::default();
        let store = Arc::new(semel::memory::Store::with_clock(Arc::new(clock.clone())));
        let damaged = Arc::clone(&store);
        Self::new(store, clock).damaged_by(move |id, bytes| {
            let was_stored = damaged.overwrite(id, bytes).expect("the memory store works");
            assert!(was_stored, "there was nothing to damage");
            Box::pin(std::future::ready(()))
        })
    }

    /// How to open another handle on the same data while the first one is open, like another node.
    #[must_use]
    pub fn joined_by(
        mut self,
        join: impl Fn() -> HarnessFuture<Arc<dyn Store>> + Send + Sync + 'static,
    ) -> Self {
        self.join = Some(Box::new(join));
        self
    }

    /// How to open the same data again after every handle was dropped, like after a restart. The other closures of
    /// this subject must not keep a handle.
    #[must_use]
    pub fn reopened_by(
        mut self,
        reopen: impl Fn() -> HarnessFuture<Arc<dyn Store>> + Send + Sync + 'static,
    ) -> Self {
        self.reopen = Some(Box::new(reopen));
        self
    }

    /// How to replace the bytes of an entry behind the store's back, without changing its indexes.
    #[must_use]
    pub fn damaged_by(
        mut self,
        damage: impl Fn(CommandId, Bytes) -> HarnessFuture<()> + Send + Sync + 'static,
    ) -> Self {
        self.damage = Some(Box::new(damage));
        self
    }

    /// Declares that tests cannot damage entries of this store, and why.
    #[must_use]
    pub fn without_damage(mut self, why: impl Into<String>) -> Self {
        self.damage_waived = Some(why.into());
        self
    }

    /// Keeps something alive during the test: a temporary directory, a server.
    #[must_use]
    pub fn holding(mut self, belonging: impl Any + Send + Sync) -> Self {
        self.belongings.push(Box::new(belonging));
        self
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Sets the store's time.
    pub async fn set_time(&self, to: Time) {
        self.time.set_time(to).await;
    }

    /// Two handles on the same data: of two nodes if the store is shared, otherwise of two tasks.
    pub(crate) async fn two_handles(&self) -> [Arc<dyn Store>; 2] {
        let second = match &self.join {
            Some(join) => join().await,
            None if self.store.capabilities().shared != Sharing::Process => {
                panic!("the store declares that it is shared; set Subject::joined_by to test it")
            }
            None => Arc::clone(&self.store),
        };
        [Arc::clone(&self.store), second]
    }

    /// The same data after a restart; `None` if the store is not durable.
    pub(crate) async fn reopen(self) -> Option<Self> {
        let durable = self.store.capabilities().durable;
        let Self { store, time, join, reopen, damage, damage_waived, belongings } = self;
        assert!(
            reopen.is_some() || !durable,
            "the store declares that it is durable; set Subject::reopened_by to test it"
        );
        let open = reopen.as_ref()?;
        drop(store);
        let store = open().await;
        Some(Self { store, time, join, reopen, damage, damage_waived, belongings })
    }

    /// Damages the entry under `id`. Returns whether that is possible.
    pub(crate) async fn damage(&self, id: CommandId, bytes: Bytes) -> bool {
        match (&self.damage, &self.damage_waived) {
            (Some(damage), _) => damage(id, bytes).await,
            (None, Some(why)) => {
                eprintln!("not tested: unreadable entries ({why})");
                return false;
            }
            (None, None) => panic!(
                "unreadable entries have to be tested; set Subject::damaged_by, or \
                 Subject::without_damage with the reason"
            ),
        }
        true
    }
}
