//! Clients: which key and payload each requests, on which node, and how often it retries.

use super::executor::TaskOwner;
use super::exercised::Exercised;
use super::response::Response;
use super::sabotage::Sabotage;
use super::work::{self, Job, WorkerBehaviour};
use super::world::{self, PAYLOADS, World};
use super::{provider, transaction};
use semel::core::policy::{Class, Policy};
use semel::{Engine, Intent};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// The requests of one client.
pub(crate) async fn live(world: Arc<World>) {
    for _ in 0..world.plan.requests {
        let long = world.chance().percent(15);
        let pause = if long { world.span(10_000, 45_000) } else { world.span(1, 6_000) };
        world.sleep(pause).await;
        let (key, payload) = {
            let mut chance = world.chance();
            let key = chance.index(world.plan.keys.len());
            let payload = if chance.percent(80) { 0 } else { chance.index(PAYLOADS) };
            (key, payload)
        };
        let tries = world.chance().between(1, 6);
        for _ in 0..tries {
            let response = request(&world, key, payload).await;
            if response.is_some_and(|response| !response.is_worth_a_retry()) {
                break;
            }
            let pause = world.span(10, 2_500);
            world.sleep(pause).await;
        }
    }
}

/// One request, to some node. `None` if there was no answer.
pub(crate) async fn request(world: &Arc<World>, key: usize, payload: usize) -> Option<Response> {
    let node = world.chance().index(world.plan.nodes);
    let engine = world.engine(node)?;
    let manner = WorkerBehaviour::draw(world);
    let slower = world.chance().percent(15);
    let terms = &world.plan.keys[key];
    let policy = Arc::clone(if slower { &terms.slower } else { &terms.policy });
    let (at, now) = (world.handle.now(), world.store_now());
    let call = {
        let mut audit = world.audit();
        let call = audit.call_started(at, now, key, payload, node);
        let text = format!("call {call} asks node {node} with payload {payload}, {manner:?}");
        audit.note(at, Some(key), text);
        call
    };
    let (reply, answer) = oneshot::channel();
    let job = Job { call, key, manner, policy: Arc::clone(&policy) };
    let handling = handle(Arc::clone(world), engine, node, intent(key, payload, policy, manner), job, reply);
    let task = world.spawn(TaskOwner::Node(node), handling);
    let hangs_up = !manner.is_by_hand() && world.chance().percent(8);
    let patience = if hangs_up { world.span(1, 1_500) } else { Duration::from_secs(20) };
    tokio::select! {
        biased;
        response = answer => response.ok(),
        () = world.sleep(patience) => {
            if hangs_up {
                hang_up(world, call, key, task);
            }
            None
        }
    }
}

fn hang_up(world: &World, call: usize, key: usize, task: u64) {
    world.count(Exercised::Cancelled);
    world.note(Some(key), format!("call {call} hangs up"));
    if world.is_sabotaged(Sabotage::CancelledWithCaller) {
        world.handle.cancel_with_children(task);
    } else {
        world.handle.cancel(task);
    }
}

async fn handle(
    world: Arc<World>,
    engine: Engine,
    node: usize,
    intent: Intent,
    job: Job,
    reply: oneshot::Sender<Response>,
) {
    let (call, unclaimed) = (job.call, job.sending(0));
    let response = if job.policy.class == Class::Local {
        transaction::transact(Arc::clone(&world), engine, intent, job, node).await
    } else if job.manner.is_by_hand() {
        work::by_hand(Arc::clone(&world), engine, intent, job).await
    } else {
        let working = Arc::clone(&world);
        engine.execute(intent, move |attempt| work::work(working, job, attempt)).await.into()
    };
    if matches!(response, Response::Quota) && world.is_sabotaged(Sabotage::SentWhenRefused) {
        drop(provider::send(&world, unclaimed));
    }
    world.audit().answered(world.handle.now(), world.store_now(), call, &response);
    drop(reply.send(response));
}

fn intent(key: usize, payload: usize, policy: Arc<Policy>, manner: WorkerBehaviour) -> Intent {
    let intent = Intent::new(world::scope(), world::name(key), policy, world::content(payload));
    if manner.reserves() { intent.reserved() } else { intent }
}
