//! A failed call leaves the caller's transaction unchanged, and a dropped one leaves nothing.

use crate::world::{Pg, World, address, effect, effects, message, url, with_effects};
use semel_core::id::OperationId;
use semel_testkit::faults::Gate;
use semel_testkit::proxy::{Fault, FaultProxy, Protocol, Request};
use semel_tx::patterns::{
    BusinessReferences, EventCounter, FenceGuard, Inbox, NaturalTable, PatternError, Transition, Value,
    Version,
};
use sqlx::postgres::PgPoolOptions;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

on_both!(a_dropped_call_leaves_nothing);

const OPERATION: OperationId = OperationId::from_bytes([9; 16]);
const SHORT: Duration = Duration::from_millis(50);
/// Every row that a call of [`Call::run`] leaves.
const LEFT: &str = "SELECT (SELECT count(*) FROM {o:business_references}) + (SELECT count(*) FROM {o:operation_fences}) \
     + (SELECT count(*) FROM {o:counter_operations}) + (SELECT count(*) FROM {t:orders} WHERE state <> 'paid')";

/// The calls that write with their own statement.
#[derive(Debug, Clone, Copy)]
enum Call {
    Bind,
    Enter,
    Count,
    Insert,
    Upsert,
    CompareAndSet,
    Transition,
}

impl Call {
    const ALL: [Self; 7] = [
        Self::Bind,
        Self::Enter,
        Self::Count,
        Self::Insert,
        Self::Upsert,
        Self::CompareAndSet,
        Self::Transition,
    ];

    async fn run<W: World>(
        self,
        world: &W,
        tx: &mut W::Connection,
        wait: Duration,
    ) -> Result<(), PatternError> {
        let orders = NaturalTable::new(&world.table("orders"), &["number"]);
        let (key, tables) = ([("number", Value::from(1))], world.tables());
        let changes = [("state", "changed".into())];
        let new = [("number", 2.into()), ("state", "new".into()), ("version", 1.into())];
        match self {
            Self::Bind => {
                let references = BusinessReferences::new("acme", "pay").tables(tables).wait(wait);
                references.bind(tx, "invoice-117", OPERATION).await.map(drop)
            }
            Self::Enter => {
                let guard = FenceGuard::default().tables(tables).wait(wait);
                guard.enter(tx, OPERATION, 1 << 50).await.map(drop)
            }
            Self::Count => {
                EventCounter::new("events").tables(tables).wait(wait).add(tx, "op-1", 1).await.map(drop)
            }
            Self::Insert => orders.insert_or_get(tx, &new).await.map(drop),
            Self::Upsert => orders.upsert(tx, &new).await.map(drop),
            Self::CompareAndSet => {
                orders.compare_and_set(tx, &key, &Version::of("version", 1), &changes).await.map(drop)
            }
            Self::Transition => {
                let ship = Transition::new("state", &["paid"], "shipped");
                orders.transition(tx, &key, &ship, &[]).await.map(drop)
            }
        }
    }
}

async fn shop<W: World>() -> W {
    let world: W = with_effects().await;
    world.sql("CREATE TABLE {t:orders} (number bigint PRIMARY KEY, state text, version bigint)").await;
    world.sql("INSERT INTO {t:orders} VALUES (1, 'paid', 1)").await;
    world
}

/// What is there after a call was dropped and its caller went on as if nothing had happened.
#[derive(Debug)]
struct Dropped {
    committed: bool,
    /// The caller's own writes, one before the call and one after.
    own: i64,
    /// Rows of the call.
    left: i64,
}

/// Polls a call this many times, then drops it and commits nevertheless. `None` if it was done by then.
async fn dropped<W: World>(world: &W, call: Call, looks: u32) -> Option<Dropped> {
    let mut transaction = world.begin().await;
    W::run(&mut transaction, effect(world, "before")).await.expect("written");
    {
        let mut running = pin!(call.run(world, &mut *transaction, Duration::from_mins(1)));
        for look in 0..looks {
            let is_done = poll_fn(|context| Poll::Ready(running.as_mut().poll(context).is_ready())).await;
            if is_done {
                return None;
            }
            if look + 1 < looks {
                // Not a timer, whose shortest time is too long on SQLite.
                std::thread::sleep(Duration::from_micros(u64::from(looks) * 5));
                tokio::task::yield_now().await;
            }
        }
    }
    W::run(&mut transaction, effect(world, "after")).await.expect("written");
    let committed = W::commit(transaction).await.is_ok();
    let (own, left) = (effects(world).await, world.ask(LEFT).await);
    world.sql("DELETE FROM {t:effects}").await;
    Some(Dropped { committed, own, left })
}

