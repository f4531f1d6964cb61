//! What a store's author hands to the contract suite.
//!
//! Contents: a store under test and the means to do to it what its users cannot: turn its time, open it again, damage
//! what it holds. Never here: a promise that passes because a means is missing. What a store claims to be able to do
//! has to be shown; what cannot be shown is waived by name.

use crate::clock::FakeClock;
use bytes::Bytes;
use semel_core::id::CommandId;
use semel_core::store::{Backend, OpenOptions, Sharing, Store};
use semel_core::time::Time;
use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;

/// Something that a harness does, and that takes its time.
pub type Doing<T> = Pin<Box<dyn Future<Output = T> + Send>>;

type Open = Box<dyn Fn() -> Doing<Arc<dyn Store>> + Send + Sync>;
type Damage = Box<dyn Fn(CommandId, Bytes) -> Doing<()> + Send + Sync>;

/// Turns the time that a store goes by.
pub trait Turn: Send + Sync + 'static {
    /// Makes it `to`, forwards or back. A store with a clock of its own may run on from there (the suite allows for
    /// some minutes); one that goes by a clock it was handed stands still.
    fn turn(&self, to: Time) -> Doing<()>;
}

impl Turn for FakeClock {
    fn turn(&self, to: Time) -> Doing<()> {
        self.set(to);
        Box::pin(std::future::ready(()))
    }
}

/// A fresh, empty store, and what the suite may do to it.
///
/// A store that says it is durable has to be [reopened](Self::reopened_by); one that says it is shared needs
/// [another handle](Self::joined_by); and what becomes of entries that cannot be read has to be shown by
/// [damaging](Self::damaged_by) one, or [waived](Self::without_damage) with a reason.
pub struct Subject {
    store: Arc<dyn Store>,
    time: Box<dyn Turn>,
    join: Option<Open>,
    reopen: Option<Open>,
    damage: Option<Damage>,
    damage_waived: Option<String>,
    belongings: Vec<Box<dyn Any + Send + Sync>>,
}

impl Subject {
    /// A fresh, empty store whose time `time` turns.
    pub fn new(store: Arc<dyn Store>, time: impl Turn) -> Self {
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

    /// What `backend` opens at `address`, as programs do, on a fake clock. Opened once more it is joined by another
    /// node, and opened again after a restart. A store with a clock of its own, or one that cannot be opened twice,
    /// is put together by [`new`](Self::new).
    pub async fn opened_by(backend: &'static dyn Backend, address: &str) -> Self {
        backend.check(address).expect("an address of this kind of store");
        let clock = FakeClock::default();
        let options = OpenOptions { clock: Some(Arc::new(clock.clone())), ..OpenOptions::default() };
        let address = address.to_owned();
        let open = move || -> Doing<Arc<dyn Store>> {
            let (address, options) = (address.clone(), options.clone());
            Box::pin(async move { backend.open(&address, &options).await.expect("the store opens") })
        };
        Self::new(open().await, clock).joined_by(open.clone()).reopened_by(open)
    }

    /// The memory store on a fake clock: what tests of anything above stores run on.
    pub fn memory() -> Self {
        let clock = FakeClock::default();
        let store = Arc::new(semel::memory::Store::with_clock(Arc::new(clock.clone())));
        let damaged = Arc::clone(&store);
        Self::new(store, clock).damaged_by(move |id, bytes| {
            let stood = damaged.overwrite(id, bytes).expect("the memory store is fit");
            assert!(stood, "there was nothing to damage");
            Box::pin(std::future::ready(()))
        })
    }

    /// How another handle on the same data is opened while the first one is open: as another node would.
    #[must_use]
    pub fn joined_by(mut self, join: impl Fn() -> Doing<Arc<dyn Store>> + Send + Sync + 'static) -> Self {
        self.join = Some(Box::new(join));
        self
    }

    /// How the same data is opened again after every handle was dropped: as after a restart. The other closures of this
    /// subject must not hold a handle, or it is none.
    #[must_use]
    pub fn reopened_by(mut self, reopen: impl Fn() -> Doing<Arc<dyn Store>> + Send + Sync + 'static) -> Self {
        self.reopen = Some(Box::new(reopen));
        self
    }

    /// How the bytes of the entry that is under an id are replaced behind the store's back, and nothing else of what
    /// the store keeps with it.
    #[must_use]
    pub fn damaged_by(
        mut self,
        damage: impl Fn(CommandId, Bytes) -> Doing<()> + Send + Sync + 'static,
    ) -> Self {
        self.damage = Some(Box::new(damage));
        self
    }

    /// That what this store holds cannot be damaged by a test, and why.
    #[must_use]
    pub fn without_damage(mut self, why: impl Into<String>) -> Self {
        self.damage_waived = Some(why.into());
        self
    }

    /// What has to live as long as the store is under test: a temporary directory, a server.
    #[must_use]
    pub fn holding(mut self, belonging: impl Any + Send + Sync) -> Self {
        self.belongings.push(Box::new(belonging));
        self
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Turns the store's time.
    pub async fn turn(&self, to: Time) {
        self.time.turn(to).await;
    }

    /// Two handles on the same data: of two nodes where the store is shared, of two tasks where it is not.
    pub(crate) async fn two_handles(&self) -> [Arc<dyn Store>; 2] {
        let second = match &self.join {
            Some(join) => join().await,
            None if self.store.capabilities().shared != Sharing::Process => {
                panic!("the store says that nodes share it: Subject::joined_by has to show it")
            }
            None => Arc::clone(&self.store),
        };
        [Arc::clone(&self.store), second]
    }

    /// The same data after a restart; `None` if the store says that nothing survives one.
    pub(crate) async fn reopen(self) -> Option<Self> {
        let durable = self.store.capabilities().durable;
        let Self { store, time, join, reopen, damage, damage_waived, belongings } = self;
        assert!(
            reopen.is_some() || !durable,
            "the store says it is durable: Subject::reopened_by has to show it"
        );
        let open = reopen.as_ref()?;
        drop(store);
        let store = open().await;
        Some(Self { store, time, join, reopen, damage, damage_waived, belongings })
    }

    /// Damages what is under `id`. Says whether it could be done.
    pub(crate) async fn damage(&self, id: CommandId, bytes: Bytes) -> bool {
        match (&self.damage, &self.damage_waived) {
            (Some(damage), _) => damage(id, bytes).await,
            (None, Some(why)) => {
                eprintln!("not shown: what becomes of entries that cannot be read ({why})");
                return false;
            }
            (None, None) => panic!(
                "what becomes of entries that cannot be read has to be shown: Subject::damaged_by, or \
                 Subject::without_damage with the reason"
            ),
        }
        true
    }
}
