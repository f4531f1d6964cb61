//! Work that returns a value.
//!
//! [`Engine::run`], and the conversion between values and outcomes. `0`, `""`, `[]`, `false` and `None` are outcomes
//! like any other.

use crate::call::answer::{Error, ExecuteResponse, RequestOutcome};
use crate::call::attempt::{Attempt, LeaseError};
use crate::call::conduct::WorkResult;
use crate::call::engine::Engine;
use crate::call::intent::Intent;
use semel_core::classify::Ending;
use semel_core::id::OperationId;
use semel_core::outcome::{Body, Outcome};
use semel_core::record::StateName;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;

/// How work failed. This decides what a retry gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failed {
    /// Nothing took effect: the next call with the key may try again.
    NotApplied(String),
    /// The command was refused permanently: every later call with the key gets the same refusal.
    Refused(String),
    /// Nobody knows whether the effect happened: the outcome is unknown until somebody finds out.
    InDoubt(String),
}

impl From<LeaseError> for Failed {
    fn from(error: LeaseError) -> Self {
        Self::NotApplied(error.to_string())
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotApplied(why) => write!(f, "nothing took effect: {why}"),
            Self::Refused(why) => write!(f, "refused: {why}"),
            Self::InDoubt(why) => write!(f, "it may have taken effect: {why}"),
        }
    }
}

impl std::error::Error for Failed {}

/// A value, and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done<T> {
    /// The value.
    pub value: T,
    /// The operation ID.
    pub operation_id: OperationId,
    /// Whether the value is a replay of another call's attempt.
    pub replayed: bool,
    /// Whether it is stored. If not, the engine keeps trying, and a crash before it succeeds leaves the outcome
    /// unknown.
    pub stored: bool,
}

/// Why a call got no value.
#[derive(Debug)]
pub struct RunError {
    /// The operation ID, which an operator needs to find the record. `None` if nothing was run
    /// ([`RunErrorReason::NotRun`]).
    pub operation_id: Option<OperationId>,
    /// Why.
    pub reason: RunErrorReason,
}

/// Why a call got no value.
#[derive(Debug)]
#[non_exhaustive]
pub enum RunErrorReason {
    /// The work failed, in this call or in an earlier one.
    Failed(Failed),
    /// Another attempt is running; try again later.
    InProgress,
    /// Nobody can prove whether the effect happened.
    Unknown,
    /// The key is bound to another payload.
    Mismatch,
    /// The outcome has expired.
    Expired,
    /// All attempts that the policy allows ended without effect.
    AttemptsExhausted,
    /// The effect happened, but its value was not retained.
    NotRetained,
    /// The decision depends on the time, and the clock is not trusted. Nothing was run; try again later.
    ClockNotTrusted,
    /// The stored value is not of this type.
    NotThisType(serde_json::Error),
    /// Nothing was run.
    NotRun(Error),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.operation_id {
            Some(operation_id) => write!(f, "{} (operation {operation_id})", self.reason),
            None => self.reason.fmt(f),
        }
    }
}

impl fmt::Display for RunErrorReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(failed) => failed.fmt(f),
            Self::InProgress => f.write_str("another attempt is running; try again later"),
            Self::Unknown => f.write_str(
                "nobody knows whether it took effect; a retry is safe only after it was reconciled or resolved",
            ),
            Self::Mismatch => {
                f.write_str("the key is bound to another payload; use a new key for a new command")
            }
            Self::Expired => f.write_str("the outcome has expired"),
            Self::AttemptsExhausted => f.write_str("all attempts that the policy allows ended without effect"),
            Self::NotRetained => f.write_str("it took effect, but its value was not retained"),
            Self::ClockNotTrusted => {
                f.write_str("nothing was run, because the clock is not trusted; try again later")
            }
            Self::NotThisType(error) => write!(f, "the stored value has another type: {error}"),
            Self::NotRun(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RunError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.reason {
            RunErrorReason::Failed(failed) => Some(failed),
            RunErrorReason::NotThisType(error) => Some(error),
            RunErrorReason::NotRun(error) => Some(error),
            _ => None,
        }
    }
}

