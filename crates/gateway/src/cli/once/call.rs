//! One call: who runs the program, this process or nobody.

use super::arguments::Args;
use super::program::signals::{self, Signals};
use super::program::{End, NotStarted, Program, Run};
use super::stored;
use semel::core::classify::Ending;
use semel::core::machine;
use semel::{Attempt, Engine, Error, ExecuteResponse, FoundRecord, Intent, RequestOutcome, WorkResult};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::sleep;

/// How long one look at a running duplicate lasts. After each, its lease is judged again: a waiter never takes over.
const LOOK: Duration = Duration::from_secs(2);
/// How long to wait for a new node of a store to be sure that a lease has expired: longer than it has to watch the others.
const JUDGED_WITHIN: Duration = Duration::from_mins(1);

/// The result of a call.
pub(super) struct Called {
    /// `None`: a signal came before anything ran.
    pub(super) response: Option<Result<ExecuteResponse, Error>>,
    /// What this process ran.
    pub(super) run: Option<Run>,
}

/// Whether this call runs the program. Decided once: by the work, or by a signal that ends the waiting.
#[derive(Default)]
enum Stage {
    #[default]
    Waiting,
    Running,
    Ran(Run),
    Abandoned,
}

/// What the work and the caller share.
struct Call {
    program: Program,
    again_on: Vec<u8>,
    signals: Signals,
    stage: Mutex<Stage>,
}

impl Call {
    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves the waiting stage, unless somebody already has.
    fn leave_waiting(&self, next: Stage) -> bool {
        let mut stage = self.stage();
        let is_waiting = matches!(*stage, Stage::Waiting);
        if is_waiting {
            *stage = next;
        }
        is_waiting
    }

    async fn work(self: Arc<Self>, attempt: Attempt) -> WorkResult {
        // Before the stage changes, so that no signal is lost between the two.
        let signals = self.signals.subscribe();
        if !self.leave_waiting(Stage::Running) {
            return WorkResult::from(Ending::NotApplied(None)).because("stopped by a signal before it ran");
        }
        let run = self.program.run(&attempt, signals).await;
        let result = self.result(&run);
        *self.stage() = Stage::Ran(run);
        result
    }

    fn result(&self, run: &Run) -> WorkResult {
        let stored = |code| {
            let [stdout, stderr] = run.outputs.as_ref()?;
            Some(stored::outcome(code, &stdout.tail, &stderr.tail))
        };
        let in_doubt = |why: String| WorkResult::from(Ending::InDoubt).because(why);
        match run.end {
            End::NotStarted(NotStarted::Interrupted) => {
                WorkResult::from(Ending::NotApplied(None)).because("stopped by a signal before it ran")
            }
            End::NotStarted(_) => {
                WorkResult::from(Ending::NotApplied(None)).because("the program could not be started")
            }
            End::Exited(code) => {
                let ending = match stored(code) {
                    None => return in_doubt("the program's output is lost".to_owned()),
                    Some(outcome) if code == 0 => Ending::Succeeded(outcome),
                    Some(outcome) if u8::try_from(code).is_ok_and(|code| self.again_on.contains(&code)) => {
                        Ending::NotApplied(Some(outcome))
                    }
                    Some(outcome) => Ending::FailedReplayable(outcome),
                };
                WorkResult::from(ending).because(format!("exit code {code}"))
            }
            End::Killed(signal) => in_doubt(format!("the program was killed by signal {signal}")),
            End::TimedOut => in_doubt("the program ran longer than its timeout".to_owned()),
            End::LeaseLost => in_doubt("the program was stopped because its lease was lost".to_owned()),
            End::Lost => in_doubt("the system did not report how the program ended".to_owned()),
        }
    }
}

/// Calls the program under its key, and waits for a running one as long as `args` allow.
pub(super) async fn call(
    engine: &Engine,
    args: &Args,
    intent: Intent,
    program: Program,
    signals: Signals,
) -> Called {
    let mut stopped = signals.subscribe();
    let again_on = args.again_on.clone();
    let call = Arc::new(Call { program, again_on, signals, stage: Mutex::default() });
    let mut attempt = Box::pin(attempt(engine, args.wait, &intent, &call));
    let response = tokio::select! {
        biased;
        response = &mut attempt => Some(response),
        _ = signals::next(&mut stopped) => {
            if call.leave_waiting(Stage::Abandoned) { None } else { Some(attempt.await) }
        }
    };
    let run = match std::mem::take(&mut *call.stage()) {
        Stage::Ran(run) => Some(run),
        // The engine gave up on it.
        Stage::Running => Some(Run { end: End::Lost, outputs: None }),
        Stage::Waiting | Stage::Abandoned => None,
    };
    Called { response, run }
}

async fn attempt(
    engine: &Engine,
    wait: Duration,
    intent: &Intent,
    call: &Arc<Call>,
) -> Result<ExecuteResponse, Error> {
    let (mut left, mut unjudged) = (wait, JUDGED_WITHIN);
    loop {
        let look = left.min(LOOK);
        let work = Arc::clone(call);
        let response =
            engine.execute(intent.clone().waiting(look), move |attempt| work.work(attempt)).await?;
        if !matches!(response.outcome, RequestOutcome::InProgress { .. }) {
            return Ok(response);
        }
        left -= look;
        if !left.is_zero() {
            continue;
        }
        let found = engine.look_up(response.operation_id).await.ok();
        if unjudged.is_zero() || !found.is_some_and(|found| is_abandoned(&found)) {
            return Ok(response);
        }
        unjudged = unjudged.saturating_sub(LOOK);
        sleep(LOOK).await;
    }
}

/// Whether the lease has expired by the store's time, although this node, which is new, does not judge it yet.
fn is_abandoned(found: &FoundRecord) -> bool {
    machine::is_lease_dead(&found.record, found.now.at)
}
