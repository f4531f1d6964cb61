//! A local command that one part of a program recognises and another part runs in its transaction.
//!
//! Contents: who has the command meanwhile, and its result. For a layer that recognises requests and knows no
//! database, and the handlers behind it. Never here: a second command for the same request, or a join after the layer
//! has answered.

use super::{Entered, LocalCommand, LocalJudgement, Waiting};
use crate::answer::{Answer, Error, Told};
use crate::engine::Engine;
use crate::intent::Intent;
use crate::observe::Event;
use crate::quota::Permit;
use semel_core::id::OperationId;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How often a command is looked for while the hashing secret is being replaced.
const LOOKS_MAX: u32 = 4;

/// What came of [handing over](Engine::hand_over) a local command.
#[expect(
    clippy::large_enum_variant,
    reason = "an answer is what it nearly always is, and is handed on at once"
)]
pub enum HandedOver {
    /// It is to be run by anyone who joins it.
    Mine(Handover),
    /// It has an outcome, runs elsewhere, or is refused.
    Answered(Answer),
}

/// A local command that is handed to somebody who joins it in a transaction. Kept by anyone who answers for it:
/// [`close`](Self::close) says its result. Twins in this process wait for as long as it is not joined.
pub struct Handover {
    shared: Arc<Shared>,
}

/// Something to join with: a local command that was recognised already.
///
/// A layer hands it to the handler of a request. The handler gives its [intent](Self::intent) to whatever joins a
/// transaction, such as `transact` of the crate `semel-tx`, and anyone who handed it over learns what came of that.
#[derive(Clone)]
pub struct Joinable {
    shared: Arc<Shared>,
}

/// What came of a [`Handover`].
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "an answer is what it nearly always is, and is handed on at once"
)]
pub enum HandoverOutcome {
    /// It was joined, and this is the answer to its caller.
    Answered(Answer),
    /// It was joined, and nothing is known to have been committed: the transaction was rolled back, or its commit is
    /// in doubt. The next call with the key finds out.
    NotCommitted,
    /// It was never joined. An alarm was raised.
    NeverJoined,
}

pub(crate) struct Shared {
    intent: Intent,
    operation_id: OperationId,
    state: Mutex<State>,
}

#[expect(clippy::large_enum_variant, reason = "it ends as an answer, and there is one for each request")]
enum State {
    /// Nobody has joined it yet.
    Waiting(Box<LocalCommand>),
    Joined,
    Ended(Answer),
    /// Anyone who answers for it has answered.
    Closed,
}

impl Engine {
    /// Recognises a command of class `local` for somebody else to run. Answers itself if there is nothing to run:
    /// replays, another payload, a duplicate that stays in progress for longer than the intent waits.
    pub async fn hand_over(&self, intent: Intent) -> Result<HandedOver, Error> {
        let mut command = match self.enter_local(intent.clone(), Waiting::Allowed).await? {
            Entered::Answered(answer) => return Ok(HandedOver::Answered(answer)),
            Entered::Mine(command) => command,
        };
        if let Some(answer) = command.known_answer().await? {
            return Ok(HandedOver::Answered(answer));
        }
        let operation_id = command.operation_id();
        let state = Mutex::new(State::Waiting(Box::new(command)));
        Ok(HandedOver::Mine(Handover { shared: Arc::new(Shared { intent, operation_id, state }) }))
    }
}

impl LocalCommand {
    /// The answer, where the store has one and nothing is to be run.
    async fn known_answer(&mut self) -> Result<Option<Answer>, Error> {
        for _ in 0..LOOKS_MAX {
            loop {
                self.refresh()?;
                let look = self.look().await?;
                match self.judge(look).await? {
                    LocalJudgement::Run(attempt) => {
                        // Anyone who joins it is let in by the quotas, and counted.
                        attempt.permit.into_iter().for_each(Permit::refund);
                        return Ok(None);
                    }
                    LocalJudgement::Answered(answer) => return Ok(Some(answer)),
                    LocalJudgement::Wait if self.pause().await => {}
                    LocalJudgement::Wait => return Ok(Some(self.in_progress())),
                    LocalJudgement::Again => break,
                }
            }
        }
        // Anyone who joins it looks again.
        Ok(None)
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody joins: yields the command, the first time.
    pub(super) fn join(&self) -> Result<Option<LocalCommand>, Error> {
        let mut state = self.state();
        match std::mem::replace(&mut *state, State::Joined) {
            State::Waiting(command) => Ok(Some(*command)),
            State::Joined => Ok(None),
            // Anyone who asks again is answered again.
            ended @ State::Ended(_) => {
                *state = ended;
                Ok(None)
            }
            State::Closed => {
                *state = State::Closed;
                Err(Error::HandlerReturned)
            }
        }
    }

    /// What anyone who joined was told. What it committed itself is not told over.
    pub(super) fn answered(&self, answer: &Answer) {
        let mut state = self.state();
        let has_committed = matches!(&*state, State::Ended(Answer { told: Told::Ran(_), .. }));
        if !has_committed && !matches!(&*state, State::Closed) {
            *state = State::Ended(answer.clone());
        }
    }
}

impl Handover {
    /// The public name of the command.
    pub fn operation_id(&self) -> OperationId {
        self.shared.operation_id
    }

    /// What is handed over.
    pub fn joinable(&self) -> Joinable {
        Joinable { shared: Arc::clone(&self.shared) }
    }

    /// Anyone who it was handed to has returned: says its result. From here on nobody can join it.
    pub fn close(self) -> HandoverOutcome {
        let state = std::mem::replace(&mut *self.shared.state(), State::Closed);
        match state {
            State::Ended(answer) => HandoverOutcome::Answered(answer),
            State::Joined | State::Closed => HandoverOutcome::NotCommitted,
            State::Waiting(command) => {
                let operation = command.recognised.command().operation;
                let operation_id = self.shared.operation_id;
                let event = Event::Unfinished { operation_id, operation: &operation, is_committed: false };
                command.node.observe(&event);
                HandoverOutcome::NeverJoined
            }
        }
    }
}

/// Anyone who answers for it has gone: nobody joins it any more. What was joined already goes on.
impl Drop for Handover {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        if matches!(&*state, State::Waiting(_)) {
            *state = State::Closed;
        }
    }
}

impl Joinable {
    /// The public name of the command: the same on every attempt.
    pub fn operation_id(&self) -> OperationId {
        self.shared.operation_id
    }

    /// The intent, for whatever joins a transaction. If that fails and nothing was committed, it may be joined again.
    pub fn intent(&self) -> Intent {
        let handover = Some(Arc::clone(&self.shared));
        Intent { handover, ..self.shared.intent.clone() }
    }
}

impl fmt::Debug for Joinable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Joinable").field("operation_id", &self.shared.operation_id).finish_non_exhaustive()
    }
}

impl fmt::Debug for Handover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handover").field("operation_id", &self.shared.operation_id).finish_non_exhaustive()
    }
}
