//! The ledger compared with what the customers wanted, and the table at the end. Its figures come only from the clients'
//! counters and the payment service's ledger.

use super::cast::money;
use super::voice::{StoryWriter, Tone};
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
    /// The amount in cents, to be paid once.
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
    /// Requests that the client sent.
    pub sent: u32,
    /// The charges in the ledger.
    pub charges: Vec<Charge>,
}

/// Sums over all customers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Totals {
    /// Payments that the customers wanted to make.
    pub intents: usize,
    /// Requests sent.
    pub attempts: u32,
    /// Charges made.
    pub charges: usize,
    /// The amount charged, in cents.
    pub taken: u64,
}

impl Account {
    /// Whether the ledger has exactly one charge, of that amount.
    pub fn is_balanced(&self, amount: u64) -> bool {
        matches!(&self.charges[..], [charge] if charge.amount == amount)
    }

    fn of(client: &Client, ledger: &[Charge]) -> Self {
        let charges = ledger.iter().filter(|charge| charge.customer == client.customer);
        Self { sent: client.sent(), charges: charges.cloned().collect() }
    }
}

impl Balance {
    /// Compares what each client sent, without and with Semel, with the ledger of that time. Charges to other customers
    /// are ignored.
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
    pub fn is_balanced(&self) -> bool {
        self.rows.iter().all(|row| row.with.is_balanced(row.amount))
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

    pub(super) async fn print<W: Write>(&self, voice: &mut StoryWriter<'_, W>) -> io::Result<()> {
        voice.act("The payment service's own ledger, in EUR").await?;
        voice.say_as("                     without Semel               with Semel", Tone::Quiet)?;
        voice.say_as(
            "       wants to pay  sent  charged      taken    sent  charged      taken",
            Tone::Quiet,
        )?;
        for row in &self.rows {
            let is_balanced = row.with.is_balanced(row.amount);
            let line = format!(
                "{:<6} {:>12}  {}    ",
                row.customer,
                money(row.amount),
                columns(row.without.sent, row.without.charges.len(), taken(&row.without)),
            );
            let last = columns(row.with.sent, row.with.charges.len(), taken(&row.with));
            voice.point(&line, &last, if is_balanced { Tone::Good } else { Tone::Bad }).await?;
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
            self.rows.iter().all(|row| row.without.is_balanced(row.amount)),
        )
        .await?;
        self.sum_up(voice, "with Semel", with, self.is_balanced()).await
    }

    async fn sum_up<W: Write>(
        &self,
        voice: &mut StoryWriter<'_, W>,
        how: &str,
        totals: Totals,
        is_balanced: bool,
    ) -> io::Result<()> {
        let Totals { intents, attempts, charges, taken } = totals;
        let sum = format!("{how:<13}  {intents} intents, {attempts} attempts, {charges:>2} charges: ");
        if is_balanced {
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
