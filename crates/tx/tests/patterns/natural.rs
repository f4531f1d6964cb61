//! Natural keys, versions and states.

use crate::world::{Lite, Pg, World, race};
use semel_core::id::OperationId;
use semel_tx::patterns::{
    CompareAndSet, InsertOrGet, NaturalTable, PatternError, Transition, TransitionResult, Value, Version,
};
use std::sync::Arc;

on_both!(
    a_second_insert_gets_the_first_ones_row,
    sixty_four_inserts_at_once_make_one_row,
    an_upsert_can_be_repeated,
    a_repeated_change_differs_from_a_concurrent_one,
    a_rows_last_change_is_known_by_its_operation,
    sixty_four_changes_of_one_version_apply_once,
    steps_are_taken_once_and_only_from_allowed_states,
    sixty_four_take_a_step_once,
    a_key_without_a_value_is_refused,
);

async fn shop<W: World>() -> W {
    let world = W::new().await;
    world
        .sql(
            "CREATE TABLE {t:orders} (customer text, number bigint, item text, state text, version bigint, changed_by text, \
             UNIQUE (customer, number))",
        )
        .await;
    world
}

fn orders<W: World>(world: &W) -> NaturalTable {
    NaturalTable::new(&world.table("orders"), &["customer", "number"])
}

