//! Processes that are killed with -9 at any point, on a network that fails: every command once, nothing half.
//!
//! `SEMEL_TX_ROUNDS=100` plays more rounds than the usual few.

use crate::world::{World, address_in, created, insert_order, intent, intent_with, url, work};
use semel::core::classify::Ending;
use semel::core::outcome::Outcome;
use semel::{Attempt, Class, Ended, Engine, RequestOutcome};
use semel_testkit::proxy::{FaultProxy, Odds, Protocol, Seeded};
use semel_tx::LocalEnding;
use semel_tx::postgres::{Database, finish_in, transact};
use sqlx::AssertSqlSafe;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinSet;

const SCHEMA: &str = "SEMEL_TX_TEST_SCHEMA";
const THROUGH: &str = "SEMEL_TX_TEST_URL";
const ROUND: &str = "SEMEL_TX_TEST_ROUND";
/// How many rounds, where nobody asks for more.
const ROUNDS: u32 = 6;
/// How many keys each round has; both nodes send every one of them.
const KEYS: u32 = 40;

/// A process at work. It is killed when this is dropped.
struct Node(Child, Arc<Mutex<Vec<String>>>);

impl Node {
    fn start(world: &World, through: &str, round: u32) -> Self {
        let program = std::env::current_exe().expect("this program has a file");
        let mut process = Command::new(program)
            .args(["--exact", "crash::child", "--ignored", "--nocapture"])
            .env(SCHEMA, &world.schema)
            .env(THROUGH, through)
            .env(ROUND, round.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a process starts");
        let told: Arc<Mutex<Vec<String>>> = Arc::default();
        let (telling, lines) = (Arc::clone(&told), BufReader::new(process.stdout.take().expect("asked for")));
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                // A process that is killed in mid-line has not told anything.
                if let Some(line) = line.strip_suffix(" .") {
                    telling.lock().expect("whole").push(line.to_owned());
                }
            }
        });
        Self(process, told)
    }

    fn told(&self, word: &str) -> Vec<String> {
        let told = self.1.lock().expect("whole");
        told.iter().filter_map(|line| line.strip_prefix(word)).map(|rest| rest.trim().to_owned()).collect()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // SIGKILL.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_nodes_leave_every_command_once_and_nothing_half() {
    let rounds = std::env::var("SEMEL_TX_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(ROUNDS);
    let world = World::new().await;
    let server = address_in(&url());
    let odds = Odds {
        delay: 30,
        cut_before: 8,
        cut_after: 8,
        delay_max: Duration::from_millis(40),
        ..Odds::default()
    };
    let proxy = FaultProxy::start(server, Protocol::Postgres, Seeded::new(17, odds)).await.expect("a port");
    let through = url().replace(&server.to_string(), &proxy.address().to_string());
    let mut acknowledged = Vec::new();
    for round in 0..rounds {
        let nodes = [0, 1].map(|_| Node::start(&world, &through, round));
        let is_begun = || nodes.iter().all(|node| !node.told("acknowledged").is_empty());
        for _ in 0..600 {
            if is_begun() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        // Another point each time.
        tokio::time::sleep(Duration::from_millis(u64::from(round * 37 % 190))).await;
        let told: Vec<String> = nodes.iter().flat_map(|node| node.told("acknowledged")).collect();
        drop(nodes);
        acknowledged.extend(told);
        audit(&world, &acknowledged, round).await;
    }
    assert!(
        acknowledged.len() > usize::try_from(rounds).expect("few"),
        "{} were acknowledged",
        acknowledged.len()
    );
    // Whoever comes next finds every command done, or does it.
    let (engine, database) = (world.engine().await, world.database(4).await);
    for key in 0..rounds * KEYS {
        let told = order(&engine, &database, &world.schema, &format!("order-{key}")).await;
        assert!(told.is_some(), "order-{key} has no outcome");
    }
    audit(&world, &acknowledged, rounds).await;
    let local = world.number("SELECT count(*) FROM {s}.orders WHERE item = 'book'").await;
    assert_eq!(local, i64::from(rounds * KEYS));
}

/// Effects and records, one for one.
async fn audit(world: &World, acknowledged: &[String], round: u32) {
    let twice = "SELECT count(*) FROM (SELECT id FROM {s}.orders GROUP BY id HAVING count(*) > 1) AS twice";
    assert_eq!(world.number(twice).await, 0, "round {round}: an effect happened twice");
    let without = "SELECT count(*) FROM {s}.orders AS o LEFT JOIN {s}.records AS r ON r.operation_id = o.id::uuid \
                   WHERE r.state IS DISTINCT FROM 2";
    assert_eq!(world.number(without).await, 0, "round {round}: an effect without its record");
    let hollow = "SELECT count(*) FROM {s}.records AS r LEFT JOIN {s}.orders AS o ON r.operation_id = o.id::uuid \
                  WHERE r.state = 2 AND o.id IS NULL";
    assert_eq!(world.number(hollow).await, 0, "round {round}: a record without its effect");
    let sql = format!("SELECT count(DISTINCT id) FROM {}.orders WHERE id = ANY($1)", world.schema);
    let mut names: Vec<&String> = acknowledged.iter().collect();
    names.sort_unstable();
    names.dedup();
    let count: i64 = {
        let names: Vec<String> = names.iter().map(|name| (*name).clone()).collect();
        let row =
            sqlx::query(AssertSqlSafe(sql)).bind(names).fetch_one(&world.admin).await.expect("an answer");
        sqlx::Row::get(&row, 0)
    };
    assert_eq!(usize::try_from(count), Ok(names.len()), "round {round}: an acknowledged effect is gone");
}

/// Creates an order, and yields its operation id once it is known to stand there.
async fn order(engine: &Engine, database: &Database, schema: &str, key: &str) -> Option<String> {
    let schema = schema.to_owned();
    let work = work(move |tx, local| {
        let schema = schema.clone();
        Box::pin(async move {
            insert_order(tx, &schema, local).await?;
            Ok(created(local))
        })
    });
    for _ in 0..20 {
        let patient = intent(key).waiting(Duration::from_secs(5));
        match transact(engine, database, patient, work.clone()).await {
            Ok(answer) if matches!(answer.outcome, RequestOutcome::Ran(_) | RequestOutcome::Replayed(_)) => {
                return Some(answer.operation_id.to_string());
            }
            _ => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
    None
}

/// Charges a card (which is all that happens outside), then stores that and the paid order together.
async fn pay(engine: &Engine, database: &Database, schema: &str, key: &str) -> Option<String> {
    let (node, database, schema) = (engine.clone(), database.clone(), schema.to_owned());
    let work = move |attempt: Attempt| async move {
        for _ in 0..3 {
            let ending = LocalEnding::Succeeded(Outcome::http(201, [("a", "b")], "charged"));
            let Ok(mut transaction) = database.pool().begin().await else { continue };
            let sql = format!("INSERT INTO {schema}.orders (id, item, attempt) VALUES ($1, 'PAID', 1)");
            let insert = sqlx::query(AssertSqlSafe(sql)).bind(attempt.operation_id().to_string());
            if insert.execute(&mut *transaction).await.is_err() {
                continue;
            }
            let Ok(finish) = finish_in(&node, &database, transaction, &attempt, ending).await else {
                continue;
            };
            if finish.commit().await.is_ok() {
                break;
            }
        }
        Ended::from(Ending::InDoubt)
    };
    let intent = intent_with(key, "5", |policy| policy.class = Class::External);
    let answer = engine.execute(intent, work).await.ok()?;
    let is_paid = match &answer.outcome {
        RequestOutcome::Ran(ran) => matches!(ran.ending, Ending::Succeeded(_)),
        told => matches!(told, RequestOutcome::Replayed(_)),
    };
    is_paid.then(|| answer.operation_id.to_string())
}

/// What a killed process does, until it is.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a part of killed_nodes_leave_every_command_once_and_nothing_half, which starts it"]
async fn child() {
    let Ok(schema) = std::env::var(SCHEMA) else { return };
    let through = std::env::var(THROUGH).expect("set with the schema");
    let round: u32 = std::env::var(ROUND).expect("set with the schema").parse().expect("a number");
    let world = World::existing(schema.clone()).await;
    let (engine, database) = (world.engine().await, world.database_at(&through, 6).await);
    let mut tasks = JoinSet::new();
    for task in 0..8 {
        let (engine, database, schema) = (engine.clone(), database.clone(), schema.clone());
        tasks.spawn(async move {
            for step in 0..u32::MAX {
                let number = (step * 7 + task * 5) % KEYS;
                let key = round * KEYS + number;
                let told = match number % 4 {
                    3 if step % 2 == 0 => pay(&engine, &database, &schema, &format!("charge-{key}")).await,
                    _ => order(&engine, &database, &schema, &format!("order-{key}")).await,
                };
                if let Some(operation_id) = told {
                    drop(writeln!(std::io::stdout().lock(), "\nacknowledged {operation_id} ."));
                }
            }
        });
    }
    tasks.join_all().await;
}
