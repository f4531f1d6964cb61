//! Commits whose answers are lost, and connections that break elsewhere.

use super::world::{Events, World, address_in, body, intent, ran, url};
use semel::Settings;
use semel_sql::postgres::transaction::lock_number;
use semel_testkit::proxy::{Existing, Fault, Request, Script};
use semel_tx::Error;
use semel_tx::postgres::transact;
use std::time::Duration;

/// The statement itself, and not `READ COMMITTED`.
const COMMIT: &[u8] = b"COMMIT\0";

async fn engine(world: &World, events: &Events) -> semel::Engine {
    let settings = Settings { store_timeout: Duration::from_secs(3), ..Settings::default() };
    let builder = world.builder().await.settings(settings).observer(events.clone());
    builder.build().await.expect("an engine")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_answer_was_lost_is_recognised() {
    let world = World::new().await;
    let (events, (database, proxy)) = (Events::default(), world.proxied(2).await);
    let engine = engine(&world, &events).await;
    proxy.set_plan(Script::of(COMMIT, [Fault::CutAfter]));
    let answer = world.order(&engine, &database, "order-1").await.expect("it is known to have committed");
    assert!(ran(&answer) && body(&answer) == "created");
    assert_eq!((world.orders().await, world.records().await), (1, 1));
    assert_eq!(["Finished", "CommitInDoubt"].map(|name| events.of(name)), [1, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_never_arrived_is_known_to_be_rolled_back() {
    let world = World::new().await;
    let (events, (database, proxy)) = (Events::default(), world.proxied(2).await);
    let engine = engine(&world, &events).await;
    proxy.set_plan(Script::of(COMMIT, [Fault::CutBefore]));
    let failed = world.order(&engine, &database, "order-1").await;
    let Err(error @ Error::Database(_)) = failed else { panic!("{failed:?}") };
    assert!(error.is_retryable());
    assert_eq!((world.orders().await, world.records().await, events.of("RolledBack")), (0, 0, 1));
    assert!(ran(&world.order(&engine, &database, "order-1").await.expect("it ran")));
    assert_eq!(world.orders().await, 1);
}

/// The transaction is still open on the server, which does not know of the broken connection: the result is
/// unknown.
#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_commit_is_in_doubt_until_a_retry_settles_it() {
    let world = World::new().await;
    let (events, (database, proxy)) = (Events::default(), world.proxied(2).await);
    let engine = engine(&world, &events).await;
    // It never arrives, and the server's end of the connection stays open as long as the proxy does.
    proxy.set_plan(
        |request: &Request<'_>| if request.contains(COMMIT) { Fault::HalfOpen } else { Fault::Pass },
    );
    // The holder of the command's lock stands for a server that has not noticed.
    let holder = world.database(1).await;
    let probe = transact(&engine, &database, intent("order-1"), world.ordering());
    let in_doubt = probe.await;
    let known_by = match in_doubt {
        Err(error @ Error::CommitInDoubt { .. }) => {
            assert!(error.is_retryable() && error.to_string().contains("same key"), "{error}");
            assert_eq!(events.of("CommitInDoubt"), 1);
            "doubt"
        }
        // The proxy closed both ends: then the result is known.
        Err(Error::Database(_)) => "rollback",
        other => panic!("{other:?}"),
    };
    proxy.set_plan(|_: &Request<'_>| Fault::Pass);
    proxy.cut();
    let answer = loop {
        let patient = intent("order-1").waiting(Duration::from_secs(10));
        match transact(&engine, &holder, patient, world.ordering()).await {
            Ok(answer) => break answer,
            _ => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    };
    assert_eq!(body(&answer), "created", "{known_by}");
    assert_eq!((world.orders().await, world.records().await), (1, 1));
}

/// The same without chance: another session has the lock when the commit is looked up.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_lock_nothing_is_concluded() {
    let world = World::new().await;
    let (events, (database, proxy)) = (Events::default(), world.proxied(2).await);
    let engine = engine(&world, &events).await;
    // The number of the lock is known from another run of the same command.
    let known = world.order(&engine, &database, "order-1").await.expect("it ran");
    let id = engine.look_up(known.operation_id).await.expect("it is stored").id;
    world.sql("DELETE FROM {s}.records WHERE version IS NOT NULL; TRUNCATE {s}.orders").await;
    let fresh = self::engine(&world, &events).await;
    let mut holder = world.admin.acquire().await.expect("a connection");
    proxy.set_plan(Script::of(COMMIT, [Fault::CutBefore]));
    let schema = world.schema.clone();
    let (taking, taken) =
        (std::sync::Arc::new(tokio::sync::Notify::new()), std::sync::Arc::new(tokio::sync::Notify::new()));
    let work = {
        let (taking, taken) = (taking.clone(), taken.clone());
        super::world::work(move |tx, local| {
            let (schema, taking, taken) = (schema.clone(), taking.clone(), taken.clone());
            Box::pin(async move {
                super::world::insert_order(tx, &schema, local).await?;
                taking.notify_one();
                taken.notified().await;
                Ok(super::world::created(local))
            })
        })
    };
    let calling = transact(&fresh, &database, intent("order-1"), work);
    let holding = async {
        taking.notified().await;
        // A waiter for the lock gets it as soon as the transaction ends, before anyone who only tries.
        let locking = sqlx::query("SELECT pg_advisory_lock($1)").bind(lock_number(&id)).execute(&mut *holder);
        let (locked, ()) = tokio::join!(locking, async {
            let waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted \
                           AND (classid::bigint << 32) + objid::bigint = {n}";
            let waiting = waiting.replace("{n}", &lock_number(&id).to_string());
            while world.number(&waiting).await == 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            taken.notify_one();
        });
        locked.expect("locked");
    };
    let (in_doubt, ()) = tokio::join!(calling, holding);
    let Err(Error::CommitInDoubt { operation_id, .. }) = in_doubt else { panic!("{in_doubt:?}") };
    assert_eq!((operation_id, events.of("CommitInDoubt")), (known.operation_id, 1));
    sqlx::query("SELECT pg_advisory_unlock_all()").execute(&mut *holder).await.expect("unlocked");
    assert!(ran(&world.order(&fresh, &database, "order-1").await.expect("it was rolled back")));
    assert_eq!((world.orders().await, world.records().await), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_connection_is_not_reused() {
    let world = World::new().await;
    let (events, (database, proxy)) = (Events::default(), world.proxied(1).await);
    let engine = engine(&world, &events).await;
    for number in 0..3 {
        proxy.set_plan(Script::of(COMMIT, [Fault::CutAfter]));
        let answer = world.order(&engine, &database, &format!("order-{number}")).await.expect("an answer");
        assert!(ran(&answer));
    }
    // A break before the commit leaves nothing.
    for (number, part) in [".read(", "orders", "INSERT INTO"].into_iter().enumerate() {
        // A new connection, on which every statement must be prepared again.
        proxy.set_plan(Script::of(part, [Fault::CutAfter]));
        proxy.cut();
        let failed = world.order(&engine, &database, &format!("other-{number}")).await;
        let again = world.order(&engine, &database, &format!("other-{number}")).await;
        assert!(failed.is_err(), "{part}: {failed:?}");
        assert_eq!(body(&again.expect("an answer")), "created");
    }
    let stuck = "SELECT count(*) FROM pg_stat_activity WHERE application_name = '{s}' AND state LIKE 'idle in trans%'";
    assert_eq!((world.orders().await, world.records().await, world.number(stuck).await), (6, 6, 0));
}

/// Another server answers when the commit is looked up: it may have another history.
#[tokio::test(flavor = "multi_thread")]
async fn another_server_settles_nothing() {
    if !semel_test_support::PostgresServer::is_installed() {
        return;
    }
    let dir = semel_test_support::ScratchDir::new("tx-other-server");
    let other = tokio::task::spawn_blocking({
        let path = dir.path().to_owned();
        move || semel_test_support::PostgresServer::start(path)
    });
    let other = other.await.expect("a server");
    let world = World::new().await;
    let (events, (database, proxy)) = (Events::default(), world.proxied(1).await);
    let engine = engine(&world, &events).await;
    world.order(&engine, &database, "order-0").await.expect("the pool is the store's");
    let swapped = std::sync::Arc::new(proxy);
    let (proxy, address) = (std::sync::Arc::downgrade(&swapped), address_in(&other.url()));
    swapped.set_plan(move |request: &Request<'_>| {
        if !request.contains(COMMIT) {
            return Fault::Pass;
        }
        if let Some(proxy) = proxy.upgrade() {
            proxy.swap(address, Existing::Keep);
        }
        Fault::CutAfter
    });
    let in_doubt = world.order(&engine, &database, "order-1").await;
    assert!(matches!(&in_doubt, Err(Error::CommitInDoubt { .. })), "{in_doubt:?}");
    swapped.set_plan(|_: &Request<'_>| Fault::Pass);
    swapped.swap(address_in(&url()), Existing::Cut);
    let answer = world.order(&engine, &database, "order-1").await.expect("an answer");
    assert!(!ran(&answer) && body(&answer) == "created");
    assert_eq!((world.orders().await, world.records().await), (2, 2));
}
