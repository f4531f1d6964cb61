//! Claims for workers that run outside the engine.
//!
//! Workers claim, start, renew, finish and give back, one call each. A silent worker's claim stays until its lease
//! expires, and is then judged like any other.

use crate::call::answer::{Error, ExecuteResponse, GivenUp, RequestOutcome, Stored};
use crate::call::attempt::LeaseError;
use crate::call::claim::{self, Claim, FoundEntry};
use crate::call::conduct::{overtaken, report_fenced, unknown};
use crate::call::engine::{Engine, judged};
use crate::call::found_record::FoundRecord;
use crate::call::intent::Intent;
use crate::call::recognise::RecognisedIntent;
use crate::call::reply::{self, Subject};
use crate::call::wait::{self, Waiter};
use crate::node::Node;
use crate::node::ownership::{Finished, Ownership, WriteError};
use crate::observe::Event;
use crate::sealing::Seal;
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

/// An attempt of a worker outside the engine. The worker has to renew it; dropping it releases nothing.
#[must_use = "a claim blocks its key until it is finished or given back, or its lease expires"]
pub struct Lease {
    ownership: Arc<Ownership>,
}

/// The result of [`Engine::claim`].
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "each is matched once and not kept")]
pub enum Claimed {
    /// You own the attempt.
    Leased(Lease),
    /// There is nothing to run; this is the answer.
    Answered(ExecuteResponse),
}

impl Engine {
    /// Claims `intent` for a worker that runs it itself. Does not wait for a running duplicate.
    ///
    /// If the caller goes away before it has its lease, the lease is given back.
    pub async fn claim(&self, intent: &Intent) -> Result<Claimed, Error> {
        let guard = self.node.tasks.enter().ok_or(Error::Closing)?;
        let recognised = RecognisedIntent::new(&self.node, intent.clone())?;
        let node = Arc::clone(&self.node);
        let (reply, claimed) = oneshot::channel();
        self.node.spawn.spawn(Box::pin(async move {
            let _guard = guard;
            let lost_claims = claim_by_hand(&node, &recognised, reply).await;
            claim::give_back(&node, lost_claims);
        }));
        // No answer: the task was dropped, and nobody got its claim.
        claimed.await.unwrap_or(Err(Error::Closing))
    }

    /// Waits for a running attempt of the same command, at most for the [wait](Intent::waiting) of `intent`, and
    /// returns the answer for a duplicate. Use it after [`claim`](Self::claim) answered "in progress". Never begins
    /// an attempt.
    pub async fn attend(&self, intent: &Intent) -> Result<ExecuteResponse, Error> {
        let node = &self.node;
        let asked = node.clock.uptime();
        let waiter = Waiter { asked, until: asked + intent.wait.unwrap_or(node.settings.wait) };
        let recognised = RecognisedIntent::new(node, intent.clone())?;
        let found = claim::look(&node.store, &recognised).await?;
        Ok(wait::for_remote(node, &recognised.command(), found, None, waiter).await?)
    }

    /// An earlier lease, by its command and token: for a worker that returns in another request. `None` if the record
    /// no longer belongs to that attempt.
    pub async fn lease(&self, id: CommandId, token: Token) -> Result<Option<Lease>, store::Error> {
        let asked = self.node.clock.uptime();
        let reading = self.node.store.get(id).await?;
        let record = reading.record().filter(|record| record.token() == token);
        Ok(record.map(|record| self.lease_on(id, record, asked, reading.now)))
    }

    /// The same for a record that was just looked up.
    pub fn lease_of(&self, looked: &FoundRecord, token: Token) -> Option<Lease> {
        let FoundRecord { id, record, .. } = looked;
        let now = self.node.clock.now_at_the_latest().at;
        (record.token() == token).then(|| self.lease_on(*id, record, self.node.clock.uptime(), now))
    }

    /// A worker reported `ending` for the attempt with this token, which is no longer the record's current one. The
    /// observer is notified
    /// as it is of a refused [`Lease::finish`]. Returns whether the record contradicts the report: then the effect
    /// may have happened twice, and an operator has to look at it.
    pub fn report_superseded(&self, looked: &FoundRecord, token: Token, ending: &Ending) -> bool {
        let FoundRecord { id, record, .. } = looked;
        report_fenced(&self.node, (*id, record), Found::Record(record), token, ending)
    }

    /// A lease on a record that was in the store at `now`, not before the uptime `asked`.
    fn lease_on(&self, id: CommandId, record: &Record, asked: Duration, now: Time) -> Lease {
        // Only the dates tell how long ago the owner wrote, because that may have been in another process.
        let held_since = asked.saturating_sub(machine::held_for(record, now));
        // The original setting is not known any more: seal if there are keys.
        let ownership =
            Ownership::new(Arc::clone(&self.node), id, record.clone(), held_since, Seal::default());
        Lease { ownership: Arc::new(ownership) }
    }
}

