//! The engine: what Rust services use.
//!
//! What lives here: how an engine is built, how a call takes its way through it, how it is shut down. What must never:
//! a rule about what a state means.

use crate::answer::{Answer, Error, GivenUp, Told};
use crate::attempt::Attempt;
use crate::builder::Builder;
use crate::claim::{self, Claim};
use crate::conduct::{self, Ended, Work};
use crate::intent::Intent;
use crate::node::Node;
use crate::observe::Call;
use crate::recognise::Recognised;
use crate::running::Place;
use crate::spans::span;
use crate::sweep::{self, Swept};
use crate::tasks::Closing;
use crate::telling::{self, Subject};
use crate::time::{self, ClockStatus};
use crate::wait::{self, Waited};
use crate::writable::Refusing;
use semel_core::id::CommandId;
use semel_core::machine::{self, Begin, Command, Decision, Found, Reply, Stamp, Ticket};
use semel_core::record::Token;
use semel_core::store::{self, Reading, Store};
use semel_core::time::Time;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tracing::Instrument as _;

/// Makes side effects happen once, over a store.
///
/// Cheap to clone; every clone is the same engine.
///
/// Once the last clone is dropped, sweeping and reconciling end; attempts under way run to their end all the same.
#[derive(Clone)]
pub struct Engine {
    pub(crate) node: Arc<Node>,
    _handle: Arc<Handle>,
}

/// Ends what the engine does on its own account when nobody holds the engine any more.
struct Handle(Arc<Node>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.tasks.close(Closing::Draining);
    }
}

/// What was still under way when the engine was shut down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Farewell {
    /// How many attempts were running when it began.
    pub running: usize,
    /// How many of them had to be cut off at the deadline: their records say that nobody can tell, or, where their effect
    /// had not begun, that nothing was sent.
    pub cut_off: usize,
    /// How many had not stored their ending even then. Their leases die; what they did is unknown.
    pub unstored: usize,
}

impl Engine {
    /// An engine on `store`, with everything else as it comes.
    pub fn builder(store: Arc<dyn Store>) -> Builder {
        Builder::new(store)
    }

    /// Does what `intent` asks for, once.
    ///
    /// Where nobody has done it before, `work` is run in a task of the engine's own: a caller that goes away cancels
    /// nothing. How it ended is durable before this returns ([`Ran::stored`](crate::Ran::stored) says otherwise where it
    /// could not be stored in time). Everybody else gets that same outcome, or is told why there is none.
    ///
    /// [`run`](Self::run) is the same for work that returns a value.
    pub async fn execute<W, F, L>(&self, intent: Intent, work: W) -> Result<Answer<L>, Error>
    where
        W: FnOnce(Attempt) -> F + Send + 'static,
        F: Future<Output = Ended<L>> + Send + 'static,
        L: Send + 'static,
    {
        let node = &self.node;
        if node.tasks.is(Closing::Draining) {
            return Err(Error::Closing);
        }
        let recognised = Recognised::new(node, intent)?;
        let command = recognised.command();
        if let Some(answer) = self.known_outcome(&recognised) {
            return Ok(answer);
        }
        let wait_until = node.clock.uptime() + recognised.intent.wait.unwrap_or(node.settings.wait);
        let place = loop {
            let twin = match node.running.enter(recognised.id()) {
                Ok(place) => break place,
                Err(twin) => twin,
            };
            let waited = wait::for_local(node, &command, twin, wait_until);
            match waited.instrument(span!("wait")).await {
                Waited::Answered(answer) => return Ok(answer),
                Waited::Stalled(error) => return Err(Error::LostSight(error)),
                Waited::NeverRan => {}
                Waited::AskTheStore => {
                    let shown = claim::look(node, &recognised).await.map_err(Error::after_another)?;
                    let waited = wait::for_remote(node, &command, shown, None, wait_until);
                    return waited.instrument(span!("wait")).await.map_err(Error::LostSight);
                }
            }
        };
        let work: Work<L> = Box::new(move |attempt| Box::pin(work(attempt)));
        match self.claim_and_conduct(recognised.clone(), place, work).await? {
            Conducted::Answered(answer) => Ok(answer),
            Conducted::InProgress(shown, place) => {
                let waited = wait::for_remote(node, &command, shown, Some(&place), wait_until);
                waited.instrument(span!("wait")).await.map_err(Error::LostSight)
            }
        }
    }

