//! The ledger of the demo's payment service.
//!
//! It contains every charge in order. The service takes no charge back and recognises no repeat, like many real ones.

use std::sync::Arc;
use tokio::sync::watch;

/// One charge in the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Charge {
    /// `ch_` and a number.
    pub id: String,
    /// In the currency's smallest unit.
    pub amount: u64,
    /// In lower case: `eur`.
    pub currency: String,
    /// Who paid.
    pub customer: String,
    /// The request's `Operation-Id`, if it had one.
    pub operation_id: Option<String>,
}

/// What a request asks the service to charge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) amount: u64,
    pub(super) currency: String,
    pub(super) customer: String,
}

/// The charges of a payment service. Clones show the same ledger.
#[derive(Debug, Clone)]
pub struct Ledger {
    books: Arc<watch::Sender<LedgerState>>,
}

#[derive(Debug, Default)]
struct LedgerState {
    made: u64,
    charges: Vec<Charge>,
}

impl Ledger {
    pub(super) fn new() -> Self {
        Self { books: Arc::new(watch::Sender::new(LedgerState::default())) }
    }

    /// Makes a charge.
    pub(super) fn enter(&self, order: Order, operation_id: Option<String>) -> Charge {
        let Order { amount, currency, customer } = order;
        let mut entered = Charge { id: String::new(), amount, currency, customer, operation_id };
        self.books.send_modify(|books| {
            books.made += 1;
            entered.id = format!("ch_{:04}", books.made);
            books.charges.push(entered.clone());
        });
        entered
    }

    /// Every charge, the oldest first.
    pub fn charges(&self) -> Vec<Charge> {
        self.books.borrow().charges.clone()
    }

    /// Waits until `customer` has been charged `times` times.
    pub async fn until_charged(&self, customer: &str, times: usize) {
        let count =
            |books: &LedgerState| books.charges.iter().filter(|charge| charge.customer == customer).count();
        // `self` holds the sender, so the channel cannot close meanwhile.
        drop(self.books.subscribe().wait_for(|books| count(books) >= times).await);
    }

    /// Closes the books: returns their charges and starts empty ones. IDs continue; none is used twice.
    pub fn close_books(&self) -> Vec<Charge> {
        let mut closed = Vec::new();
        self.books.send_modify(|books| closed = std::mem::take(&mut books.charges));
        closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(customer: &str) -> Order {
        Order { amount: 100, currency: "eur".to_owned(), customer: customer.to_owned() }
    }

    #[test]
    fn closed_books_give_no_id_again() {
        let ledger = Ledger::new();
        let first = ledger.enter(order("ada"), Some("operation".to_owned()));
        let second = ledger.enter(order("ada"), Some("operation".to_owned()));
        assert_ne!(first.id, second.id);
        assert_eq!(ledger.close_books(), [first, second.clone()]);
        assert!(ledger.charges().is_empty());
        assert_ne!(ledger.enter(order("ada"), None).id, second.id);
    }

    #[tokio::test]
    async fn a_charge_wakes_those_who_wait_for_it() {
        let ledger = Ledger::new();
        ledger.enter(order("ben"), None);
        let waiting = tokio::spawn({
            let ledger = ledger.clone();
            async move { ledger.until_charged("ada", 2).await }
        });
        ledger.enter(order("ada"), None);
        ledger.enter(order("ada"), None);
        waiting.await.expect("it was woken");
    }
}
