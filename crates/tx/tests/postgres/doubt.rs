//! Commits whose answers are lost, and connections that break anywhere else.

use crate::world::{Events, World, address_in, body, intent, ran, url};
use semel::Settings;
use semel_sql::postgres::transaction::lock_number;
use semel_testkit::proxy::{Existing, Fault, FaultProxy, Protocol, Request, Script};
use semel_tx::Error;
use semel_tx::postgres::{Database, transact};
use std::time::Duration;

/// The statement itself, and no `READ COMMITTED`.
const COMMIT: &[u8] = b"COMMIT\0";

/// A pool whose connections go through a proxy, and an engine whose own do not.
async fn proxied(world: &World, connections: u32) -> (Database, FaultProxy) {
    let server = address_in(&url());
    let proxy =
        FaultProxy::start(server, Protocol::Postgres, |_: &Request<'_>| Fault::Pass).await.expect("a port");
    let through = url().replace(&server.to_string(), &proxy.address().to_string());
    (world.database_at(&through, connections).await, proxy)
}

async fn engine(world: &World, events: &Events) -> semel::Engine {
    let settings = Settings { store_timeout: Duration::from_secs(3), ..Settings::default() };
    let builder = world.builder().await.settings(settings).observer(events.clone());
    builder.build().await.expect("an engine")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_answer_was_lost_is_recognised() {
    let world = World::new().await;
    let (events, (database, proxy)) = (Events::default(), proxied(&world, 2).await);
    let engine = engine(&world, &events).await;
    proxy.set_plan(Script::of(COMMIT, [Fault::CutAfter]));
    let told = world.order(&engine, &database, "order-1").await.expect("it is known to have committed");
    assert!(ran(&told) && body(&told) == "created");
    assert_eq!((world.orders().await, world.records().await), (1, 1));
    assert_eq!(["Finished", "CommitInDoubt"].map(|name| events.of(name)), [1, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_never_arrived_is_known_to_be_rolled_back() {
    let world = World::new().await;
    let (events, (database, proxy)) = (Events::default(), proxied(&world, 2).await);
    let engine = engine(&world, &events).await;
    proxy.set_plan(Script::of(COMMIT, [Fault::CutBefore]));
    let failed = world.order(&engine, &database, "order-1").await;
    let Err(error @ Error::Database(_)) = failed else { panic!("{failed:?}") };
    assert!(error.is_retryable());
    assert_eq!((world.orders().await, world.records().await, events.of("RolledBack")), (0, 0, 1));
    assert!(ran(&world.order(&engine, &database, "order-1").await.expect("it ran")));
    assert_eq!(world.orders().await, 1);
}

/// The transaction is still open on the server, which knows nothing of the broken line: nobody can tell.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_hangs_is_in_doubt_and_a_retry_finds_out() {
    let world = World::new().await;
    let (events, (database, proxy)) = (Events::default(), proxied(&world, 2).await);
    let engine = engine(&world, &events).await;
    // It never arrives, and the server's end of the line stays open for as long as the proxy is there.
    proxy.set_plan(
        |request: &Request<'_>| if request.contains(COMMIT) { Fault::HalfOpen } else { Fault::Pass },
    );
    // Whoever holds the command's lock stands for the server that has not noticed.
    let holder = world.database(1).await;
    let probe = transact(&engine, &database, intent("order-1"), world.ordering());
    let in_doubt = probe.await;
    let known_by = match in_doubt {
        Err(error @ Error::CommitInDoubt { .. }) => {
            assert!(error.is_retryable() && error.to_string().contains("same key"), "{error}");
            assert_eq!(events.of("CommitInDoubt"), 1);
            "doubt"
        }
        // The proxy closed the server's end together with the client's: then it is known.
        Err(Error::Database(_)) => "rollback",
        other => panic!("{other:?}"),
    };
    proxy.set_plan(|_: &Request<'_>| Fault::Pass);
    proxy.cut();
    let told = loop {
        let patient = intent("order-1").waiting(Duration::from_secs(10));
        match transact(&engine, &holder, patient, world.ordering()).await {
            Ok(told) if !matches!(told.outcome, semel::RequestOutcome::InProgress { .. }) => break told,
            _ => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    };
    assert_eq!(body(&told), "created", "{known_by}");
    assert_eq!((world.orders().await, world.records().await), (1, 1));
}

/// As above, for certain: somebody else has the lock when the commit is looked into.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_lock_nothing_is_concluded() {
    let world = World::new().await;
    let (events, (database, proxy)) = (Events::default(), proxied(&world, 2).await);
    let engine = engine(&world, &events).await;
    // Under which number it is known from another run of the same command.
    let known = world.order(&engine, &database, "order-1").await.expect("it ran");
    let id = engine.look_up(known.operation_id).await.expect("it stands there").id;
    world.sql("TRUNCATE {s}.records, {s}.orders").await;
    let fresh = self::engine(&world, &events).await;
    let mut holder = world.admin.acquire().await.expect("a connection");
    proxy.set_plan(Script::of(COMMIT, [Fault::CutBefore]));
    let schema = world.schema.clone();
    let (taking, taken) =
        (std::sync::Arc::new(tokio::sync::Notify::new()), std::sync::Arc::new(tokio::sync::Notify::new()));
    let work = {
        let (taking, taken) = (taking.clone(), taken.clone());
        crate::world::work(move |tx, local| {
            let (schema, taking, taken) = (schema.clone(), taking.clone(), taken.clone());
            Box::pin(async move {
                crate::world::insert_order(tx, &schema, local).await?;
                taking.notify_one();
                taken.notified().await;
                Ok(crate::world::created(local))
            })
        })
    };
    let calling = transact(&fresh, &database, intent("order-1"), work);
    let holding = async {
        taking.notified().await;
        // Whoever waits for the lock gets it as soon as the transaction is gone, before anybody who tries.
        let locking = sqlx::query("SELECT pg_advisory_lock($1)").bind(lock_number(&id)).execute(&mut *holder);
        let (locked, ()) = tokio::join!(locking, async {
            tokio::time::sleep(Duration::from_millis(300)).await;
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
async fn a_connection_that_broke_is_not_used_again() {
    let world = World::new().await;
    let (events, (database, proxy)) = (Events::default(), proxied(&world, 1).await);
    let engine = engine(&world, &events).await;
    for number in 0..3 {
        proxy.set_plan(Script::of(COMMIT, [Fault::CutAfter]));
        let told = world.order(&engine, &database, &format!("order-{number}")).await.expect("an answer");
        assert!(ran(&told));
    }
    // Whatever breaks before the commit leaves nothing.
    for (number, part) in [".read(", "orders", "INSERT INTO"].into_iter().enumerate() {
        // A new connection, which has to be told every statement again.
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

/// Another server answers when the commit is looked into: its history may be another one.
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
    let (events, (database, proxy)) = (Events::default(), proxied(&world, 1).await);
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
    let told = world.order(&engine, &database, "order-1").await.expect("an answer");
    assert!(!ran(&told) && body(&told) == "created");
    assert_eq!((world.orders().await, world.records().await), (2, 2));
}
