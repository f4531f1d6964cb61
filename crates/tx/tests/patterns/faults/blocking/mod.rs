//! The patterns on a `rusqlite` connection: in the work of `sqlite::transact`, and in the application's own
//! transaction.

mod counter;
mod fence;
mod natural;

use crate::world::{Lite, RACERS, World, effects, message, process, with_effects};
use semel::core::outcome::Outcome;
use semel::{Class, Engine, Identity, Intent, Key, Operation, Policy, RecordedOutcome, Scope, payload};
use semel_core::id::OperationId;
use semel_sql::sqlite::{Options, Store};
use semel_tx::patterns::{
    Binding, BusinessReferences, Counter, Inbox, InboxCounts, InboxResult, PatternError,
};
use semel_tx::sqlite::rusqlite::Connection;
use semel_tx::sqlite::{Database, transact};
use semel_tx::{BoxError, Local, LocalEnding};
use std::sync::Arc;

struct Node {
    engine: Engine,
    database: Database,
}

impl Node {
    async fn on(world: &Lite) -> Self {
        let store = Arc::new(Store::open(world.path(), Options::default()).expect("it opens"));
        let engine = Engine::builder(store.clone()).build().await.expect("an engine");
        Self { engine, database: Database::new(store) }
    }

    async fn run<W>(&self, key: &str, work: W) -> Result<RecordedOutcome, semel_tx::Error>
    where
        W: Fn(&Connection, Local) -> Result<LocalEnding, BoxError> + Send + Sync + 'static,
    {
        let scope = Scope::new(Identity::api_key("k-17"), Operation::named("pay"));
        let key = Key::from_source(key).expect("a key");
        let intent = Intent::new(scope, key, Policy::new(Class::Local), payload::Raw::from("5".to_owned()));
        transact(&self.engine, &self.database, intent, work).await
    }
}

fn paid() -> LocalEnding {
    LocalEnding::Succeeded(Outcome::http(201, [("a", "b")], ""))
}

fn pay(tx: &Connection, name: &str) -> Result<(), BoxError> {
    tx.execute("INSERT INTO effects (name) VALUES (?1)", [name])?;
    Ok(())
}

/// A connection of the application, in a transaction.
fn begun(world: &Lite) -> Connection {
    let connection = Connection::open(world.path()).expect("it opens");
    connection.busy_timeout(std::time::Duration::from_mins(1)).expect("set");
    connection.execute_batch("BEGIN IMMEDIATE").expect("begun");
    connection
}

#[tokio::test(flavor = "multi_thread")]
async fn message_reference_and_counter_are_committed_with_the_record() {
    let world: Lite = with_effects().await;
    let node = Node::on(&world).await;
    let mut replayed = Vec::new();
    for key in ["key-1", "key-2", "key-3", "key-1"] {
        let answer = node.run(key, |tx, local| {
            let references = BusinessReferences::new("acme", "pay");
            if let Binding::Taken { operation_id } =
                references.bind_blocking(tx, "invoice-117", local.operation_id)?
            {
                return Ok(LocalEnding::Refused(Outcome::http(409, [("a", "b")], operation_id.to_string())));
            }
            Inbox::new("billing").once_blocking(tx, &message("m-1", "5"), |tx, _| pay(tx, "m-1"))?;
            Counter::new("balance").add_blocking(tx, "m-1", 500)?;
            Ok(paid())
        });
        replayed.push(answer.await.ok().map(|paid| paid.replayed));
    }
    // The second and the third are refused.
    assert_eq!(replayed, [Some(false), None, None, Some(true)]);
    assert_eq!((effects(&world).await, world.ask("SELECT value FROM {o:counter_sums}").await), (1, 500));
    let rows =
        "SELECT (SELECT count(*) FROM {o:inbox_marks}) * 10 + (SELECT count(*) FROM {o:business_references})";
    assert_eq!(world.ask(rows).await, 11);
}

