//! One request after the other: claim, effect, finish.

use super::{Event, Journal, Note, Report, Workload};
use crate::chance::mixed;
use crate::faults::Pause;
use crate::scene::{START, TestCommand, attempt, command, finish};
use semel_core::classify::Ending;
use semel_core::machine::{self, Found, Write};
use semel_core::outcome::{Body, Outcome};
use semel_core::record::{Record, State, Token};
use semel_core::store::{Change, Error, Reading, Store, Written};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The requests of one node, which its tasks take one by one.
pub(super) struct Requests {
    workload: Workload,
    seed: u64,
    store: Arc<dyn Store>,
    journal: Arc<dyn Journal>,
    taken: AtomicU64,
    tokens: AtomicU64,
}

/// The store did not answer within a request's patience.
struct TimedOut;

impl Requests {
    pub(super) fn new(
        workload: Workload,
        seed: u64,
        store: Arc<dyn Store>,
        journal: Arc<dyn Journal>,
    ) -> Self {
        Self { workload, seed, store, journal, taken: AtomicU64::new(0), tokens: AtomicU64::new(0) }
    }

    pub(super) async fn run(self: Arc<Self>) -> Report {
        let mut report = Report::default();
        loop {
            let number = self.taken.fetch_add(1, Ordering::SeqCst);
            let key = number / self.workload.duplicates.max(1);
            if key >= self.workload.keys {
                return report;
            }
            report.requests += 1;
            if self.request(key, &mut report).await.is_err() {
                report.gave_up += 1;
            }
        }
    }

    async fn request(&self, key: u64, report: &mut Report) -> Result<(), TimedOut> {
        let command = command(key);
        let Some(record) = self.claim(key, &command, report).await? else { return Ok(()) };
        self.note(key, record.token(), Event::Claimed);
        report.claimed += 1;
        self.note(key, record.token(), Event::Effect);
        self.finish(key, &command, &record, report).await
    }

    /// The record that this request owns now; `None` if another request has the key.
    async fn claim(
        &self,
        key: u64,
        command: &TestCommand,
        report: &mut Report,
    ) -> Result<Option<Record>, TimedOut> {
        // Claims that may be stored without an answer, or may still arrive.
        let mut loose: Vec<Write> = Vec::new();
        for _ in 0..self.workload.tries_max {
            let write = attempt(Found::Nothing, command, self.token(), START);
            let reading = match self.store.write(command.id, Change::from(&write)).await {
                Ok(Written::Done { .. }) => return Ok(Some(write.next)),
                Ok(Written::Refused(reading)) => reading,
                Err(error) if error.is_ambiguous() => {
                    loose.push(write);
                    self.read(command).await?
                }
                Err(error) => {
                    self.pause(&error).await?;
                    continue;
                }
            };
            if let Some(own) = loose.iter().find_map(|claim| machine::applied_claim(claim, reading.found())) {
                report.recognised += 1;
                return Ok(Some(own.clone()));
            }
            // No entry: the claim was lost, or is late. The next one has a fresh token.
            if reading.found() != Found::Nothing {
                self.see(key, &reading, report);
                return Ok(None);
            }
        }
        Err(TimedOut)
    }

    /// Records what a later request is shown.
    fn see(&self, key: u64, reading: &Reading, report: &mut Report) {
        match reading.record().map(Record::state) {
            Some(State::Succeeded { outcome, .. }) => match token_in(outcome) {
                Some(token) => {
                    report.replayed += 1;
                    self.note(key, token, Event::Replayed);
                }
                None => report.violations.push(format!("key {key}: the outcome belongs to no request")),
            },
            Some(State::Processing { .. }) => report.in_progress += 1,
            _ => report.violations.push(format!("key {key}: no request has stored this: {reading:?}")),
        }
    }

    async fn finish(
        &self,
        key: u64,
        command: &TestCommand,
        own: &Record,
        report: &mut Report,
    ) -> Result<(), TimedOut> {
        let write = finish(own, Ending::Succeeded(outcome_of(own.token())), START);
        for _ in 0..self.workload.tries_max {
            let reading = match self.store.write(command.id, Change::from(&write)).await {
                Ok(Written::Done { .. }) => {
                    self.note_finish(key, own, report);
                    return Ok(());
                }
                Ok(Written::Refused(reading)) => reading,
                Err(error) if error.is_ambiguous() => self.read(command).await?,
                Err(error) => {
                    self.pause(&error).await?;
                    continue;
                }
            };
            if machine::was_applied(&write, reading.found()) {
                report.recognised += 1;
                self.note_finish(key, own, report);
                return Ok(());
            }
            // Unchanged: the finish was lost, or is late. Sending it again is harmless, because it names what it
            // replaces.
            if reading.record() != Some(own) {
                let found = reading.record().map(|record| (record.state_name(), record.token()));
                report.violations.push(format!(
                    "key {key}: the claim {:?} was acknowledged, and its finish finds {found:?}",
                    own.token()
                ));
                return Ok(());
            }
        }
        Err(TimedOut)
    }

    fn note_finish(&self, key: u64, own: &Record, report: &mut Report) {
        report.finished += 1;
        self.note(key, own.token(), Event::Finished);
    }

    async fn read(&self, command: &TestCommand) -> Result<Reading, TimedOut> {
        for _ in 0..self.workload.tries_max {
            match self.store.get(command.id).await {
                Ok(reading) => return Ok(reading),
                Err(error) => self.pause(&error).await?,
            }
        }
        Err(TimedOut)
    }

    /// Waits before the next try, if one is useful.
    async fn pause(&self, error: &Error) -> Result<(), TimedOut> {
        if !error.is_retryable() {
            return Err(TimedOut);
        }
        Pause::of(self.workload.retry_pause).await;
        Ok(())
    }

    fn note(&self, key: u64, token: Token, event: Event) {
        self.journal.note(Note { key, token, event });
    }

    fn token(&self) -> Token {
        let number = self.tokens.fetch_add(1, Ordering::SeqCst);
        let (high, low) = (mixed(self.seed ^ mixed(number)), mixed(!self.seed ^ mixed(number)));
        Token::from_random((u128::from(high) << 64) | u128::from(low))
    }
}

/// An outcome that contains the token of its attempt.
fn outcome_of(token: Token) -> Outcome {
    Outcome::http(201, [("content-type", "text/plain")], format!("{:032x}", token.bits()))
}

/// The attempt of an outcome.
pub(super) fn token_in(outcome: &Outcome) -> Option<Token> {
    let Body::Kept(body) = &outcome.body else { return None };
    u128::from_str_radix(std::str::from_utf8(body).ok()?, 16).ok().map(Token::from_random)
}
