//! Compares the store with the journals.

use super::request::token_in;
use super::{Event, Note, Workload};
use crate::scene::command;
use semel_core::record::{Record, State, Token};
use semel_core::store::{Error, Reading, Store};
use std::collections::BTreeMap;

/// The result of an audit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use = "an audit has no effect unless its result is checked"]
pub struct Audit {
    /// Keys with an outcome in the store.
    pub finished: u64,
    /// Keys with a claim in the store and no outcome: their owner was killed, or gave up.
    pub unfinished: u64,
    /// Keys without a record.
    pub absent: u64,
    /// Effects in the journals.
    pub effects: u64,
    /// Violations, as text. Empty if there are none.
    pub violations: Vec<String>,
}

/// Compares the store with the journals. Call it when no node is running and no write is in flight. Reads each key
/// once.
pub async fn audit(workload: &Workload, store: &dyn Store, notes: &[Note]) -> Result<Audit, Error> {
    let mut by_key: BTreeMap<u64, Vec<Note>> = BTreeMap::new();
    for note in notes {
        by_key.entry(note.key).or_default().push(*note);
    }
    let mut audit = Audit::default();
    for key in 0..workload.keys {
        let reading = store.get(command(key).id).await?;
        let notes = by_key.remove(&key).unwrap_or_default();
        audit.key(&reading, &notes, &mut |what| format!("key {key}: {what}"));
    }
    audit.violations.extend(by_key.into_keys().map(|key| format!("key {key}: there was no request for it")));
    Ok(audit)
}

impl Audit {
    fn key(&mut self, reading: &Reading, notes: &[Note], about: &mut dyn FnMut(String) -> String) {
        let of = |event| notes.iter().filter(move |note| note.event == event).map(|note| note.token);
        let effects: Vec<Token> = of(Event::Effect).collect();
        self.effects += effects.len() as u64;
        let record = reading.record();
        let mut violate = |what: String| self.violations.push(about(what));
        if effects.len() > 1 {
            violate(format!("{} effects: {effects:?}", effects.len()));
        }
        if reading.entry.is_some() && record.is_none() {
            violate(format!("the stored entry is not a record: {:?}", reading.entry));
        }
        for token in of(Event::Claimed) {
            if record.map(Record::token) != Some(token) {
                violate(format!("the claim {token:?} was acknowledged and is lost: {}", describe(record)));
            }
        }
        let outcome = match record.map(Record::state) {
            Some(State::Succeeded { outcome, .. }) => Some(token_in(outcome)),
            _ => None,
        };
        for token in of(Event::Finished) {
            if outcome != Some(Some(token)) {
                violate(format!(
                    "the outcome of {token:?} was acknowledged and is lost: {}",
                    describe(record)
                ));
            }
        }
        for token in of(Event::Replayed).chain(outcome.flatten()) {
            if !effects.contains(&token) {
                violate(format!("the outcome of {token:?} is stored without its effect"));
            }
        }
        match (record, outcome) {
            (_, Some(_)) => self.finished += 1,
            (Some(_), None) => self.unfinished += 1,
            (None, None) => self.absent += 1,
        }
    }
}

fn describe(record: Option<&Record>) -> String {
    record.map_or("there is no record".to_owned(), |record| {
        format!("{} of {:?} is stored", record.state_name(), record.token())
    })
}
