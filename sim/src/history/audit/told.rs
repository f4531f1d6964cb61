//! What callers hear.
//!
//! What lives here: each answer held against what is stored and what happened. What must never: trust in the answer.

use super::{Audit, Call};
use crate::history::exercised::Exercised;
use crate::history::heard::{Heard, outcome_of};
use crate::history::promise::Promise;
use semel::core::outcome::{Body, Outcome};
use semel::core::policy::Class;
use semel::core::record::StateName;
use semel::core::time::Time;
use semel::{Replayed, Stored};
use std::collections::BTreeSet;
use std::time::Duration;

/// No clock is wrong for longer than this, and no node down.
const DISTRUST_MAX: Duration = Duration::from_mins(1);

impl Audit {
    /// Somebody calls. Yields the call's name.
    pub(crate) fn asked(&mut self, at: u64, now: Time, key: usize, payload: usize, node: usize) -> usize {
        self.tally.count(Exercised::Request);
        let known = self.keys[key].terminals.iter().rposition(|terminal| terminal.told);
        let latest = self.keys[key].periods.len().checked_sub(1);
        let known = known.filter(|known| Some(self.keys[key].terminals[*known].period) == latest);
        let (asked, asked_at) = (at, now);
        self.calls.push(Call {
            key,
            payload,
            nodes: BTreeSet::from([node]),
            asked,
            asked_at,
            known,
            open: true,
            denied: false,
            effects: 0,
        });
        self.calls.len() - 1
    }

    /// A call goes on at another node.
    pub(crate) fn goes_on(&mut self, call: usize, node: usize) {
        self.calls[call].nodes.insert(node);
    }

    /// The caller hears this.
    pub(crate) fn told(&mut self, at: u64, now: Time, call: usize, heard: &Heard) {
        let key = self.calls[call].key;
        self.note(at, Some(key), format!("call {call} hears {heard}"));
        self.count(at, call, heard);
        self.calls[call].open = false;
        if heard.denies_any_effect() {
            self.calls[call].denied = true;
            if self.calls[call].effects > 0 {
                let how = format!("call {call} hears \"{heard}\" although it had an effect");
                return self.broken(Promise::TruthfulRefusal, Some(key), how);
            }
        }
        if let Err((promise, how)) = self.judge(at, now, call, heard) {
            self.broken(promise, Some(key), format!("call {call} hears \"{heard}\": {how}"));
        }
    }

    fn judge(&mut self, at: u64, now: Time, call: usize, heard: &Heard) -> Result<(), (Promise, String)> {
        let Call { key, payload, asked, known, .. } = self.calls[call];
        let file = &self.keys[key];
        let err = |promise, how: &str| Err((promise, how.to_owned()));
        let is_excused = matches!(heard, Heard::Store(_) | Heard::Closing | Heard::GivenUp(_))
            || file.damaged && matches!(heard, Heard::Unreadable)
            || self.has_wrong_clock && matches!(heard, Heard::ClockNotTrusted);
        if let Some(known) = known.map(|known| &file.terminals[known])
            && now + self.skew < known.expires_at
            && !is_excused
        {
            let fine = match heard {
                Heard::Replayed(replayed) => {
                    let is_told = replayed.outcome == known.outcome || file.has_erasure(known.period);
                    is_told && known.payload == Some(payload)
                }
                Heard::Expired => file.periods[known.period].is_erased,
                Heard::Mismatch => known.payload != Some(payload),
                _ => false,
            };
            if !fine {
                return err(Promise::SameAnswer, "another outcome was told before and has not expired");
            }
        }
        match heard {
            Heard::Ran { ending, stored: Some(stored) } if is_final(*stored) => {
                let outcome = outcome_of(ending).cloned();
                self.acknowledged(call, outcome.as_ref(), *stored)
            }
            Heard::Replayed(Replayed { outcome, stored }) if is_final(*stored) => {
                self.acknowledged(call, Some(outcome), *stored)
            }
            Heard::Unknown if file.policy.class == Class::Local => {
                err(Promise::DoubtNeedsAFault, "a local command leaves no doubt")
            }
            Heard::Unknown if !file.touched => err(Promise::DoubtNeedsAFault, "no fault has touched it"),
            Heard::Unreadable if !file.damaged => err(Promise::DoubtNeedsAFault, "there is no damage"),
            Heard::Mismatch => {
                let since = file.bound.iter().rposition(|(since, _)| *since <= asked).unwrap_or(0);
                let seen = file.bound[since..].iter().take_while(|(since, _)| *since <= at);
                let other = seen.filter_map(|(_, bound)| *bound).any(|bound| bound != payload);
                if other { Ok(()) } else { err(Promise::HonestMismatch, "no other payload was bound") }
            }
            Heard::Expired => {
                if self.is_tombstone(key, now) {
                    Ok(())
                } else {
                    err(Promise::HonestExpiry, "nothing is past its time")
                }
            }
            Heard::Quota if !self.has_quota => err(Promise::OnlyNewKeys, "there is no quota"),
            Heard::Quota => {
                // Absent when it was asked, or at some moment since.
                let before = file.bound.iter().rposition(|(since, _)| *since <= asked);
                let seen = &file.bound[before.unwrap_or(0)..];
                let was_new = before.is_none() || seen.iter().any(|(_, bound)| bound.is_none());
                if was_new {
                    Ok(())
                } else {
                    err(Promise::OnlyNewKeys, "its record stood there all the time")
                }
            }
            Heard::Exhausted if file.policy.attempts_max.is_none() => {
                err(Promise::NoWedge, "there is no limit on attempts")
            }
            Heard::Refused(_) => err(Promise::Steady, "there is nothing to refuse"),
            _ => Ok(()),
        }
    }

