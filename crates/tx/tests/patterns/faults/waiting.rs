//! Other holders of the same ID, on PostgreSQL. (SQLite has none: the file has one writer.)

use crate::world::{Pg, World, effect, effects, message, with_effects};
use semel_core::id::OperationId;
use semel_tx::patterns::{
    Binding, BusinessReferences, Counter, FenceGuard, Fenced, Inbox, InboxResult, PatternError,
};
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_mins(1);

async fn lock_timeout(connection: &mut sqlx::PgConnection) -> String {
    let row =
        sqlx::query("SELECT current_setting('lock_timeout')").fetch_one(connection).await.expect("a row");
    sqlx::Row::get(&row, 0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_duplicate_waits_a_bounded_time_and_keeps_the_transaction() {
    let world: Pg = with_effects().await;
    let inbox = Inbox::new("billing").tables(world.tables()).wait(SHORT);
    let (mut first, mut second) = (world.begin().await, world.begin().await);
    sqlx::query("SET LOCAL lock_timeout = '7s'").execute(&mut *second).await.expect("set");
    let done = inbox.once(&mut *first, &message("m-1", "5"), |_, _| Box::pin(async { Ok(()) })).await;
    assert_eq!(done.expect("ran"), InboxResult::Processed(()));
    let copy = inbox.once(&mut *second, &message("m-1", "5"), |_, _| Box::pin(async { Ok(()) })).await;
    assert!(matches!(copy, Err(PatternError::Busy(_))), "{copy:?}");
    assert_eq!(lock_timeout(&mut second).await, "7s", "the caller's own bound is back");
    Pg::run(&mut second, effect(&world, "other")).await.expect("the transaction continues");
    let other = inbox.once(&mut *second, &message("m-2", "5"), |_, _| Box::pin(async { Ok(()) })).await;
    assert_eq!(other.expect("ran"), InboxResult::Processed(()));
    assert_eq!(lock_timeout(&mut second).await, "7s");
    second.commit().await.expect("committed");
    assert_eq!(effects(&world).await, 1);
    let mut connection = world.pool().acquire().await.expect("a connection");
    let batch =
        inbox.batch(&mut *connection, &[message("m-1", "5")], |_, _| Box::pin(async { Ok(()) })).await;
    assert!(matches!(batch, Err(PatternError::Busy(_))), "{batch:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_for_an_operation_or_reference_is_bounded() {
    let world = Pg::new().await;
    let operation = OperationId::from_bytes([1; 16]);
    let fence = u64::try_from(i64::MAX).expect("positive");
    let guard = FenceGuard::default().tables(world.tables()).wait(SHORT);
    let references = BusinessReferences::new("acme", "pay").tables(world.tables()).wait(SHORT);
    let counter = Counter::new("balance").tables(world.tables()).wait(SHORT);
    let mut first = world.begin().await;
    guard.enter(&mut *first, operation, fence).await.expect("entered");
    let bound = references.bind(&mut *first, "invoice-117", operation).await.expect("an answer");
    assert_eq!(bound, Binding::Bound);
    counter.add(&mut *first, "op-1", 1).await.expect("counted");
    let busy =
        |error: Option<PatternError>| assert!(matches!(error, Some(PatternError::Busy(_))), "{error:?}");
    let mut second = world.begin().await;
    busy(guard.enter(&mut *second, operation, fence).await.err());
    let mut second = world.begin().await;
    busy(references.bind(&mut *second, "invoice-117", operation).await.err());
    let mut second = world.begin().await;
    busy(counter.add(&mut *second, "op-1", 1).await.err());
    // Only dropped, it would be rolled back a moment later.
    first.rollback().await.expect("rolled back");
    let mut second = world.begin().await;
    let references = references.wait(LONG);
    let bound = references.bind(&mut *second, "invoice-117", operation).await.expect("bound");
    assert_eq!(bound, Binding::Bound, "the holder is gone, and so are its writes");
}

/// A role with `synchronous_commit = off` would acknowledge writes that a crash can lose.
#[tokio::test(flavor = "multi_thread")]
async fn a_mark_is_committed_durably_despite_session_settings() {
    let world: Pg = with_effects().await;
    let inbox = Inbox::new("billing").tables(world.tables());
    let mut transaction = world.begin().await;
    sqlx::query("SET LOCAL synchronous_commit = off").execute(&mut *transaction).await.expect("set");
    inbox
        .once(&mut *transaction, &message("m-1", "5"), |_, _| Box::pin(async { Ok(()) }))
        .await
        .expect("ran");
    let row = sqlx::query("SELECT current_setting('synchronous_commit')").fetch_one(&mut *transaction).await;
    assert_eq!(sqlx::Row::get::<String, _>(&row.expect("a row"), 0), "on");
}

/// At `REPEATABLE READ` a row that was committed since is invisible. That is a conflict, never a second
/// effect.
#[tokio::test(flavor = "multi_thread")]
async fn an_old_snapshot_is_a_conflict_and_not_a_new_message() {
    let world: Pg = with_effects().await;
    let inbox = Inbox::new("billing").tables(world.tables());
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ";
    let mut old = world.pool().begin_with(begin).await.expect("a transaction");
    effects_seen(&mut old).await;
    let mut new = world.begin().await;
    inbox.once(&mut *new, &message("m-1", "5"), |_, _| Box::pin(async { Ok(()) })).await.expect("ran");
    new.commit().await.expect("committed");
    let late = inbox.once(&mut *old, &message("m-1", "5"), |_, _| Box::pin(async { Ok(()) })).await;
    assert!(matches!(late, Err(PatternError::Conflict(_))), "{late:?}");
}

async fn effects_seen(connection: &mut sqlx::PgConnection) {
    sqlx::query("SELECT 1").execute(connection).await.expect("a snapshot");
}

/// Each holder fails before its wait is over. Without a total limit, they would delay a batch one after
/// another.
#[tokio::test(flavor = "multi_thread")]
async fn the_total_wait_of_a_batch_is_bounded() {
    const HOLDERS: u32 = 9;
    let world: Pg = with_effects().await;
    let inbox = Inbox::new("billing").tables(world.tables());
    let batch: Vec<_> = (0..HOLDERS).map(|number| message(&format!("m-{number:02}"), "5")).collect();
    let mut holders = Vec::new();
    for message in &batch {
        let mut holder = world.begin().await;
        inbox.once(&mut *holder, message, |_, _| Box::pin(async { Ok(()) })).await.expect("ran");
        holders.push(holder);
    }
    let failing = tokio::spawn(async move {
        for holder in holders {
            tokio::time::sleep(Duration::from_millis(200)).await;
            holder.rollback().await.expect("it fails");
        }
    });
    let patient = inbox.wait(Duration::from_millis(500));
    let mut connection = world.pool().acquire().await.expect("a connection");
    let late = patient.batch(&mut *connection, &batch, |_, _| Box::pin(async { Ok(()) })).await;
    assert!(matches!(late, Err(PatternError::Busy(_))), "{late:?}");
    failing.await.expect("no panic");
    let done = patient.wait(LONG).batch(&mut *connection, &batch, |_, _| Box::pin(async { Ok(()) })).await;
    assert!(done.expect("nothing blocks it").iter().all(Result::is_ok));
}

/// As if it waited for one holder after another: a trigger delays it.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_past_its_wait_ends_and_restores_the_limits() {
    let world = Pg::new().await;
    world
        .sql("CREATE FUNCTION {t:dawdle}() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(20); RETURN NEW; END'")
        .await;
    for table in ["inbox_marks", "operation_fences", "business_references", "counter_operations"] {
        let sql = format!(
            "CREATE TRIGGER dawdle BEFORE INSERT ON {{o:{table}}} FOR EACH ROW EXECUTE FUNCTION {{t:dawdle}}()"
        );
        world.sql(&sql).await;
    }
    let operation = OperationId::from_bytes([1; 16]);
    let tables = || world.tables();
    let mut tx = world.begin().await;
    Pg::run(&mut tx, "SET LOCAL statement_timeout = '7min'".to_owned()).await.expect("set");
    let inbox = Inbox::new("billing").tables(tables()).wait(SHORT);
    let once = inbox.once(&mut *tx, &message("m-1", "5"), |_, _| Box::pin(async { Ok(()) })).await.map(drop);
    let guard = FenceGuard::default().tables(tables()).wait(SHORT);
    let entered = guard.enter(&mut *tx, operation, 1 << 50).await.map(drop);
    let references = BusinessReferences::new("acme", "pay").tables(tables()).wait(SHORT);
    let bound = references.bind(&mut *tx, "invoice-117", operation).await.map(drop);
    let counted =
        Counter::new("balance").tables(tables()).wait(SHORT).add(&mut *tx, "op-1", 1).await.map(drop);
    for late in [once, entered, bound, counted] {
        assert!(matches!(late, Err(PatternError::Busy(_))), "{late:?}");
    }
    let row = sqlx::query("SELECT current_setting('statement_timeout')").fetch_one(&mut *tx).await;
    assert_eq!(sqlx::Row::get::<String, _>(&row.expect("a row"), 0), "7min");
    let other = Counter::new("balance").tables(tables()).value(&mut *tx).await;
    assert_eq!(other.expect("the transaction is intact"), 0);
}

/// The second of two transactions: the first one's commit proves nothing about it.
#[tokio::test(flavor = "multi_thread")]
async fn a_result_is_committed_durably_despite_session_settings() {
    for (setting, expected) in [("off", "on"), ("local", "on"), ("remote_apply", "remote_apply")] {
        let world = Pg::new().await;
        let guard = FenceGuard::default().tables(world.tables());
        let mut tx = world.begin().await;
        let entered =
            guard.enter(&mut *tx, OperationId::from_bytes([1; 16]), 1 << 50).await.expect("entered");
        let Fenced::Run(pass) = entered else { panic!("{entered:?}") };
        tx.commit().await.expect("committed");
        let mut tx = world.begin().await;
        Pg::run(&mut tx, format!("SET LOCAL synchronous_commit = {setting}")).await.expect("set");
        guard.done(&mut *tx, pass, b"paid").await.expect("kept");
        let row = sqlx::query("SELECT current_setting('synchronous_commit')").fetch_one(&mut *tx).await;
        assert_eq!(sqlx::Row::get::<String, _>(&row.expect("a row"), 0), expected, "{setting}");
    }
}
