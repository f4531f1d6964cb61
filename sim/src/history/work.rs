//! The work of an attempt, as users of the engine write it.
//!
//! What lives here: work that runs in the engine, workers that hold a lease by hand, and the ways in which either goes
//! wrong. What must never: an effect that is sent without the check that the contract asks for, unless sabotaged.

use super::exercised::Exercised;
use super::heard::Heard;
use super::provider::{self, Reply, Sending};
use super::sabotage::Sabotage;
use super::world::World;
use semel::core::classify::Ending;
use semel::core::policy::Policy;
use semel::time::ClockStatus;
use semel::{Attempt, Claimed, Ended, Engine, Intent, Lease, LeaseError};
use std::sync::Arc;
use std::time::Duration;

/// How a worker goes about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Sends as soon as the engine hands it the attempt.
    AtOnce,
    /// Does something else first, then asks whether it still may.
    ChecksFirst,
    /// Claims, does something else, starts, sends.
    Reserves,
    /// Panics before it has started.
    PanicsEarly,
    /// Panics after it has sent.
    PanicsLate,
    /// Does not start within its deadline.
    OverrunsEarly,
    /// Does not end within its deadline.
    OverrunsLate,
    /// Holds the lease by hand and renews it.
    ByHand,
    /// Holds the lease by hand and lets it lapse.
    Forgetful,
}

impl Manner {
    pub(crate) fn draw(world: &World) -> Self {
        if world.fault(world.plan.faults.bad_work) {
            let bad = [
                Self::PanicsEarly,
                Self::PanicsLate,
                Self::OverrunsEarly,
                Self::OverrunsLate,
                Self::Forgetful,
            ];
            return bad[world.chance().place(bad.len())];
        }
        match world.chance().below(10) {
            0..4 => Self::AtOnce,
            4..6 => Self::ChecksFirst,
            6..8 => Self::Reserves,
            _ => Self::ByHand,
        }
    }

    pub(crate) const fn is_by_hand(self) -> bool {
        matches!(self, Self::ByHand | Self::Forgetful)
    }

    pub(crate) const fn reserves(self) -> bool {
        matches!(self, Self::Reserves | Self::PanicsEarly | Self::OverrunsEarly)
    }

    /// Whether it leaves a doubt behind all by itself.
    pub(crate) const fn is_bad(self) -> bool {
        matches!(self, Self::PanicsLate | Self::OverrunsLate | Self::Forgetful)
    }
}

/// What is to be done.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) call: usize,
    pub(crate) key: usize,
    pub(crate) manner: Manner,
    pub(crate) policy: Arc<Policy>,
}

impl Job {
    pub(crate) fn sending(&self, fence: u64) -> Sending {
        Sending { call: self.call, key: self.key, fence, policy: Arc::clone(&self.policy) }
    }
}

/// Work that runs in the engine.
pub(crate) async fn work(world: Arc<World>, job: Job, attempt: Attempt) -> Ended {
    if job.manner.is_bad() {
        world.audit().touch(Some(job.key));
    }
    let unchecked = world.is_sabotaged(Sabotage::UncheckedSend);
    match job.manner {
        Manner::AtOnce if unchecked => nap(&world).await,
        Manner::ChecksFirst | Manner::PanicsLate => {
            nap(&world).await;
            if attempt.check().is_err() && !unchecked {
                return Ending::NotApplied(None).into();
            }
        }
        Manner::Reserves | Manner::PanicsEarly | Manner::OverrunsEarly => {
            nap(&world).await;
            if job.manner == Manner::PanicsEarly {
                panicking(&world);
            }
            if job.manner == Manner::OverrunsEarly {
                world.count(Exercised::Overrun);
                world.sleep(job.policy.work_deadline * 2).await;
            }
            if attempt.start().await.is_err() {
                return Ending::NotApplied(None).into();
            }
        }
        _ => {}
    }
    let answer = provider::send(&world, job.sending(attempt.fence()));
    match job.manner {
        Manner::PanicsLate => {
            nap(&world).await;
            panicking(&world);
        }
        Manner::OverrunsLate => {
            world.count(Exercised::Overrun);
            world.sleep(job.policy.work_deadline * 2).await;
        }
        _ => {}
    }
    match answer.await {
        Ok(reply) => reply.ending(&world).into(),
        // The provider never answers; long before this the engine has cut the work off.
        Err(_) => Ending::InDoubt.into(),
    }
}

async fn nap(world: &World) {
    let long = world.chance().percent(20);
    let span = if long { world.span(500, 1_500) } else { world.span(1, 100) };
    world.sleep(span).await;
}

/// A panic that tells nobody but whoever catches it.
fn panicking(world: &World) {
    world.count(Exercised::Panic);
    std::panic::resume_unwind(Box::new("the work panics"));
}

