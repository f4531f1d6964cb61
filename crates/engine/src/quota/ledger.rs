//! All limits together: a request is charged on every level or on none.
//!
//! The decision is pure: time and the store's counts are arguments.

use super::bucket::{Bucket, Price, Taken};
use super::config::Quotas;
use super::table::Table;
use super::tally::{Base, Cap, CapDecision, Tally};
use super::window::{Span, Window};
use super::{Answer, Exceeded, Limit, Question};
use semel_core::id::CallerHash;
use semel_core::store::Count;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// When to retry if only the end of a record's retention makes room.
const CAP_RETRY: Duration = Duration::from_mins(1);

/// The unit of a limit per address: an IPv4 address, or a /64 network of IPv6, which one customer usually has.
pub(super) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// What a request was charged on each level.
#[derive(Debug)]
pub(super) struct Charges {
    caller: Option<(CallerHash, u64, Taken)>,
    address: Option<(IpAddr, u64, Taken)>,
    total: Option<Taken>,
    window: Option<(IpAddr, u64, u128)>,
    caller_records: Option<(CallerHash, u64)>,
    total_records: bool,
}

/// The decision about a new key. Nothing is charged yet.
pub(super) enum Judged {
    Room,
    Refused(Exceeded),
    /// The store has to count first.
    Ask(Count, u64),
}

/// The limits.
struct LedgerLimits {
    caller: Option<Price>,
    address: Option<Price>,
    total: Option<Price>,
    window: Option<u32>,
    span: Span,
    caller_records: Option<Cap>,
    total_records: Option<Cap>,
}

/// What was used up on all levels.
pub(super) struct Ledger {
    limits: LedgerLimits,
    callers: Table<CallerHash, Bucket>,
    addresses: Table<IpAddr, Bucket>,
    total: Bucket,
    windows: Table<IpAddr, Window>,
    slot: u128,
    caller_records: Table<CallerHash, Tally>,
    total_records: Tally,
}

impl Ledger {
    pub(super) fn new(quotas: &Quotas) -> Self {
        let cap = |records: Option<u64>, recount_after| records.map(|records| Cap { records, recount_after });
        let limits = LedgerLimits {
            caller: quotas.new_per_caller.map(Price::from),
            address: quotas.new_per_address.map(Price::from),
            total: quotas.new_in_total.map(Price::from),
            window: quotas.records_per_address,
            span: Span::of(quotas.address_window),
            caller_records: cap(quotas.records_per_caller, quotas.recount_caller_after),
            total_records: cap(quotas.records_in_total, quotas.recount_total_after),
        };
        Self {
            limits,
            callers: Table::new(quotas.tracked_max),
            addresses: Table::new(quotas.tracked_max),
            total: Bucket::default(),
            windows: Table::new(quotas.tracked_max),
            slot: 0,
            caller_records: Table::new(quotas.tracked_max),
            total_records: Tally::default(),
        }
    }

    /// Whether a new key of `caller` from `network` is within every limit; otherwise why not, or what the store has
    /// to count first. Charge the key under the same lock.
    pub(super) fn judge(
        &mut self,
        caller: CallerHash,
        network: Option<IpAddr>,
        now: Duration,
        answers: &[Answer],
    ) -> Judged {
        self.move_on(now);
        for answer in answers {
            self.take_over(answer);
        }
        let refused =
            self.waits(&caller, network, now).into_iter().flatten().max_by_key(|refused| refused.retry_after);
        if let Some(exceeded) = refused {
            return Judged::Refused(exceeded);
        }
        match self.cap_decision(caller, now, answers) {
            Some((which, CapDecision::Full, _)) => {
                Judged::Refused(Exceeded { which, retry_after: CAP_RETRY, is_of_operation: false })
            }
            Some((_, CapDecision::Ask, (what, at_most))) => Judged::Ask(what, at_most),
            _ => Judged::Room,
        }
    }

    /// Removes old slots from every window, so that the emptiest one is known.
    fn move_on(&mut self, now: Duration) {
        let slot = self.limits.span.slot(now);
        if self.limits.window.is_some() && slot > self.slot {
            self.slot = slot;
            self.windows.change_all(|window| *window = window.at(slot));
        }
    }

    /// The limits that only need time.
    fn waits(&self, caller: &CallerHash, network: Option<IpAddr>, now: Duration) -> [Option<Exceeded>; 4] {
        let LedgerLimits { span, .. } = self.limits;
        let exceeded = |which, wait: Option<Duration>| {
            let wait = wait.filter(|wait| !wait.is_zero());
            wait.map(|retry_after| Exceeded { which, retry_after, is_of_operation: false })
        };
        let bucket = |bucket: &Bucket, price: Price| bucket.wait(price, now);
        let by_caller = self.limits.caller.map(|price| bucket(&self.callers.peek(caller), price));
        let by_address = network
            .zip(self.limits.address)
            .map(|(network, price)| bucket(&self.addresses.peek(&network), price));
        let by_window = network
            .zip(self.limits.window)
            .map(|(network, cap)| self.windows.peek(&network).wait(cap, span, now));
        let in_total = self.limits.total.map(|price| bucket(&self.total, price));
        [
            exceeded(Limit::NewPerCaller, by_caller),
            exceeded(Limit::NewPerAddress, by_address),
            exceeded(Limit::RecordsPerAddress, by_window),
            exceeded(Limit::NewInTotal, in_total),
        ]
    }

