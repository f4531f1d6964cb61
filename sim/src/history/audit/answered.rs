//! Checks each answer to a caller against the store and the effects.

use super::{Audit, Call};
use crate::history::exercised::Exercised;
use crate::history::promise::Promise;
use crate::history::response::{Response, outcome_of};
use semel::core::outcome::{Body, Outcome};
use semel::core::policy::Class;
use semel::core::record::StateName;
use semel::core::time::Time;
use semel::{Replayed, Stored};
use std::collections::BTreeSet;
use std::time::Duration;

/// No clock is wrong and no node is down for longer than this.
const DISTRUST_MAX: Duration = Duration::from_mins(1);

/// How long a start takes at most, so that the mark may be newer than what the node has read.
const START_MAX: Duration = Duration::from_secs(2);

impl Audit {
    /// A client calls. Returns the number of the call.
    pub(crate) fn call_started(
        &mut self,
        at: u64,
        now: Time,
        key: usize,
        payload: usize,
        node: usize,
    ) -> usize {
        self.tally.count(Exercised::Request);
        let known = self.keys[key].terminals.iter().rposition(|terminal| terminal.was_answered);
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

    /// A call continues on another node.
    pub(crate) fn continues_on(&mut self, call: usize, node: usize) {
        self.calls[call].nodes.insert(node);
    }

    /// The caller gets this answer.
    pub(crate) fn answered(&mut self, at: u64, now: Time, call: usize, response: &Response) {
        let key = self.calls[call].key;
        self.note(at, Some(key), format!("call {call} gets {response}"));
        self.count(at, call, response);
        self.calls[call].open = false;
        if response.denies_any_effect() {
            self.calls[call].denied = true;
            if self.calls[call].effects > 0 {
                let how = format!("call {call} gets \"{response}\" although it had an effect");
                return self.broken(Promise::TruthfulRefusal, Some(key), how);
            }
        }
        if let Err((promise, how)) = self.judge(at, now, call, response) {
            self.broken(promise, Some(key), format!("call {call} gets \"{response}\": {how}"));
        }
    }

    fn judge(
        &mut self,
        at: u64,
        now: Time,
        call: usize,
        response: &Response,
    ) -> Result<(), (Promise, String)> {
        let Call { key, payload, asked, known, .. } = self.calls[call];
        let file = &self.keys[key];
        let err = |promise, how: &str| Err((promise, how.to_owned()));
        let is_excused = matches!(response, Response::Store(_) | Response::Closing | Response::GivenUp(_))
            || file.damaged && matches!(response, Response::Unreadable)
            || self.has_wrong_clock && matches!(response, Response::ClockNotTrusted);
        if let Some(known) = known.map(|known| &file.terminals[known])
            && now + self.skew < known.expires_at
            && !is_excused
        {
            let fine = match response {
                Response::Replayed(replayed) => {
                    let is_same = replayed.outcome == known.outcome || file.has_erasure(known.period);
                    is_same && known.payload == Some(payload)
                }
                Response::Expired => file.periods[known.period].is_erased,
                Response::Mismatch => known.payload != Some(payload),
                _ => false,
            };
            if !fine {
                return err(Promise::SameAnswer, "another outcome was answered before and has not expired");
            }
        }
        match response {
            Response::Ran { ending, stored: Some(stored) } if is_final(*stored) => {
                let outcome = outcome_of(ending).cloned();
                self.acknowledged(call, outcome.as_ref(), *stored)
            }
            Response::Replayed(Replayed { outcome, stored }) if is_final(*stored) => {
                self.acknowledged(call, Some(outcome), *stored)
            }
            Response::Unknown if file.policy.class == Class::Local => {
                err(Promise::DoubtNeedsAFault, "a local command is never in doubt")
            }
            Response::Unknown if !file.touched => err(Promise::DoubtNeedsAFault, "no fault has affected it"),
            Response::Unreadable if !file.damaged => err(Promise::DoubtNeedsAFault, "there is no damage"),
            Response::Mismatch => {
                let since = file.bound.iter().rposition(|(since, _)| *since <= asked).unwrap_or(0);
                let seen = file.bound[since..].iter().take_while(|(since, _)| *since <= at);
                let other = seen.filter_map(|(_, bound)| *bound).any(|bound| bound != payload);
                if other { Ok(()) } else { err(Promise::HonestMismatch, "no other payload was bound") }
            }
            Response::Expired => {
                if self.is_tombstone(key, now) {
                    Ok(())
                } else {
                    err(Promise::HonestExpiry, "nothing has expired")
                }
            }
            Response::Quota if !self.has_quota => err(Promise::OnlyNewKeys, "there is no quota"),
            Response::Quota => {
                // Absent when the call was made, or at some moment since.
                let before = file.bound.iter().rposition(|(since, _)| *since <= asked);
                let seen = &file.bound[before.unwrap_or(0)..];
                let was_new = before.is_none() || seen.iter().any(|(_, bound)| bound.is_none());
                if was_new { Ok(()) } else { err(Promise::OnlyNewKeys, "its record existed all the time") }
            }
            Response::Exhausted if file.policy.attempts_max.is_none() => {
                err(Promise::NoWedge, "there is no limit on attempts")
            }
            Response::Refused(_) => err(Promise::Steady, "there is nothing to refuse"),
            _ => Ok(()),
        }
    }

    /// A moment that had certainly come, for every node of a call, when it was asked.
    ///
    /// A node that started with a clock far behind only knows a lower bound of the time: that of the mark, which is old
    /// if nodes had no undisturbed time to write theirs, and how long it has been running since.
    fn surely_known(&self, call: &Call) -> Time {
        if !self.has_wrong_clock {
            return call.asked_at;
        }
        let starts = call.nodes.iter().filter_map(|node| self.starts.get(node));
        let known = starts.map(|start| {
            let since = Duration::from_nanos(call.asked.saturating_sub(start.at));
            start.mark + since - START_MAX
        });
        known.chain([call.asked_at - DISTRUST_MAX]).min().unwrap_or(call.asked_at)
    }

    /// The answer is final: it must be stored, true, the caller's own, and not expired.
    fn acknowledged(
        &mut self,
        call: usize,
        outcome: Option<&Outcome>,
        stored: Stored,
    ) -> Result<(), (Promise, String)> {
        let Call { key, payload, asked, .. } = self.calls[call];
        let surely = self.surely_known(&self.calls[call]);
        let (skew, forgotten_after, is_confirmed) = (self.skew, self.forgotten_after, self.is_confirmed);
        let file = &mut self.keys[key];
        let err = |promise, how: String| Err((promise, how));
        let found = file.terminals.iter_mut().rev().find(|terminal| {
            let is_kept_longer = is_confirmed && Some(terminal.expires_at) < stored.expires_at;
            Some(&terminal.outcome) == outcome
                && (Some(terminal.expires_at) == stored.expires_at || is_kept_longer)
                && terminal.state == stored.state
        });
        let Some(terminal) = found else {
            return err(Promise::DurableBeforeTold, "it was never stored".to_owned());
        };
        terminal.was_answered = true;
        if terminal.outcome.body != Body::NotRetained && terminal.is_forgotten(asked, forgotten_after) {
            return err(Promise::ErasedIsGone, format!("it was erased at {:?}", terminal.erased_at));
        }
        let is_old = terminal.ring < self.ring;
        if terminal.payload != Some(payload) {
            return err(Promise::OwnPayload, format!("it is the outcome of payload {:?}", terminal.payload));
        }
        if surely >= terminal.expires_at + skew {
            return err(Promise::HonestExpiry, format!("it expired at {:?}", terminal.expires_at));
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

    fn count(&mut self, at: u64, call: usize, response: &Response) {
        let event = match response {
            Response::Replayed(_) => Exercised::Replay,
            Response::Mismatch => Exercised::Mismatch,
            Response::InProgress => Exercised::InProgress,
            Response::Unknown => Exercised::Unknown,
            Response::Expired => Exercised::Expired,
            Response::Exhausted => Exercised::Exhausted,
            Response::Unreadable => Exercised::Unreadable,
            Response::GivenUp(_) => Exercised::GivenUp,
            Response::Quota => Exercised::Quota,
            Response::ClockNotTrusted => Exercised::ClockNotTrusted,
            Response::Store(_) | Response::Closing | Response::Refused(_) => Exercised::Failed,
            Response::Ran { stored: None, .. } => Exercised::Unstored,
            // Counted where it happens.
            Response::CommitInDoubt | Response::Ran { .. } => return,
        };
        self.tally.count(event);
        // Longer than any answer takes that did not wait.
        let waited = at - self.calls[call].asked > 200_000_000;
        if waited && event == Exercised::Replay {
            self.tally.count(Exercised::Waited);
        }
    }
}

fn is_final(stored: Stored) -> bool {
    matches!(stored.state, StateName::Succeeded | StateName::FailedReplayable)
}
