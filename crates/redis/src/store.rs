//! The store's operations.

use crate::address::Address;
use crate::expiry::{self, Expiries};
use crate::hazards;
use crate::masters;
use crate::resp;
use crate::server_info;
use crate::servers::Effect;
use crate::shared::Shared;
use crate::waiters::{self, Waiters};
use crate::write::{ENTRY_BYTES_MAX, PlannedWrite, check_size};
use bytes::Bytes;
use semel_core::id::{CommandId, OperationId};
use semel_core::record::{Record, StateName};
use semel_core::store::{
    self, Capabilities, Census, Change, Clock, ClockSource, Count, Counted, Counting, Cursor, Error, Filter,
    Hazard, Item, Kind, Order, Page, Pending, Reading, RemainingCopies, Setting, Sharing, StoreSize, Tally,
    Written,
};
use semel_core::time::Time;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::task::AbortHandle;

/// A store on a server or a cluster. See the [crate](crate), and [`Store`](semel_core::store::Store) for what
/// it does.
///
/// Its tasks run on the runtime that it was opened on. Dropping it ends them as soon as what was sent is
/// answered.
pub struct Store {
    name: String,
    shared: Arc<Shared>,
    waiters: Arc<Waiters>,
    expiries: Arc<Expiries>,
    /// The tasks that receive other nodes' writes, check the servers, and remove expiries.
    tasks: Vec<AbortHandle>,
    is_closed: AtomicBool,
}

impl Store {
    /// Opens the store that a URL names (`redis://…` or `rediss://…`), and creates it if it does not exist.
    ///
    /// Refuses a Sentinel, a replica, two servers that both take writes, servers that cannot confirm writes
    /// as the URL asks, a store of a newer build or with another number of buckets than the URL says, and a
    /// user who lacks a right that the store needs.
    pub async fn open(url: &str) -> Result<Self, Error> {
        let unfit = || Error::new(Kind::Unfit, "opening the Redis store");
        let (scheme, address) = url.split_once(':').unwrap_or((url, ""));
        let is_encrypted = match scheme {
            "redis" | "valkey" => false,
            "rediss" | "valkeys" => true,
            _ => return Err(unfit().because("its URL begins with redis:// or rediss://")),
        };
        let parsed = Address::parse(address, is_encrypted).map_err(|cause| unfit().because(cause))?;
        Self::at(format!("{}:{address}", if is_encrypted { "rediss" } else { "redis" }), parsed, None).await
    }

    pub(crate) async fn at(
        name: String,
        address: Address,
        clock: Option<Arc<dyn Clock>>,
    ) -> Result<Self, Error> {
        let shared = Arc::new(Shared::open(address, clock).await?);
        let waiters = Waiters::new();
        let mut tasks = Vec::new();
        if shared.address.hosts.len() > 1 && !shared.writes.is_cluster() {
            let watching = masters::watch(Arc::clone(&shared.address), Arc::downgrade(&shared.fence));
            tasks.push(tokio::spawn(watching).abort_handle());
        }
        if shared.address.notifies {
            let (address, channel) = (Arc::clone(&shared.address), shared.layout.channel());
            let listening = waiters::listen(Arc::downgrade(&waiters), address, channel);
            tasks.push(tokio::spawn(listening).abort_handle());
            waiters.listened().await;
        }
        let expiries = Arc::new(Expiries::default());
        tasks.push(tokio::spawn(expiry::run(Arc::clone(&shared), Arc::clone(&expiries))).abort_handle());
        Ok(Self { name, shared, waiters, expiries, tasks, is_closed: AtomicBool::new(false) })
    }

    fn stop(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.tasks.iter().for_each(AbortHandle::abort);
    }

