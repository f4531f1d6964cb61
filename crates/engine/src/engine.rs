//! The engine: what Rust services use.
//!
//! What lives here: how an engine is built, how a call takes its way through it, how it is shut down. What must never:
//! a rule about what a state means.

use crate::answer::{Answer, Error, Told};
use crate::attempt::Attempt;
use crate::builder::Builder;
use crate::claim::{self, Claim};
use crate::conduct::{self, Ended, Work};
use crate::intent::Intent;
use crate::node::Node;
use crate::observe::Event;
use crate::running::Place;
use crate::sweep::{self, Swept};
use crate::tasks::Closing;
use crate::telling::{self, Subject};
use crate::wait::{self, Waited};
use semel_core::machine::{self, Begin, Command, Decision, Found, Reply, Ticket};
use semel_core::record::Token;
use semel_core::scope::Secret;
use semel_core::store::{self, Reading, Store};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

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
    /// An engine on `store`, whose ids are made with `secret`, with everything else as it comes.
    pub fn builder(store: Arc<dyn Store>, secret: Secret) -> Builder {
        Builder::new(store, secret)
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
        intent.policy.check().map_err(Error::Policy)?;
        let command = self.recognise(&intent)?;
        let answer = |told| Answer { operation_id: command.operation_id, told };
        if let Some(told) = self.known_outcome(&command) {
            return Ok(answer(told));
        }
        let wait_until = node.clock.uptime() + intent.wait.unwrap_or(node.settings.wait);
        let place = loop {
            let twin = match node.running.enter(command.id) {
                Ok(place) => break place,
                Err(twin) => twin,
            };
            match wait::for_local(node, &command, twin, wait_until).await {
                Waited::Told(told) => return Ok(answer(told)),
                Waited::NeverRan => {}
                Waited::AskTheStore => {
                    let reading = node.get(command.id).await?;
                    let told = wait::for_remote(node, &command, reading, None, wait_until).await?;
                    return Ok(answer(told));
                }
            }
        };
        let work: Work<L> = Box::new(move |attempt| Box::pin(work(attempt)));
        match self.claim_and_conduct(&intent, place, work).await? {
            Conducted::Answered(answered) => Ok(answered),
            Conducted::InProgress(reading, place) => {
                let told = wait::for_remote(node, &command, reading, Some(&place), wait_until).await?;
                Ok(answer(told))
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
        if in_time(node, deadline, node.tasks.idle()).await {
            return Farewell { running, cut_off: 0, unstored: 0 };
        }
        let cut_off = node.tasks.under_way();
        node.tasks.close(Closing::Now);
        in_time(node, node.settings.finish_wait, node.tasks.idle()).await;
        Farewell { running, cut_off, unstored: node.tasks.under_way() }
    }

    /// Goes once through everything that is due, now.
    pub async fn sweep(&self) -> Result<Swept, store::Error> {
        sweep::sweep(&self.node).await
    }

    /// Somebody has looked at the store's clock, which had moved, and finds it right: the sweeper goes on.
    pub fn trust_clock(&self) {
        self.node.watch.lock().unwrap_or_else(std::sync::PoisonError::into_inner).acknowledge();
    }

    /// How many attempts this engine has under way.
    pub fn running(&self) -> usize {
        self.node.running.len()
    }

    /// The store that the engine works on.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.node.store
    }

    pub(crate) fn recognise<'a>(&self, intent: &'a Intent) -> Result<Command<'a>, Error> {
        let Intent { scope, key, policy, payload, .. } = intent;
        Command::new(&self.node.secret, scope, key, Arc::clone(policy), &**payload)
            .map_err(Error::Fingerprint)
    }

    /// An outcome that this process knows and that cannot have changed.
    fn known_outcome<L>(&self, command: &Command<'_>) -> Option<Told<L>> {
        let node = &self.node;
        let record = node.cache.get(command.id)?;
        let found = Found::Record(&record);
        let ticket = Ticket { token: Token::from_random(0), begin: Begin::Processing };
        let decision = machine::decide(found, command, ticket, node.stamp(node.now_at_the_latest(), ""));
        if let Decision::Answer(reply @ (Reply::Replay(_) | Reply::Mismatch)) = decision {
            return Some(telling::told(node, &Subject::from(command), found, reply));
        }
        // Past its time: the store decides what that comes to.
        node.cache.forget(command.id);
        None
    }

    /// Claims the command and runs it, both in a task of the engine's own.
    async fn claim_and_conduct<L: Send + 'static>(
        &self,
        intent: &Intent,
        place: Place,
        work: Work<L>,
    ) -> Result<Conducted<L>, Error> {
        let guard = self.node.tasks.enter().ok_or(Error::Closing)?;
        let (engine, intent) = (self.clone(), intent.clone());
        let (reply, answered) = oneshot::channel();
        let (aside, in_progress) = oneshot::channel();
        self.node.spawn.spawn(Box::pin(async move {
            let _guard = guard;
            engine.attempt(&intent, place, work, reply, aside).await;
        }));
        match answered.await {
            Ok(result) => result.map(Conducted::Answered),
            // No answer: in progress elsewhere, or the runtime was shut down under us.
            Err(_) => in_progress
                .await
                .map(|(reading, place)| Conducted::InProgress(reading, place))
                .map_err(|_| Error::Closing),
        }
    }

    async fn attempt<L: Send>(
        &self,
        intent: &Intent,
        place: Place,
        work: Work<L>,
        reply: conduct::Reply<L>,
        aside: oneshot::Sender<(Reading, Place)>,
    ) {
        let node = &self.node;
        let command = match self.recognise(intent) {
            Ok(command) => command,
            Err(error) => return drop(reply.send(Err(error))),
        };
        let operation_id = command.operation_id;
        let answer = |told| Ok(Answer { operation_id, told });
        match claim::claim(node, &command, intent).await {
            Ok(Claim::Owned(ownership)) => {
                conduct::conduct(Arc::clone(node), ownership, place, work, reply).await;
            }
            Ok(Claim::Judged(reading)) => {
                let judged = judged(node, &command, &reading);
                if judged == Reply::InProgress {
                    drop(reply);
                    drop(aside.send((reading, place)));
                    return;
                }
                wait::show_end(Some(&place), &reading, judged);
                self.keep(&command, &reading);
                drop(reply.send(answer(telling::told(
                    node,
                    &Subject::from(&command),
                    reading.found(),
                    judged,
                ))));
            }
            Ok(Claim::MarkedUnknown) => {
                let told = telling::told(node, &Subject::from(&command), Found::Nothing, Reply::Unknown);
                drop(reply.send(answer(told)));
            }
            Ok(Claim::Lapsed) => drop(reply.send(Err(Error::GivenUp(crate::answer::GivenUp::Lapsed)))),
            Ok(Claim::Elsewhere) => {
                node.observe(&Event::Unreadable { operation_id });
                drop(reply.send(answer(Told::Unreadable)));
            }
            Err(unclaimed) => {
                drop(place);
                drop(reply.send(Err(unclaimed.error)));
                if let Some(loose) = unclaimed.loose {
                    claim::give_back(node, loose).await;
                }
            }
        }
    }

    fn keep(&self, command: &Command<'_>, reading: &Reading) {
        if let Some(record) = reading.record().filter(|record| telling::is_kept(record)) {
            self.node.cache.keep(command.id, &Arc::new(record.clone()));
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

enum Conducted<L> {
    Answered(Answer<L>),
    InProgress(Reading, Place),
}

/// Whether `ends` ended within `span`.
async fn in_time(node: &Node, span: Duration, ends: impl Future<Output = ()>) -> bool {
    tokio::select! {
        biased;
        () = ends => true,
        () = node.clock.sleep(span) => false,
    }
}
