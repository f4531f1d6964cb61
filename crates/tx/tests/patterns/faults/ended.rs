//! Work that ends the caller's transaction, or goes on after an error of a statement: nothing is committed
//! without its mark, and no mark without its effect.

use crate::world::{Lite, Pg, World, effect, effects, message, process, with_effects};
use semel_core::id::OperationId;
use semel_tx::BoxError;
use semel_tx::patterns::{
    BatchResult, Counter, FenceGuard, Fenced, Inbox, InboxResult, PatternError, WorkFuture,
};
use semel_tx::sqlite::rusqlite;
use sqlx::{Connection as _, SqliteConnection};
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

on_both!(
    a_message_that_ignores_an_error_does_not_affect_the_others,
    a_batch_survives_messages_that_ignore_errors,
    a_dropped_call_fails_at_most_its_own_message,
    after_the_work_has_ended_the_transaction_nothing_more_is_committed,
    a_batch_whose_transaction_was_ended_processes_nothing,
    a_result_is_not_stored_without_its_effect,
    a_batch_dropped_at_its_beginning_leaves_no_transaction,
);

const MARKED: &str = "SELECT count(*) FROM {o:inbox_marks}";

fn inbox<W: World>(world: &W) -> Inbox {
    Inbox::new("billing").tables(world.tables())
}

/// Ignores the error of a statement, and then that of a pattern.
fn careless<W: World>(
    tx: &mut W::Connection,
    counter: Counter,
    insert: String,
) -> WorkFuture<'_, Result<(), BoxError>> {
    Box::pin(async move {
        drop(W::run(tx, "INSERT INTO no_such_table VALUES (1)".to_owned()).await);
        drop(counter.add(tx, "op-1", 1).await);
        drop(W::run(tx, insert).await);
        Ok(())
    })
}

/// PostgreSQL fails the message, and SQLite goes on after the error. Either way it is not half done.
async fn a_message_that_ignores_an_error_does_not_affect_the_others<W: World>() {
    let world: W = with_effects().await;
    let inbox = inbox(&world);
    let mut transaction = world.begin().await;
    let mut processed = 0;
    for id in ["a", "b", "c"] {
        let (counter, sql) = (Counter::new("sum").tables(world.tables()), effect(&world, id));
        let done = inbox
            .once(&mut *transaction, &message(id, "5"), move |tx, _| {
                if id == "b" {
                    return careless::<W>(tx, counter, sql);
                }
                Box::pin(async move { W::run(tx, sql).await.map(drop) })
            })
            .await;
        assert!(id == "b" || done.is_ok(), "{id}: {done:?}");
        assert!(matches!(done, Ok(InboxResult::Processed(())) | Err(PatternError::Work(_))), "{done:?}");
        processed += i64::from(done.is_ok());
    }
    W::commit(transaction).await.expect("committed");
    assert_eq!((effects(&world).await, world.ask(MARKED).await), (processed, processed));
}

async fn a_batch_survives_messages_that_ignore_errors<W: World>() {
    let world: W = with_effects().await;
    let inbox = inbox(&world);
    let batch = [message("a", "5"), message("b", "5"), message("c", "5")];
    for round in 0..2 {
        let (counter, table) = (Counter::new("sum").tables(world.tables()), world.table("effects"));
        let mut connection = world.pool().acquire().await.expect("a connection");
        let results: Vec<BatchResult> = inbox
            .batch(&mut *connection, &batch, move |tx, message| {
                let id = message.id().as_str();
                let sql = format!("INSERT INTO {table} (name) VALUES ('{id}')");
                if id == "b" {
                    return careless::<W>(tx, counter.clone(), sql);
                }
                Box::pin(async move { W::run(tx, sql).await.map(drop) })
            })
            .await
            .expect("the others are processed");
        let done = results.iter().filter(|result| result.is_ok()).count();
        assert!(results[0].is_ok() && results[2].is_ok(), "{round}: {results:?}");
        let done = i64::try_from(done).expect("few");
        assert_eq!((effects(&world).await, world.ask(MARKED).await), (done, done), "{round}: {results:?}");
    }
}

