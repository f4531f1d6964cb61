//! Lost answers, hung servers, standbys: nothing is guessed, and no wait is unbounded.

use crate::server::Schema;
use semel_core::machine::Unchanged;
use semel_core::store::{Change, Kind, Store as _, Written};
use semel_sql::postgres::{Options, Store};
use semel_test_support::services;
use semel_testkit::faults::Gate;
use semel_testkit::proxy::{Existing, Fault, FaultProxy, Protocol, Request, Script};
use semel_testkit::records::{claimed, finished, id, is_done};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;
use tokio::time::timeout;
use tokio_postgres::NoTls;

/// Text that only statements that write records contain.
const WRITES: &str = ".write(";
const BATCH: u64 = 64;
const TIMEOUT: Duration = Duration::from_mins(1);

pub(crate) fn address_in(url: &str) -> SocketAddr {
    let host = url.rsplit_once('@').expect("a user").1;
    host.split('/').next().and_then(|host| host.parse().ok()).expect("an address and a port")
}

/// A store whose connections go through a proxy. Only one connection writes, so that queued writes form one
/// batch.
pub(crate) async fn proxied(schema: &Schema) -> (Arc<Store>, FaultProxy) {
    let url = schema.url_with("&connections=2&listen=off&timeout=1.5");
    let server = address_in(&url);
    let proxy =
        FaultProxy::start(server, Protocol::Postgres, |_: &Request<'_>| Fault::Pass).await.expect("a port");
    let url = url.replace(&server.to_string(), &proxy.address().to_string());
    let store = Store::open(&url, Options::default()).await.expect("the store opens");
    (Arc::new(store), proxy)
}

/// Writes that wait in the queue while the only connection is busy, and are then sent together: half of them
/// are refused, because an entry exists.
async fn batch_through(store: &Arc<Store>, proxy: &FaultProxy, fault: Fault) -> Vec<Result<Written, Kind>> {
    for number in (0..BATCH).step_by(2) {
        assert!(is_done(
            &store.write(id(number), Change::Insert(&claimed(number))).await.expect("an answer")
        ));
    }
    // The first write occupies the connection while the others gather.
    let gate = Gate::new();
    proxy.set_plan(Script::of(WRITES, [Fault::DelayRequest(gate.pause()), fault]));
    let first = tokio::spawn({
        let store = Arc::clone(store);
        async move { store.write(id(1_000), Change::Insert(&claimed(1_000))).await }
    });
    while !gate.is_waited_for() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let records: Vec<_> = (0..BATCH).map(|number| (id(number), claimed(number))).collect();
    let mut writes: Vec<_> =
        records.iter().map(|(id, record)| store.write(*id, Change::Insert(record))).collect();
    for write in &mut writes {
        // A write is queued as soon as it is polled.
        assert!(poll_fn(|context| Poll::Ready(write.as_mut().poll(context).is_pending())).await);
    }
    gate.open();
    let mut answers = Vec::new();
    for write in writes {
        let answer = timeout(TIMEOUT, write).await.expect("a bounded wait");
        answers.push(answer.map_err(|error| error.kind()));
    }
    assert!(is_done(&first.await.expect("no panic").expect("an answer")));
    answers
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_acknowledgement_is_ambiguous_for_the_whole_batch() {
    let schema = Schema::new();
    let (store, proxy) = proxied(&schema).await;
    let answers = batch_through(&store, &proxy, Fault::CutAfter).await;
    assert_eq!(answers.len() as u64, BATCH);
    for answer in answers {
        assert_eq!(answer.err(), Some(Kind::Ambiguous), "the server committed, and its answer was lost");
    }
    for number in 0..BATCH {
        let reading = store.get(id(number)).await.expect("an answer");
        assert_eq!(reading.record(), Some(&claimed(number)), "it was committed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_never_arrived_is_ambiguous_too() {
    let schema = Schema::new();
    let (store, proxy) = proxied(&schema).await;
    for answer in batch_through(&store, &proxy, Fault::CutBefore).await {
        assert_eq!(answer.err(), Some(Kind::Ambiguous), "it is unknown whether it arrived");
    }
    for number in (1..BATCH).step_by(2) {
        let written = store.write(id(number), Change::Insert(&claimed(number))).await.expect("an answer");
        assert!(is_done(&written), "it had not arrived, and is written now");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_costs_a_bounded_wait() {
    let schema = Schema::new();
    let (store, proxy) = proxied(&schema).await;
    assert!(is_done(&store.write(id(1), Change::Insert(&claimed(1))).await.expect("an answer")));
    proxy.set_plan(|_: &Request<'_>| Fault::HalfOpen);
    let written =
        timeout(TIMEOUT, store.write(id(2), Change::Insert(&claimed(2)))).await.expect("a bounded wait");
    assert_eq!(written.map_err(|error| error.kind()).err(), Some(Kind::Ambiguous));
    let read = timeout(TIMEOUT, store.get(id(1))).await.expect("a bounded wait");
    assert_eq!(read.map_err(|error| error.kind()).err(), Some(Kind::Unavailable));
    proxy.set_plan(|_: &Request<'_>| Fault::Pass);
    proxy.cut();
    let again = async {
        while store.get(id(1)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(TIMEOUT, again).await.expect("it answers again as soon as the server does");
}

/// Waits until the standby has the record, too.
async fn has_followed(standby: &str, schema: &Schema) {
    let (client, connection) = tokio_postgres::connect(standby, NoTls).await.expect("the standby answers");
    tokio::spawn(connection);
    let sql = format!("SELECT count(*) FROM {}.records WHERE version IS NOT NULL", schema.name);
    while client.query_one(&sql, &[]).await.map_or(0, |row| row.get::<_, i64>(0)) == 0 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A pooler or an address moves in a failover: the connection stays open, but the server behind it is another
/// one.
#[tokio::test(flavor = "multi_thread")]
async fn a_primary_demoted_under_an_open_connection_is_noticed() {
    let Some(standby) = services::postgres_standby_url() else { return };
    let schema = Schema::new();
    let (store, proxy) = proxied(&schema).await;
    let claim = claimed(1);
    assert!(is_done(&store.write(id(1), Change::Insert(&claim)).await.expect("an answer")));
    timeout(TIMEOUT, has_followed(&standby, &schema)).await.expect("the standby follows");
    let (primary, standby) = (address_in(&crate::server::url()), address_in(&standby));
    proxy.swap(standby, Existing::Follow);
    for _ in 0..4 {
        let read = timeout(TIMEOUT, store.get(id(1))).await.expect("a bounded wait");
        assert_eq!(
            read.map_err(|error| error.kind()).err(),
            Some(Kind::ReadOnly),
            "a standby may lag behind"
        );
    }
    let next = finished(&claim, "paid");
    let change = Change::Replace(Unchanged::of(&claim), &next);
    let written = timeout(TIMEOUT, store.write(id(1), change)).await.expect("a bounded wait");
    assert_eq!(written.map_err(|error| error.kind()).err(), Some(Kind::ReadOnly), "nothing was written");
    proxy.swap(primary, Existing::Cut);
    let again = async {
        while store.get(id(1)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(TIMEOUT, again).await.expect("it is back at the primary");
    assert_eq!(store.get(id(1)).await.expect("an answer").record(), Some(&claim));
}

/// A claim costs one round trip, even if it is refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_costs_one_round_trip_even_if_refused() {
    let schema = Schema::new();
    let (store, proxy) = proxied(&schema).await;
    assert!(is_done(&store.write(id(1), Change::Insert(&claimed(1))).await.expect("an answer")));
    assert!(store.get(id(1)).await.expect("an answer").record().is_some());
    let count = Arc::new(AtomicU64::new(0));
    let counting = Arc::clone(&count);
    proxy.set_plan(move |_: &Request<'_>| {
        counting.fetch_add(1, Ordering::SeqCst);
        Fault::Pass
    });
    assert!(is_done(&store.write(id(2), Change::Insert(&claimed(2))).await.expect("an answer")));
    assert_eq!(count.swap(0, Ordering::SeqCst), 1, "a claim");
    assert!(!is_done(&store.write(id(1), Change::Insert(&claimed(1))).await.expect("an answer")));
    assert_eq!(count.swap(0, Ordering::SeqCst), 1, "a refused claim");
    let next = finished(&claimed(2), "paid");
    let change = Change::Replace(Unchanged::of(&claimed(2)), &next);
    assert!(is_done(&store.write(id(2), change).await.expect("an answer")));
    assert_eq!(count.swap(0, Ordering::SeqCst), 1, "a finish");
    assert!(store.get(id(2)).await.expect("an answer").record().is_some());
    assert_eq!(count.load(Ordering::SeqCst), 1, "a replay");
}