fn key() -> [(&'static str, Value); 2] {
    [("customer", "c-1".into()), ("number", 7.into())]
}

fn order(item: &str) -> Vec<(&'static str, Value)> {
    let mut values = key().to_vec();
    values.extend([
        ("item", item.into()),
        ("state", "paid".into()),
        ("version", 1.into()),
        ("changed_by", Value::Null),
    ]);
    values
}

async fn insert<W: World>(world: &W, item: &str) -> bool {
    let mut transaction = world.begin().await;
    let inserted = orders(world).insert_or_get(&mut *transaction, &order(item)).await.expect("an answer");
    W::commit(transaction).await.expect("committed");
    matches!(inserted, InsertOrGet::Inserted(_))
}

async fn a_second_insert_gets_the_first_ones_row<W: World>() {
    let world: W = shop().await;
    assert!(insert(&world, "book").await);
    assert!(!insert(&world, "lamp").await);
    assert_eq!(world.ask("SELECT count(*) FROM {t:orders} WHERE item = 'book'").await, 1);
}

async fn sixty_four_inserts_at_once_make_one_row<W: World>() {
    let world = Arc::new(shop::<W>().await);
    let results = race(|racer| {
        let world = Arc::clone(&world);
        async move { insert(&*world, &format!("item-{racer}")).await }
    })
    .await;
    assert_eq!(results.iter().filter(|is_new| **is_new).count(), 1);
    assert_eq!(world.ask("SELECT count(*) FROM {t:orders}").await, 1);
}

async fn an_upsert_can_be_repeated<W: World>() {
    let world: W = shop().await;
    for item in ["book", "lamp", "lamp"] {
        let mut transaction = world.begin().await;
        orders(&world).upsert(&mut *transaction, &order(item)).await.expect("written");
        W::commit(transaction).await.expect("committed");
    }
    assert_eq!(world.ask("SELECT count(*) FROM {t:orders} WHERE item = 'lamp'").await, 1);
    assert_eq!(world.ask("SELECT count(*) FROM {t:orders}").await, 1);
}

async fn change<W: World>(world: &W, version: &Version, item: &str) -> CompareAndSet {
    let mut transaction = world.begin().await;
    let changes = [("item", item.into())];
    let changed = orders(world).compare_and_set(&mut *transaction, &key(), version, &changes).await;
    W::commit(transaction).await.expect("committed");
    changed.expect("an answer")
}

async fn a_repeated_change_differs_from_a_concurrent_one<W: World>() {
    let world: W = shop().await;
    assert_eq!(change(&world, &Version::of("version", 1), "lamp").await, CompareAndSet::Missing);
    insert(&world, "book").await;
    let read = Version::of("version", 1);
    assert_eq!(change(&world, &read, "lamp").await, CompareAndSet::Applied { version: 2 });
    assert_eq!(change(&world, &read, "lamp").await, CompareAndSet::AlreadyApplied { version: 2 });
    assert_eq!(change(&world, &read, "vase").await, CompareAndSet::Changed { version: 2 });
    let next = Version::of("version", 2);
    assert_eq!(change(&world, &next, "lamp").await, CompareAndSet::Applied { version: 3 });
    assert_eq!(change(&world, &read, "lamp").await, CompareAndSet::Changed { version: 3 });
    assert_eq!(world.ask("SELECT version FROM {t:orders}").await, 3);
}

/// Two people make the same change. By its values alone, the second would look like a retry.
async fn a_rows_last_change_is_known_by_its_operation<W: World>() {
    let world: W = shop().await;
    insert(&world, "book").await;
    let by = |operation: &str| Version::of("version", 1).by("changed_by", operation);
    assert_eq!(change(&world, &by("op-1"), "lamp").await, CompareAndSet::Applied { version: 2 });
    assert_eq!(change(&world, &by("op-1"), "lamp").await, CompareAndSet::AlreadyApplied { version: 2 });
    assert_eq!(change(&world, &by("op-2"), "lamp").await, CompareAndSet::Changed { version: 2 });
}

async fn sixty_four_changes_of_one_version_apply_once<W: World>() {
    let world = Arc::new(shop::<W>().await);
    insert(&*world, "book").await;
    let results = race(|racer| {
        let world = Arc::clone(&world);
        async move {
            let version = Version::of("version", 1).by("changed_by", format!("op-{racer}"));
            change(&*world, &version, "lamp").await
        }
    })
    .await;
    let count = |expected| results.iter().filter(|result| **result == expected).count();
    assert_eq!(count(CompareAndSet::Applied { version: 2 }), 1);
    assert_eq!(count(CompareAndSet::Changed { version: 2 }), 63);
}

async fn step<W: World>(world: &W, from: &[&str], to: &str) -> TransitionResult {
    let mut transaction = world.begin().await;
    let transition = Transition::new("state", from, to);
    let changes = [("changed_by", format!("{to}-step").into())];
    let taken = orders(world).transition(&mut *transaction, &key(), &transition, &changes).await;
    W::commit(transaction).await.expect("committed");
    taken.expect("an answer")
}

async fn steps_are_taken_once_and_only_from_allowed_states<W: World>() {
    let world: W = shop().await;
    assert_eq!(step(&world, &["paid"], "shipped").await, TransitionResult::Missing);
    insert(&world, "book").await;
    let invalid = TransitionResult::Invalid { state: "paid".to_owned() };
    assert_eq!(step(&world, &["shipped"], "delivered").await, invalid);
    assert_eq!(step(&world, &["paid", "packed"], "shipped").await, TransitionResult::Taken);
    assert_eq!(step(&world, &["paid", "packed"], "shipped").await, TransitionResult::AlreadyThere);
    assert_eq!(step(&world, &["shipped"], "shipped").await, TransitionResult::AlreadyThere);
    let invalid = TransitionResult::Invalid { state: "shipped".to_owned() };
    assert_eq!(step(&world, &["paid"], "cancelled").await, invalid);
    assert_eq!(world.ask("SELECT count(*) FROM {t:orders} WHERE changed_by = 'shipped-step'").await, 1);
}

async fn sixty_four_take_a_step_once<W: World>() {
    let world = Arc::new(shop::<W>().await);
    insert(&*world, "book").await;
    let results = race(|_| {
        let world = Arc::clone(&world);
        async move { step(&*world, &["paid"], "shipped").await }
    })
    .await;
    let count = |expected| results.iter().filter(|result| **result == expected).count();
    assert_eq!((count(TransitionResult::Taken), count(TransitionResult::AlreadyThere)), (1, 63));
}

async fn a_key_without_a_value_is_refused<W: World>() {
    let world: W = shop().await;
    let mut transaction = world.begin().await;
    for values in [vec![("customer", "c-1".into())], vec![("customer", Value::Null), ("number", 7.into())]] {
        let refused = orders(&world).insert_or_get(&mut *transaction, &values).await;
        assert!(matches!(refused, Err(PatternError::Invalid(_))));
    }
}

/// Types for which PostgreSQL does not accept a text.
#[tokio::test(flavor = "multi_thread")]
async fn a_resource_id_from_the_operation_finds_its_row() {
    async fn twice<W: World>(id_type: &str) {
        let world = W::new().await;
        world.sql(&format!("CREATE TABLE {{t:invoices}} (id {id_type} PRIMARY KEY, total bigint)")).await;
        let invoices = NaturalTable::new(&world.table("invoices"), &["id"]);
        let operation = OperationId::from_bytes([3; 16]);
        let mut inserted = 0;
        for _attempt in 0..2 {
            let id = operation.resource_id("invoice", "1").to_string();
            let id = if id_type == "uuid" { Value::cast(id, "uuid") } else { id.into() };
            let mut transaction = world.begin().await;
            let values = [("id", id), ("total", 500.into())];
            let row = invoices.insert_or_get(&mut *transaction, &values).await.expect("an answer");
            inserted += u32::from(matches!(row, InsertOrGet::Inserted(_)));
            W::commit(transaction).await.expect("committed");
        }
        assert_eq!((inserted, world.ask("SELECT count(*) FROM {t:invoices}").await), (1, 1));
    }
    twice::<Pg>("uuid").await;
    twice::<Lite>("text").await;
}

/// SQLite casts a text to an unknown type by turning it into a number, the same one for many texts.
#[tokio::test(flavor = "multi_thread")]
async fn a_cast_confuses_no_rows_on_sqlite() {
    let world = Lite::new().await;
    world.sql("CREATE TABLE {t:invoices} (id text PRIMARY KEY, total bigint)").await;
    let invoices = NaturalTable::new(&world.table("invoices"), &["id"]);
    for id in ["a1b2c3d4-0000-4000-8000-000000000001", "b9b2c3d4-0000-4000-8000-000000000001"] {
        let mut transaction = world.begin().await;
        let values = [("id", Value::cast(id, "uuid")), ("total", 500.into())];
        let row = invoices.insert_or_get(&mut *transaction, &values).await.expect("an answer");
        assert!(matches!(row, InsertOrGet::Inserted(_)), "{id}");
        Lite::commit(transaction).await.expect("committed");
    }
    assert_eq!(world.ask("SELECT count(*) FROM {t:invoices} WHERE length(id) = 36").await, 2);
}
