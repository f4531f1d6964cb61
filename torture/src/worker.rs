//! The process that is killed.
//!
//! What lives here: many tasks that send new keys, old keys and the same key at the same time, until somebody kills them
//! or their time is up. What must never: an audit; whoever may die at any moment cannot judge.

use crate::chance::Chance;
use crate::client::Client;
use crate::clock::Stopwatch;
use crate::journal::{Kind, Tail};
use crate::place::{Failure, Open, Place};
use crate::sabotage::Sabotage;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

/// How many tasks send commands at once.
const TASKS: u64 = 24;

/// What a worker is told to do.
#[derive(Debug, Clone)]
pub(crate) struct Orders {
    pub(crate) place: Place,
    pub(crate) seed: u64,
    pub(crate) round: u64,
    pub(crate) run: String,
    /// When it may end by itself.
    pub(crate) life: Duration,
    /// Whether it only reads; see [`crate::looker`].
    pub(crate) looks: bool,
    pub(crate) sabotage: Option<Sabotage>,
}

struct Shift {
    client: Arc<Client>,
    orders: Orders,
    next_key: AtomicU64,
    /// Keys of earlier rounds, and of other processes of this one.
    old: Vec<String>,
    began: Stopwatch,
}

/// Works until its life is over. Prints a line as soon as it takes commands.
pub(crate) async fn run(orders: Orders) -> Result<(), Failure> {
    let began = Stopwatch::start();
    let Orders { place, seed, run, sabotage, .. } = &orders;
    let issued = Tail::from_the_start().lines(&place.ledger())?;
    let old = issued.into_iter().filter(|line| line.kind == Kind::Issue).map(|line| line.key).collect();
    let open = Open::new(&place.address, run, *sabotage).await?;
    let client = Client::new(open.engine.clone(), place, *seed, run, *sabotage)?;
    println!("ready");
    let shift = Arc::new(Shift { client, next_key: AtomicU64::new(0), old, began, orders });
    let mut tasks = JoinSet::new();
    for index in 0..TASKS {
        tasks.spawn(serve(Arc::clone(&shift), index));
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    open.close().await;
    Ok(())
}

async fn serve(shift: Arc<Shift>, index: u64) -> Result<(), Failure> {
    let Orders { seed, run, life, .. } = &shift.orders;
    let mut chance = Chance::named(*seed, &format!("{run} {index}"));
    let mut own: Vec<String> = Vec::new();
    while shift.began.lap() < *life {
        match chance.within(0..100) {
            0..50 => {
                let key = shift.fresh_key()?;
                shift.client.ask(&key).await?;
                own.push(key);
            }
            50..65 => {
                let key = shift.fresh_key()?;
                at_once(&shift, &key, chance.within(2..5)).await?;
                own.push(key);
            }
            65..80 if !own.is_empty() => {
                let key = &own[chance.index(own.len())];
                let told = shift.client.ask(key).await?;
                if told.acknowledges() && shift.client.plan(key).is_kept_long() && chance.percent(20) {
                    shift.client.ask_by_mistake(key).await?;
                }
            }
            _ if !shift.old.is_empty() => {
                let from = if chance.percent(50) { shift.old.len().saturating_sub(200) } else { 0 };
                let key = &shift.old[from + chance.index(shift.old.len() - from)];
                at_once(&shift, key, chance.within(1..3)).await?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// The same command, several times at the same time.
async fn at_once(shift: &Arc<Shift>, key: &str, times: u64) -> Result<(), Failure> {
    let mut twins = JoinSet::new();
    for _ in 0..times {
        let (client, key) = (Arc::clone(&shift.client), key.to_owned());
        twins.spawn(async move { client.ask(&key).await.map(drop) });
    }
    while let Some(ended) = twins.join_next().await {
        ended??;
    }
    Ok(())
}

impl Shift {
    /// A key that nobody in this process has used. Two processes of one round come by the same keys.
    fn fresh_key(&self) -> Result<String, Failure> {
        let number = self.next_key.fetch_add(1, Ordering::Relaxed);
        let key = format!("round-{}-key-{number}", self.orders.round);
        self.client.issue(&key)?;
        Ok(key)
    }
}