/// PostgreSQL notices at the commit that a call was dropped, and then only that message fails. On SQLite it is
/// undone.
async fn a_dropped_call_fails_at_most_its_own_message<W: World>() {
    for looks in 1..6 {
        let world: W = with_effects().await;
        let batch = [message("a", "5"), message("b", "5"), message("c", "5")];
        let (counter, table) = (Counter::new("sum").tables(world.tables()), world.table("effects"));
        let mut connection = world.pool().acquire().await.expect("a connection");
        let results = inbox(&world)
            .batch(&mut *connection, &batch, move |tx, message| {
                let id = message.id().as_str();
                let sql = format!("INSERT INTO {table} (name) VALUES ('{id}')");
                let counter = counter.clone();
                Box::pin(async move {
                    if id == "b" {
                        let mut counting = pin!(counter.add(tx, "op-1", 1));
                        for _ in 0..looks {
                            let looked =
                                poll_fn(|context| Poll::Ready(counting.as_mut().poll(context).is_ready()));
                            if looked.await {
                                break;
                            }
                            std::thread::sleep(std::time::Duration::from_micros(50));
                        }
                    }
                    W::run(tx, sql).await.map(drop)
                })
            })
            .await
            .expect("the others are processed");
        let done: Vec<bool> = results.iter().map(Result::is_ok).collect();
        assert!(done[0] && done[2] && (done[1] || !W::IS_SQLITE), "{looks}: {results:?}");
        let done = i64::try_from(done.iter().filter(|done| **done).count()).expect("few");
        assert_eq!((effects(&world).await, world.ask(MARKED).await), (done, done), "{looks}: {results:?}");
    }
}

/// The third mode of a batch has savepoints of its own, with and without a pattern in the work.
#[tokio::test(flavor = "multi_thread")]
async fn an_ignored_error_fails_alone_beside_a_deferred_constraint() {
    let world: Pg = with_effects().await;
    world.sql("CREATE TABLE {t:accounts} (id bigint PRIMARY KEY)").await;
    let late =
        "CREATE TABLE {t:late} (account bigint REFERENCES {t:accounts} (id) DEFERRABLE INITIALLY DEFERRED)";
    world.sql(late).await;
    for counts in [true, false] {
        let ids = ["a", "b", "c", "d"].map(|id| format!("{id}-{counts}"));
        let batch = ids.each_ref().map(|id| message(id, "5"));
        let mut connection = world.pool().acquire().await.expect("a connection");
        let (late, table) = (world.table("late"), world.table("effects"));
        let counter = Counter::new("sum").tables(world.tables());
        let results = inbox(&world)
            .batch(&mut *connection, &batch, move |tx, message| {
                let id = message.id().as_str();
                let sql = format!("INSERT INTO {table} (name) VALUES ('{id}')");
                if id.starts_with('b') && counts {
                    return careless::<Pg>(tx, counter.clone(), sql);
                }
                let then = match id.as_bytes()[0] {
                    b'b' => Some("INSERT INTO no_such_table VALUES (1)".to_owned()),
                    b'd' => Some(format!("INSERT INTO {late} VALUES (9)")),
                    _ => None,
                };
                Box::pin(async move {
                    Pg::run(tx, sql).await?;
                    if let Some(then) = then {
                        drop(Pg::run(tx, then).await);
                    }
                    Ok(())
                })
            })
            .await
            .expect("the others are processed");
        let done: Vec<bool> = results.iter().map(Result::is_ok).collect();
        assert_eq!(done, [true, false, true, false], "{counts}: {results:?}");
    }
    assert_eq!((effects(&world).await, world.ask(MARKED).await), (4, 4));
}

