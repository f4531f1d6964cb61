//! The customers: what each wants to pay, and what goes wrong.

/// A customer's part in the story.
pub(super) struct Part {
    pub(super) customer: &'static str,
    /// In cents.
    pub(super) amount: u64,
    /// What goes wrong, with and without Semel.
    pub(super) mishap: &'static str,
}

/// Every customer, in the order of the ledger. Each wants to pay once.
pub(super) const CAST: [Part; 8] = [
    part("ada", 2500, "timed out and retried"),
    part("ben", 850, "clicked three times"),
    part("cleo", 12_000, "crashed, restarted and retried"),
    part("dan", 6420, "was delivered three times by a queue"),
    part("eve", 1500, "retried with ten times the amount (a bug)"),
    part("fay", 4000, "lost the connection and retried"),
    part("gus", 1730, "lost the connection and retried"),
    part("hal", 990, "got \"busy\" and retried later"),
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
