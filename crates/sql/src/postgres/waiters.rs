//! Wakes callers that wait for a command to change, on this node and on others.
//!
//! A node announces each command that one of its callers waits for. Nodes that write to that command
//! afterwards notify it. A command without waiters costs no notification, which would lock the whole
//! database.

use super::address::Address;
use super::pulse::PulseSettings;
use super::session::Session;
use super::slot::{Slot, owned};
use semel_core::id::OperationId;
use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};
use tokio_postgres::types::Type;

/// How many commands waiters on this node can wait for; further ones poll.
const AWAITED_HERE_MAX: usize = 1 << 14;
/// How many commands of other nodes' waiters are remembered; the oldest are dropped first.
const AWAITED_ELSEWHERE_MAX: usize = 1 << 16;
/// How many notifications wait to be sent; further ones are dropped, and their waiters poll.
const OUTBOUND_MAX: usize = 1 << 12;
/// How many notifications one statement sends.
const BATCH_MAX: usize = 256;
/// How often announcements are renewed, and dropped if no caller waits.
const PERIOD: Duration = Duration::from_secs(30);
const RECONNECT: Duration = Duration::from_secs(1);
const RECONNECT_WITHOUT_NOTIFICATIONS: Duration = Duration::from_mins(1);
/// How long a notification takes at most from a server that sends them.
const PROBE_WAIT: Duration = Duration::from_secs(2);

const ANNOUNCED: char = 'w';
const CHANGED: char = 'c';
const PROBE: &str = "probe";

pub(super) struct Waiters {
    held: Mutex<State>,
    outbound: mpsc::Sender<String>,
    /// Notifications arrive.
    listening: watch::Sender<bool>,
    /// How many have arrived.
    received: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    here: BTreeMap<Key, LocalWaiters>,
    elsewhere: RemoteWaiters,
}

type Key = [u8; 16];

struct LocalWaiters {
    woken: watch::Sender<()>,
    /// The announcement was received here: all later writers know of it.
    is_confirmed: bool,
    is_recent: bool,
}

/// Announced commands, in the order of their announcement.
#[derive(Default)]
struct RemoteWaiters {
    count_by_key: BTreeMap<Key, usize>,
    order: VecDeque<Key>,
}

impl RemoteWaiters {
    fn remember(&mut self, key: Key) {
        *self.count_by_key.entry(key).or_default() += 1;
        self.order.push_back(key);
        if self.order.len() > AWAITED_ELSEWHERE_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.forget_one(oldest);
        }
    }

    fn forget_one(&mut self, key: Key) {
        if let Some(count) = self.count_by_key.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.count_by_key.remove(&key);
            }
        }
    }

    fn has(&self, key: &Key) -> bool {
        self.count_by_key.contains_key(key)
    }
}

impl Waiters {
    pub(super) fn new() -> (Arc<Self>, mpsc::Receiver<String>) {
        let (outbound, to_send) = mpsc::channel(OUTBOUND_MAX);
        let (listening, received) = (watch::channel(false).0, watch::channel(0).0);
        (Arc::new(Self { held: Mutex::default(), outbound, listening, received }), to_send)
    }

    fn held(&self) -> MutexGuard<'_, State> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_listening(&self) -> bool {
        *self.listening.borrow()
    }

    /// Waits until notifications arrive, at most as long as a working server takes.
    pub(super) async fn listened(&self) {
        let mut listening = self.listening.subscribe();
        let received = timeout(PROBE_WAIT, listening.wait_for(|is_listening| *is_listening)).await;
        drop(received);
    }

    /// Returns when the command may have changed since this call. `None` if that cannot be known.
    pub(super) fn subscribe(&self, id: OperationId) -> Option<Pin<Box<dyn Future<Output = ()> + Send>>> {
        if !self.is_listening() {
            return None;
        }
        let key = *id.as_bytes();
        let mut held = self.held();
        if held.here.len() >= AWAITED_HERE_MAX && !held.here.contains_key(&key) {
            return None;
        }
        let mut is_new = false;
        let here = held.here.entry(key).or_insert_with(|| {
            is_new = true;
            LocalWaiters { woken: watch::channel(()).0, is_confirmed: false, is_recent: true }
        });
        here.is_recent = true;
        let mut woken = here.woken.subscribe();
        drop(held);
        if is_new {
            self.send(ANNOUNCED, &key);
        }
        Some(Box::pin(async move {
            // The sender is dropped when its entry is: then the caller must check too.
            drop(woken.changed().await);
        }))
    }

    /// This node wrote to these commands.
    pub(super) fn changed(&self, ids: impl Iterator<Item = OperationId>) {
        if !self.is_listening() {
            return;
        }
        let mut held = self.held();
        let mut awaited = Vec::new();
        for id in ids {
            let key = *id.as_bytes();
            wake(&mut held, &key);
            if held.elsewhere.has(&key) {
                awaited.push(key);
            }
        }
        drop(held);
        for key in awaited {
            self.send(CHANGED, &key);
        }
    }

    fn send(&self, kind: char, key: &Key) {
        // If the queue is full, a waiter loses its notification and polls.
        drop(self.outbound.try_send(format!("{kind}{}", uuid::Uuid::from_bytes(*key).simple())));
    }

    /// A notification arrived.
    fn receive(&self, payload: &str) {
        self.received.send_modify(|count| *count += 1);
        let mut characters = payload.chars();
        let kind = characters.next();
        let Ok(id) = uuid::Uuid::try_parse(characters.as_str()) else { return };
        let key = *id.as_bytes();
        let mut held = self.held();
        match kind {
            Some(ANNOUNCED) => {
                held.elsewhere.remember(key);
                if let Some(here) = held.here.get_mut(&key)
                    && !here.is_confirmed
                {
                    here.is_confirmed = true;
                    // It may have changed before others knew of this waiter.
                    here.woken.send_replace(());
                }
            }
            Some(CHANGED) => wake(&mut held, &key),
            _ => {}
        }
    }

    /// Notifications were missed, or may have been.
    fn wake_all(&self) {
        let held = self.held();
        for here in held.here.values() {
            here.woken.send_replace(());
        }
    }

    /// Announces the commands that callers still wait for, and removes the others.
    fn renew(&self) {
        let mut held = self.held();
        held.here.retain(|_, here| here.woken.receiver_count() > 0 || std::mem::take(&mut here.is_recent));
        let awaited: Vec<Key> = held
            .here
            .iter()
            .filter(|(_, here)| here.woken.receiver_count() > 0)
            .map(|(key, _)| *key)
            .collect();
        drop(held);
        for key in awaited {
            self.send(ANNOUNCED, &key);
        }
    }
}