/// How the work ends the transaction.
#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    /// `INSERT OR ROLLBACK`, and the work reports its error.
    Reported,
    /// The same, and the work ignores it.
    Ignored,
    Rollback,
    RollbackAndBegin,
    /// PostgreSQL refuses it.
    Commit,
    /// A nested transaction of sqlx after an ignored error.
    Nested,
    /// A nested transaction of sqlx whose beginning is dropped.
    Dropped,
    /// A nested transaction of sqlx that is never ended.
    Leaked,
}

impl End {
    const POSTGRES: [Self; 6] =
        [Self::Rollback, Self::RollbackAndBegin, Self::Commit, Self::Nested, Self::Dropped, Self::Leaked];
    const SQLITE: [Self; 6] =
        [Self::Reported, Self::Ignored, Self::Rollback, Self::RollbackAndBegin, Self::Dropped, Self::Leaked];

    fn all<W: World>() -> [Self; 6] {
        if W::IS_SQLITE { Self::SQLITE } else { Self::POSTGRES }
    }

    async fn run<W: World>(self, tx: &mut W::Connection, names: String) -> Result<(), BoxError> {
        let or_rollback = format!("INSERT OR ROLLBACK INTO {names} VALUES ('taken')");
        match self {
            Self::Reported => drop(W::run(tx, or_rollback).await?),
            Self::Ignored => drop(W::run(tx, or_rollback).await),
            Self::Rollback => drop(W::run(tx, "ROLLBACK".to_owned()).await?),
            Self::RollbackAndBegin => {
                W::run(tx, "ROLLBACK".to_owned()).await?;
                W::run(tx, "BEGIN".to_owned()).await?;
            }
            Self::Commit => drop(W::run(tx, "COMMIT".to_owned()).await),
            Self::Nested => {
                drop(W::run(tx, "INSERT INTO no_such_table VALUES (1)".to_owned()).await);
                drop(tx.begin().await);
            }
            Self::Dropped => {
                // Unless the answer is there at the first look.
                let mut is_done = true;
                while is_done {
                    let mut beginning = pin!(tx.begin());
                    is_done =
                        poll_fn(|context| Poll::Ready(beginning.as_mut().poll(context).is_ready())).await;
                }
            }
            Self::Leaked => std::mem::forget(tx.begin().await?),
        }
        Ok(())
    }
}

async fn with_names<W: World>() -> W {
    let world: W = with_effects().await;
    world.sql("CREATE TABLE {t:names} (name text PRIMARY KEY)").await;
    world.sql("INSERT INTO {t:names} VALUES ('taken')").await;
    world
}

/// Writes, ends the transaction, and writes again.
fn ending<W: World>(
    tx: &mut W::Connection,
    end: End,
    names: String,
    sql: String,
) -> WorkFuture<'_, Result<(), BoxError>> {
    Box::pin(async move {
        W::run(tx, sql).await?;
        end.run::<W>(tx, names).await
    })
}

async fn after_the_work_has_ended_the_transaction_nothing_more_is_committed<W: World>() {
    for end in End::all::<W>() {
        let world: W = with_names().await;
        let inbox = inbox(&world);
        let mut transaction = world.begin().await;
        W::run(&mut transaction, effect(&world, "before")).await.expect("written");
        let (names, sql) = (world.table("names"), effect(&world, "m"));
        let ended = inbox
            .once(&mut *transaction, &message("m", "5"), move |tx, _| ending::<W>(tx, end, names, sql))
            .await;
        assert!(matches!(ended, Err(PatternError::TransactionEnded)), "{end:?}: {ended:?}");
        // The caller ignores that, and goes on.
        drop(W::run(&mut transaction, effect(&world, "after")).await);
        let committed = W::commit(transaction).await;
        assert!(committed.is_err(), "{end:?}: the commit reports a success");
        assert_eq!((effects(&world).await, world.ask(MARKED).await), (0, 0), "{end:?}");
        // More often than the pool has connections.
        for number in 0..14 {
            let done = process(&world, &inbox, &message(&format!("m-{number}"), "5")).await;
            assert!(matches!(done, Ok(InboxResult::Processed(()))), "{end:?}: {done:?}");
        }
        assert_eq!((effects(&world).await, world.ask(MARKED).await), (14, 14), "{end:?}");
    }
}

