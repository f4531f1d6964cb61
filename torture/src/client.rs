//! A client of the engine that records its effects in the ledger and its answers in the journal. The line of
//! an effect is the effect, and the line of an answer follows the answer.

use crate::clock;
use crate::journal::{self, Journal, Kind, Line};
use crate::plan::{Behaviour, Plan};
use crate::sabotage::Sabotage;
use crate::workspace::{Failure, Workspace};
use semel::core::classify::Ending;
use semel::core::outcome::{Body, Outcome};
use semel::core::policy::Class;
use semel::core::record::StateName;
use semel::core::time::Time;
use semel::{Attempt, Engine, Error, ExecuteResponse, RequestOutcome, WorkResult};
use std::sync::Arc;

/// A client on one engine.
pub(crate) struct Client {
    pub(crate) engine: Engine,
    pub(crate) seed: u64,
    pub(crate) run: String,
    pub(crate) sabotage: Option<Sabotage>,
    ledger: Journal,
    answers: Journal,
}

/// The attempt that an answer comes from.
#[derive(Debug, Clone, Copy)]
struct Origin {
    attempt: u32,
    fence: u64,
}

impl Client {
    pub(crate) fn new(
        engine: Engine,
        workspace: &Workspace,
        seed: u64,
        run: &str,
        sabotage: Option<Sabotage>,
    ) -> Result<Arc<Self>, Failure> {
        let ledger = Journal::append_to(&workspace.ledger())?;
        let answers = Journal::append_to(&workspace.answers())?;
        Ok(Arc::new(Self { engine, seed, run: run.to_owned(), sabotage, ledger, answers }))
    }

    pub(crate) fn plan(&self, key: &str) -> Plan {
        Plan::of(self.seed, key, self.sabotage)
    }

    /// Records that a key is about to be used for the first time.
    pub(crate) fn issue(&self, key: &str) -> Result<(), Failure> {
        Ok(self.ledger.note(&Line::new(Kind::Issue, &self.run, key))?)
    }

    /// Sends a key's command, and records the answer.
    pub(crate) async fn ask(self: &Arc<Self>, key: &str) -> Result<Line, Failure> {
        let plan = self.plan(key);
        let intent = plan.intent(key, key)?;
        let (client, own_key) = (Arc::clone(self), key.to_owned());
        let work = move |attempt| async move { client.work(&plan, &own_key, attempt).await };
        let asked = clock::now();
        let line = Line { asked, ..self.line(key, self.engine.execute(intent, work).await) };
        self.answers.note(&line)?;
        Ok(line)
    }

    /// Sends an acknowledged key with another payload, which must be refused.
    pub(crate) async fn ask_with_another_payload(self: &Arc<Self>, key: &str) -> Result<(), Failure> {
        let intent = self.plan(key).intent(key, "another payload")?;
        let (client, own_key) = (Arc::clone(self), key.to_owned());
        let work = move |_| async move {
            let line = Line::new(Kind::Wrong, &client.run, &own_key);
            drop(client.answers.note(&Line { detail: "ran-another-payload".to_owned(), ..line }));
            WorkResult::from(Ending::NotApplied(None))
        };
        let answer = self.engine.execute(intent, work).await;
        let refused =
            matches!(&answer, Ok(ExecuteResponse { outcome: RequestOutcome::Mismatch, .. }) | Err(_));
        if !refused {
            let line = Line::new(Kind::Wrong, &self.run, key);
            self.answers.note(&Line { detail: "answered-another-payload".to_owned(), ..line })?;
        }
        Ok(())
    }

    async fn work(&self, plan: &Plan, key: &str, attempt: Attempt) -> WorkResult<Origin> {
        let origin = Origin { attempt: attempt.number(), fence: attempt.fence() };
        let ending = match self.effect(plan, key, &attempt, origin).await {
            Ok(ending) => ending,
            // The ledger is the effect, so it is not known whether it happened.
            Err(error) => {
                eprintln!("the ledger cannot be written to: {error}");
                Ending::InDoubt
            }
        };
        WorkResult::new(ending, origin)
    }

