//! Which claims a token can see, and which it may continue.
//!
//! The keys of all tokens are shared: a second token cannot cause a second effect.

use super::Shared;
use super::claims::is_claim;
use super::gate::Principal;
use semel::core::record::{Record, StateName};

/// Whether `who` may see a claim: its own; without tokens, every one.
pub(super) fn is_visible(shared: &Shared, who: &Principal, record: &Record) -> bool {
    let has_claimed = || claimants(record).any(|(_, name)| name == &*who.name);
    is_claim(record.operation()) && (shared.options.tokens.is_empty() || has_claimed())
}

/// Whether `who`, with the attempt's own token, may continue the current attempt: one that it claimed, or that no
/// currently configured token claimed. (Tokens may have been added, renamed or removed while it ran.)
pub(super) fn may_continue(shared: &Shared, who: &Principal, record: &Record) -> bool {
    let began = claimants(record).find(|(attempt, _)| *attempt == record.attempt());
    let is_token = |name: &str| shared.options.tokens.iter().any(|token| token.name == name);
    let is_anothers = began.is_some_and(|(_, name)| name != &*who.name && is_token(name));
    is_claim(record.operation()) && !is_anothers
}

/// Who claimed each attempt in the history: its first entry, unless that is about its end. (A long history drops
/// entries in the middle.)
fn claimants(record: &Record) -> impl Iterator<Item = (u32, &str)> {
    let mut last = 0;
    record.history().entries().iter().filter_map(move |entry| {
        let is_first = std::mem::replace(&mut last, entry.attempt) != entry.attempt;
        let is_claim = matches!(entry.to, StateName::Claimed | StateName::Processing);
        (is_first && is_claim).then_some((entry.attempt, &*entry.who))
    })
}