/// The work swallows the failure, and succeeds.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_message_leaves_no_mark_and_no_effect() {
    let world: Lite = with_effects().await;
    let node = Node::on(&world).await;
    let answer = node.run("key-1", |tx, _| {
        let failed = Inbox::new("billing").once_blocking(tx, &message("m-1", "5"), |tx, _| {
            pay(tx, "half")?;
            Counter::new("balance").add_blocking(tx, "m-1", 500)?;
            Err::<(), BoxError>("the card was declined".into())
        });
        assert!(matches!(failed, Err(PatternError::Work(_))), "{failed:?}");
        pay(tx, "own")?;
        Ok(paid())
    });
    answer.await.expect("an answer");
    assert_eq!(world.ask("SELECT count(*) FROM {t:effects} WHERE name = 'own'").await, 1);
    assert_eq!(effects(&world).await, 1);
    let left =
        "SELECT (SELECT count(*) FROM {o:inbox_marks}) + (SELECT count(*) FROM {o:counter_operations})";
    assert_eq!(world.ask(left).await, 0);
}

/// Whatever the work does inside, it cannot reach the record's own savepoint.
#[tokio::test(flavor = "multi_thread")]
async fn failed_work_rolls_its_marks_back() {
    let world: Lite = with_effects().await;
    let node = Node::on(&world).await;
    let failed = node.run("key-1", |tx, _| {
        Inbox::new("billing").once_blocking(tx, &message("m-1", "5"), |tx, _| pay(tx, "m-1"))?;
        assert!(tx.execute_batch("RELEASE semel_work").is_err());
        assert!(tx.execute_batch("DROP TABLE semel_inbox_marks").is_err());
        Err("after all".into())
    });
    assert!(failed.await.is_err());
    assert_eq!((effects(&world).await, world.ask("SELECT count(*) FROM {o:inbox_marks}").await), (0, 0));
}

