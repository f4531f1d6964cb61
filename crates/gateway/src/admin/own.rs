//! Whose a claim is.
//!
//! What lives here: which claims a token is shown, and which it may go on with. What must never: a rule about what a claim means,
//! or which commands are the same; the keys of all tokens are shared, so that no second token makes a second effect.

use super::Shared;
use super::claims::is_claim;
use super::gate::Who;
use semel::core::record::Record;

/// Whether a claim is shown to `who`: its own, and without tokens every one.
pub(super) fn is_shown(shared: &Shared, who: &Who, record: &Record) -> bool {
    let has_claimed = || beginners(record).any(|(_, name)| name == &*who.name);
    is_claim(record.operation()) && (shared.options.tokens.is_empty() || has_claimed())
}

/// Whether `who`, with the attempt's own token, may go on with the attempt that the record is at: one that it began, or that no
/// token which is configured now began. (Tokens may have been configured, renamed or taken out while it ran.)
pub(super) fn may_go_on(shared: &Shared, who: &Who, record: &Record) -> bool {
    let began = beginners(record).find(|(attempt, _)| *attempt == record.attempt());
    let is_token = |name: &str| shared.options.tokens.iter().any(|token| token.name == name);
    let is_anothers = began.is_some_and(|(_, name)| name != &*who.name && is_token(name));
    is_claim(record.operation()) && !is_anothers
}

/// Who began each attempt that the history still knows of: the first entry of each.
fn beginners(record: &Record) -> impl Iterator<Item = (u32, &str)> {
    let mut last = 0;
    record.history().entries().iter().filter_map(move |entry| {
        let is_first = std::mem::replace(&mut last, entry.attempt) != entry.attempt;
        is_first.then_some((entry.attempt, &*entry.who))
    })
}
