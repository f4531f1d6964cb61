//! Claims by hand, for workers that run outside the engine.
//!
//! What lives here: claim, start, renew, finish and give back, one call each. What must never: a release when the worker
//! goes silent; what it claimed stands until its lease dies, and is then judged like any other.

use crate::answer::{Answer, Error, GivenUp, Stored, Told};
use crate::attempt::NotYours;
use crate::claim::{self, Claim};
use crate::conduct::{overtaken, unknown};
use crate::engine::{Engine, judged};
use crate::intent::Intent;
use crate::node::Node;
use crate::observe::Event;
use crate::operator::Looked;
use crate::ownership::{Finished, Ownership, Unwritten};
use crate::recognise::Recognised;
use crate::sealing::Seal;
use crate::telling::{self, Subject};
use crate::wait;
use semel_core::classify::Ending;
use semel_core::id::{CommandId, OperationId};
use semel_core::machine::{self, Found, Reply};
use semel_core::record::{Record, Token};
use semel_core::store;
use semel_core::time::Time;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// An attempt that a worker outside the engine makes. Nothing renews it but the worker, and dropping it releases
/// nothing.
#[must_use = "what is claimed holds its key up until it is finished, given back, or its lease dies"]
pub struct Lease {
    ownership: Arc<Ownership>,
}

/// What came of claiming by hand.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "each is matched once and not kept")]
pub enum Claimed {
    /// The attempt is the caller's.
    Yours(Lease),
    /// There is nothing to run.
    Told(Answer),
}

impl Engine {
    /// Claims what `intent` asks for, for a worker that runs it by itself. Does not wait for a running twin.
    ///
    /// A caller that goes away before it has its lease leaves none behind: it is given back.
    pub async fn claim(&self, intent: &Intent) -> Result<Claimed, Error> {
        let guard = self.node.tasks.enter().ok_or(Error::Closing)?;
        let recognised = Recognised::new(&self.node, intent.clone())?;
        let node = Arc::clone(&self.node);
        let (reply, claimed) = oneshot::channel();
        self.node.spawn.spawn(Box::pin(async move {
            let _guard = guard;
            let loose = claim_by_hand(&node, &recognised, reply).await;
            claim::give_back(&node, loose);
        }));
        // No answer: the task was torn down, and whatever it had claimed was handed to nobody.
        claimed.await.unwrap_or(Err(Error::Closing))
    }

    /// What a twin of a running attempt is told, once that has ended or the [wait](Intent::waiting) of `intent` is over:
    /// for whoever was told by [`claim`](Self::claim) that it is in progress. Begins no attempt, whatever it finds.
    pub async fn attend(&self, intent: &Intent) -> Result<Answer, Error> {
        let node = &self.node;
        let until = node.clock.uptime() + intent.wait.unwrap_or(node.settings.wait);
        let recognised = Recognised::new(node, intent.clone())?;
        let shown = claim::look(node, &recognised).await?;
        Ok(wait::for_remote(node, &recognised.command(), shown, None, until).await?)
    }

    /// A lease that was claimed before, by its command and its token: for a worker that comes back in another request.
    /// `None` where the command's record is no longer that attempt's.
    pub async fn lease(&self, id: CommandId, token: Token) -> Result<Option<Lease>, store::Error> {
        let asked = self.node.clock.uptime();
        let reading = self.node.get(id).await?;
        let record = reading.record().filter(|record| record.token() == token);
        Ok(record.map(|record| self.lease_on(id, record, asked, reading.now)))
    }

    /// The same, of a record that was just looked up.
    pub fn lease_of(&self, looked: &Looked, token: Token) -> Option<Lease> {
        let Looked { id, record, .. } = looked;
        let now = self.node.now_at_the_latest().at;
        (record.token() == token).then(|| self.lease_on(*id, record, self.node.clock.uptime(), now))
    }

    /// A lease on a record that stood in the store at `now`, which was not before the uptime `asked`.
    fn lease_on(&self, id: CommandId, record: &Record, asked: Duration, now: Time) -> Lease {
        // How long ago its owner wrote is known from the dates alone, since that may have been in another process.
        let held_since = asked.saturating_sub(machine::held_for(record, now));
        // What it was claimed with is not known any more: sealed, wherever there are keys.
        let ownership =
            Ownership::new(Arc::clone(&self.node), id, record.clone(), held_since, Seal::default());
        Lease { ownership: Arc::new(ownership) }
    }
}

