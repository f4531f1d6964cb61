//! The process that is killed: many tasks that send new keys, old keys and the same key concurrently, until
//! they are killed or their time is up. The audit is another process.

use crate::chance::Chance;
use crate::client::Client;
use crate::clock::Stopwatch;
use crate::journal::{Kind, Tail};
use crate::sabotage::Sabotage;
use crate::workspace::{Failure, Open, Workspace};
use clap::Parser;
use std::num::ParseIntError;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

/// How many tasks send commands at once.
const TASKS: u64 = 24;

/// The options of a worker, which the judge starts.
#[derive(Debug, Clone, Parser)]
#[command(no_binary_name = true)]
pub(crate) struct WorkerOptions {
    #[command(flatten)]
    pub(crate) workspace: Workspace,
    #[arg(long)]
    pub(crate) seed: u64,
    #[arg(long)]
    pub(crate) round: u64,
    #[arg(long)]
    pub(crate) run: String,
    /// After this time it ends.
    #[arg(long = "millis", value_parser = millis)]
    pub(crate) life: Duration,
    /// Whether it only reads; see [`crate::observer`].
    #[arg(long)]
    pub(crate) read_only: bool,
    #[arg(long)]
    pub(crate) sabotage: Option<Sabotage>,
}

fn millis(text: &str) -> Result<Duration, ParseIntError> {
    text.parse().map(Duration::from_millis)
}

struct Session {
    client: Arc<Client>,
    options: WorkerOptions,
    next_key: AtomicU64,
    /// Keys of earlier rounds, and of the other process of this round.
    old: Vec<String>,
    began: Stopwatch,
}

/// Sends commands until its time is up. Prints a line as soon as it accepts commands.
pub(crate) async fn run(options: WorkerOptions) -> Result<(), Failure> {
    let began = Stopwatch::start();
    let WorkerOptions { workspace, seed, run, sabotage, .. } = &options;
    let issued = Tail::from_the_start().lines(&workspace.ledger())?;
    let old = issued.into_iter().filter(|line| line.kind == Kind::Issue).map(|line| line.key).collect();
    let open = Open::new(&workspace.address, run, *sabotage).await?;
    let client = Client::new(open.engine.clone(), workspace, *seed, run, *sabotage)?;
    println!("ready");
    let session = Arc::new(Session { client, next_key: AtomicU64::new(0), old, began, options });
    let mut tasks = JoinSet::new();
    for index in 0..TASKS {
        tasks.spawn(serve(Arc::clone(&session), index));
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    open.close().await;
    Ok(())
}

async fn serve(session: Arc<Session>, index: u64) -> Result<(), Failure> {
    let WorkerOptions { seed, run, life, .. } = &session.options;
    let mut chance = Chance::named(*seed, &format!("{run} {index}"));
    let mut own_keys: Vec<String> = Vec::new();
    while session.began.lap() < *life {
        match chance.within(0..100) {
            0..50 => {
                let key = session.fresh_key()?;
                session.client.ask(&key).await?;
                own_keys.push(key);
            }
            50..65 => {
                let key = session.fresh_key()?;
                send_concurrently(&session, &key, chance.within(2..5)).await?;
                own_keys.push(key);
            }
            65..80 if !own_keys.is_empty() => {
                let key = &own_keys[chance.index(own_keys.len())];
                let answer = session.client.ask(key).await?;
                if answer.acknowledges() && session.client.plan(key).is_kept_long() && chance.percent(20) {
                    session.client.ask_with_another_payload(key).await?;
                }
            }
            _ if !session.old.is_empty() => {
                let from = if chance.percent(50) { session.old.len().saturating_sub(200) } else { 0 };
                let key = &session.old[from + chance.index(session.old.len() - from)];
                send_concurrently(&session, key, chance.within(1..3)).await?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Sends the same command several times concurrently.
async fn send_concurrently(session: &Arc<Session>, key: &str, times: u64) -> Result<(), Failure> {
    let mut twins = JoinSet::new();
    for _ in 0..times {
        let (client, key) = (Arc::clone(&session.client), key.to_owned());
        twins.spawn(async move { client.ask(&key).await.map(drop) });
    }
    while let Some(ended) = twins.join_next().await {
        ended??;
    }
    Ok(())
}

impl Session {
    /// A key that this process has not used. Two processes of one round use the same keys.
    fn fresh_key(&self) -> Result<String, Failure> {
        let number = self.next_key.fetch_add(1, Ordering::Relaxed);
        let key = format!("round-{}-key-{number}", self.options.round);
        self.client.issue(&key)?;
        Ok(key)
    }
}
