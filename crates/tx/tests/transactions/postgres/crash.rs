//! Processes that are killed with -9 at any point, on a network that fails: every command once and complete.
//!
//! `SEMEL_TX_ROUNDS=100` runs more rounds than the default.

use super::world::{World, address_in, created, insert_order, intent, intent_with, url, work};
use crate::process::{Process, acknowledge, distinct, rounds};
use semel::core::classify::Ending;
use semel::core::outcome::Outcome;
use semel::{Attempt, Class, Engine, RequestOutcome, WorkResult};
use semel_testkit::proxy::{FaultProxy, FaultRates, Protocol, Seeded};
use semel_tx::LocalEnding;
use semel_tx::postgres::{Database, Joined, finish_in, join, transact};
use sqlx::AssertSqlSafe;
use sqlx::postgres::PgPoolOptions;
use std::time::Duration;
use tokio::task::JoinSet;

const SCHEMA: &str = "SEMEL_TX_TEST_SCHEMA";
const PROXY_URL: &str = "SEMEL_TX_TEST_URL";
const ROUND: &str = "SEMEL_TX_TEST_ROUND";
/// The default number of rounds.
const ROUNDS: u32 = 6;
/// How many keys each round has; both nodes send every one of them.
const KEYS: u32 = 120;
/// How much each process has acknowledged before it is killed.
const ACKNOWLEDGED_MIN: usize = 40;

#[tokio::test(flavor = "multi_thread")]
async fn killed_nodes_leave_each_command_once_and_complete() {
    let rounds = rounds(ROUNDS);
    let seed = std::env::var("SEMEL_TX_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(17);
    let world = World::new().await;
    let server = address_in(&url());
    let odds = FaultRates {
        delay: 30,
        cut_before: 8,
        cut_after: 8,
        delay_max: Duration::from_millis(40),
        ..FaultRates::default()
    };
    let plan = Seeded::new(seed, odds);
    let proxy = FaultProxy::start(server, Protocol::Postgres, plan).await.expect("a port");
    let proxy_url = url().replace(&server.to_string(), &proxy.address().to_string());
    let (mut acknowledged, mut fewest) = (Vec::new(), usize::MAX);
    for round in 0..rounds {
        let number = round.to_string();
        let variables = [(SCHEMA, &*world.schema), (PROXY_URL, &*proxy_url), (ROUND, &*number)];
        let nodes = [0, 1].map(|_| Process::start("postgres::crash::child", &variables));
        let is_busy = || nodes.iter().all(|node| node.acknowledged().len() >= ACKNOWLEDGED_MIN);
        for _ in 0..1200 {
            if is_busy() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(is_busy(), "round {round}, seed {seed}: nothing was done");
        // At a different point each time.
        tokio::time::sleep(Duration::from_millis(u64::from(round * 37 % 190))).await;
        let acknowledged_now: Vec<String> = nodes.iter().flat_map(Process::acknowledged).collect();
        drop(nodes);
        fewest = fewest.min(distinct(&acknowledged_now));
        acknowledged.extend(acknowledged_now);
        audit(&world, &acknowledged, round).await;
    }
    // A later process finds every command done, or does it.
    let (engine, database) = (world.engine().await, world.database(4).await);
    for key in 0..rounds * KEYS {
        let operation_id = order(&engine, &database, &world.schema, &format!("order-{key}")).await;
        assert!(operation_id.is_some(), "order-{key} has no outcome");
    }
    audit(&world, &acknowledged, rounds).await;
    let of = async |item: &str| {
        world.number(&format!("SELECT count(*) FROM {{s}}.orders WHERE item = '{item}'")).await
    };
    assert_eq!((of("book").await, of("refused").await), (i64::from(rounds * KEYS), 0));
    let paid = of("PAID").await;
    assert!(paid > 0, "nobody was charged");
    println!(
        "{rounds} rounds, seed {seed}: {} commands acknowledged before a kill, at least {fewest} in a round; {} orders, {paid} of \
         them charged",
        distinct(&acknowledged),
        world.orders().await,
    );
}

/// Compares effects and records.
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

/// Creates an order, and returns its operation ID when its record is known to exist.
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
            Ok(answer) => return Some(answer.operation_id.to_string()),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
    None
}

/// The same in a separate transaction.
async fn order_by_hand(engine: &Engine, database: &Database, schema: &str, key: &str) -> Option<String> {
    let transaction = database.pool().begin().await.ok()?;
    let mut owned = match join(engine, database, transaction, intent(key)).await.ok()? {
        Joined::Owned(owned) => owned,
        Joined::Answered { answer, .. } => {
            return answer.ok().map(|answer| answer.operation_id.to_string());
        }
    };
    let local = owned.local();
    insert_order(owned.connection(), schema, local).await.ok()?;
    let recorded = owned.succeed(Outcome::http(201, [("a", "b")], "created")).await.ok()?;
    recorded.commit().await.ok().map(|_| local.operation_id.to_string())
}

/// Work that writes an order and fails: no trace of it may remain.
async fn fail(engine: &Engine, database: &Database, schema: &str, key: &str, step: u32) {
    let schema = schema.to_owned();
    let failing = work(move |tx, local| {
        let schema = schema.clone();
        Box::pin(async move {
            insert_order(&mut *tx, &schema, local).await?;
            let sql = format!("UPDATE {schema}.orders SET item = 'refused' WHERE id = $1");
            sqlx::query(AssertSqlSafe(sql)).bind(local.operation_id.to_string()).execute(tx).await?;
            assert!(!step.is_multiple_of(3), "a panic in the middle");
            Err("refused".into())
        })
    });
    drop(transact(engine, database, intent(key), failing).await);
}

/// Charges a card (the only external effect), then stores that and the paid order together.
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
        WorkResult::from(Ending::InDoubt)
    };
    let intent = intent_with(key, "5", |policy| policy.class = Class::External);
    let answer = engine.execute(intent, work).await.ok()?;
    let is_paid = match &answer.outcome {
        RequestOutcome::Ran(ran) => matches!(ran.ending, Ending::Succeeded(_)),
        outcome => matches!(outcome, RequestOutcome::Replayed(_)),
    };
    is_paid.then(|| answer.operation_id.to_string())
}