/// Returns the claims whose fate is not known.
async fn claim_by_hand(
    node: &Arc<Node>,
    recognised: &RecognisedIntent,
    reply: oneshot::Sender<Result<Claimed, Error>>,
) -> Vec<claim::LostClaim> {
    let command = recognised.command();
    let answered = |id, found, reply| reply::answer(node, &Subject::under(id, &command), found, reply);
    match claim::claim(node, recognised).await {
        Ok(Claim::Owned(ownership)) => {
            let record = ownership.record();
            node.observe(&Event::Claimed { operation: record.operation(), attempt: record.attempt() });
            let lease = Lease { ownership: Arc::new(ownership) };
            if let Err(Ok(Claimed::Leased(lease))) = reply.send(Ok(Claimed::Leased(lease))) {
                lease
                    .ownership
                    .abandon("the caller was gone before it got the claim, and nothing was sent")
                    .await;
            }
        }
        Ok(Claim::Judged(FoundEntry { id, reading })) => {
            let judged = judged(node, &command, &reading);
            drop(reply.send(Ok(Claimed::Answered(answered(id, reading.found(), judged)))));
        }
        Ok(Claim::MarkedUnknown(id)) => {
            drop(reply.send(Ok(Claimed::Answered(answered(id, Found::Nothing, Reply::Unknown)))));
        }
        Ok(Claim::Lapsed(ownership)) => {
            drop(reply.send(Err(Error::GivenUp(GivenUp::Lapsed))));
            ownership.abandon(claim::LAPSED).await;
        }
        Err(failed) => {
            drop(reply.send(Err(failed.error)));
            return failed.lost_claims;
        }
    }
    Vec::new()
}

impl Lease {
    /// The command ID.
    pub fn id(&self) -> CommandId {
        self.ownership.id
    }

    /// The record as this node last knew it.
    pub fn record(&self) -> Arc<Record> {
        self.ownership.record()
    }

    /// The token that proves ownership. Anyone who knows it can end the attempt.
    pub fn token(&self) -> Token {
        self.ownership.token
    }

    /// The operation ID.
    pub fn operation_id(&self) -> OperationId {
        self.ownership.record().operation_id()
    }

    /// The number of the attempt.
    pub fn attempt(&self) -> u32 {
        self.ownership.record().attempt()
    }

    /// Grows with every attempt.
    pub fn fence(&self) -> u64 {
        self.ownership.record().fence()
    }

    /// Until when the lease is valid by the store's clock, as far as this node knows; `None` if it is over.
    pub fn until(&self) -> Option<Time> {
        self.ownership.record().lease_until()
    }

    /// Extends the lease from now.
    pub async fn renew(&self) -> Result<(), LeaseError> {
        self.ownership.renew().await.map(drop).map_err(lease_error)
    }

    /// The effect of a [reserved](Intent::reserved) intent is about to begin.
    pub async fn start(&self) -> Result<(), LeaseError> {
        self.ownership.start().await.map_err(lease_error)?;
        self.check()
    }

    /// Checks that the effect may be sent now. Call it right before you send.
    pub fn check(&self) -> Result<(), LeaseError> {
        if self.ownership.may_send() { Ok(()) } else { Err(LeaseError::Lost) }
    }

    /// Stores how the attempt ended, and keeps trying until it is stored, even if the caller goes away. If the record
    /// no longer belongs to this attempt, returns what the record says now.
    pub async fn finish(self, ending: Ending) -> Result<Stored, RequestOutcome> {
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
    pub async fn give_back(self) -> Result<Stored, RequestOutcome> {
        self.finish(Ending::NotApplied(None)).await
    }
}

async fn finish(ownership: &Ownership, ending: Ending) -> Result<Stored, RequestOutcome> {
    let node = &ownership.node;
    let ending = node.sealing.seal_ending(ownership.id, ownership.seal, ending);
    match ownership.finish(ending.clone(), "").await {
        Finished::Stored(record) => {
            node.observe(&Event::Finished { operation: record.operation(), state: record.state_name() });
            node.cache.keep(ownership.id, &record, ownership.held_since());
            Ok(reply::stored(&node.clock, &record))
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

fn lease_error(error: WriteError) -> LeaseError {
    match error {
        WriteError::Refused(_) => LeaseError::Lost,
        WriteError::Store(error) => LeaseError::Store(error),
        WriteError::Clock => LeaseError::ClockNotTrusted,
    }
}
