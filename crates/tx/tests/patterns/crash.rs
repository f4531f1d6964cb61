//! Processes that are killed with -9 at any point: every effect once, every balance exact. Their work also
//! fails, ignores errors, drops calls in the middle, and ends transactions.
//!
//! On PostgreSQL the network fails as well. `SEMEL_TX_ROUNDS=100` runs more rounds than the default, as
//! `cargo xtask crash patterns` does.

use crate::world::{Lite, Pg, World, address, url, with_effects};
use semel_core::id::OperationId;
use semel_testkit::proxy::{FaultProxy, FaultRates, Protocol, Seeded};
use semel_tx::BoxError;
use semel_tx::patterns::{
    Counter, EventCounter, FenceGuard, Guarded, Inbox, Message, MessageId, PatternError, Tables,
};
use sqlx::Connection as _;
use std::future::poll_fn;
use std::io::{BufRead as _, BufReader, Write as _};
use std::pin::pin;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;
use tokio::task::JoinSet;

const LOCATION: &str = "SEMEL_TX_TEST_PLACE";
const PROXY_URL: &str = "SEMEL_TX_TEST_URL";
const ROUND: &str = "SEMEL_TX_TEST_ROUND";
/// How many messages and operations each round has; both processes get every one of them.
const IDS: u32 = 120;
/// What the processes of a round acknowledge before they are killed: at least this, and up to this many more.
const ACKNOWLEDGED_MIN: u32 = 40;
const ACKNOWLEDGED_MORE: u32 = 160;

/// How the work of a message goes wrong.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Trouble {
    None,
    /// It reports an error at its end.
    Fails,
    /// It ignores the error of a statement, and those of whatever follows.
    Ignores,
    /// It drops a call in the middle.
    Drops,
    /// It ends the transaction, and its caller goes on nevertheless.
    Ends,
}

/// The work of one process: the patterns on a connection, with the application's own tables.
struct Node<W: World> {
    world: W,
    inbox: Inbox,
    guard: FenceGuard,
    exact: Counter,
    events: EventCounter,
}

impl<W: World> Node<W> {
    fn on(world: W) -> Arc<Self> {
        let tables: fn(&W) -> Tables = W::tables;
        let (inbox, guard) =
            (Inbox::new("billing").tables(tables(&world)), FenceGuard::default().tables(tables(&world)));
        let exact = Counter::new("exact").tables(tables(&world));
        let events = EventCounter::new("events").tables(tables(&world));
        Arc::new(Self { world, inbox, guard, exact, events })
    }

    fn message(number: u32) -> Message<u32> {
        let id = MessageId::new(format!("m-{number}")).expect("an id");
        let raw = Message::raw("payments", id.clone(), number.to_string().into_bytes()).expect("a message");
        Message::new("payments", id, raw.fingerprint(), number).expect("a message")
    }

    fn insert(&self, number: u32) -> String {
        self.world.named(&format!("INSERT INTO {{t:effects}} (name) VALUES ('m-{number}')"))
    }

    /// The effect of a message. Only the two counters would show a repetition.
    async fn effect(self: Arc<Self>, tx: &mut W::Connection, number: u32) -> Result<(), BoxError> {
        W::run(tx, self.insert(number)).await?;
        W::run(tx, self.world.named(&format!("UPDATE {{t:totals}} SET value = value + {number}"))).await?;
        self.exact.add(tx, &format!("m-{number}"), number.into()).await?;
        self.events.add(tx, &format!("m-{number}"), number.into()).await?;
        Ok(())
    }

