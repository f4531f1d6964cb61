//! Processes that are killed with -9 at any point: every command once and complete.
//!
//! `SEMEL_TX_ROUNDS=100` runs more rounds than the default.

use super::paid::{CommitMode, charge};
use super::world::{Node, World, insert_order, intent, ordering};
use crate::process::{Process, acknowledge, distinct, rounds};
use rusqlite::Connection;
use semel::core::classify::Ending;
use semel::core::outcome::Outcome;
use semel::{Attempt, RequestOutcome, WorkResult};
use semel_tx::sqlite::own::{Begun, begin};
use semel_tx::sqlite::rusqlite;
use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;
use tokio::task::JoinSet;

const FILE: &str = "SEMEL_TX_TEST_FILE";
const ROUND: &str = "SEMEL_TX_TEST_ROUND";
/// The default number of rounds.
const ROUNDS: u32 = 8;
/// How many keys each round has; both processes send every one of them.
const KEYS: u32 = 150;
/// How much each process has acknowledged before it is killed.
const ACKNOWLEDGED_MIN: usize = 60;

#[tokio::test(flavor = "multi_thread")]
async fn killed_processes_leave_each_command_once_and_complete() {
    let rounds = rounds(ROUNDS);
    let world = World::new();
    let (mut acknowledged, mut fewest) = (Vec::new(), usize::MAX);
    for round in 0..rounds {
        let variables = [(FILE, world.path().to_string_lossy().into_owned()), (ROUND, round.to_string())];
        let variables: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, &**value)).collect();
        let processes = [0, 1].map(|_| Process::start("sqlite::crash::child", &variables));
        let is_busy = || processes.iter().all(|process| process.acknowledged().len() >= ACKNOWLEDGED_MIN);
        for _ in 0..1500 {
            if is_busy() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(is_busy(), "round {round}: nothing was done");
        // At a different point each time.
        tokio::time::sleep(Duration::from_millis(u64::from(round * 37 % 190))).await;
        let acknowledged_now: Vec<String> = processes.iter().flat_map(Process::acknowledged).collect();
        drop(processes);
        fewest = fewest.min(distinct(&acknowledged_now));
        acknowledged.extend(acknowledged_now);
        audit(&world, &acknowledged, round);
    }
    // A later process finds every command done, or does it.
    let node = world.node().await;
    for key in 0..rounds * KEYS {
        assert!(order(&node, &format!("order-{key}")).await.is_some(), "order-{key} has no outcome");
    }
    audit(&world, &acknowledged, rounds);
    assert_eq!(world.number("SELECT count(*) FROM orders WHERE item = 'book'"), i64::from(rounds * KEYS));
    assert_eq!(world.number("SELECT count(*) FROM orders WHERE item = 'refused'"), 0);
    let paid = world.number("SELECT count(*) FROM orders WHERE item = 'PAID'");
    assert!(paid > 0, "nobody was charged");
    world.assert_sound(&node).await;
    println!(
        "{rounds} rounds: {} commands acknowledged before a kill, at least {fewest} in a round; {} orders, {paid} of them charged",
        distinct(&acknowledged),
        world.orders(),
    );
}

/// Compares effects and records.
fn audit(world: &World, acknowledged: &[String], round: u32) {
    let admin = world.admin();
    let rows = |sql: &str| -> Vec<String> {
        let mut statement = admin.prepare(sql).expect("a statement");
        let rows = statement.query_map([], |row| row.get::<_, String>(0)).expect("rows");
        rows.collect::<Result<_, _>>().expect("text")
    };
    let orders = rows("SELECT lower(replace(id, '-', '')) FROM orders");
    let effects: BTreeSet<&String> = orders.iter().collect();
    assert_eq!(effects.len(), orders.len(), "round {round}: an effect happened twice");
    let stored = rows("SELECT lower(hex(operation_id)) FROM semel_records WHERE state = 2");
    let stored: BTreeSet<&String> = stored.iter().collect();
    assert_eq!(
        effects, stored,
        "round {round}: an effect without its record, or a record without its effect"
    );
    for id in acknowledged {
        assert!(effects.contains(&id.replace('-', "")), "round {round}: acknowledged order {id} is gone");
    }
}