/// The work of the next message would otherwise be committed at once, without its mark.
async fn a_batch_whose_transaction_was_ended_processes_nothing<W: World>() {
    for end in End::all::<W>() {
        for fails in [false, true] {
            let world: W = with_names().await;
            let batch = ["a", "b", "c", "d"].map(|id| message(id, "5"));
            let (names, table) = (world.table("names"), world.table("effects"));
            let mut connection = world.pool().acquire().await.expect("a connection");
            let ended = inbox(&world)
                .batch(&mut *connection, &batch, move |tx, message| {
                    let id = message.id().as_str();
                    let sql = format!("INSERT INTO {table} (name) VALUES ('{id}')");
                    let names = names.clone();
                    match id {
                        "b" => ending::<W>(tx, end, names, sql),
                        // So that the batch runs again, with savepoints.
                        "a" if fails => Box::pin(async move { Err("it fails".into()) }),
                        _ => Box::pin(async move { W::run(tx, sql).await.map(drop) }),
                    }
                })
                .await;
            assert!(matches!(ended, Err(PatternError::TransactionEnded)), "{end:?} {fails}: {ended:?}");
            drop(connection);
            assert_eq!((effects(&world).await, world.ask(MARKED).await), (0, 0), "{end:?} {fails}");
            for number in 0..14 {
                world.sql(&effect(&world, &format!("later-{number}"))).await;
            }
            assert_eq!(effects(&world).await, 14, "{end:?} {fails}: every connection works");
        }
    }
}

/// The attempt entered in a transaction of its own, so its row survives the end of the second one.
async fn a_result_is_not_stored_without_its_effect<W: World>() {
    for end in End::all::<W>() {
        let world: W = with_names().await;
        let (guard, operation) =
            (FenceGuard::default().tables(world.tables()), OperationId::from_bytes([9; 16]));
        let mut first = world.begin().await;
        let entered = guard.enter(&mut *first, operation, 1 << 50).await.expect("entered");
        assert!(matches!(entered, Fenced::Run(_)));
        drop(entered);
        W::commit(first).await.expect("committed");
        let mut second = world.begin().await;
        let (names, sql) = (world.table("names"), effect(&world, "charged"));
        let ended = guard
            .run(&mut *second, operation, 1 << 50, move |tx| {
                Box::pin(async move {
                    ending::<W>(tx, end, names, sql).await?;
                    Ok(b"done".to_vec())
                })
            })
            .await;
        assert!(matches!(ended, Err(PatternError::TransactionEnded)), "{end:?}: {ended:?}");
        assert!(W::commit(second).await.is_err(), "{end:?}");
        let done = world.ask("SELECT count(*) FROM {o:operation_fences} WHERE is_done").await;
        assert_eq!((effects(&world).await, done), (0, 0), "{end:?}");
    }
}

/// Otherwise later statements on the connection are part of a transaction that nobody commits.
async fn a_batch_dropped_at_its_beginning_leaves_no_transaction<W: World>() {
    let world: W = with_effects().await;
    let (inbox, batch) = (inbox(&world), [message("a", "5")]);
    for looks in 1..40 {
        let mut connection = world.pool().acquire().await.expect("a connection");
        {
            let running =
                inbox.batch(&mut *connection, &batch, |_, _| Box::pin(async { Err("it fails".into()) }));
            let mut running = pin!(running);
            for look in 0..looks {
                let is_done = poll_fn(|context| Poll::Ready(running.as_mut().poll(context).is_ready())).await;
                if is_done {
                    break;
                }
                if look + 1 < looks {
                    tokio::time::sleep(std::time::Duration::from_micros(100)).await;
                }
            }
        }
        W::run(&mut connection, effect(&world, &format!("own-{looks}"))).await.expect("written");
        assert_eq!(effects(&world).await, looks, "dropped after {looks} looks");
    }
    assert_eq!(world.ask(MARKED).await, 0);
}