/// Both forms use the same statements, so each recognises the other's marks.
#[tokio::test(flavor = "multi_thread")]
async fn blocking_and_async_forms_recognise_each_others_rows() {
    let world: Lite = with_effects().await;
    let (inbox, counts) = (Inbox::new("billing"), InboxCounts::default());
    let watched = inbox.clone().observer(counts.clone());
    process(&world, &inbox, &message("by-sqlx", "5")).await.expect("ran");
    let tx = begun(&world);
    let blocking = |id: &str, body: &str| watched.once_blocking(&tx, &message(id, body), |tx, _| pay(tx, id));
    assert_eq!(blocking("by-sqlx", "5").ok(), Some(InboxResult::Duplicate));
    assert!(matches!(blocking("by-sqlx", "6"), Err(PatternError::Mismatch(_))));
    assert_eq!(blocking("by-rusqlite", "5").ok(), Some(InboxResult::Processed(())));
    let (counter, references) = (Counter::new("balance"), BusinessReferences::new("acme", "pay"));
    let first = OperationId::from_bytes([1; 16]);
    assert_eq!(counter.add_blocking(&tx, "op-1", 5).map(|counted| counted.is_new).ok(), Some(true));
    assert_eq!(references.bind_blocking(&tx, "invoice-1", first).ok(), Some(Binding::Bound));
    tx.execute_batch("COMMIT").expect("committed");
    assert!(counts.text().contains("result=\"mismatch\"} 1\n"), "{}", counts.text());

    let late = process(&world, &inbox, &message("by-rusqlite", "5")).await.expect("an answer");
    assert_eq!((late, effects(&world).await), (InboxResult::Duplicate, 2));
    let mut transaction = world.begin().await;
    let counted = counter.add(&mut *transaction, "op-1", 5).await.expect("an answer");
    assert_eq!((counted.is_new, counted.value), (false, 5));
    let second = OperationId::from_bytes([2; 16]);
    let bound = references.bind(&mut *transaction, "invoice-1", second).await.expect("an answer");
    assert_eq!(bound, Binding::Taken { operation_id: first });
    drop(transaction);
    let tx = begun(&world);
    assert_eq!(references.bind_blocking(&tx, "invoice-1", second).ok(), Some(bound));
    let again = counter.add_blocking(&tx, "op-1", 6);
    assert!(matches!(again, Err(PatternError::Mismatch(_))), "{again:?}");
    assert_eq!(counter.value_blocking(&tx).expect("read"), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_transaction_nothing_is_written() {
    let world: Lite = with_effects().await;
    let connection = begun(&world);
    connection.execute_batch("ROLLBACK").expect("over");
    let refused = [
        Inbox::new("billing")
            .once_blocking(&connection, &message("m-1", "5"), |tx, _| pay(tx, "m"))
            .map(drop),
        Counter::new("balance").add_blocking(&connection, "op-1", 5).map(drop),
        BusinessReferences::new("acme", "pay")
            .bind_blocking(&connection, "invoice-1", OperationId::from_bytes([1; 16]))
            .map(drop),
    ];
    for refused in refused {
        assert!(matches!(refused, Err(PatternError::NoTransaction)), "{refused:?}");
    }
    // SQLite rolls back by itself in the middle of the work.
    connection
        .execute_batch(
            "CREATE TABLE names (name PRIMARY KEY); INSERT INTO names VALUES ('taken'); BEGIN IMMEDIATE",
        )
        .expect("begun");
    let ended = Inbox::new("billing").once_blocking(&connection, &message("m-1", "5"), |tx, _| {
        drop(tx.execute("INSERT OR ROLLBACK INTO names VALUES ('taken')", []));
        Ok(())
    });
    assert!(matches!(ended, Err(PatternError::TransactionEnded)), "{ended:?}");
    let left = "SELECT (SELECT count(*) FROM {o:inbox_marks}) + (SELECT count(*) FROM {o:counter_operations}) \
                + (SELECT count(*) FROM {o:business_references})";
    assert_eq!((effects(&world).await, world.ask(left).await), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_leaves_no_mark() {
    let world: Lite = with_effects().await;
    let tx = begun(&world);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        Inbox::new("billing").once_blocking(&tx, &message("m-1", "5"), |tx, _| -> Result<(), BoxError> {
            pay(tx, "half")?;
            panic!("for the test")
        })
    }));
    assert!(panicked.is_err());
    tx.execute_batch("COMMIT").expect("the transaction is intact");
    assert_eq!((effects(&world).await, world.ask("SELECT count(*) FROM {o:inbox_marks}").await), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_threads_have_one_effect_and_an_exact_sum() {
    let world: Lite = with_effects().await;
    let results: Vec<(bool, bool, bool)> = std::thread::scope(|scope| {
        let racers: Vec<_> = (0..RACERS)
            .map(|racer| {
                let world = &world;
                scope.spawn(move || {
                    let tx = begun(world);
                    let inbox = Inbox::new("billing");
                    let done = inbox.once_blocking(&tx, &message("m-1", "5"), |tx, _| pay(tx, "m-1"));
                    let counter = Counter::new("balance");
                    let shared = counter.add_blocking(&tx, "shared", 7).expect("counted").is_new;
                    counter.add_blocking(&tx, format!("own-{racer}"), 1).expect("counted");
                    let id = OperationId::from_bytes([u8::try_from(racer).expect("few"); 16]);
                    let bound = BusinessReferences::new("acme", "pay").bind_blocking(&tx, "invoice-1", id);
                    tx.execute_batch("COMMIT").expect("committed");
                    let is_processed = done.expect("an answer") == InboxResult::Processed(());
                    (is_processed, shared, bound.expect("an answer") == Binding::Bound)
                })
            })
            .collect();
        racers.into_iter().map(|racer| racer.join().expect("no panic")).collect()
    });
    let firsts =
        |first: fn(&(bool, bool, bool)) -> bool| results.iter().filter(|result| first(result)).count();
    assert_eq!((firsts(|result| result.0), firsts(|result| result.1), firsts(|result| result.2)), (1, 1, 1));
    let sum = i64::try_from(RACERS).expect("few") + 7;
    assert_eq!((effects(&world).await, world.ask("SELECT value FROM {o:counter_sums}").await), (1, sum));
}
