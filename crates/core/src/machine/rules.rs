//! Rules that hold for every write, whichever transition computed it.
//!
//! Every transition ends with one check of the old record against the new one, also in production. No rule depends on
//! the time or on the kind of transition, because a check that repeats a transition's own logic repeats its mistakes.

use super::{Expect, Refusal, Write};
use crate::policy::Class;
use crate::record::{Proof, Record, State};
use std::fmt;

/// A rule that holds for every write over an existing record.
///
/// A transition that breaks one is a bug in Semel. It is [refused](Refusal::Inconsistent) and not stored: the
/// existing record is true, and the computed one cannot be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rule {
    /// The version grows by exactly one.
    VersionGrowsByOne,
    /// A new token comes with a new attempt and a higher fence, and a new attempt with a new token.
    TokenNamesAttempt,
    /// A doubt is cleared only by an outcome, a verdict, or a report of that attempt's owner.
    DoubtIsKept,
    /// A final outcome is followed by a tombstone or a new attempt, and by nothing else.
    FinalStaysFinal,
    /// The end of a tombstone only moves later.
    TombstoneIsKept,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::VersionGrowsByOne => "the version grows by exactly one",
            Self::TokenNamesAttempt => "a new token comes with a new attempt, and only then",
            Self::DoubtIsKept => "a doubt is cleared only by an outcome or a verdict",
            Self::FinalStaysFinal => "a final outcome stays final",
            Self::TombstoneIsKept => "the end of a tombstone only moves later",
        })
    }
}

/// The swap of `old` for `next`. Every transition over an existing record ends here.
pub(super) fn swap(old: &Record, next: Record) -> Result<Write, Refusal> {
    match broken_rule(old, &next) {
        None => Ok(Write { expect: Expect::unchanged(old), next }),
        Some(rule) => Err(Refusal::Inconsistent(rule)),
    }
}

/// The first rule that `next` breaks as a successor of `old`.
pub(super) fn broken_rule(old: &Record, next: &Record) -> Option<Rule> {
    let begins = next.token != old.token;
    let token_names_attempt = if begins { begins_attempt(old, next) } else { continues_attempt(old, next) };
    let doubt_is_kept = if begins { inherits_doubt(old, next) } else { keeps_doubt(old, next) };
    if old.version.checked_add(1) != Some(next.version) {
        Some(Rule::VersionGrowsByOne)
    } else if !token_names_attempt {
        Some(Rule::TokenNamesAttempt)
    } else if !doubt_is_kept {
        Some(Rule::DoubtIsKept)
    } else if old.is_terminal() && !begins && !next.is_terminal() {
        Some(Rule::FinalStaysFinal)
    } else if !begins && ends_earlier(old, next) {
        Some(Rule::TombstoneIsKept)
    } else {
        None
    }
}

/// Whether a tombstone is shortened. An outcome that becomes one is judged by its retention, which depends on the time.
fn ends_earlier(old: &Record, next: &Record) -> bool {
    match (&old.state, &next.state) {
        (State::Expired { until }, State::Expired { until: next_until }) => next_until < until,
        _ => false,
    }
}

fn begins_attempt(old: &Record, next: &Record) -> bool {
    let is_next = next.attempt == old.attempt.saturating_add(1);
    // The key is reused: only a record whose retention can end makes room for a first attempt.
    let is_first = next.attempt == 1 && old.gone_at().is_some();
    let is_open = matches!(next.state, State::Claimed { .. } | State::Processing { .. });
    // A fence at the end of its range cannot grow; only an absurd clock leads there.
    let is_fenced = next.fence > old.fence || old.fence == u64::MAX;
    (is_next || is_first) && is_open && is_fenced
}

fn continues_attempt(old: &Record, next: &Record) -> bool {
    (next.attempt, next.fence) == (old.attempt, old.fence)
}

/// Whether a new attempt records that an earlier one may have taken effect.
fn inherits_doubt(old: &Record, next: &Record) -> bool {
    let in_doubt = match old.state {
        State::Claimed { .. } => old.earlier_doubt,
        State::Processing { .. } | State::Unknown { .. } => old.policy.class != Class::Local,
        _ => false,
    };
    next.earlier_doubt || !in_doubt
}

/// Whether doubt about this attempt or an earlier one is kept until it is resolved.
fn keeps_doubt(old: &Record, next: &Record) -> bool {
    let is_unknown = matches!(old.state, State::Unknown { .. });
    let is_open = is_unknown || matches!(old.state, State::Claimed { .. } | State::Processing { .. });
    let has_begun =
        is_unknown || matches!(old.state, State::Processing { .. }) && old.policy.class != Class::Local;
    let inherited = old.earlier_doubt && is_open;
    match next.state {
        State::Claimed { .. } => next.earlier_doubt == old.earlier_doubt && !has_begun,
        State::Processing { .. } => next.earlier_doubt == old.earlier_doubt && !is_unknown,
        State::Unknown { .. } => next.earlier_doubt == old.earlier_doubt,
        State::Succeeded { .. }
        | State::FailedReplayable { .. }
        | State::FailedNotReplayable { proof: Proof::Verdict, .. } => true,
        // The owner can only speak for its own attempt, not for earlier ones.
        State::FailedNotReplayable { proof: Proof::Owner, .. } => !inherited,
        State::FailedNotReplayable { proof: Proof::NeverBegan, .. } => !inherited && !has_begun,
        State::Expired { .. } => !is_open,
    }
}