/// A worker that holds the lease by hand.
pub(crate) async fn by_hand(world: Arc<World>, engine: Engine, intent: Intent, job: Job) -> Heard {
    let mut lease = match engine.claim(&intent).await {
        Ok(Claimed::Leased(lease)) => lease,
        Ok(Claimed::Answered(answer)) => return answer.outcome.into(),
        Err(error) => return Heard::from(Err(error)),
    };
    world.count(Exercised::ByHand);
    // Such as one that speaks with a gateway, and knows nothing but what it was told: each request may reach another node.
    let comes_back = world.chance().percent(40);
    let forgetful = job.manner == Manner::Forgetful;
    if forgetful {
        world.audit().touch(Some(job.key));
    }
    nap(&world).await;
    let mut unchecked = world.is_sabotaged(Sabotage::UncheckedSend);
    if comes_back {
        if world.fault(world.plan.faults.bad_work) {
            world.audit().touch(Some(job.key));
            let late = world.span(2_000, 12_000);
            world.sleep(late).await;
        }
        match taken_up(&world, &lease, &job).await {
            Some(again) => lease = again,
            None if world.is_sabotaged(Sabotage::SentByTheLate) => unchecked = true,
            None => return Heard::GivenUp("the attempt is no longer its worker's"),
        }
    }
    // A worker that is not forgetful does not let its nap eat up the lease that the effect needs.
    let renewed = forgetful || unchecked || is_renewed(&world, &lease, &job).await;
    if !renewed || (lease.check().is_err() && !unchecked) {
        return ended(lease, Ending::NotApplied(None)).await;
    }
    let answer = provider::send(&world, job.sending(lease.fence()));
    if forgetful && world.chance().percent(30) {
        // Gone for good, without a word.
        drop(lease);
        return std::future::pending().await;
    }
    let ending = if let Some(reply) = wait(&world, &lease, &job, answer, forgetful).await {
        reply.ending(&world)
    } else {
        world.audit().touch(Some(job.key));
        Ending::InDoubt
    };
    if forgetful {
        world.sleep(job.policy.lease + job.policy.skew).await;
    }
    if comes_back {
        let Some(again) = taken_up(&world, &lease, &job).await else {
            // Whoever has the record now knows how it ended; this one has nothing to say.
            return std::future::pending().await;
        };
        lease = again;
    }
    ended(lease, ending).await
}

async fn is_renewed(world: &World, lease: &Lease, job: &Job) -> bool {
    let renewed = lease.renew().await;
    if let Err(LeaseError::ClockNotTrusted) = renewed {
        // Whoever has to wait for a right clock may lose the lease over it.
        world.audit().touch(Some(job.key));
    }
    renewed.is_ok()
}

/// The same attempt, as whichever node is up knows it by its token. `None` where it is no longer this worker's.
async fn taken_up(world: &Arc<World>, lease: &Lease, job: &Job) -> Option<Lease> {
    let (id, token) = (lease.id(), lease.token());
    loop {
        let node = world.chance().place(world.plan.nodes);
        if let Some(engine) = world.engine(node) {
            world.audit().goes_on(job.call, node);
            let is_untrusted = matches!(engine.clock_status(), ClockStatus::Untrusted(_));
            if world.handle.is_still(node) || is_untrusted {
                // What it is told there may be done long after.
                world.audit().touch(Some(job.key));
            }
            if let Ok(taken_up) = engine.lease(id, token).await {
                world.count(Exercised::ByToken);
                return taken_up;
            }
        }
        // The node is not up, or did not answer: the lease may be over before one does.
        world.audit().touch(Some(job.key));
        nap(world).await;
    }
}

/// Waits for the answer as long as the work may take, and keeps the lease meanwhile.
async fn wait(
    world: &World,
    lease: &Lease,
    job: &Job,
    mut answer: tokio::sync::oneshot::Receiver<Reply>,
    forgetful: bool,
) -> Option<Reply> {
    let mut left = job.policy.work_deadline;
    loop {
        let pause = (job.policy.lease / 4).min(left);
        tokio::select! {
            biased;
            reply = &mut answer => return reply.ok(),
            () = world.sleep(pause) => {}
        }
        left = left.saturating_sub(pause);
        if left.is_zero() {
            return None;
        }
        if !forgetful && lease.renew().await.is_err() {
            // The effect is sent: its answer counts all the same.
            left = left.saturating_sub(Duration::from_millis(1));
        }
    }
}

async fn ended(lease: Lease, ending: Ending) -> Heard {
    match lease.finish(ending.clone()).await {
        Ok(stored) => Heard::Ran { ending, stored: Some(stored) },
        Err(told) => told.into(),
    }
}
