//! One of the nodes that share a secret: how it keeps its view current, and how it registers with the others.
//!
//! The order of steps is the protocol in `docs/decisions/secrets.md`; each comment names what it prevents.

use super::stored::{Registration, Rotation, Settings, State, node_key};
use super::view::{NumberedSecret, Outgoing, View};
use super::{Bounded, ConfiguredSecret, Error};
use crate::runtime::clock::Clock;
use crate::runtime::spawn::Task;
use bytes::Bytes;
use semel_core::id::CommandId;
use semel_core::machine::Stage;
use semel_core::store::{self, Setting, Store};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::Notify;

/// How soon a failed refresh is repeated, if that is sooner than the next one: without a view, the node claims nothing.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// How often one refresh is repeated after the node was removed by others.
const ROUNDS: u32 = 4;

/// A node's time limits. Nodes may differ: each publishes its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RefreshSettings {
    /// How often the view and the registration are refreshed.
    pub refresh_every: Duration,
    /// How long a view is valid without a refresh. After that, the node claims nothing.
    pub good_for: Duration,
    /// How long a write may be in flight before it is applied or lost, with a margin for clocks of different speed.
    /// Longer than any timeout between node and store.
    pub in_flight: Duration,
}

impl RefreshSettings {
    /// After this much silence, a node no longer uses any earlier view.
    pub fn lapse(&self) -> Duration {
        self.good_for.saturating_add(self.in_flight)
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        let fair =
            !self.refresh_every.is_zero() && self.refresh_every < self.good_for && !self.in_flight.is_zero();
        if fair { Ok(()) } else { Err(Error::RefreshSettings) }
    }
}

/// Refresh every 10 s, valid for 30 s, at most 60 s in flight.
impl Default for RefreshSettings {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { refresh_every: seconds(10), good_for: seconds(30), in_flight: seconds(60) }
    }
}

/// This node's view of the hashing secret, kept current by [`tend`](Self::tend).
pub struct Secrets {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    known: Vec<ConfiguredSecret>,
    /// The name of this node's setting. New for every start: a killed node does not come back.
    key: String,
    name: String,
    refresh: RefreshSettings,
    view: RwLock<Option<View>>,
    /// The ID of an announced secret that this node does not have.
    missing: RwLock<Option<String>>,
    /// This node's index among the registered nodes in the upper half, and their number in the lower half.
    work_share: AtomicU64,
    course: tokio::sync::Mutex<RefreshState>,
    soon: Arc<Notify>,
}

/// What a refresh has to know about earlier ones.
#[derive(Default)]
struct RefreshState {
    /// This node has left.
    left: bool,
    beat: u64,
    /// The epoch of the current view, if there is one.
    epoch: Option<u64>,
    /// The ID of the current secret in that epoch.
    secret_id: String,
    confirmed: Option<u64>,
    /// The earliest moment to confirm `epoch`: until then, views of the previous epoch are valid.
    confirm_from: Duration,
    /// The other nodes' registrations, and since when each is unchanged.
    silent: BTreeMap<String, (Bytes, Duration)>,
}

impl RefreshState {
    /// Whether the store has lost writes: it has an earlier epoch again, or the same epoch with another secret, which
    /// a node gave to a store that it found empty.
    fn has_gone_back(&self, state: &State) -> bool {
        self.epoch.is_some_and(|epoch| {
            state.epoch < epoch || (state.epoch == epoch && state.secret.id != self.secret_id)
        })
    }
}

/// The part of a node in the work that all nodes divide. They may briefly disagree about their number, so the work must
/// be harmless if done twice, and must get done if skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WorkShare {
    number: u64,
    of: u64,
}

impl WorkShare {
    /// Whether the command is in this part.
    pub(crate) fn has(&self, id: CommandId) -> bool {
        let start = id.as_bytes().first_chunk::<8>().copied().unwrap_or_default();
        u64::from_be_bytes(start) % self.of == self.number
    }
}

/// A node with this name, not yet registered.
pub(super) fn enter(
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    known: Vec<ConfiguredSecret>,
    bits: u128,
    name: &str,
    refresh: RefreshSettings,
) -> Arc<Secrets> {
    let (view, missing, course) = (RwLock::default(), RwLock::default(), tokio::sync::Mutex::default());
    let (key, name) = (node_key(bits), name.to_owned());
    let (work_share, soon) = (AtomicU64::new(1), Arc::default());
    Arc::new(Secrets { store, clock, known, key, name, refresh, view, missing, work_share, course, soon })
}

impl Secrets {
    /// The view for one request. Fails if this node may be behind: it must then claim nothing.
    pub fn view(&self) -> Result<View, Error> {
        let view = self.view.read().unwrap_or_else(PoisonError::into_inner).clone().ok_or(Error::Stale)?;
        view.check(self.clock.uptime())?;
        Ok(view)
    }