fn wake(held: &mut State, key: &Key) {
    if let Some(here) = held.here.get(key) {
        here.woken.send_replace(());
    }
}

/// Sends notifications on a connection that is used for other things too.
pub(super) async fn send_notifications(
    slot: Arc<Slot>,
    mut to_send: mpsc::Receiver<String>,
    channel: String,
) {
    let mut payloads = Vec::new();
    while to_send.recv_many(&mut payloads, BATCH_MAX).await > 0 {
        payloads.sort_unstable();
        payloads.dedup();
        let sql = "SELECT pg_catalog.pg_notify($1, payload) FROM unnest($2::text[]) AS payload";
        let parameters =
            vec![owned(channel.clone(), Type::TEXT), owned(std::mem::take(&mut payloads), Type::TEXT_ARRAY)];
        let sent = slot.write(sql, parameters).await;
        if let Err(fault) = sent {
            tracing::debug!(error = %fault.error("notifying other nodes"), "notifications were not sent");
        }
        payloads.clear();
    }
}

/// Receives notifications as long as the store exists.
pub(super) async fn listen(waiters: Weak<Waiters>, address: Address, channel: String) {
    let mut lacked_notifications = false;
    loop {
        let Some(here) = waiters.upgrade() else { return };
        let received = here.received.subscribe();
        let receiver = Arc::downgrade(&here);
        drop(here);
        let notified = Arc::new(move |notification: &tokio_postgres::Notification| {
            if let Some(waiters) = receiver.upgrade() {
                waiters.receive(notification.payload());
            }
        });
        match Session::open(&address, &PulseSettings::default(), Some(notified)).await {
            Ok(session) => {
                lacked_notifications =
                    receive_until_closed(&waiters, &session, received, &channel, lacked_notifications).await;
            }
            Err(error) => tracing::debug!(%error, "no connection for notifications"),
        }
        let Some(here) = waiters.upgrade() else { return };
        here.listening.send_replace(false);
        here.wake_all();
        drop(here);
        sleep(if lacked_notifications { RECONNECT_WITHOUT_NOTIFICATIONS } else { RECONNECT }).await;
    }
}

/// Runs until the connection breaks. Returns whether nothing was received.
async fn receive_until_closed(
    waiters: &Weak<Waiters>,
    session: &Session,
    mut received: watch::Receiver<u64>,
    channel: &str,
    lacked_notifications: bool,
) -> bool {
    // The channel's name is derived from a schema name, which needs no quotes.
    if session.execute(&format!("LISTEN {channel}")).await.is_err() {
        return lacked_notifications;
    }
    loop {
        let Some(here) = waiters.upgrade() else { return lacked_notifications };
        received.mark_unchanged();
        drop(here.outbound.try_send(PROBE.to_owned()));
        let is_received = timeout(PROBE_WAIT, received.changed()).await.is_ok_and(|changed| changed.is_ok());
        if session.is_closed() {
            return lacked_notifications;
        }
        if !is_received {
            if !lacked_notifications {
                tracing::warn!(
                    "notifications of the PostgreSQL store do not arrive: waiting requests poll. Behind a \
                     pooler, name the server itself with listen=HOST:PORT in the store's URL, or write listen=off"
                );
            }
            return true;
        }
        if !here.listening.send_replace(true) {
            // Earlier notifications were missed.
            here.wake_all();
        }
        here.renew();
        drop(here);
        if timeout(PERIOD, session.closed()).await.is_ok() {
            return false;
        }
    }
}