    /// The answer is final: it must be stored, true, the caller's own, and not past its time.
    fn acknowledged(
        &mut self,
        call: usize,
        outcome: Option<&Outcome>,
        stored: Stored,
    ) -> Result<(), (Promise, String)> {
        let Call { key, payload, asked, asked_at, .. } = self.calls[call];
        // A node that started with a clock far behind knows only from when on it cannot be earlier.
        let late_max = if self.has_wrong_clock { DISTRUST_MAX } else { Duration::ZERO };
        let late_max = late_max + self.skew;
        let forgotten_after = self.forgotten_after;
        let file = &mut self.keys[key];
        let err = |promise, how: String| Err((promise, how));
        let told = file.terminals.iter_mut().rev().find(|terminal| {
            Some(&terminal.outcome) == outcome
                && Some(terminal.expires_at) == stored.expires_at
                && terminal.state == stored.state
        });
        let Some(terminal) = told else {
            return err(Promise::DurableBeforeTold, "the store never held that".to_owned());
        };
        terminal.told = true;
        if terminal.outcome.body != Body::NotRetained && terminal.is_forgotten(asked, forgotten_after) {
            return err(Promise::ErasedIsGone, format!("it was erased at {:?}", terminal.erased_at));
        }
        let is_old = terminal.ring < self.ring;
        if terminal.payload != Some(payload) {
            return err(Promise::OwnPayload, format!("it is the outcome of payload {:?}", terminal.payload));
        }
        if asked_at >= terminal.expires_at + late_max {
            return err(Promise::HonestExpiry, format!("its time was over at {:?}", terminal.expires_at));
        }
        let effects = file.periods.iter().flat_map(|period| &period.effects);
        let happened = match (&terminal.outcome.body, terminal.state) {
            (Body::Kept(body), StateName::Succeeded) => {
                effects.into_iter().any(|e| e.name.as_bytes() == body)
            }
            (Body::NotRetained, StateName::Succeeded) => effects.into_iter().next().is_some(),
            _ => file.periods[terminal.period].effects.is_empty(),
        };
        if !happened {
            return err(Promise::TrueOutcome, "that is not what happened".to_owned());
        }
        if self.master.is_some() && is_old {
            self.tally.count(Exercised::OldRing);
        }
        Ok(())
    }

    fn count(&mut self, at: u64, call: usize, heard: &Heard) {
        let what = match heard {
            Heard::Replayed(_) => Exercised::Replay,
            Heard::Mismatch => Exercised::Mismatch,
            Heard::InProgress => Exercised::InProgress,
            Heard::Unknown => Exercised::Unknown,
            Heard::Expired => Exercised::Expired,
            Heard::Exhausted => Exercised::Exhausted,
            Heard::Unreadable => Exercised::Unreadable,
            Heard::GivenUp(_) => Exercised::GivenUp,
            Heard::Quota => Exercised::Quota,
            Heard::ClockNotTrusted => Exercised::ClockNotTrusted,
            Heard::Store(_) | Heard::Closing | Heard::Refused(_) => Exercised::Failed,
            Heard::Ran { stored: None, .. } => Exercised::Unstored,
            // Counted where it happens.
            Heard::CommitInDoubt | Heard::Ran { .. } => return,
        };
        self.tally.count(what);
        // Longer than any answer takes that nothing was waited for.
        let waited = at - self.calls[call].asked > 200_000_000;
        if waited && what == Exercised::Replay {
            self.tally.count(Exercised::Waited);
        }
    }
}

fn is_final(stored: Stored) -> bool {
    matches!(stored.state, StateName::Succeeded | StateName::FailedReplayable)
}
