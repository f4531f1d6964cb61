//! Who appears.
//!
//! What lives here: the customers, what each wants to pay and what goes wrong. What must never: how it ends.

/// A customer's part.
pub(super) struct Part {
    pub(super) customer: &'static str,
    /// In cents.
    pub(super) amount: u64,
    /// What happens to them, wherever they send their request.
    pub(super) mishap: &'static str,
}

/// Everybody, in the order of the ledger. Each wants to pay once.
pub(super) const CAST: [Part; 8] = [
    part("ada", 2500, "gave up waiting, asked again"),
    part("ben", 850, "clicked three times"),
    part("cleo", 12_000, "crashed, restarted, asked again"),
    part("dan", 6420, "had his order delivered three times by a queue"),
    part("eve", 1500, "asked again for ten times as much (a bug)"),
    part("fay", 4000, "lost the connection, asked again"),
    part("gus", 1730, "lost the connection, asked again"),
    part("hal", 990, "was told to come back later, and did"),
];

pub(super) const ADA: usize = 0;
pub(super) const BEN: usize = 1;
pub(super) const CLEO: usize = 2;
pub(super) const DAN: usize = 3;
pub(super) const EVE: usize = 4;
pub(super) const FAY: usize = 5;
pub(super) const GUS: usize = 6;
pub(super) const HAL: usize = 7;

const fn part(customer: &'static str, amount: u64, mishap: &'static str) -> Part {
    Part { customer, amount, mishap }
}

/// Cents as people write them.
pub(super) fn money(cents: u64) -> String {
    format!("{}.{:02}", cents / 100, cents % 100)
}
