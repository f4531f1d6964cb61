//! Natural keys, versions and states.

use super::{Node, begun, paid, pay};
use crate::world::{Lite, RACERS, World, effects, with_effects};
use semel_tx::BoxError;
use semel_tx::patterns::{
    CompareAndSet, InsertOrGet, NaturalTable, PatternError, Transition, TransitionResult, Value, Version,
};
use semel_tx::sqlite::rusqlite::Connection;

async fn shop() -> Lite {
    let world: Lite = with_effects().await;
    world
        .sql(
            "CREATE TABLE {t:orders} (customer text, number bigint, item text, state text, version bigint, changed_by text, \
             UNIQUE (customer, number))",
        )
        .await;
    world
}

fn orders() -> NaturalTable {
    NaturalTable::new("orders", &["customer", "number"])
}

fn key() -> [(&'static str, Value); 2] {
    [("customer", "c-1".into()), ("number", 7.into())]
}

fn order(item: &str) -> Vec<(&'static str, Value)> {
    let mut values = key().to_vec();
    values.extend([("item", item.into()), ("state", "paid".into()), ("version", 1.into())]);
    values
}

fn insert(tx: &Connection, item: &str) -> Result<InsertOrGet<String>, PatternError> {
    orders().insert_or_get_blocking(tx, &order(item), |row| row.get("item"))
}

fn change(tx: &Connection, version: &Version, item: &str) -> CompareAndSet {
    let changes = [("item", item.into())];
    orders().compare_and_set_blocking(tx, &key(), version, &changes).expect("an answer")
}

fn ship(tx: &Connection, from: &[&str]) -> TransitionResult {
    let step = Transition::new("state", from, "shipped");
    let changes = [("item", "box".into())];
    orders().transition_blocking(tx, &key(), &step, &changes).expect("an answer")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_insert_gets_the_first_ones_row() {
    let world = shop().await;
    let tx = begun(&world);
    assert!(matches!(insert(&tx, "book"), Ok(InsertOrGet::Inserted(item)) if item == "book"));
    assert!(matches!(insert(&tx, "lamp"), Ok(InsertOrGet::Existing(item)) if item == "book"));
    let written = orders().upsert_blocking(&tx, &order("vase"), |row| row.get::<_, String>("item"));
    assert_eq!(written.expect("written"), "vase");
    let keyless = orders().upsert_blocking(&tx, &[("customer", "c-1".into())], |_| Ok(()));
    assert!(matches!(keyless, Err(PatternError::Invalid(_))), "{keyless:?}");
    tx.execute_batch("COMMIT").expect("committed");
    assert_eq!(world.ask("SELECT count(*) FROM {t:orders} WHERE item = 'vase'").await, 1);
    assert_eq!(world.ask("SELECT count(*) FROM {t:orders}").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_change_differs_from_a_concurrent_one() {
    let world = shop().await;
    let tx = begun(&world);
    let read = Version::of("version", 1);
    assert_eq!(change(&tx, &read, "lamp"), CompareAndSet::Missing);
    insert(&tx, "book").expect("inserted");
    assert_eq!(change(&tx, &read, "lamp"), CompareAndSet::Applied { version: 2 });
    assert_eq!(change(&tx, &read, "lamp"), CompareAndSet::AlreadyApplied { version: 2 });
    assert_eq!(change(&tx, &read, "vase"), CompareAndSet::Changed { version: 2 });
    let by = |operation: &str| Version::of("version", 2).by("changed_by", operation);
    assert_eq!(change(&tx, &by("op-1"), "vase"), CompareAndSet::Applied { version: 3 });
    assert_eq!(change(&tx, &by("op-1"), "vase"), CompareAndSet::AlreadyApplied { version: 3 });
    assert_eq!(change(&tx, &by("op-2"), "vase"), CompareAndSet::Changed { version: 3 });
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_are_taken_once_and_only_from_allowed_states() {
    let world = shop().await;
    let tx = begun(&world);
    assert_eq!(ship(&tx, &["paid"]), TransitionResult::Missing);
    insert(&tx, "book").expect("inserted");
    assert_eq!(ship(&tx, &["packed"]), TransitionResult::Invalid { state: "paid".to_owned() });
    assert_eq!(ship(&tx, &["paid", "packed"]), TransitionResult::Taken);
    assert_eq!(ship(&tx, &["paid", "packed"]), TransitionResult::AlreadyThere);
    tx.execute_batch("COMMIT").expect("committed");
    let changed = "SELECT count(*) FROM {t:orders} WHERE state = 'shipped' AND item = 'box' AND version = 1";
    assert_eq!(world.ask(changed).await, 1);
}

/// If `read` refuses a row, it is not inserted, and the transaction continues.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_fails_leaves_the_transaction_as_it_was() {
    let world = shop().await;
    let tx = begun(&world);
    let wrong = orders().insert_or_get_blocking(&tx, &order("book"), |row| row.get::<_, i64>("item"));
    assert!(matches!(wrong, Err(PatternError::Database(_))), "{wrong:?}");
    let wrong = orders().upsert_blocking(&tx, &order("book"), |row| row.get::<_, i64>("item"));
    assert!(matches!(wrong, Err(PatternError::Database(_))), "{wrong:?}");
    pay(&tx, "own").expect("the transaction continues");
    tx.execute_batch("COMMIT").expect("committed");
    assert_eq!((effects(&world).await, world.ask("SELECT count(*) FROM {t:orders}").await), (1, 0));
    let step = Transition::new("state", &["paid"], "shipped");
    let version = Version::of("version", 1);
    let refused = [
        insert(&tx, "book").map(drop),
        orders().upsert_blocking(&tx, &order("book"), |_| Ok(())),
        orders().compare_and_set_blocking(&tx, &key(), &version, &[]).map(drop),
        orders().transition_blocking(&tx, &key(), &step, &[]).map(drop),
    ];
    for refused in refused {
        assert!(matches!(refused, Err(PatternError::NoTransaction)), "{refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_committed_with_the_record_or_not_at_all() {
    let world = shop().await;
    let node = Node::on(&world).await;
    let book = |tx: &Connection| -> Result<(), BoxError> {
        insert(tx, "book")?;
        assert_eq!(change(tx, &Version::of("version", 1), "lamp"), CompareAndSet::Applied { version: 2 });
        assert_eq!(ship(tx, &["paid"]), TransitionResult::Taken);
        Ok(())
    };
    let failed = node.run("key-1", move |tx, _| {
        book(tx)?;
        Err("after all".into())
    });
    assert!(failed.await.is_err());
    assert_eq!(world.ask("SELECT count(*) FROM {t:orders}").await, 0);
    let booked = node.run("key-2", move |tx, _| {
        book(tx)?;
        Ok(paid())
    });
    booked.await.expect("an answer");
    let changed = "SELECT count(*) FROM {t:orders} WHERE state = 'shipped' AND version = 2";
    assert_eq!(world.ask(changed).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_sixty_four_threads_wins_each_pattern() {
    let world = shop().await;
    let results: Vec<[bool; 3]> = std::thread::scope(|scope| {
        let racers: Vec<_> = (0..RACERS)
            .map(|racer| {
                let world = &world;
                scope.spawn(move || {
                    let tx = begun(world);
                    let inserted = insert(&tx, &format!("item-{racer}")).expect("an answer");
                    let by = Version::of("version", 1).by("changed_by", format!("op-{racer}"));
                    let changed = change(&tx, &by, "lamp");
                    let taken = ship(&tx, &["paid"]);
                    tx.execute_batch("COMMIT").expect("committed");
                    [
                        matches!(inserted, InsertOrGet::Inserted(_)),
                        matches!(changed, CompareAndSet::Applied { .. }),
                        taken == TransitionResult::Taken,
                    ]
                })
            })
            .collect();
        racers.into_iter().map(|racer| racer.join().expect("no panic")).collect()
    });
    let firsts = [0, 1, 2].map(|at| results.iter().filter(|result| result[at]).count());
    assert_eq!(firsts, [1, 1, 1]);
    let left = "SELECT count(*) * 10 + max(version) FROM {t:orders} WHERE state = 'shipped'";
    assert_eq!(world.ask(left).await, 12);
}