    /// The most urgent cap that the store counts: one that is full, otherwise one that has to be counted.
    fn cap_decision(
        &self,
        caller: CallerHash,
        now: Duration,
        answers: &[Answer],
    ) -> Option<(Limit, CapDecision, (Count, u64))> {
        let answered = |what| answers.iter().any(|answer| answer.question.what == what);
        let of_caller = self.limits.caller_records.map(|cap| {
            let what = Count::Caller(caller);
            let decision = self.caller_records.peek(&caller).decide(cap, now, answered(what));
            (Limit::RecordsPerCaller, decision, (what, cap.records))
        });
        let of_all = self.limits.total_records.map(|cap| {
            let what = Count::Records;
            (Limit::RecordsInTotal, self.total_records.decide(cap, now, answered(what)), (what, cap.records))
        });
        let urgency = |(_, decision, _): &(_, CapDecision, _)| match decision {
            CapDecision::Full => 0,
            CapDecision::Ask => 1,
            CapDecision::Room => 2,
        };
        of_caller.into_iter().chain(of_all).min_by_key(urgency)
    }

    /// The count that the store has to make.
    pub(super) fn ask(&mut self, what: Count, at_most: u64, now: Duration) -> Question {
        let (serial, mark) = match what {
            Count::Caller(caller) => self.caller_records.change(caller, |tally| tally.ask(now)),
            _ => (0, self.total_records.ask(now)),
        };
        Question { what, at_most, asked_at: now, mark, serial }
    }

    fn take_over(&mut self, answer: &Answer) {
        let Question { what, asked_at, mark, serial, .. } = answer.question;
        let base = Base { count: answer.count, mark, asked_at };
        match what {
            Count::Caller(caller) => {
                let known = self.caller_records.change(caller, |_| ()).0;
                // The entry is newer than the question, so everything it admitted came after it.
                let base = if known == serial { base } else { Base { mark: 0, ..base } };
                self.caller_records.amend(caller, known, |tally| tally.counted(base));
            }
            _ => self.total_records.counted(base),
        }
    }

    /// The store did not answer.
    pub(super) fn unanswered(&mut self, question: &Question) {
        match question.what {
            Count::Caller(caller) => {
                self.caller_records.amend(caller, question.serial, Tally::unanswered);
            }
            _ => self.total_records.unanswered(),
        }
    }

    /// Charges a new key on every level.
    pub(super) fn charge(&mut self, caller: CallerHash, network: Option<IpAddr>, now: Duration) -> Charges {
        let slot = self.slot;
        let LedgerLimits { caller: caller_price, address: address_price, total: total_price, .. } =
            self.limits;
        let by_caller = caller_price.map(|price| {
            let (serial, taken) = self.callers.change(caller, |bucket| bucket.take(price, now));
            (caller, serial, taken)
        });
        let by_address = network.zip(address_price).map(|(network, price)| {
            let (serial, taken) = self.addresses.change(network, |bucket| bucket.take(price, now));
            (network, serial, taken)
        });
        let by_window = network.filter(|_| self.limits.window.is_some()).map(|network| {
            let (serial, slot) = self.windows.change(network, |window| window.add(slot));
            (network, serial, slot)
        });
        let caller_records = self.limits.caller_records.map(|_| {
            let (serial, ()) = self.caller_records.change(caller, Tally::let_in);
            (caller, serial)
        });
        let total_records = self.limits.total_records.is_some();
        if total_records {
            self.total_records.let_in();
        }
        Charges {
            caller: by_caller,
            address: by_address,
            total: total_price.map(|price| self.total.take(price, now)),
            window: by_window,
            caller_records,
            total_records,
        }
    }

    /// The insert is over. If nothing was inserted, every level gets its charge back.
    pub(super) fn settle(&mut self, charges: &Charges, refunded: bool) {
        if let Some((caller, serial)) = charges.caller_records {
            self.caller_records.amend(caller, serial, |tally| tally.settle(refunded));
        }
        if charges.total_records {
            self.total_records.settle(refunded);
        }
        if !refunded {
            return;
        }
        if let Some((caller, serial, taken)) = charges.caller {
            self.callers.amend(caller, serial, |bucket| bucket.put_back(taken));
        }
        if let Some((network, serial, taken)) = charges.address {
            self.addresses.amend(network, serial, |bucket| bucket.put_back(taken));
        }
        if let Some(taken) = charges.total {
            self.total.put_back(taken);
        }
        if let Some((network, serial, slot)) = charges.window {
            self.windows.amend(network, serial, |window| window.take_back(slot));
        }
    }

    #[cfg(test)]
    pub(super) fn tracked(&self) -> [usize; 4] {
        [self.callers.len(), self.addresses.len(), self.windows.len(), self.caller_records.len()]
    }
}
