//! Local commands: claim, effect and outcome in one step of the store.
//!
//! The application's own database, as an engine sees it: its writes commit with the record or not at all. Unless
//! sabotaged, nothing happens between record and effect. It has no locks, so only the conditional write decides; but it
//! ends a transaction that waits for its process longer than the process has asked for, as PostgreSQL does.

use super::audit::Effect;
use super::exercised::Exercised;
use super::network::Network;
use super::response::Response;
use super::work::{Job, WorkerBehaviour};
use super::world::World;
use semel::core::outcome::Outcome;
use semel::core::store::Written;
use semel::core::time::Time;
use semel::local::{
    EnterResult, Interrupted, LocalAttempt, LocalCommand, LocalEnding, LocalJudgement, LocalWrites, Waiting,
};
use semel::{Engine, ExecuteResponse, Intent};
use std::sync::Arc;
use std::time::Duration;

/// How often a command is retried after another one was faster.
const TRIES_MAX: u32 = 10;

/// Runs a local command, as an application does.
pub(crate) async fn transact(
    world: Arc<World>,
    engine: Engine,
    intent: Intent,
    job: Job,
    node: usize,
) -> Response {
    let command = match engine.enter_local(intent, Waiting::Allowed).await {
        Ok(EnterResult::Answered(answer)) => return answer.outcome.into(),
        Ok(EnterResult::Owned(command)) => command,
        Err(error) => return Response::from(Err(error)),
    };
    let conducted = command.conduct(move |command| conduct(world, command, job, node)).await;
    match conducted {
        Ok(Some(response)) => response,
        Ok(None) => Response::CommitInDoubt,
        Err(error) => Response::from(Err(error)),
    }
}

async fn conduct(world: Arc<World>, mut command: LocalCommand, job: Job, node: usize) -> Response {
    let mut tries = 0;
    loop {
        let begun_at = world.store_now();
        let judged = match command.refresh() {
            Ok(()) => match command.look().await {
                Ok(look) => command.judge(look).await,
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        match judged {
            Err(error) => return Response::from(Err(error)),
            Ok(LocalJudgement::Answered(answer)) => return answer.outcome.into(),
            Ok(LocalJudgement::Wait) => {
                if !command.pause().await {
                    return command.in_progress().outcome.into();
                }
                continue;
            }
            Ok(LocalJudgement::Run(attempt)) => {
                match attempt_once(&world, &command, &job, node, (begun_at, attempt)).await {
                    Tried::Committed(attempt, writes) => {
                        world.count(Exercised::Local);
                        let ExecuteResponse { outcome, .. } = command.committed(attempt, *writes);
                        return outcome.into();
                    }
                    Tried::Response(response) => return response,
                    Tried::Again => {}
                }
            }
            Ok(LocalJudgement::Again) => {}
        }
        tries += 1;
        if tries == TRIES_MAX {
            return Response::GivenUp("others were faster");
        }
        command.back_off().await;
    }
}

/// The result of one transaction.
enum Tried {
    Committed(LocalAttempt, Box<LocalWrites>),
    Response(Response),
    /// Rolled back: another one was faster.
    Again,
}

async fn attempt_once(
    world: &Arc<World>,
    command: &LocalCommand,
    job: &Job,
    node: usize,
    (begun_at, attempt): (Time, LocalAttempt),
) -> Tried {
    let rolled_back = |attempt, why| {
        command.rolled_back(attempt);
        Tried::Response(Response::GivenUp(why))
    };
    match command.until_interrupted(&attempt, work(world, job)).await {
        Ok(true) => {}
        Ok(false) => {
            command.panicked(&attempt);
            return rolled_back(attempt, "the work panicked");
        }
        Err(Interrupted::Overran) => return rolled_back(attempt, "the work took too long"),
        Err(Interrupted::Closing) => return rolled_back(attempt, "the node shuts down"),
    }
    let fence = attempt.local().fence;
    let is_refused = world.chance().percent(20);
    let answer = |status, body: &str| Outcome::http(status, [("x-provider", "1")], body.to_owned());
    let (effect, ending) = if is_refused {
        (None, LocalEnding::Refused(answer(422, "refused")))
    } else {
        let name = format!("row of call {} with fence {fence}", job.call);
        let ending = LocalEnding::Succeeded(answer(201, &name));
        (Some((job.key, Effect { call: job.call, fence, name })), ending)
    };
    let Ok(writes) = command.end(&attempt, ending) else {
        return rolled_back(attempt, "its outcome cannot be dated, or its secret is old");
    };
    if world.store_now().since(begun_at) > command.idle_max() {
        command.rolled_back(attempt);
        return Tried::Again;
    }
    let network = Network::new(Arc::clone(world), node);
    let unanswered = command.committing(&writes);
    let committing = network.commit(writes.id, &writes.write, effect);
    match command.timeouts().bounded(committing).await {
        Some(Ok(Written::Done { .. })) => {
            unanswered.answered();
            Tried::Committed(attempt, Box::new(writes))
        }
        Some(Ok(Written::Refused(_))) => {
            unanswered.answered();
            command.rolled_back(attempt);
            Tried::Again
        }
        Some(Err(error)) if !error.is_ambiguous() => {
            unanswered.answered();
            command.rolled_back(attempt);
            Tried::Response(Response::Store(error.kind()))
        }
        Some(Err(_)) | None => {
            drop(unanswered);
            if command.was_applied(&writes).await {
                return Tried::Committed(attempt, Box::new(writes));
            }
            // Its absence is no proof: it may still arrive.
            world.count(Exercised::CommitInDoubt);
            command.commit_in_doubt(&attempt);
            Tried::Response(Response::CommitInDoubt)
        }
    }
}

/// The application's writes in its transaction. `false` if it panics.
async fn work(world: &World, job: &Job) -> bool {
    let span = world.span(1, 300);
    world.sleep(span).await;
    match job.manner {
        WorkerBehaviour::PanicsEarly | WorkerBehaviour::PanicsLate => {
            world.count(Exercised::Panic);
            false
        }
        WorkerBehaviour::OverrunsEarly | WorkerBehaviour::OverrunsLate => {
            world.count(Exercised::Overrun);
            world.sleep(job.policy.work_deadline + Duration::from_secs(1)).await;
            true
        }
        _ => true,
    }
}
