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
    part("ada", 25_00, "gave up waiting, asked again"),
    part("ben", 8_50, "clicked three times"),
    part("cleo", 120_00, "crashed, started again, asked again"),
    part("dan", 64_20, "was delivered three times by a queue"),
    part("eve", 15_00, "has a bug: asked again for ten times as much"),
    part("fay", 40_00, "lost the connection, asked again"),
    part("gus", 17_30, "lost the connection, asked again"),
    part("hal", 9_90, "was told to come back, came back"),
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
