//! Others that hold the same id, on PostgreSQL. (On SQLite nobody else can: the file has one writer.)

use crate::world::{Pg, World, effect, effects, message, with_effects};
use semel_core::id::OperationId;
use semel_tx::patterns::{
    Binding, BusinessReferences, Counter, FenceGuard, Inbox, InboxResult, PatternError,
};
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(50);

async fn lock_timeout(connection: &mut sqlx::PgConnection) -> String {
    let row =
        sqlx::query("SELECT current_setting('lock_timeout')").fetch_one(connection).await.expect("a row");
    sqlx::Row::get(&row, 0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_waits_a_bounded_time_and_leaves_the_transaction_whole() {
    let world: Pg = with_effects().await;
    let inbox = Inbox::new("billing").tables(world.tables()).wait(SHORT);
    let (mut first, mut second) = (world.begin().await, world.begin().await);
    sqlx::query("SET LOCAL lock_timeout = '7s'").execute(&mut *second).await.expect("set");
    let done = inbox.once(&mut *first, &message("m-1", "5"), |_, _| Box::pin(async { Ok(()) })).await;
    assert_eq!(done.expect("ran"), InboxResult::Processed(()));
    let copy = inbox.once(&mut *second, &message("m-1", "5"), |_, _| Box::pin(async { Ok(()) })).await;
    assert!(matches!(copy, Err(PatternError::Busy(_))), "{copy:?}");
    assert_eq!(lock_timeout(&mut second).await, "7s", "the caller's own bound is back");
    Pg::run(&mut second, effect(&world, "other")).await.expect("the transaction goes on");
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
async fn nobody_waits_for_ever_for_an_operation_or_a_reference() {
    let world = Pg::new().await;
    let operation = OperationId::from_bytes([1; 16]);
    let fence = u64::try_from(i64::MAX).expect("positive");
    let guard = FenceGuard::default().tables(world.tables()).wait(SHORT);
    let references = BusinessReferences::new("acme", "pay").tables(world.tables()).wait(SHORT);
    let counter = Counter::new("balance").tables(world.tables()).wait(SHORT);
    let mut first = world.begin().await;
    guard.enter(&mut *first, operation, fence).await.expect("entered");
    references.bind(&mut *first, "invoice-117", operation).await.expect("bound");
    counter.add(&mut *first, "op-1", 1).await.expect("counted");
    let busy =
        |error: Option<PatternError>| assert!(matches!(error, Some(PatternError::Busy(_))), "{error:?}");
    let mut second = world.begin().await;
    busy(guard.enter(&mut *second, operation, fence).await.err());
    let mut second = world.begin().await;
    busy(references.bind(&mut *second, "invoice-117", operation).await.err());
    let mut second = world.begin().await;
    busy(counter.add(&mut *second, "op-1", 1).await.err());
    drop(first);
    let mut second = world.begin().await;
    let bound = references.bind(&mut *second, "invoice-117", operation).await.expect("bound");
    assert_eq!(bound, Binding::Bound, "who was waited for is gone, and so is what it wrote");
}

/// A role with `synchronous_commit = off` would acknowledge what a crash can lose.
#[tokio::test(flavor = "multi_thread")]
async fn a_mark_is_committed_durably_whatever_the_session_says() {
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

/// At `REPEATABLE READ` a row that was committed since cannot be seen. That is a conflict, never a second effect.
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