/// Dropped at its savepoint, or at any other of its statements: what the caller has written is committed
/// without the call, or nothing is and the commit fails. The call is done if its last statement was sent.
async fn a_dropped_call_leaves_nothing<W: World>() {
    for call in Call::ALL {
        let (mut world, mut count, mut commits): (W, _, _) = (shop().await, 0, 0);
        // On a busy machine, SQLite's thread may answer every statement before the next look.
        for looks in (1..40).cycle().take(40 * 39) {
            if looks == 1 && count > 0 {
                break;
            }
            let Some(dropped) = dropped(&world, call, looks).await else { continue };
            count += 1;
            commits += u32::from(dropped.committed);
            let expected = if dropped.committed { 2 } else { 0 };
            assert_eq!(dropped.own, expected, "{call:?} {looks}: {dropped:?}");
            assert!(dropped.left <= i64::from(dropped.committed), "{call:?} {looks}: {dropped:?}");
            if dropped.left > 0 {
                world = shop().await;
            }
        }
        assert!(count > 0, "{call:?} was never dropped");
        // There the connection's thread undoes it, and the transaction continues.
        assert!(!W::IS_SQLITE || commits == count, "{call:?}: {commits} of {count} were committed");
    }
}

/// The server has released or undone the savepoint, and its answer has arrived and is not read when the call is dropped.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_dropped_before_its_last_answer_leaves_the_transaction_intact() {
    for is_work_good in [true, false] {
        let world: Pg = shop().await;
        let (is_sent, text) = (Arc::<AtomicBool>::default(), &b"ROLLBACK TO SAVEPOINT"[..]);
        let (sent, last) = (Arc::clone(&is_sent), if is_work_good { b"RELEASE SAVEPOINT" } else { text });
        let answer = Gate::new();
        let held = answer.clone();
        let plan = move |request: &Request<'_>| {
            if !request.contains(last) {
                return Fault::Pass;
            }
            sent.store(true, Ordering::Release);
            Fault::DelayResponse(held.pause())
        };
        let proxy = FaultProxy::start(address(), Protocol::Postgres, plan).await.expect("a port");
        let proxied = url().replace(&address().to_string(), &proxy.address().to_string());
        let pool = PgPoolOptions::new().max_connections(1).connect(&proxied).await.expect("it answers");
        let mut transaction = pool.begin().await.expect("a transaction");
        Pg::run(&mut transaction, effect(&world, "before")).await.expect("written");
        let (inbox, insert) = (Inbox::new("billing").tables(world.tables()), effect(&world, "in the call"));
        let message = message("m-1", "5");
        {
            let mut call = pin!(inbox.once(&mut *transaction, &message, |tx, _| {
                let insert = insert.clone();
                Box::pin(async move {
                    Pg::run(tx, insert).await?;
                    if is_work_good { Ok(()) } else { Err("it fails".into()) }
                })
            }));
            while !is_sent.load(Ordering::Acquire) {
                let is_done = poll_fn(|context| Poll::Ready(call.as_mut().poll(context).is_ready())).await;
                assert!(!is_done, "it is dropped before its end");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            // Nobody reads the answer meanwhile.
            answer.open();
            tokio::time::sleep(Duration::from_millis(400)).await;
        }
        Pg::run(&mut transaction, effect(&world, "after")).await.expect("the transaction continues");
        transaction.commit().await.expect("committed");
        let expected = if is_work_good { 3 } else { 2 };
        assert_eq!(effects(&world).await, expected, "the work is good: {is_work_good}");
    }
}

/// Another transaction holds the same ID, or the same row.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_timed_out_leaves_the_transaction_intact() {
    for call in Call::ALL {
        let world: Pg = shop().await;
        let (mut first, mut second) = (world.begin().await, world.begin().await);
        call.run(&world, &mut first, Duration::from_mins(1)).await.expect("nothing blocks it");
        Pg::run(&mut second, effect(&world, "before")).await.expect("written");
        // For the application's rows, the application's own limit applies.
        Pg::run(&mut second, "SET LOCAL lock_timeout = '50ms'".to_owned()).await.expect("set");
        let busy = call.run(&world, &mut second, SHORT).await;
        assert!(matches!(busy, Err(PatternError::Busy(_))), "{call:?}: {busy:?}");
        Pg::run(&mut second, effect(&world, "after")).await.expect("the transaction continues");
        Pg::commit(second).await.expect("committed");
        drop(first);
        assert_eq!(effects(&world).await, 2, "{call:?}");
        assert_eq!(world.ask(LEFT).await, 0, "{call:?}");
    }
}
