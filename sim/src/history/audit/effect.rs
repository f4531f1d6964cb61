//! Checks the effects that reach the provider, without looking at the store.

use super::Audit;
use crate::history::exercised::Exercised;
use crate::history::promise::Promise;
use semel::core::record::StateName;

/// Something that happened in the world.
#[derive(Debug, Clone)]
pub(crate) struct Effect {
    /// The call that caused it.
    pub(crate) call: usize,
    /// The attempt's fence.
    pub(crate) fence: u64,
    /// The effect's name: the body of its answer.
    pub(crate) name: String,
}

impl Audit {
    /// An effect took place.
    pub(crate) fn effect(&mut self, at: u64, key: usize, effect: &Effect) {
        let Effect { call, fence, name } = effect;
        let (call, fence) = (*call, *fence);
        self.note(at, Some(key), format!("  EFFECT {name} of call {call}, fence {fence}"));
        self.tally.count(Exercised::Effect);
        self.calls[call].effects += 1;
        if self.calls[call].denied {
            let how = format!("call {call} was answered that nothing happened, and then {name} happened");
            return self.broken(Promise::TruthfulRefusal, Some(key), how);
        }
        let file = &mut self.keys[key];
        let Some(period) = file.fences.get(&fence).copied() else {
            let how = format!("{name} with fence {fence}, which belongs to no stored claim");
            return self.broken(Promise::ClaimBeforeEffect, Some(key), how);
        };
        let highest = file.periods.iter().flat_map(|period| &period.effects).map(|e| e.fence).max();
        file.periods[period].effects.push(effect.clone());
        let grows = highest.is_none_or(|highest| fence > highest);
        let number = file.periods[period].effects.len();
        let refused = file.terminals.iter().any(|terminal| {
            terminal.period == period
                && terminal.was_answered
                && terminal.state == StateName::FailedReplayable
        });
        if !grows && number == 1 {
            let how = format!("{name} has a lower fence than an effect before it");
            self.broken(Promise::FenceGrows, Some(key), how);
        } else if number > 1 {
            let names: Vec<_> = file.periods[period].effects.iter().map(|e| e.name.clone()).collect();
            self.broken(Promise::OneEffect, Some(key), names.join(" and "));
        } else if refused {
            let how = format!("{name} happened although it was answered as refused");
            self.broken(Promise::TrueOutcome, Some(key), how);
        }
    }
}