    /// The work of a message.
    async fn run(
        self: Arc<Self>,
        tx: &mut W::Connection,
        number: u32,
        trouble: Trouble,
    ) -> Result<(), BoxError> {
        let missing = || "INSERT INTO no_such_table VALUES (1)".to_owned();
        let id = format!("m-{number}");
        match trouble {
            Trouble::None => self.effect(tx, number).await,
            Trouble::Fails => {
                self.effect(tx, number).await?;
                Err("it fails after all".into())
            }
            Trouble::Ignores => {
                drop(W::run(tx, missing()).await);
                drop(self.exact.add(tx, &id, number.into()).await);
                let done = self.effect(tx, number).await;
                // On SQLite the transaction goes on after an error, so nothing fails here.
                if W::IS_SQLITE { done } else { Ok(()) }
            }
            Trouble::Drops => {
                {
                    let mut counting = pin!(self.exact.add(tx, &id, number.into()));
                    for _ in 0..number % 4 {
                        let is_done =
                            poll_fn(|context| Poll::Ready(counting.as_mut().poll(context).is_ready())).await;
                        if is_done {
                            break;
                        }
                        tokio::task::yield_now().await;
                    }
                }
                self.effect(tx, number).await
            }
            Trouble::Ends => {
                self.effect(tx, number).await?;
                if W::IS_SQLITE {
                    drop(W::run(tx, "ROLLBACK".to_owned()).await);
                } else {
                    drop(W::run(tx, missing()).await);
                    drop(tx.begin().await);
                }
                Ok(())
            }
        }
    }

    /// One message; returns what may be acknowledged.
    async fn once(self: &Arc<Self>, number: u32, trouble: Trouble) -> Option<String> {
        let mut transaction = self.world.try_begin().await.ok()?;
        let (node, message) = (Arc::clone(self), Self::message(number));
        let done = self.inbox.once(&mut *transaction, &message, |tx, message| {
            Box::pin(node.run(tx, *message.body(), trouble))
        });
        let is_done = match done.await {
            Ok(_) => true,
            Err(PatternError::TransactionEnded) => {
                // An effect without a mark, which must not be committed.
                drop(W::run(&mut transaction, self.insert(number)).await);
                false
            }
            Err(_) => false,
        };
        // Even after a failure: nothing of it may remain.
        W::commit(transaction).await.ok()?;
        is_done.then(|| format!("m-{number}"))
    }

    /// Ten messages, some of which fail, or ignore errors.
    async fn batch(self: &Arc<Self>, first: u32, step: u32) -> Option<Vec<String>> {
        let mut connection = self.world.pool().acquire().await.ok()?;
        let messages: Vec<Message<u32>> =
            (0..10).map(|number| Self::message(first + (number * 3) % IDS)).collect();
        let node = Arc::clone(self);
        let results = self
            .inbox
            .batch(&mut *connection, &messages, move |tx, message| {
                let trouble = match *message.body() + step {
                    number if number.is_multiple_of(7) => Trouble::Fails,
                    number if number.is_multiple_of(5) => Trouble::Ignores,
                    number if number.is_multiple_of(61) => Trouble::Ends,
                    _ => Trouble::None,
                };
                Box::pin(Arc::clone(&node).run(tx, *message.body(), trouble))
            })
            .await
            .ok()?;
        let done = messages.iter().zip(results).filter(|(_, result)| result.is_ok());
        Some(done.map(|(message, _)| message.id().as_str().to_owned()).collect())
    }

    /// One attempt of an operation.
    async fn attempt(self: &Arc<Self>, number: u32, step: u32) -> Option<String> {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        let operation = OperationId::from_bytes(bytes);
        // Far in the future, so that no attempt is too old.
        let fence = (1_u64 << 50) + u64::from(step);
        let mut transaction = self.world.try_begin().await.ok()?;
        let sql = self.world.named(&format!("INSERT INTO {{t:effects}} (name) VALUES ('{operation}')"));
        let guarded = self.guard.run(&mut *transaction, operation, fence, |tx| {
            Box::pin(async move {
                W::run(tx, sql).await?;
                Ok(b"done".to_vec())
            })
        });
        let guarded = guarded.await.ok()?;
        W::commit(transaction).await.ok()?;
        let is_done =
            matches!(guarded, Guarded::Ran(result) | Guarded::AlreadyDone(result) if result == b"done");
        is_done.then(|| operation.to_string())
    }