    pub(crate) fn of(node: Arc<Node>) -> Self {
        Self { _handle: Arc::new(Handle(Arc::clone(&node))), node }
    }

    /// Takes nothing new, waits until what runs has ended, at most for `deadline`; then cuts the rest off and has each
    /// record say what is known.
    pub async fn shutdown(&self, deadline: Duration) -> Farewell {
        let node = &self.node;
        node.tasks.close(Closing::Draining);
        let running = node.tasks.under_way();
        let mut cut_off = 0;
        if !in_time(node, deadline, node.tasks.all_idle()).await {
            cut_off = node.tasks.under_way();
            node.tasks.close(Closing::Now);
            in_time(node, node.settings.finish_wait, node.tasks.idle()).await;
        }
        let unstored = node.tasks.under_way();
        if unstored == 0 {
            // As good as it goes: a node that falls silent is struck off by the others.
            in_time(node, node.settings.finish_wait, async { drop(node.secrets.leave().await) }).await;
        }
        Farewell { running, cut_off, unstored }
    }

    /// Goes once through everything that is due, now.
    pub async fn sweep(&self) -> Result<Swept, store::Error> {
        sweep::sweep(&self.node, sweep::Reach::All).await
    }

    /// For how long the store has taken no write, and why; `None` while it takes them. Known from the writes that were made anyway,
    /// of which the heartbeat makes one often enough: asking costs nothing.
    pub fn refuses_writes(&self) -> Option<Refusing> {
        self.node.writes.refusing(self.node.clock.uptime())
    }

    /// How the store's clock stands.
    pub fn clock_status(&self) -> ClockStatus {
        self.node.time.status()
    }

    /// Somebody has looked at the store's clock and finds it right: every node on the store goes by it from now on. `who`
    /// and `why` are kept in the store. Yields the time that was confirmed.
    pub async fn confirm_clock(&self, who: &str, why: &str) -> Result<Time, store::Error> {
        let node = &self.node;
        let confirming = time::confirm_clock(&*node.store, &*node.clock, who, why);
        let confirmed = node.bounded(Call::Beat, confirming).await?;
        // As every other node learns of it.
        time::beat(node).await?;
        Ok(confirmed)
    }

    /// How many attempts this engine has under way.
    pub fn running(&self) -> usize {
        self.node.running.len()
    }

    /// Whether somebody is asked what became of this operation's effects, where nobody can tell.
    pub fn has_reconciler(&self, operation: &str) -> bool {
        self.node.reconcilers.knows(operation)
    }

    /// Whether it has keys to seal outcomes with.
    pub fn has_sealing_keys(&self) -> bool {
        self.node.sealing.is_some()
    }