/// A call that was dropped has left a cursor of the same name: the next one fails, and leaves the rest unchanged.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_savepoint_has_a_taken_name_leaves_the_transaction_intact() {
    let world: Pg = with_effects().await;
    let mut transaction = world.begin().await;
    Pg::run(&mut transaction, effect(&world, "before")).await.expect("written");
    let taken = "DECLARE semel_pattern_1 CURSOR FOR SELECT 1".to_owned();
    Pg::run(&mut transaction, taken).await.expect("declared");
    let counted = Counter::new("sum").tables(world.tables()).add(&mut *transaction, "op-1", 1).await;
    assert!(matches!(counted, Err(PatternError::Database(_))), "{counted:?}");
    Pg::run(&mut transaction, effect(&world, "after")).await.expect("the transaction continues");
    Pg::commit(transaction).await.expect("committed");
    assert_eq!(effects(&world).await, 2);
}

/// Without foreign keys there is nothing that a commit would check: the connection refuses to write.
#[tokio::test(flavor = "multi_thread")]
async fn without_foreign_keys_an_ended_transaction_commits_nothing_either() {
    let world: Lite = with_names().await;
    let mut connection = SqliteConnection::connect(&world.path().to_string_lossy()).await.expect("opened");
    Lite::run(&mut connection, "PRAGMA foreign_keys = OFF".to_owned()).await.expect("set");
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await.expect("begun");
    let (names, sql) = (world.table("names"), effect(&world, "m"));
    let ended = inbox(&world)
        .once(&mut *transaction, &message("m", "5"), move |tx, _| {
            ending::<Lite>(tx, End::Ignored, names, sql)
        })
        .await;
    assert!(matches!(ended, Err(PatternError::TransactionEnded)), "{ended:?}");
    Lite::run(&mut transaction, effect(&world, "after")).await.expect_err("it only reads");
    drop(transaction.commit().await);
    assert_eq!((effects(&world).await, world.ask(MARKED).await), (0, 0));
}

/// The same on a `rusqlite` connection.
#[test]
fn a_blocking_caller_cannot_commit_after_its_transaction_was_ended() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    for then in ["", "BEGIN"] {
        for reports in [true, false] {
            let world: Lite = runtime.block_on(with_names());
            let connection = rusqlite::Connection::open(world.path()).expect("it opens");
            connection
                .execute_batch("BEGIN IMMEDIATE; INSERT INTO effects VALUES ('before')")
                .expect("begun");
            let ended = inbox(&world).once_blocking(&connection, &message("m", "5"), |tx, _| {
                tx.execute("INSERT INTO effects VALUES ('m')", [])?;
                let taken = tx.execute("INSERT OR ROLLBACK INTO names VALUES ('taken')", []);
                tx.execute_batch(then)?;
                if reports { taken.map(drop).map_err(Into::into) } else { Ok(()) }
            });
            assert!(matches!(ended, Err(PatternError::TransactionEnded)), "{then} {reports}: {ended:?}");
            connection.execute("INSERT INTO effects VALUES ('after')", []).expect("written, for now");
            connection.execute_batch("COMMIT").expect_err("nothing of it may be committed");
            connection.execute_batch("ROLLBACK").expect("over");
            let left = runtime.block_on(async { (effects(&world).await, world.ask(MARKED).await) });
            assert_eq!(left, (0, 0), "{then} {reports}");
            connection.execute("INSERT INTO effects VALUES ('later')", []).expect("as good as new");
            assert_eq!(runtime.block_on(effects(&world)), 1);
        }
    }
}
