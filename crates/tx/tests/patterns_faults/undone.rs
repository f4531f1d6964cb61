//! A failed call leaves the caller's transaction unchanged, and a dropped one leaves nothing.

use crate::world::{Pg, World, effect, effects, with_effects};
use semel_core::id::OperationId;
use semel_tx::patterns::{
    BusinessReferences, EventCounter, FenceGuard, NaturalTable, PatternError, Transition, Value, Version,
};
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

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

/// Polls a call this many times, then drops it and commits nevertheless. Returns what is left of it; `None`
/// if it was done by then.
async fn left_of_dropped<W: World>(world: &W, call: Call, looks: u32) -> Option<i64> {
    let mut transaction = world.begin().await;
    {
        let mut running = pin!(call.run(world, &mut *transaction, Duration::from_mins(1)));
        for look in 0..looks {
            let is_done = poll_fn(|context| Poll::Ready(running.as_mut().poll(context).is_ready())).await;
            if is_done {
                return None;
            }
            if look + 1 < looks {
                tokio::time::sleep(Duration::from_micros(200)).await;
            }
        }
    }
    // sqlx decides whether the transaction continues; it may have rolled everything back.
    drop(W::run(&mut transaction, effect(world, "own")).await);
    drop(W::commit(transaction).await);
    Some(world.ask(LEFT).await)
}

/// Dropped between any two of its statements. (On SQLite the last one may be done although its answer is
/// lost.)
#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_call_leaves_nothing() {
    for call in Call::ALL {
        let world: Pg = shop().await;
        let mut dropped = 0;
        for looks in 1..30 {
            if let Some(left) = left_of_dropped(&world, call, looks).await {
                dropped += 1;
                assert_eq!(left, 0, "{call:?} dropped after {looks} looks");
            }
        }
        assert!(dropped > 0, "{call:?} was never dropped");
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