/// Runs until the process is killed.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a part of killed_nodes_leave_each_command_once_and_complete, which starts it"]
async fn child() {
    let Ok(schema) = std::env::var(SCHEMA) else { return };
    let proxy_url = std::env::var(PROXY_URL).expect("set with the schema");
    let round: u32 = std::env::var(ROUND).expect("set with the schema").parse().expect("a number");
    let world = World::existing(schema.clone()).await;
    let engine = world.engine().await;
    // Lazily: the proxy may cut off the very first connection.
    let pool = PgPoolOptions::new().max_connections(6).acquire_timeout(Duration::from_secs(20));
    let pool = pool.connect_lazy_with(proxy_url.parse().expect("a URL"));
    let database = Database::new(pool).schema(schema.clone());
    let mut tasks = JoinSet::new();
    for task in 0..8 {
        let (engine, database, schema) = (engine.clone(), database.clone(), schema.clone());
        tasks.spawn(async move {
            for step in 0..u32::MAX {
                let key = round * KEYS + (step * 7 + task * 13) % KEYS;
                let (order_key, charge_key) = (format!("order-{key}"), format!("charge-{key}"));
                let answered = match step % 6 {
                    5 => pay(&engine, &database, &schema, &charge_key).await,
                    3 => order_by_hand(&engine, &database, &schema, &order_key).await,
                    4 => {
                        fail(&engine, &database, &schema, &order_key, step).await;
                        None
                    }
                    _ => order(&engine, &database, &schema, &order_key).await,
                };
                if let Some(operation_id) = answered {
                    acknowledge(&operation_id);
                }
            }
        });
    }
    tasks.join_all().await;
}