impl Engine {
    /// Runs `work` once for `intent` and returns its value: from the work if this call ran it, otherwise from the
    /// store.
    ///
    /// The work runs in a task of the engine; dropping the returned future cancels nothing. The work reports failures
    /// as [`Failed`], which decides what a retry gets.
    ///
    /// ```
    /// use semel::payload::Json;
    /// use semel::{Class, Engine, Failed, Identity, Intent, Key, Operation, Policy, Scope, memory};
    /// use std::sync::Arc;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let engine = Engine::builder(Arc::new(memory::Store::new())).build().await?;
    /// let scope = Scope::new(Identity::api_key("k-17"), Operation::named("charge"));
    /// let key = Key::from_source("order-1234")?;
    /// let intent = Intent::new(scope, key, Policy::new(Class::External), Json::of(&5)?);
    ///
    /// let charge = |attempt: semel::Attempt| async move { Ok::<_, Failed>(format!("charge {}", attempt.number())) };
    /// let first = engine.run(intent.clone(), charge).await?;
    /// let again = engine.run(intent, charge).await?;
    /// assert_eq!(first.value, again.value);
    /// assert!(!first.replayed && again.replayed);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run<T, W, F>(&self, intent: Intent, work: W) -> Result<Done<T>, RunError>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
        W: FnOnce(Attempt) -> F + Send + 'static,
        F: Future<Output = Result<T, Failed>> + Send + 'static,
    {
        let work = |attempt| async move { ended(work(attempt).await) };
        let answer = self.execute(intent, work).await;
        let ExecuteResponse { operation_id, outcome: request_outcome } =
            answer.map_err(|error| RunError { operation_id: None, reason: RunErrorReason::NotRun(error) })?;
        let (value, replayed, stored) =
            value(request_outcome).map_err(|reason| RunError { operation_id: Some(operation_id), reason })?;
        Ok(Done { value, operation_id, replayed, stored })
    }
}

/// The value in an answer, whether it is replayed, and whether it is stored.
fn value<T: DeserializeOwned>(
    request_outcome: RequestOutcome<Result<T, Failed>>,
) -> Result<(T, bool, bool), RunErrorReason> {
    match request_outcome {
        RequestOutcome::Ran(ran) => {
            let stored = ran.stored.is_some();
            let in_doubt = ran.stored.is_some_and(|stored| stored.state == StateName::Unknown);
            let value = ran.local.map_err(|failed| match failed {
                // This attempt took no effect, but an earlier one may have.
                Failed::NotApplied(_) if in_doubt => RunErrorReason::Unknown,
                failed => RunErrorReason::Failed(failed),
            })?;
            Ok((value, false, stored))
        }
        RequestOutcome::Replayed(replayed) => {
            Ok((read(&replayed.outcome, replayed.stored.state)?, true, true))
        }
        RequestOutcome::InProgress { .. } => Err(RunErrorReason::InProgress),
        RequestOutcome::Unknown { .. } | RequestOutcome::Unreadable => Err(RunErrorReason::Unknown),
        RequestOutcome::Mismatch => Err(RunErrorReason::Mismatch),
        RequestOutcome::Expired => Err(RunErrorReason::Expired),
        RequestOutcome::AttemptsExhausted => Err(RunErrorReason::AttemptsExhausted),
        RequestOutcome::ClockNotTrusted { .. } => Err(RunErrorReason::ClockNotTrusted),
    }
}

/// The ending for a result of the work.
fn ended<T: Serialize>(result: Result<T, Failed>) -> WorkResult<Result<T, Failed>> {
    let text = |why: &String| Outcome::value(why.clone());
    let ending = match &result {
        Ok(value) => match serde_json::to_vec(value) {
            Ok(json) => Ending::Succeeded(Outcome::value(json)),
            // It happened, but a value that cannot be serialized cannot be replayed.
            Err(_) => Ending::Succeeded(Outcome::not_retained(semel_core::outcome::Status::Value)),
        },
        Err(Failed::NotApplied(why)) => Ending::NotApplied(Some(text(why))),
        Err(Failed::Refused(why)) => Ending::FailedReplayable(text(why)),
        Err(Failed::InDoubt(_)) => Ending::InDoubt,
    };
    WorkResult::new(ending, result)
}

/// The value of a stored outcome, or the failure.
fn read<T: DeserializeOwned>(outcome: &Outcome, state: StateName) -> Result<T, RunErrorReason> {
    let body = match &outcome.body {
        Body::Kept(body) => Some(body),
        Body::Sealed(_) | Body::NotRetained => None,
    };
    let text = || {
        body.map_or("(the reason was not retained)".into(), |body| String::from_utf8_lossy(body).into_owned())
    };
    match (state, body) {
        (StateName::FailedReplayable, _) => Err(RunErrorReason::Failed(Failed::Refused(text()))),
        (StateName::FailedNotReplayable, _) => Err(RunErrorReason::Failed(Failed::NotApplied(text()))),
        (_, None) => Err(RunErrorReason::NotRetained),
        (_, Some(body)) => serde_json::from_slice(body).map_err(RunErrorReason::NotThisType),
    }
}