    /// The store that the engine works on.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.node.store
    }

    /// An outcome that this process knows and that cannot have changed.
    pub(crate) fn known_outcome<L>(&self, recognised: &Recognised) -> Option<Answer<L>> {
        let node = &self.node;
        let (id, record) =
            recognised.ids().find_map(|id| Some((id, node.cache.get(id, node.clock.uptime())?)))?;
        let (found, command) = (Found::Record(&record), recognised.command());
        let ticket = Ticket { token: Token::from_random(0), begin: Begin::Processing };
        let decision =
            machine::decide(found, &command, ticket, Stamp::new(node.now_at_the_latest(), &node.name, ""));
        if let Decision::Answer(reply @ (Reply::Replay(_) | Reply::Mismatch)) = decision {
            return Some(telling::answer(node, &Subject::under(id, &command), found, reply));
        }
        // Past its time: the store decides what that comes to.
        node.cache.forget(id);
        None
    }

    /// Claims the command and runs it, both in a task of the engine's own.
    async fn claim_and_conduct<L: Send + 'static>(
        &self,
        recognised: Recognised,
        place: Place,
        work: Work<L>,
    ) -> Result<Conducted<L>, Error> {
        let guard = self.node.tasks.enter().ok_or(Error::Closing)?;
        let operation_id = recognised.command().operation_id;
        let engine = self.clone();
        let (reply, answered) = oneshot::channel();
        let (aside, in_progress) = oneshot::channel();
        let attempt = async move {
            let _guard = guard;
            let loose = engine.attempt(&recognised, place, work, reply, aside).await;
            claim::give_back(&engine.node, loose);
        };
        // Whoever traces the request finds its attempt in there, although a task of the engine's own makes it.
        self.node.spawn.spawn(Box::pin(attempt.instrument(tracing::Span::current())));
        match answered.await {
            Ok(result) => result.map(Conducted::Answered),
            // No answer: in progress elsewhere, or the task was torn down in the middle, and nobody can tell.
            Err(_) => Ok(match in_progress.await {
                Ok((shown, place)) => Conducted::InProgress(shown, place),
                Err(_) => {
                    Conducted::Answered(Answer { operation_id, told: Told::Unknown { repeatable: false } })
                }
            }),
        }
    }

    /// Yields the claims that were lost sight of over it.
    async fn attempt<L: Send>(
        &self,
        recognised: &Recognised,
        place: Place,
        work: Work<L>,
        reply: conduct::Reply<L>,
        aside: oneshot::Sender<(Shown, Place)>,
    ) -> Vec<claim::Loose> {
        let node = &self.node;
        let command = recognised.command();
        match claim::claim(node, recognised).instrument(span!("claim")).await {
            Ok(Claim::Owned(ownership)) => {
                conduct::conduct(Arc::clone(node), ownership, place, work, reply).await;
            }
            Ok(Claim::Judged(id, reading)) => {
                let judged = judged(node, &command, &reading);
                if judged == Reply::InProgress {
                    drop(reply);
                    drop(aside.send(((id, reading), place)));
                    return Vec::new();
                }
                wait::show_end(Some(&place), id, &reading, judged);
                self.keep(id, &reading);
                let subject = Subject::under(id, &command);
                drop(reply.send(Ok(telling::answer(node, &subject, reading.found(), judged))));
            }
            Ok(Claim::MarkedUnknown(id)) => {
                let subject = Subject::under(id, &command);
                drop(reply.send(Ok(telling::answer(node, &subject, Found::Nothing, Reply::Unknown))));
            }
            Ok(Claim::Lapsed(ownership)) => {
                drop((place, work));
                drop(reply.send(Err(Error::GivenUp(GivenUp::Lapsed))));
                ownership.abandon(claim::LAPSED).await;
            }
            Err(unclaimed) => {
                drop(place);
                drop(reply.send(Err(unclaimed.error)));
                return unclaimed.loose;
            }
        }
        Vec::new()
    }

    fn keep(&self, id: CommandId, reading: &Reading) {
        if let Some(record) = reading.record().filter(|record| telling::is_kept(record)) {
            self.node.cache.keep(id, record, self.node.clock.uptime());
        }
    }
}

/// What the machine says to a request that runs nothing.
pub(crate) fn judged<'a>(node: &Node, command: &Command<'_>, reading: &'a Reading) -> Reply<'a> {
    let ticket = Ticket { token: Token::from_random(0), begin: Begin::Processing };
    match machine::decide(reading.found(), command, ticket, node.stamp(reading.now, "")) {
        Decision::Answer(reply) => reply,
        // It would run something by now: it was judged a moment ago, and a moment ago somebody else ran it.
        Decision::Run(_) | Decision::MarkUnknown(_) | Decision::Follow => Reply::InProgress,
    }
}

/// What stands under an id.
type Shown = (CommandId, Reading);

enum Conducted<L> {
    Answered(Answer<L>),
    InProgress(Shown, Place),
}

/// Whether `ends` ended within `span`.
async fn in_time(node: &Node, span: Duration, ends: impl Future<Output = ()>) -> bool {
    tokio::select! {
        biased;
        () = ends => true,
        () = node.clock.sleep(span) => false,
    }
}