    /// Runs until the process is killed.
    async fn work(self: Arc<Self>, round: u32) {
        let mut tasks = JoinSet::new();
        for task in 0..6 {
            let node = Arc::clone(&self);
            tasks.spawn(async move {
                for step in 0..u32::MAX {
                    let number = round * IDS + (step * 7 + task * 5) % IDS;
                    let trouble = match step % 10 {
                        2 => Trouble::Fails,
                        4 => Trouble::Ignores,
                        6 => Trouble::Ends,
                        8 => Trouble::Drops,
                        _ => Trouble::None,
                    };
                    let done = match step % 10 {
                        0 => node.batch(round * IDS, step).await.unwrap_or_default(),
                        1 => node.attempt(number, step).await.into_iter().collect(),
                        3 => {
                            if let Ok(mut connection) = node.world.pool().acquire().await {
                                drop(node.events.compact(&mut *connection, 5).await);
                            }
                            Vec::new()
                        }
                        _ => node.once(number, trouble).await.into_iter().collect(),
                    };
                    for id in done {
                        drop(writeln!(std::io::stdout().lock(), "\nacknowledged {id} ."));
                    }
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            });
        }
        tasks.join_all().await;
    }
}

/// A running process. It is killed when this is dropped.
struct Process(Child, Arc<Mutex<Vec<String>>>);

impl Process {
    fn start(kind: &str, location: &str, proxy_url: &str, round: u32) -> Self {
        let program = std::env::current_exe().expect("this program has a file");
        let mut process = Command::new(program)
            .args(["--exact", &format!("crash::child_on_{kind}"), "--ignored", "--nocapture"])
            .env(LOCATION, location)
            .env(PROXY_URL, proxy_url)
            .env(ROUND, round.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a process starts");
        let acknowledged: Arc<Mutex<Vec<String>>> = Arc::default();
        let (sink, lines) =
            (Arc::clone(&acknowledged), BufReader::new(process.stdout.take().expect("asked for")));
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                // A line that was cut off by a kill does not count.
                if let Some(id) = line.strip_prefix("acknowledged ").and_then(|line| line.strip_suffix(" ."))
                {
                    sink.lock().expect("not poisoned").push(id.to_owned());
                }
            }
        });
        Self(process, acknowledged)
    }

    fn acknowledged(&self) -> Vec<String> {
        self.1.lock().expect("not poisoned").clone()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SIGKILL.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

async fn world<W: World>() -> W {
    let world: W = with_effects().await;
    world.sql("CREATE TABLE {t:totals} (value bigint)").await;
    world.sql("INSERT INTO {t:totals} VALUES (0)").await;
    world
}

async fn campaign<W: World>(world: W, kind: &str, location: &str, proxy_url: &str, rounds: u32) {
    let rounds = std::env::var("SEMEL_TX_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(rounds);
    let node = Node::on(world);
    let mut acknowledged = Vec::new();
    for round in 0..rounds {
        let processes = [0, 1].map(|_| Process::start(kind, location, proxy_url, round));
        // At a different point each time, by progress and not by time: a start over a bad network takes long.
        let acknowledged_min =
            usize::try_from(ACKNOWLEDGED_MIN + round * 37 % ACKNOWLEDGED_MORE).expect("few");
        let count = |process: &Process| process.1.lock().expect("not poisoned").len();
        for _ in 0..12_000 {
            if processes.iter().all(|process| count(process) > 0)
                && processes.iter().map(count).sum::<usize>() >= acknowledged_min
            {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tokio::time::sleep(Duration::from_millis(u64::from(round * 7 % 20))).await;
        let acknowledged_now: Vec<String> = processes.iter().flat_map(Process::acknowledged).collect();
        drop(processes);
        node.world.settle().await;
        assert!(
            acknowledged_now.len() >= acknowledged_min,
            "round {round}: {} of {acknowledged_min} were acknowledged",
            acknowledged_now.len()
        );
        acknowledged.extend(acknowledged_now);
        audit(&node, &acknowledged, round).await;
    }
    // A later process finds everything done, or does it.
    for number in 0..rounds * IDS {
        assert!(patient(async || node.once(number, Trouble::None).await).await, "m-{number} has no end");
        assert!(
            patient(async || node.attempt(number, u32::MAX).await).await,
            "operation {number} has no end"
        );
    }
    audit(&node, &acknowledged, rounds).await;
    assert_eq!(crate::world::effects(&node.world).await, i64::from(2 * rounds * IDS));
    let total: u64 = (0..u64::from(rounds * IDS)).sum();
    let total = i64::try_from(total).expect("small");
    assert_eq!(node.world.ask("SELECT value FROM {t:totals}").await, total);
    let repeated = acknowledged.len();
    acknowledged.sort_unstable();
    acknowledged.dedup();
    let different = acknowledged.len();
    println!(
        "{rounds} rounds on {kind}: {repeated} acknowledgements of {different} messages and operations before a kill; at the end {} \
         effects, each once, and a balance of {total}",
        2 * rounds * IDS
    );
}

async fn patient(mut call: impl AsyncFnMut() -> Option<String>) -> bool {
    for _ in 0..20 {
        if call().await.is_some() {
            return true;
        }
    }
    false
}

/// Compares effects, marks, results and balances.
async fn audit<W: World>(node: &Node<W>, acknowledged: &[String], round: u32) {
    let world = &node.world;
    let is = async |expected: i64, sql: &str, label: &str| {
        assert_eq!(world.ask(sql).await, expected, "round {round}: {label}");
    };
    is(0, "SELECT count(*) - count(DISTINCT name) FROM {t:effects}", "an effect happened twice").await;
    let without = "SELECT count(*) FROM {t:effects} AS e WHERE NOT EXISTS (SELECT 1 FROM {o:inbox_marks} AS m WHERE m.message_id = e.name) \
                   AND NOT EXISTS (SELECT 1 FROM {o:operation_fences} AS f WHERE f.operation_id = e.name AND f.is_done)";
    is(0, without, "an effect without its mark").await;
    let hollow = "SELECT count(*) FROM {o:inbox_marks} AS m WHERE NOT EXISTS (SELECT 1 FROM {t:effects} AS e WHERE e.name = m.message_id)";
    is(0, hollow, "a mark without its effect").await;
    let undone = "SELECT count(*) FROM {o:operation_fences} AS f WHERE NOT EXISTS (SELECT 1 FROM {t:effects} AS e WHERE e.name = f.operation_id)";
    is(0, undone, "a result without its effect").await;
    let total = world
        .ask("SELECT CAST(COALESCE(sum(CAST(substr(name, 3) AS bigint)), 0) AS bigint) FROM {t:effects} WHERE name LIKE 'm-%'")
        .await;
    is(total, "SELECT value FROM {t:totals}", "the application's own balance").await;
    let mut connection = world.pool().acquire().await.expect("a connection");
    assert_eq!(
        node.exact.value(&mut *connection).await.expect("read"),
        total,
        "round {round}: the exact counter"
    );
    assert_eq!(node.events.value(&mut *connection).await.expect("read"), total, "round {round}: the events");
    let mut names: Vec<&String> = acknowledged.iter().collect();
    names.sort_unstable();
    names.dedup();
    let listed: Vec<String> = names.iter().map(|name| format!("'{name}'")).collect();
    let sql = format!("SELECT count(*) FROM {{t:effects}} WHERE name IN ({})", listed.join(", "));
    is(i64::try_from(names.len()).expect("few"), &sql, "an acknowledged effect is gone").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_on_sqlite_each_effect_happens_once() {
    let world: Lite = world().await;
    let path = world.path().to_string_lossy().into_owned();
    campaign(world, "sqlite", &path, "", 6).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_on_postgres_each_effect_happens_once() {
    let world: Pg = world().await;
    let server = address();
    let odds = FaultRates {
        delay: 30,
        cut_before: 8,
        cut_after: 8,
        delay_max: Duration::from_millis(40),
        ..FaultRates::default()
    };
    let proxy = FaultProxy::start(server, Protocol::Postgres, Seeded::new(18, odds)).await.expect("a port");
    let proxy_url = url().replace(&server.to_string(), &proxy.address().to_string());
    let schema = world.schema.clone();
    campaign(world, "postgres", &schema, &proxy_url, 5).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a part of killed_on_sqlite…, which starts it"]
async fn child_on_sqlite() {
    let Ok(path) = std::env::var(LOCATION) else { return };
    Node::on(Lite::at(path.as_ref()).await).work(round()).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a part of killed_on_postgres…, which starts it"]
async fn child_on_postgres() {
    let Ok(schema) = std::env::var(LOCATION) else { return };
    let proxy_url = std::env::var(PROXY_URL).expect("set with the location");
    Node::on(Pg::existing(&proxy_url, schema).await).work(round()).await;
}

fn round() -> u32 {
    std::env::var(ROUND).expect("set with the location").parse().expect("a number")
}
