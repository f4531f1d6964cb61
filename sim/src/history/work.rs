//! The work of an attempt, as users of the engine write it.
//!
//! Work that runs in the engine, workers that hold a lease themselves, and how either goes wrong. Unless sabotaged,
//! every effect is sent only after the check that the contract requires.

use super::exercised::Exercised;
use super::provider::{self, Reply, Sending};
use super::response::Response;
use super::sabotage::Sabotage;
use super::world::World;
use semel::core::classify::Ending;
use semel::core::policy::Policy;
use semel::time::ClockStatus;
use semel::{Attempt, Claimed, Engine, Intent, Lease, LeaseError, WorkResult};
use std::sync::Arc;
use std::time::Duration;

/// How a worker behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkerBehaviour {
    /// Sends as soon as it gets the attempt.
    AtOnce,
    /// Does something else first, then checks that it still may.
    ChecksFirst,
    /// Claims, does something else, starts, sends.
    Reserves,
    /// Panics before it starts.
    PanicsEarly,
    /// Panics after it has sent.
    PanicsLate,
    /// Does not start within its deadline.
    OverrunsEarly,
    /// Does not end within its deadline.
    OverrunsLate,
    /// Holds the lease itself and renews it.
    ByHand,
    /// Holds the lease itself and lets it expire.
    Forgetful,
}

