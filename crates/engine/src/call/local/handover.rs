//! A local command that one part of a program recognises and another part runs in its transaction.
//!
//! The command between recognition and transaction, and its result. For a layer that recognises requests without a
//! database, and the handlers behind it. A request has only one command, and it cannot be joined after the layer has
//! answered.

use super::{EnterResult, LocalCommand, LocalJudgement, Waiting};
use crate::call::answer::{Error, ExecuteResponse, RequestOutcome};
use crate::call::engine::Engine;
use crate::call::intent::Intent;
use crate::observe::Event;
use crate::quota::Permit;
use semel_core::id::OperationId;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How often a command is looked for during a rotation of the hashing secret.
const LOOKS_MAX: u32 = 4;

/// The result of [`Engine::hand_over`].
#[expect(clippy::large_enum_variant, reason = "it is nearly always an answer, and is passed on immediately")]
pub enum HandoverResult {
    /// The handler has to run it by joining it.
    Owned(Handover),
    /// It has an outcome, runs elsewhere, or is refused.
    Answered(ExecuteResponse),
}

/// A local command for a handler that joins it in a transaction. The layer that answers the request keeps it:
/// [`close`](Self::close) returns the result. Duplicates in this process wait until it is joined and ended.
pub struct Handover {
    shared: Arc<Shared>,
}

/// A recognised local command, to be joined in a transaction.
///
/// A layer passes it to the handler of a request. The handler passes its [intent](Self::intent) to a function that
/// joins a transaction, such as `transact` of the crate `semel-tx`. The layer gets the result.
#[derive(Clone)]
pub struct Joinable {
    shared: Arc<Shared>,
}

/// The result of a [`Handover`].
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it is nearly always an answer, and is passed on immediately")]
pub enum HandoverOutcome {
    /// It was joined, and this is the answer to its caller.
    Answered(ExecuteResponse),
    /// It was joined, and nothing was committed. The next call with the key runs it.
    NotCommitted,
    /// It was joined, and its transaction still runs, or its commit is in doubt. The next call with the key finds out.
    InDoubt,
    /// It was never joined. An alarm was raised, unless the handler refused the request.
    NeverJoined,
}

pub(crate) struct Shared {
    intent: Intent,
    operation_id: OperationId,
    state: Mutex<State>,
}

#[expect(clippy::large_enum_variant, reason = "it ends as an answer, and there is one per request")]
enum State {
    /// Nobody has joined it yet.
    Waiting(Box<LocalCommand>),
    /// Its transaction may still commit.
    Joined,
    /// Joined, and ended without a commit.
    Left,
    /// Its commit has no answer.
    InDoubt,
    Ended(ExecuteResponse),
    /// The layer has answered the request.
    Closed,
}

impl Engine {
    /// Recognises a command of class `local` that a handler will run. Returns the answer if there is nothing to run:
    /// a replay, a mismatch, or a duplicate that runs longer than the intent waits.
    pub async fn hand_over(&self, intent: Intent) -> Result<HandoverResult, Error> {
        let mut command = match self.enter_local(intent.clone(), Waiting::Allowed).await? {
            EnterResult::Answered(answer) => return Ok(HandoverResult::Answered(answer)),
            EnterResult::Owned(command) => command,
        };
        if let Some(answer) = command.known_answer().await? {
            return Ok(HandoverResult::Answered(answer));
        }
        let operation_id = command.operation_id();
        let state = Mutex::new(State::Waiting(Box::new(command)));
        Ok(HandoverResult::Owned(Handover { shared: Arc::new(Shared { intent, operation_id, state }) }))
    }
}

impl LocalCommand {
    /// The answer, if the store has one and there is nothing to run.
    async fn known_answer(&mut self) -> Result<Option<ExecuteResponse>, Error> {
        for _ in 0..LOOKS_MAX {
            loop {
                self.refresh()?;
                let look = self.look().await?;
                match self.judge(look).await? {
                    LocalJudgement::Run(attempt) => {
                        // The join asks the quotas again.
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
        // The join reads again.
        Ok(None)
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A handler joins: returns the command the first time.
    pub(super) fn join(&self) -> Result<Option<LocalCommand>, Error> {
        let mut state = self.state();
        match std::mem::replace(&mut *state, State::Joined) {
            State::Waiting(command) => Ok(Some(*command)),
            State::Closed => {
                *state = State::Closed;
                Err(Error::HandlerReturned)
            }
            // A second join gets the same answer, or waits for the first one to end.
            before => {
                *state = before;
                Ok(None)
            }
        }
    }

    /// Records the answer to the handler that joined. A committed answer is not overwritten.
    pub(super) fn answered(&self, answer: &ExecuteResponse) {
        let mut state = self.state();
        let has_committed =
            matches!(&*state, State::Ended(ExecuteResponse { outcome: RequestOutcome::Ran(_), .. }));
        if !has_committed && !matches!(&*state, State::Closed) {
            *state = State::Ended(answer.clone());
        }
    }
}

/// The layer that gets the result of a joined command. If this is dropped without a result, nothing was committed.
pub(super) struct JoinedHandover(Arc<Shared>);

impl JoinedHandover {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        shared.change(|state| matches!(state, State::Left), State::Joined);
        Self(shared)
    }

    pub(super) fn answered(&self, answer: &ExecuteResponse) {
        self.0.answered(answer);
    }

    /// The transaction whose commit was in doubt was rolled back.
    pub(super) fn rolled_back(&self) {
        self.0.change(|state| matches!(state, State::InDoubt), State::Joined);
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.0
    }
}

impl Drop for JoinedHandover {
    fn drop(&mut self) {
        self.0.change(|state| matches!(state, State::Joined), State::Left);
    }
}

impl Shared {
    fn change(&self, from: impl Fn(&State) -> bool, to: State) {
        let mut state = self.state();
        if from(&state) {
            *state = to;
        }
    }

    /// A commit has no answer.
    pub(super) fn in_doubt(&self) {
        self.change(|state| matches!(state, State::Joined | State::Left), State::InDoubt);
    }
}

impl Handover {
    /// The operation ID.
    pub fn operation_id(&self) -> OperationId {
        self.shared.operation_id
    }

    /// The command for the handler.
    pub fn joinable(&self) -> Joinable {
        Joinable { shared: Arc::clone(&self.shared) }
    }

    /// The handler has returned: returns the result. Nobody can join it any more. `is_refused`: it refused the request
    /// or failed, so it had nothing to join.
    pub fn close(self, is_refused: bool) -> HandoverOutcome {
        let state = std::mem::replace(&mut *self.shared.state(), State::Closed);
        match state {
            State::Ended(answer) => HandoverOutcome::Answered(answer),
            State::Joined | State::InDoubt => HandoverOutcome::InDoubt,
            State::Left | State::Closed => HandoverOutcome::NotCommitted,
            State::Waiting(command) => {
                let operation = command.recognised.command().operation;
                let operation_id = self.shared.operation_id;
                let event = Event::Unfinished { operation_id, operation: &operation, is_committed: false };
                if !is_refused {
                    command.node.observe(&event);
                }
                HandoverOutcome::NeverJoined
            }
        }
    }
}

/// The layer is gone: nobody can join it any more. A transaction that joined it already continues.
impl Drop for Handover {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        if matches!(&*state, State::Waiting(_)) {
            *state = State::Closed;
        }
    }
}

impl Joinable {
    /// The operation ID: the same on every attempt.
    pub fn operation_id(&self) -> OperationId {
        self.shared.operation_id
    }

    /// The intent for the transaction. If it fails and nothing was committed, it may be joined again.
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