    async fn effect(
        &self,
        plan: &Plan,
        key: &str,
        attempt: &Attempt,
        origin: Origin,
    ) -> Result<Ending, std::io::Error> {
        let body = plan.body(key, origin.attempt, origin.fence);
        let note = |kind| {
            let Origin { attempt: number, fence } = origin;
            let (operation_id, detail) = (attempt.operation_id().to_string(), journal::hash(&body));
            let line = Line::new(kind, &self.run, key);
            self.ledger.note(&Line { operation_id, attempt: number, fence, detail, ..line })
        };
        let nothing = || note(Kind::NotApplied).map(|()| Ending::NotApplied(None));
        note(Kind::Begin)?;
        tokio::time::sleep(plan.before).await;
        let may_send = if plan.reserved { attempt.start().await } else { attempt.check() };
        if may_send.is_err() {
            return nothing();
        }
        let in_doubt = matches!(plan.behaviour, Behaviour::Doubts { .. })
            && (plan.class == Class::External || origin.attempt == 1);
        match plan.behaviour {
            Behaviour::FailsFirst(times) if origin.attempt <= times => return nothing(),
            Behaviour::Refuses => {
                tokio::time::sleep(plan.after).await;
                return Ok(Ending::FailedReplayable(Outcome::value(body)));
            }
            Behaviour::Doubts { applied: false } if in_doubt => {}
            _ => note(Kind::Effect)?,
        }
        tokio::time::sleep(plan.after).await;
        if in_doubt {
            if self.sabotage != Some(Sabotage::SilentDoubt) {
                note(Kind::Doubt)?;
            }
            return Ok(Ending::InDoubt);
        }
        Ok(Ending::Succeeded(Outcome::value(body)))
    }

    fn line(&self, key: &str, answer: Result<ExecuteResponse<Origin>, Error>) -> Line {
        let line = |kind, detail: &str| Line { detail: detail.to_owned(), ..Line::new(kind, &self.run, key) };
        let Ok(ExecuteResponse { operation_id, outcome: answered }) = answer else {
            return line(Kind::Nothing, "-");
        };
        let answered = match answered {
            RequestOutcome::Ran(ran) => {
                let Origin { attempt, fence } = ran.local;
                let answered = match (&ran.ending, ran.stored) {
                    (Ending::Succeeded(outcome) | Ending::FailedReplayable(outcome), Some(stored)) => {
                        acknowledged(line(Kind::Ran, "-"), outcome, stored.expires_at)
                    }
                    _ => line(Kind::Open, "-"),
                };
                Line { attempt, fence, ..answered }
            }
            RequestOutcome::Replayed(replayed) if replayed.stored.state == StateName::FailedNotReplayable => {
                line(Kind::Open, "-")
            }
            RequestOutcome::Replayed(replayed) => {
                acknowledged(line(Kind::Replay, "-"), &replayed.outcome, replayed.stored.expires_at)
            }
            RequestOutcome::InProgress { .. } => line(Kind::InProgress, "-"),
            RequestOutcome::Unknown { .. } => line(Kind::Unknown, "-"),
            RequestOutcome::Expired => line(Kind::Expired, "-"),
            RequestOutcome::Mismatch => line(Kind::Wrong, "mismatch"),
            RequestOutcome::AttemptsExhausted => line(Kind::Wrong, "attempts-exhausted"),
            RequestOutcome::Unreadable => line(Kind::Wrong, "unreadable"),
            // A node that has just started expires nothing: ask again.
            RequestOutcome::ClockNotTrusted { .. } => line(Kind::Nothing, "-"),
        };
        Line { operation_id: operation_id.to_string(), at: clock::now(), ..answered }
    }
}

/// The line of an answer that acknowledges an outcome.
pub(crate) fn acknowledged(line: Line, outcome: &Outcome, expires_at: Option<Time>) -> Line {
    let detail = match &outcome.body {
        Body::Kept(body) => journal::hash(body),
        // No body here is too large or sealed: the judge finds no effect for this one.
        Body::NotRetained | Body::Sealed(_) => "not-kept".to_owned(),
    };
    Line { expires: expires_at.map_or(0, Time::as_millis), detail, ..line }
}