impl WorkerBehaviour {
    pub(crate) fn draw(world: &World) -> Self {
        if world.fault(world.plan.faults.bad_work) {
            let bad = [
                Self::PanicsEarly,
                Self::PanicsLate,
                Self::OverrunsEarly,
                Self::OverrunsLate,
                Self::Forgetful,
            ];
            return bad[world.chance().index(bad.len())];
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

    /// Whether it causes a doubt by itself.
    pub(crate) const fn is_bad(self) -> bool {
        matches!(self, Self::PanicsLate | Self::OverrunsLate | Self::Forgetful)
    }
}

/// A piece of work.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) call: usize,
    pub(crate) key: usize,
    pub(crate) manner: WorkerBehaviour,
    pub(crate) policy: Arc<Policy>,
}

impl Job {
    pub(crate) fn sending(&self, fence: u64) -> Sending {
        Sending { call: self.call, key: self.key, fence, policy: Arc::clone(&self.policy) }
    }
}

/// Work that runs in the engine.
pub(crate) async fn work(world: Arc<World>, job: Job, attempt: Attempt) -> WorkResult {
    if job.manner.is_bad() {
        world.audit().touch(Some(job.key));
    }
    let unchecked = world.is_sabotaged(Sabotage::UncheckedSend);
    match job.manner {
        WorkerBehaviour::AtOnce if unchecked => do_something_else(&world).await,
        WorkerBehaviour::ChecksFirst | WorkerBehaviour::PanicsLate => {
            do_something_else(&world).await;
            if attempt.check().is_err() && !unchecked {
                return Ending::NotApplied(None).into();
            }
        }
        WorkerBehaviour::Reserves | WorkerBehaviour::PanicsEarly | WorkerBehaviour::OverrunsEarly => {
            do_something_else(&world).await;
            if job.manner == WorkerBehaviour::PanicsEarly {
                panicking(&world);
            }
            if job.manner == WorkerBehaviour::OverrunsEarly {
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
        WorkerBehaviour::PanicsLate => {
            do_something_else(&world).await;
            panicking(&world);
        }
        WorkerBehaviour::OverrunsLate => {
            world.count(Exercised::Overrun);
            world.sleep(job.policy.work_deadline * 2).await;
        }
        _ => {}
    }
    match answer.await {
        Ok(reply) => reply.ending(&world).into(),
        // The provider never answers; the engine cancels the work long before this.
        Err(_) => Ending::InDoubt.into(),
    }
}

async fn do_something_else(world: &World) {
    let long = world.chance().percent(20);
    let span = if long { world.span(500, 1_500) } else { world.span(1, 100) };
    world.sleep(span).await;
}

/// A panic without output.
fn panicking(world: &World) {
    world.count(Exercised::Panic);
    std::panic::resume_unwind(Box::new("the work panics"));
}

/// A worker that holds the lease itself.
pub(crate) async fn by_hand(world: Arc<World>, engine: Engine, intent: Intent, job: Job) -> Response {
    let mut lease = match engine.claim(&intent).await {
        Ok(Claimed::Leased(lease)) => lease,
        Ok(Claimed::Answered(answer)) => return answer.outcome.into(),
        Err(error) => return Response::from(Err(error)),
    };
    world.count(Exercised::ByHand);
    // For example one behind a gateway, which only knows its token: each request may reach another node.
    let comes_back = world.chance().percent(40);
    let forgetful = job.manner == WorkerBehaviour::Forgetful;
    if forgetful {
        world.audit().touch(Some(job.key));
    }
    do_something_else(&world).await;
    let mut unchecked = world.is_sabotaged(Sabotage::UncheckedSend);
    if comes_back {
        if world.fault(world.plan.faults.bad_work) {
            world.audit().touch(Some(job.key));
            let late = world.span(2_000, 12_000);
            world.sleep(late).await;
        }
        match resumed_lease(&world, &lease, &job).await {
            Some(again) => lease = again,
            None if world.is_sabotaged(Sabotage::SentByTheLate) => unchecked = true,
            None => return Response::GivenUp("the attempt is no longer its worker's"),
        }
    }
    // A careful worker does not sleep through the lease that the effect needs.
    let renewed = forgetful || unchecked || is_renewed(&world, &lease, &job).await;
    if !renewed || (lease.check().is_err() && !unchecked) {
        return ended(lease, Ending::NotApplied(None)).await;
    }
    let answer = provider::send(&world, job.sending(lease.fence()));
    if forgetful && world.chance().percent(30) {
        // It never comes back.
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
        let Some(again) = resumed_lease(&world, &lease, &job).await else {
            // The current owner of the record knows the outcome; this worker reports nothing.
            return std::future::pending().await;
        };
        lease = again;
    }
    ended(lease, ending).await
}

async fn is_renewed(world: &World, lease: &Lease, job: &Job) -> bool {
    let renewed = lease.renew().await;
    if let Err(LeaseError::ClockNotTrusted) = renewed {
        // A worker that waits for a correct clock may lose the lease.
        world.audit().touch(Some(job.key));
    }
    renewed.is_ok()
}

/// The same attempt, found by its token on any running node. `None` if it is no longer this worker's.
async fn resumed_lease(world: &Arc<World>, lease: &Lease, job: &Job) -> Option<Lease> {
    let (id, token) = (lease.id(), lease.token());
    loop {
        let node = world.chance().index(world.plan.nodes);
        if let Some(engine) = world.engine(node) {
            world.audit().continues_on(job.call, node);
            let is_untrusted = matches!(engine.clock_status(), ClockStatus::Untrusted(_));
            if world.handle.is_paused(node) || is_untrusted {
                // The lease it gets there may be used long after.
                world.audit().touch(Some(job.key));
            }
            if let Ok(resumed_lease) = engine.lease(id, token).await {
                world.count(Exercised::ByToken);
                return resumed_lease;
            }
        }
        // The node is down or did not answer: the lease may end before another one answers.
        world.audit().touch(Some(job.key));
        do_something_else(world).await;
    }
}

/// Waits for the answer until the work deadline, and keeps the lease meanwhile.
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
            // The effect is sent: its answer counts anyway.
            left = left.saturating_sub(Duration::from_millis(1));
        }
    }
}

async fn ended(lease: Lease, ending: Ending) -> Response {
    match lease.finish(ending.clone()).await {
        Ok(stored) => Response::Ran { ending, stored: Some(stored) },
        Err(outcome) => outcome.into(),
    }
}