    /// This node's part of the divided work, as of the last refresh.
    pub(crate) fn work_share(&self) -> WorkShare {
        let packed = self.work_share.load(Ordering::Relaxed);
        WorkShare { number: packed >> 32, of: (packed & 0xffff_ffff).max(1) }
    }

    fn count_work_shares(&self, settings: &Settings) {
        let number = settings.nodes.keys().take_while(|key| **key != self.key).count() as u64;
        let of = settings.nodes.len() as u64 & 0xffff_ffff;
        self.work_share.store(number << 32 | of, Ordering::Relaxed);
    }

    /// The ID of an announced secret that this node does not have. The rotation waits for it.
    pub fn trouble(&self) -> Option<String> {
        self.missing.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the store, renews the registration, and confirms an epoch that has been in use for long enough. Extends
    /// the validity of the view only if it succeeds.
    ///
    /// Also removes nodes that have been silent for their own declared time.
    pub async fn refresh(&self) -> Result<(), Error> {
        let mut course = self.course.lock().await;
        if course.left {
            return Err(Error::Stale);
        }
        let refreshed = self.refresh_along(&mut course).await;
        if !matches!(refreshed, Ok(()) | Err(Error::Store(_) | Error::Changed)) {
            // The store does not let this node continue, so its view is no longer valid.
            self.publish(None);
        }
        refreshed
    }

    async fn refresh_along(&self, course: &mut RefreshState) -> Result<(), Error> {
        for _ in 0..ROUNDS {
            // Before the call: the store handles the registration after this moment.
            let asked = self.clock.uptime();
            let settings = Settings::read(Bounded::by_the_caller(&*self.store)).await?;
            let answered = self.clock.uptime();
            let state = settings.state()?.ok_or(Error::WentBack)?;
            if course.has_gone_back(&state) {
                return Err(Error::WentBack);
            }
            self.remove_silent_nodes(course, &settings, asked, answered).await;
            let Some(registered) = settings.nodes.get(&self.key) else {
                // Register first, then read the state for the view: nobody can advance two stages without waiting for
                // this node.
                course.confirmed = None;
                self.register(course, None).await?;
                continue;
            };
            if self.keep_up(course, &state, registered, asked).await? {
                self.count_work_shares(&settings);
                return Ok(());
            }
        }
        Err(Error::Changed)
    }

    /// Adopts `state`. `false` if this node was removed meanwhile.
    async fn keep_up(
        &self,
        course: &mut RefreshState,
        state: &State,
        registered: &Bytes,
        asked: Duration,
    ) -> Result<bool, Error> {
        let (view, missing) = self.made_from(state, asked.saturating_add(self.refresh.good_for))?;
        let is_first = course.epoch.is_none();
        let is_taken_up = is_first || course.epoch == Some(state.epoch);
        if is_taken_up && asked >= course.confirm_from && missing.is_none() {
            course.confirmed = Some(state.epoch);
        }
        if !self.register(course, Some(registered)).await? {
            return Ok(false);
        }
        self.publish(Some(view));
        *self.missing.write().unwrap_or_else(PoisonError::into_inner) = missing;
        if !is_taken_up {
            // Views of the previous epoch were given out until now.
            course.confirm_from = self.clock.uptime().saturating_add(self.refresh.lapse());
        }
        course.epoch = Some(state.epoch);
        course.secret_id.clone_from(&state.secret.id);
        Ok(true)
    }

    /// Renews the registration. `false` if it was changed: this node was removed.
    async fn register(&self, course: &mut RefreshState, from: Option<&Bytes>) -> Result<bool, Error> {
        course.beat += 1;
        let lapse = self.refresh.lapse();
        let next = Registration::new(&self.name, course.beat, course.confirmed, lapse).encode();
        let set = self.store.set(&self.key, from.map(|from| &from[..]), Some(&next)).await?;
        Ok(set == Setting::Done)
    }

    /// The view for `state`, and the ID of a missing secret. While the next secret is only announced, a node without
    /// it continues, but does not confirm.
    fn made_from(&self, state: &State, good_until: Duration) -> Result<(View, Option<String>), Error> {
        let secret = state.secret.secret(&self.known)?;
        let arbiter = NumberedSecret { secret, generation: state.generation };
        let view = |current, outgoing| View { current, outgoing, good_until };
        let (next, stage) = match &state.rotation {
            Rotation::Steady | Rotation::Settled => return Ok((view(arbiter, None), None)),
            Rotation::Announced { next } => (next, Stage::Announced),
            Rotation::Moving { next } => (next, Stage::Moving),
        };
        match next.secret(&self.known) {
            Ok(secret) => {
                let current = NumberedSecret { secret, generation: state.generation.saturating_add(1) };
                Ok((view(current, Some(Outgoing { old: arbiter, stage })), None))
            }
            Err(Error::Missing(id)) if stage == Stage::Announced => Ok((view(arbiter, None), Some(id))),
            Err(error) => Err(error),
        }
    }

    fn publish(&self, view: Option<View>) {
        *self.view.write().unwrap_or_else(PoisonError::into_inner) = view;
    }

    /// Removes nodes whose registration has been unchanged, by this node's own clock, for their declared time. Wall
    /// clocks are not compared.
    async fn remove_silent_nodes(
        &self,
        course: &mut RefreshState,
        settings: &Settings,
        asked: Duration,
        answered: Duration,
    ) {
        course.silent.retain(|key, (unchanged, _)| settings.nodes.get(key) == Some(unchanged));
        for (key, stored) in settings.nodes.iter().filter(|(key, _)| **key != self.key) {
            // First seen at the answer, judged at the question, so the measured silence is never too long.
            let (_, since) = course.silent.entry(key.clone()).or_insert_with(|| (stored.clone(), answered));
            let lapse = Registration::decode(stored).map_or(Duration::MAX, |node| node.lapse());
            if asked.saturating_sub(*since) >= lapse {
                // Refused if the node is alive; if the answer is lost, the next refresh tries again.
                let _ = self.store.set(key, Some(stored), None).await;
            }
        }
    }

    /// Refreshes until the secrets are dropped; for [`Spawn::spawn`](crate::Spawn::spawn). A refresh that fails is
    /// repeated sooner. `report` gets every new error, repeats of it at the usual pace, and the first success after it.
    pub fn tend(self: &Arc<Self>, report: impl Fn(Result<(), &Error>) + Send + Sync + 'static) -> Task {
        let (clock, soon, every) =
            (Arc::clone(&self.clock), Arc::clone(&self.soon), self.refresh.refresh_every);
        let secrets = Arc::downgrade(self);
        Box::pin(async move {
            // The last reported error, and when it was reported.
            let mut failed: Option<(String, Duration)> = None;
            loop {
                let pause = if failed.is_some() { every.min(AGAIN_AFTER) } else { every };
                tokio::select! {
                    biased;
                    () = soon.notified() => {}
                    () = clock.sleep(pause) => {}
                }
                let Some(secrets) = secrets.upgrade() else { return };
                let refreshed = loop {
                    tokio::select! {
                        biased;
                        refreshed = secrets.refresh_in_time() => break refreshed,
                        // It may still wait for an answer to what was sent before.
                        () = soon.notified() => {}
                    }
                };
                let now = clock.uptime();
                match &refreshed {
                    Ok(()) => {
                        if failed.take().is_some() {
                            report(Ok(()));
                        }
                    }
                    Err(error) => {
                        let text = error.to_string();
                        let is_reported = failed.as_ref().is_some_and(|(reported, at)| {
                            *reported == text && now.saturating_sub(*at) < every
                        });
                        if !is_reported {
                            report(Err(error));
                            failed = Some((text, now));
                        }
                    }
                }
            }
        })
    }

    /// Lets [`tend`](Self::tend) refresh now: the store works again.
    pub(crate) fn refresh_soon(&self) {
        self.soon.notify_one();
    }

    /// [`refresh`](Self::refresh) with a timeout when the next one is due: a call without an answer must not prevent
    /// the next refresh while the view is valid.
    pub(crate) async fn refresh_in_time(&self) -> Result<(), Error> {
        tokio::select! {
            biased;
            refreshed = self.refresh() => refreshed,
            () = self.clock.sleep(self.refresh.refresh_every) => {
                let context = "waiting for the store to read the state of its secret";
                Err(Error::Store(store::Error::new(store::Kind::Unavailable, context)))
            }
        }
    }

    /// Unregisters this node, so that a rotation need not wait for it. Call it when no claim and no attempt of this
    /// node is running. There is no view afterwards.
    pub async fn leave(&self) -> Result<(), Error> {
        let mut course = self.course.lock().await;
        course.left = true;
        self.publish(None);
        let settings = Settings::read(Bounded::by_the_caller(&*self.store)).await?;
        if let Some(stored) = settings.nodes.get(&self.key) {
            // If it is refused, somebody else has removed or replaced it: leave the stored value alone.
            let (Setting::Done | Setting::Refused(_)) = self.store.set(&self.key, Some(stored), None).await?;
        }
        drop(course);
        Ok(())
    }
}

/// Shows nothing of the secrets.
impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secrets")
            .field("name", &self.name)
            .field("refresh", &self.refresh)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_in_exactly_one_work_share() {
        for of in 1..=7 {
            for byte in 0..=255 {
                let id = CommandId::from_bytes([byte; 32]);
                let whose = (0..of).filter(|number| WorkShare { number: *number, of }.has(id)).count();
                assert_eq!(whose, 1, "{byte} among {of}");
            }
        }
    }
}