/// Creates an order on the store's thread, and returns its operation ID when its record is known to exist.
async fn order(node: &Node, key: &str) -> Option<String> {
    for _ in 0..20 {
        let patient = intent(key).waiting(Duration::from_secs(5));
        match node.transact(patient, ordering).await {
            Ok(answer) => return Some(answer.operation_id.to_string()),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
    None
}

/// The same on a separate connection.
async fn order_by_hand(node: &Node, pool: &SqlitePool, key: &str) -> Option<String> {
    let mut connection = pool.acquire().await.ok()?;
    let mut owned = match begin(&node.engine, &mut connection, intent(key)).await.ok()? {
        Begun::Owned(owned) => owned,
        Begun::Answered(answer) => {
            return answer.ok().map(|answer| answer.operation_id.to_string());
        }
    };
    let id = owned.local().operation_id.to_string();
    let insert = sqlx::query("INSERT INTO orders (id, item) VALUES (?1, 'book')").bind(&id);
    insert.execute(owned.connection()).await.ok()?;
    let recorded = owned.succeed(Outcome::http(201, [("a", "b")], "created")).await.ok()?;
    recorded.commit().await.ok().map(|_| id)
}

/// Charges a card (the only external effect), then stores that and the paid order together.
async fn pay(node: &Node, mode: CommitMode, key: &str) -> Option<String> {
    let inside = node.clone();
    let work = move |attempt: Attempt| async move {
        for _ in 0..3 {
            if mode.finish(&inside, &attempt, true).await.is_ok() {
                break;
            }
        }
        WorkResult::from(Ending::InDoubt)
    };
    let answer = node.engine.execute(charge(key), work).await.ok()?;
    let is_paid = match &answer.outcome {
        RequestOutcome::Ran(ran) => matches!(ran.ending, Ending::Succeeded(_)),
        outcome => matches!(outcome, RequestOutcome::Replayed(_)),
    };
    is_paid.then(|| answer.operation_id.to_string())
}

/// Work that does several things and fails: no trace of it may remain.
async fn fail(node: &Node, key: &str, step: u32) {
    let failing = move |tx: &Connection, local| {
        insert_order(tx, local)?;
        tx.execute("UPDATE orders SET item = 'refused' WHERE id = ?1", [local.operation_id.to_string()])?;
        assert!(!step.is_multiple_of(3), "a panic in the middle");
        Err("refused".into())
    };
    drop(node.transact(intent(key), failing).await);
}

/// Runs until the process is killed.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a part of killed_processes_leave_each_command_once_and_complete, which starts it"]
async fn child() {
    let Ok(file) = std::env::var(FILE) else { return };
    let round: u32 = std::env::var(ROUND).expect("set with the file").parse().expect("a number");
    let node = Node::on(Path::new(&file), |builder| builder).await;
    let options = SqliteConnectOptions::new().filename(&file).busy_timeout(Duration::from_secs(5));
    let pool =
        SqlitePoolOptions::new().max_connections(2).connect_with(options).await.expect("the file opens");
    node.engine.store_id().await.expect("the store has an id");
    let mut tasks = JoinSet::new();
    for task in 0..12 {
        let (node, pool) = (node.clone(), pool.clone());
        tasks.spawn(async move {
            for step in 0..u32::MAX {
                let number = round * KEYS + (step * 7 + task * 13) % KEYS;
                let key = format!("order-{number}");
                let answered = match step % 7 {
                    5 => pay(&node, CommitMode::GroupCommit, &format!("charge-{number}")).await,
                    6 => {
                        pay(&node, CommitMode::OwnConnection(pool.clone()), &format!("charge-{number}")).await
                    }
                    3 => order_by_hand(&node, &pool, &key).await,
                    4 => {
                        fail(&node, &key, step).await;
                        None
                    }
                    _ => order(&node, &key).await,
                };
                if let Some(operation_id) = answered {
                    acknowledge(&operation_id);
                }
                // Soon all keys have an outcome; slow down, so that there is something to kill.
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        });
    }
    tasks.join_all().await;
}