    fn check_open(&self) -> Result<(), Error> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err(Error::new(Kind::Closed, "asking the Redis store"));
        }
        Ok(())
    }

    fn ask<'a, T>(&'a self, asked: impl Future<Output = Result<T, Error>> + Send + 'a) -> Pending<'a, T> {
        Box::pin(async move {
            self.check_open()?;
            asked.await
        })
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("redis::Store").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Writes, and notifies waiters of a final state, even if the caller is cancelled.
/// The memory of all servers that take writes, with everything else that is on them. Unknown if one does not tell.
async fn usage(shared: &Shared) -> Result<StoreSize, Error> {
    let mut sum = 0_u64;
    for link in shared.writes.all() {
        let lost = |failure| Error::new(Kind::Unavailable, "looking at Redis").because(failure);
        let connection = link.connection().await?;
        let Some(bytes) = server_info::used_memory(&connection).await.map_err(lost)? else {
            return Ok(StoreSize::default());
        };
        sum = sum.saturating_add(bytes);
    }
    Ok(StoreSize { data_bytes: Some(sum), log_bytes: None })
}

async fn write(shared: Arc<Shared>, id: CommandId, planned: PlannedWrite) -> Result<Written, Error> {
    let written = shared.write(&planned).await?;
    if matches!(written, Written::Done { .. }) && shared.address.notifies {
        publish(&shared, OperationId::of(&id)).await;
    }
    Ok(written)
}

async fn publish(shared: &Shared, id: OperationId) {
    let slot = shared.layout.slot(shared.layout.bucket(id));
    let question = resp::command(&[b"PUBLISH", shared.layout.channel().as_bytes(), id.as_bytes()]);
    if let Err(fault) = shared.reading().ask(slot, question, Effect::Reads).await {
        let error = fault.error("reporting a write to other nodes");
        tracing::debug!(%error, "requests that wait for it poll");
    }
}

impl store::Store for Store {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { notifies: self.waiters.is_listening(), ..capabilities(&self.shared) }
    }

    fn hazards(&self) -> Pending<'_, Vec<Hazard>> {
        let lacks_notifications = self.shared.address.notifies && !self.waiters.is_listening();
        self.ask(hazards::find(&self.shared, &self.expiries, lacks_notifications))
    }

    fn check(&self) -> Pending<'_, ()> {
        self.ask(self.shared.check())
    }

    fn write<'a>(&'a self, id: CommandId, change: Change<&'a Record>) -> Pending<'a, Written> {
        self.ask(async move {
            let planned = PlannedWrite::of(id, &change)?;
            if !planned.is_awaited {
                return self.shared.write(&planned).await;
            }
            let writing = tokio::spawn(write(Arc::clone(&self.shared), id, planned));
            let lost = |_| Error::new(Kind::Ambiguous, "waiting for a write to Redis");
            writing.await.map_err(lost)?
        })
    }

    fn get(&self, id: CommandId) -> Pending<'_, Reading> {
        self.ask(self.shared.get(id))
    }

    fn find(&self, operation_id: OperationId) -> Pending<'_, (Time, Option<Item>)> {
        self.ask(self.shared.find(operation_id))
    }

    fn page<'a>(&'a self, filter: &'a Filter, after: Option<&'a Cursor>, limit: usize) -> Pending<'a, Page> {
        self.ask(self.shared.page(filter, after, limit))
    }

    fn due<'a>(&'a self, after: Option<&'a Cursor>, limit: usize) -> Pending<'a, Page> {
        self.ask(self.shared.due(after, limit))
    }

    fn markers<'a>(&'a self, after: Option<&'a Cursor>, limit: usize) -> Pending<'a, Page> {
        self.ask(self.shared.markers(after, limit))
    }

    fn count(&self, what: Count, at_most: u64) -> Pending<'_, Counted> {
        self.ask(self.shared.count(what, at_most))
    }

    fn census(&self) -> Pending<'_, Census> {
        self.ask(self.shared.census())
    }

    fn tally<'a>(
        &'a self,
        state: Option<StateName>,
        after: Option<&'a Cursor>,
        limit: usize,
    ) -> Pending<'a, Tally> {
        self.ask(self.shared.tally(state, after, limit))
    }

    fn usage(&self) -> Pending<'_, StoreSize> {
        self.ask(usage(&self.shared))
    }

    fn settings(&self) -> Pending<'_, Vec<(String, Bytes)>> {
        self.ask(self.shared.settings())
    }

    fn set<'a>(
        &'a self,
        name: &'a str,
        expect: Option<&'a [u8]>,
        next: Option<&'a [u8]>,
    ) -> Pending<'a, Setting> {
        self.ask(async move {
            check_size("writing a setting", next.map_or(0, <[u8]>::len))?;
            self.shared.set(name, expect, next).await
        })
    }

    fn scrub(&self) -> Pending<'_, RemainingCopies> {
        let remain = "in the append-only file until it is rewritten (BGREWRITEAOF), in snapshots until the next one, and on replicas \
                      the same way";
        Box::pin(std::future::ready(Ok(RemainingCopies::MayRemain(remain.to_owned()))))
    }

    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.stop();
        Box::pin(self.shared.close())
    }

    fn changed(&self, id: CommandId) -> Option<Pin<Box<dyn Future<Output = ()> + Send + '_>>> {
        self.waiters.subscribe(OperationId::of(&id)).map(|changed| changed as _)
    }
}

/// The capabilities, for writing and for reading.
pub(crate) fn capabilities(shared: &Shared) -> Capabilities {
    // With several servers, each uses its own clock.
    let is_one = !shared.writes.is_cluster() && shared.address.hosts.len() == 1;
    Capabilities {
        durable: true,
        shared: Sharing::Machines,
        clock: if is_one { ClockSource::One } else { ClockSource::EachMachine },
        counts: Counting::Approximate,
        order: Order::Own,
        notifies: false,
        kept_in_memory: true,
        entry_bytes_max: ENTRY_BYTES_MAX,
    }
}