/// Yields the claims that were lost sight of over it.
async fn claim_by_hand(
    node: &Arc<Node>,
    recognised: &Recognised,
    reply: oneshot::Sender<Result<Claimed, Error>>,
) -> Vec<claim::Loose> {
    let command = recognised.command();
    let told = |id, found, reply| telling::answer(node, &Subject::under(id, &command), found, reply);
    match claim::claim(node, recognised).await {
        Ok(Claim::Owned(ownership)) => {
            let record = ownership.record();
            node.observe(&Event::Claimed { operation: record.operation(), attempt: record.attempt() });
            let lease = Lease { ownership: Arc::new(ownership) };
            if let Err(Ok(Claimed::Yours(lease))) = reply.send(Ok(Claimed::Yours(lease))) {
                lease.ownership.abandon("nobody was there to take the claim, and nothing was sent").await;
            }
        }
        Ok(Claim::Judged(id, reading)) => {
            let judged = judged(node, &command, &reading);
            drop(reply.send(Ok(Claimed::Told(told(id, reading.found(), judged)))));
        }
        Ok(Claim::MarkedUnknown(id)) => {
            drop(reply.send(Ok(Claimed::Told(told(id, Found::Nothing, Reply::Unknown)))));
        }
        Ok(Claim::Lapsed(ownership)) => {
            drop(reply.send(Err(Error::GivenUp(GivenUp::Lapsed))));
            ownership.abandon(claim::LAPSED).await;
        }
        Err(unclaimed) => {
            drop(reply.send(Err(unclaimed.error)));
            return unclaimed.loose;
        }
    }
    Vec::new()
}

impl Lease {
    /// What the store indexes it by.
    pub fn id(&self) -> CommandId {
        self.ownership.id
    }

    /// The record, as this node last knew it to be stored.
    pub fn record(&self) -> Arc<Record> {
        self.ownership.record()
    }

    /// What proves that the attempt is the holder's. Whoever knows it can end the attempt.
    pub fn token(&self) -> Token {
        self.ownership.token
    }

    /// The public name of the command.
    pub fn operation_id(&self) -> OperationId {
        self.ownership.record().operation_id()
    }

    /// Which attempt it is.
    pub fn attempt(&self) -> u32 {
        self.ownership.record().attempt()
    }

    /// Grows with every attempt.
    pub fn fence(&self) -> u64 {
        self.ownership.record().fence()
    }

    /// Until when nobody else takes the attempt for dead, by the store's clock, as far as this node knows; `None` where it
    /// is over.
    pub fn until(&self) -> Option<Time> {
        self.ownership.record().lease_until()
    }

    /// Extends the lease from now.
    pub async fn renew(&self) -> Result<(), NotYours> {
        self.ownership.renew().await.map(drop).map_err(not_yours)
    }

    /// The effect of a [reserved](Intent::reserved) intent is about to begin.
    pub async fn start(&self) -> Result<(), NotYours> {
        self.ownership.start().await.map_err(not_yours)?;
        self.check()
    }

    /// Whether the effect may be sent now. To be asked right before its first byte leaves.
    pub fn check(&self) -> Result<(), NotYours> {
        if self.ownership.may_send() { Ok(()) } else { Err(NotYours::Lost) }
    }

    /// Stores how the attempt ended, and goes on trying until it is stored, also where the caller goes away meanwhile. Where
    /// the record is no longer this attempt's, yields what it says now.
    pub async fn finish(self, ending: Ending) -> Result<Stored, Told> {
        let ownership = self.ownership;
        ownership.close();
        let spawn = Arc::clone(&ownership.node.spawn);
        let guard = ownership.node.tasks.enter_anyway();
        let (reply, finished) = oneshot::channel();
        let torn_down = unknown(&ownership);
        spawn.spawn(Box::pin(async move {
            let _guard = guard;
            drop(reply.send(finish(&ownership, ending).await));
        }));
        finished.await.unwrap_or(Err(torn_down))
    }

    /// Gives the attempt back: nothing was sent.
    pub async fn give_back(self) -> Result<Stored, Told> {
        self.finish(Ending::NotApplied(None)).await
    }
}

async fn finish(ownership: &Ownership, ending: Ending) -> Result<Stored, Told> {
    let node = &ownership.node;
    let ending = node.sealed_ending(ownership, ending);
    match ownership.finish(ending.clone(), "").await {
        Finished::Stored(record) => {
            node.observe(&Event::Finished { operation: record.operation(), state: record.state_name() });
            node.cache.keep(ownership.id, &record, node.clock.uptime());
            Ok(telling::stored(node, &record))
        }
        Finished::Overtaken(reading) => Err(overtaken(ownership, &ending, &reading)),
        Finished::Never => Err(unknown(ownership)),
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("operation_id", &self.operation_id()).finish_non_exhaustive()
    }
}

fn not_yours(unwritten: Unwritten) -> NotYours {
    match unwritten {
        Unwritten::Refused(_) => NotYours::Lost,
        Unwritten::Store(error) => NotYours::Store(error),
        Unwritten::Clock => NotYours::ClockNotTrusted,
    }
}
