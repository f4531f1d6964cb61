//! The ledger, held against what the customers wanted.
//!
//! What lives here: counting, and the table at the end. What must never: a figure from anywhere but the clients' counters and
//! the payment service's ledger.

use super::cast::money;
use super::voice::{Tone, Voice};
use crate::demo::client::Client;
use crate::demo::payments::Charge;
use std::cmp::Ordering;
use std::io::{self, Write};

/// How the story ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Balance {
    /// A row for each customer.
    pub rows: Vec<Row>,
}

/// One customer's intent, and what it led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Who wanted to pay.
    pub customer: String,
    /// How much, in cents. Once.
    pub amount: u64,
    /// Straight to the payment service.
    pub without: Account,
    /// Through the gateway.
    pub with: Account,
    /// The key that was sent through the gateway.
    pub key: String,
}

/// What was sent for one customer, and what was charged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Requests that left the client.
    pub sent: u32,
    /// The charges that the ledger has.
    pub charges: Vec<Charge>,
}

/// Sums over all customers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Totals {
    /// What was wanted.
    pub intents: usize,
    /// What was sent.
    pub attempts: u32,
    /// What was charged.
    pub charges: usize,
    /// How much money that was, in cents.
    pub taken: u64,
}

impl Account {
    /// Whether the ledger has one charge, of that amount.
    pub fn is_even(&self, amount: u64) -> bool {
        matches!(&self.charges[..], [charge] if charge.amount == amount)
    }

    fn of(client: &Client, ledger: &[Charge]) -> Self {
        let charges = ledger.iter().filter(|charge| charge.customer == client.customer);
        Self { sent: client.sent(), charges: charges.cloned().collect() }
    }
}

impl Balance {
    /// Holds what each client sent, without and with Semel, against the ledger of that time. Charges to anybody else are
    /// somebody else's business.
    pub(super) fn of(without: (&[Client], &[Charge]), with: (&[Client], &[Charge])) -> Self {
        let row = |(alone, guarded): (&Client, &Client)| Row {
            customer: guarded.customer.to_owned(),
            amount: guarded.amount,
            without: Account::of(alone, without.1),
            with: Account::of(guarded, with.1),
            key: guarded.key.clone(),
        };
        Self { rows: without.0.iter().zip(with.0).map(row).collect() }
    }

    /// Whether every customer was charged once through the gateway, and the right amount.
    pub fn is_even(&self) -> bool {
        self.rows.iter().all(|row| row.with.is_even(row.amount))
    }

    /// The sums without Semel.
    pub fn without(&self) -> Totals {
        self.totals(|row| &row.without)
    }

    /// The sums with Semel.
    pub fn with(&self) -> Totals {
        self.totals(|row| &row.with)
    }

    /// What the customers wanted to pay, in cents.
    pub fn wanted(&self) -> u64 {
        self.rows.iter().map(|row| row.amount).sum()
    }

    fn totals(&self, account: impl Fn(&Row) -> &Account) -> Totals {
        let accounts = || self.rows.iter().map(&account);
        Totals {
            intents: self.rows.len(),
            attempts: accounts().map(|account| account.sent).sum(),
            charges: accounts().map(|account| account.charges.len()).sum(),
            taken: accounts().flat_map(|account| &account.charges).map(|charge| charge.amount).sum(),
        }
    }

    pub(super) async fn tell<W: Write>(&self, voice: &mut Voice<'_, W>) -> io::Result<()> {
        voice.act("What the payment service's own ledger says, in EUR.").await?;
        voice.say_as("                     without Semel               with Semel", Tone::Quiet)?;
        voice.say_as(
            "       wants to pay  sent  charged      taken    sent  charged      taken",
            Tone::Quiet,
        )?;
        for row in &self.rows {
            let is_even = row.with.is_even(row.amount);
            let line = format!(
                "{:<6} {:>12}  {}    ",
                row.customer,
                money(row.amount),
                columns(row.without.sent, row.without.charges.len(), taken(&row.without)),
            );
            let last = columns(row.with.sent, row.with.charges.len(), taken(&row.with));
            voice.point(&line, &last, if is_even { Tone::Good } else { Tone::Bad }).await?;
        }
        let (without, with) = (self.without(), self.with());
        let line = format!(
            "{:<6} {:>12}  {}    {}",
            "sum",
            money(self.wanted()),
            columns(without.attempts, without.charges, without.taken),
            columns(with.attempts, with.charges, with.taken),
        );
        voice.say_as(&line, Tone::Strong)?;
        voice.say("")?;
        self.sum_up(
            voice,
            "without Semel",
            without,
            self.rows.iter().all(|row| row.without.is_even(row.amount)),
        )
        .await?;
        self.sum_up(voice, "with Semel", with, self.is_even()).await
    }

    async fn sum_up<W: Write>(
        &self,
        voice: &mut Voice<'_, W>,
        how: &str,
        totals: Totals,
        is_even: bool,
    ) -> io::Result<()> {
        let Totals { intents, attempts, charges, taken } = totals;
        let sum = format!("{how:<13}  {intents} intents, {attempts} attempts, {charges:>2} charges: ");
        if is_even {
            return voice.point(&sum, "balanced", Tone::Good).await;
        }
        let wanted = self.wanted();
        let off = match taken.cmp(&wanted) {
            Ordering::Greater => format!("{} too much", money(taken - wanted)),
            Ordering::Less => format!("{} too little", money(wanted - taken)),
            Ordering::Equal => "not balanced".to_owned(),
        };
        voice.point(&sum, &off, Tone::Bad).await
    }
}

fn columns(sent: u32, charges: usize, taken: u64) -> String {
    format!("{sent:>4}  {charges:>7}  {:>9}", money(taken))
}

fn taken(account: &Account) -> u64 {
    account.charges.iter().map(|charge| charge.amount).sum()
}
