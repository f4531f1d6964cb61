//! Traces and numbers as readable text.

use crate::explore::Trace;
use crate::step::Step;
use crate::world::Cell;
use semel_core::machine::{Begin, Erasure};
use semel_core::record::{Doubt, Record, State};
use std::fmt;

/// One numbered line per step, with the record if it changed.
impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = [String::from("nothing"), String::from("nothing")];
        for (number, (taken, world)) in self.0.iter().enumerate() {
            write!(f, "  {:>2}. t={:<4} {}", number + 1, world.now, sentence(taken.step))?;
            let shown = world.shown() + taken.ahead;
            if shown != world.now {
                write!(f, " (the clock says {shown})")?;
            }
            for (index, cell) in world.cells.iter().enumerate() {
                let now = describe(cell);
                if now != before[index] {
                    let id = if index == 1 { " under the new id" } else { "" };
                    write!(f, "\n               → {now}{id}")?;
                    before[index] = now;
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

fn describe(cell: &Cell) -> String {
    match cell {
        Cell::Empty => "nothing".into(),
        Cell::Moved => "a marker".into(),
        Cell::Unreadable(_) => "unreadable".into(),
        Cell::Record(record) => {
            format!("v{} attempt {}: {}", record.version(), record.attempt(), state(record))
        }
    }
}

fn state(record: &Record) -> String {
    let name = record.state_name();
    match record.state() {
        State::Claimed { lease_until } | State::Processing { lease_until } => {
            format!("{name}, lease until {}", lease_until.as_millis())
        }
        State::Succeeded { expires_at, .. } | State::FailedReplayable { expires_at, .. } => {
            format!("{name} until {}", expires_at.as_millis())
        }
        State::FailedNotReplayable { proof, bound, .. } => {
            format!("{name} (proof: {proof:?}){}", if *bound { "" } else { ", released" })
        }
        State::Unknown { doubt: Doubt::Lapsed, .. } => format!("{name} (the lease expired)"),
        State::Unknown { doubt: Doubt::Owner, .. } => format!("{name} (the owner does not know)"),
        State::Expired { until } => format!("{name}, tombstone until {}", until.as_millis()),
    }
}

fn sentence(step: Step) -> String {
    let worker = |index: usize| format!("worker {}", index + 1);
    match step {
        Step::Tick => "time passes".into(),
        Step::ClockJumpsFarAhead => "a long time passes".into(),
        Step::ClockIsSetBack => "the store's clock is set back".into(),
        Step::ClockIsReplaced { ahead } => {
            format!("an operator confirms a clock that is {}", if ahead { "ahead" } else { "behind" })
        }
        Step::NodesStartWithAnotherClock { ahead } => {
            format!("all nodes restart with a clock that is {}", if ahead { "ahead" } else { "behind" })
        }
        Step::ClockComesBack => "the clock is right again".into(),
        Step::NothingIsDatedAhead => "the sweeper has found every date in the future".into(),
        Step::TrustGrows => "the clock has been steady for a while".into(),
        Step::Request { worker: index, payload, begin } => {
            let payload = char::from(b'A' + payload);
            let begin = if begin == Begin::Claimed { ", to claim first" } else { "" };
            format!("{} gets a request with payload {payload}{begin}", worker(index))
        }
        Step::LocalRequestIsRefused { worker: index, .. } => {
            format!("{} refuses a request for good, and its transaction contains only that", worker(index))
        }
        Step::StoreAcknowledges(index) => format!("the store answers {}", worker(index)),
        Step::StoreAppliesButAcknowledgementIsLost(index) => {
            format!("the store applies {}'s write, but its answer is lost", worker(index))
        }
        Step::WriteIsDropped(index) => format!("{}'s write is lost", worker(index)),
        Step::WriteIsDelayed(index) => format!("{}'s write is delayed", worker(index)),
        Step::DelayedWriteLands(_) => "a delayed write arrives".into(),
        Step::RereadAfterDoubt(index) => format!("{} reads the entry again", worker(index)),
        Step::Start(index) => format!("{} writes that the effect is about to start", worker(index)),
        Step::Renew(index) => format!("{} renews its lease", worker(index)),
        Step::RenewalUnseen(index) => format!("{}'s renewal is delayed", worker(index)),
        Step::Send(index) => format!("{} sends the effect", worker(index)),
        Step::LeaseLapsedSoNothingIsSent(index) => {
            format!("{} finds its lease expired and sends nothing", worker(index))
        }
        Step::NothingCouldBeSent(index) => format!("{} cannot reach the provider", worker(index)),
        Step::EffectHappens(token) => format!("the effect of attempt #{token} arrives and is answered"),
        Step::EffectHappensButAnswerIsLost(token) => {
            format!("the effect of attempt #{token} happens, but its answer is lost")
        }
        Step::EffectHappensAndAnswerIs500(token) => {
            format!("the effect of attempt #{token} happens, and is answered with a 500")
        }
        Step::EffectHappensAgainBecauseProviderForgot(token) => {
            format!("the provider has forgotten: the effect of attempt #{token} happens again")
        }
        Step::NoEffectAndAnswerIs500(token) => {
            format!("attempt #{token} is answered with a 500 and has no effect")
        }
        Step::EffectIsLost(token) => format!("the effect of attempt #{token} is lost"),
        Step::ProviderDeclines(token) => format!("the provider declines attempt #{token} for good"),
        Step::ProviderSaysNothingDone(token) => {
            format!("the provider says that it did nothing for attempt #{token}")
        }
        Step::ProviderBegins(token) => format!("the provider begins to work on attempt #{token}"),
        Step::ProviderCompletes => "the provider completes its work".into(),
        Step::NoAnswerInTime(index) => format!("{} gets no answer in time", worker(index)),
        Step::StoreOutcome(index) => format!("{} writes its outcome", worker(index)),
        Step::AnswerClientEarly(index) => {
            format!("{} answers its client before the outcome is stored", worker(index))
        }
        Step::Crash(index) => format!("{} crashes", worker(index)),
        Step::SweeperLooks(_) => "the sweeper looks and decides what to do".into(),
        Step::SweeperWrites => "the sweeper writes".into(),
        Step::ReconcilerAsks(_) => "the reconciler asks the provider".into(),
        Step::ReconcilerIsLiedTo(_) => "the reconciler asks the provider and gets the opposite answer".into(),
        Step::ReconcilerHasItRefusedForGood(_) => {
            "the reconciler has the provider refuse the operation for good".into()
        }
        Step::ReconcilerWrites => "the reconciler writes".into(),
        Step::OperatorResolves { applied: true, .. } => "an operator says that it happened".into(),
        Step::OperatorResolves { applied: false, .. } => "an operator says that it did not happen".into(),
        Step::OperatorReleases(_) => "an operator releases the key".into(),
        Step::OperatorErases { erasure: Erasure::Response, .. } => "an operator erases the response".into(),
        Step::OperatorErases { erasure: Erasure::Record, .. } => "an operator erases the record".into(),
        Step::RecordBecomesUnreadable(_) => "the record becomes unreadable".into(),
        Step::RecordBecomesReadable(_) => "the record becomes readable again".into(),
        Step::ReplicaFallsBehind => "the replica falls behind from here".into(),
        Step::FailOverToReplica => "the store fails over to the replica".into(),
        Step::NodeMovesToNewSecret(index) => {
            format!("{} claims under the new secret from now on", worker(index))
        }
        Step::OldSecretIsDropped => "the old secret is dropped, and its markers".into(),
        Step::Accepted(forbidden) => forbidden.sentence().into(),
    }
}

/// A number with separated thousands.
pub fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        assert_eq!(
            ["7", "1,000", "20,123,456"],
            [7, 1000, 20_123_456].map(grouped).each_ref().map(String::as_str)
        );
    }
}
