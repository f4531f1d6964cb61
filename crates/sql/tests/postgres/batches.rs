//! Writes that are sent together.

use crate::server::{Schema, connect};
use semel_core::machine::Unchanged;
use semel_core::store::{Change, Kind, Store as _, Written};
use semel_sql::postgres::{Options, Store};
use semel_test_support::{PostgresServer, ScratchDir};
use semel_testkit::records::{claimed, finished, id, is_done};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

const MANY: u64 = 300;

async fn opened(schema: &Schema) -> Arc<Store> {
    Arc::new(Store::open(&schema.url_with(""), Options::default()).await.expect("the store opens"))
}

#[tokio::test(flavor = "multi_thread")]
async fn each_write_of_a_batch_gets_its_own_answer() {
    let schema = Schema::new();
    let store = opened(&schema).await;
    // Every third one already exists.
    for number in (0..MANY).step_by(3) {
        assert!(is_done(
            &store.write(id(number), Change::Insert(&claimed(number))).await.expect("an answer")
        ));
    }
    let mut writes = JoinSet::new();
    for number in 0..MANY {
        let store = Arc::clone(&store);
        writes.spawn(async move {
            (number, store.write(id(number), Change::Insert(&claimed(number))).await.expect("an answer"))
        });
    }
    while let Some(written) = writes.join_next().await {
        let (number, written) = written.expect("no panic");
        match written {
            Written::Done { .. } => assert_ne!(number % 3, 0, "{number} was there already"),
            Written::Refused(reading) => {
                assert_eq!(number % 3, 0, "{number} was refused");
                assert_eq!(reading.record(), Some(&claimed(number)), "shown another record");
            }
        }
    }
}

/// Inserts, markers, replacements and removals, each done if its condition holds and refused otherwise.
#[tokio::test(flavor = "multi_thread")]
async fn each_kind_of_write_in_a_batch_gets_its_answer() {
    let schema = Schema::new();
    let store = opened(&schema).await;
    // Of each kind, every other one has the expected condition.
    let is_met = |number: u64| (number / 4).is_multiple_of(2);
    let has_record = |number: u64| if number % 4 < 2 { !is_met(number) } else { is_met(number) };
    for number in (0..MANY).filter(|number| has_record(*number)) {
        assert!(is_done(
            &store.write(id(number), Change::Insert(&claimed(number))).await.expect("an answer")
        ));
    }
    let mut writes = JoinSet::new();
    for number in 0..MANY {
        let store = Arc::clone(&store);
        writes.spawn(async move {
            let first = claimed(number);
            let next = finished(&first, "done");
            let change = match number % 4 {
                0 => Change::Insert(&first),
                1 => Change::InsertMarker,
                2 => Change::Replace(Unchanged::of(&first), &next),
                _ => Change::Remove(Unchanged::of(&first)),
            };
            (number, store.write(id(number), change).await.expect("an answer"))
        });
    }
    while let Some(written) = writes.join_next().await {
        let (number, written) = written.expect("no panic");
        match written {
            Written::Done { .. } => assert!(is_met(number), "{number} was done"),
            Written::Refused(reading) => {
                assert!(!is_met(number), "{number} was refused");
                let found = has_record(number).then(|| claimed(number));
                assert_eq!(reading.record(), found.as_ref(), "what refused {number}");
            }
        }
    }
    for number in 0..MANY {
        let reading = store.get(id(number)).await.expect("an answer");
        let expected = match number % 4 {
            1 | 3 if is_met(number) => None,
            2 if is_met(number) => Some(finished(&claimed(number), "done")),
            2 | 3 => None,
            _ => Some(claimed(number)),
        };
        assert_eq!(reading.record(), expected.as_ref(), "the entry of {number} afterwards");
    }
}

/// Nodes that write to the same records at the same time lock them in the same order.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_write_the_same_records_never_deadlock() {
    const ROUNDS: u64 = 5;
    const KEYS: u64 = 64;
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "deadlocks");
    let server = PostgresServer::start(folder.join("server"));
    // Much sooner than the store gives up waiting for a lock, so that every deadlock is found and counted.
    server.sql("ALTER SYSTEM SET deadlock_timeout = '2ms'");
    server.sql("SELECT pg_reload_conf()");
    let opened = async || Arc::new(Store::open(&server.url(), Options::default()).await.expect("it opens"));
    let nodes = [opened().await, opened().await];
    for number in 0..KEYS {
        assert!(is_done(
            &nodes[0].write(id(number), Change::Insert(&claimed(number))).await.expect("an answer")
        ));
    }
    // Each row takes a moment, so that the batches of both nodes run at the same time.
    server.sql("CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.001); RETURN NEW; END'");
    server.sql("CREATE TRIGGER slow BEFORE UPDATE ON semel.records FOR EACH ROW EXECUTE FUNCTION slow()");
    for _ in 0..ROUNDS {
        let mut writes = JoinSet::new();
        for (node, store) in nodes.iter().enumerate() {
            for number in 0..KEYS {
                // The second node writes in the opposite order.
                let number = if node == 0 { number } else { KEYS - 1 - number };
                let store = Arc::clone(store);
                writes.spawn(async move {
                    let reading = store.get(id(number)).await.expect("an answer");
                    let record = reading.record().expect("it stays").clone();
                    let next = semel_testkit::records::renewed(&record);
                    store
                        .write(id(number), Change::Replace(Unchanged::of(&record), &next))
                        .await
                        .expect("an answer")
                });
            }
        }
        let mut done = 0;
        while let Some(written) = writes.join_next().await {
            done += u64::from(is_done(&written.expect("no panic")));
        }
        assert!(done >= KEYS, "{done} of {KEYS} records were written");
    }
    // The server's statistics are delayed.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let broken = server.sql("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()");
    assert_eq!(broken.trim(), "0", "deadlocks that the server had to break");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_caller_does_not_affect_the_others() {
    let schema = Schema::new();
    let store = opened(&schema).await;
    let mut writes = JoinSet::new();
    for number in 0..MANY {
        let store = Arc::clone(&store);
        writes.spawn(async move {
            let record = claimed(number);
            let write = store.write(id(number), Change::Insert(&record));
            if number % 2 == 0 {
                // Cancelled before, while or after it is sent.
                drop(tokio::time::timeout(Duration::from_micros(number * 20), write).await);
                return None;
            }
            Some(write.await.expect("an answer"))
        });
    }
    while let Some(written) = writes.join_next().await {
        if let Some(written) = written.expect("no panic") {
            assert!(is_done(&written), "{written:?}");
        }
    }
    for number in (1..MANY).step_by(2) {
        assert_eq!(store.get(id(number)).await.expect("an answer").record(), Some(&claimed(number)));
    }
}

/// One that the server cannot store fails; those that were sent with it do not.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_write_fails_alone() {
    let schema = Schema::new();
    let store = opened(&schema).await;
    let refuse = format!(
        "CREATE FUNCTION {0}.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         IF NEW.version = 1 AND get_byte(NEW.command_id, 7) = 13 THEN RAISE EXCEPTION 'not this one' USING ERRCODE = '23514'; \
         END IF; RETURN NEW; END $$; \
         CREATE TRIGGER refuse BEFORE INSERT ON {0}.records FOR EACH ROW EXECUTE FUNCTION {0}.refuse()",
        schema.name
    );
    connect().await.batch_execute(&refuse).await.expect("a trigger");
    let mut writes = JoinSet::new();
    for number in 0..64 {
        let store = Arc::clone(&store);
        writes
            .spawn(async move { (number, store.write(id(number), Change::Insert(&claimed(number))).await) });
    }
    while let Some(written) = writes.join_next().await {
        match written.expect("no panic") {
            (13, Err(error)) => {
                assert_eq!(error.kind(), Kind::Unfit, "{error}");
                assert!(error.to_string().contains("not this one"), "{error}");
            }
            (number, written) => assert!(is_done(&written.expect("an answer")), "{number}"),
        }
    }
}

/// Entries that are too long to be returned with a refusal are read by the store, not left out.
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_carries_a_long_entry_too() {
    let schema = Schema::new();
    let store = opened(&schema).await;
    let claim = claimed(1);
    let long = finished(&claim, vec![7; 100_000]);
    assert!(is_done(&store.write(id(1), Change::Insert(&claim)).await.expect("an answer")));
    let swapped = store.write(id(1), Change::Replace(Unchanged::of(&claim), &long)).await.expect("an answer");
    assert!(is_done(&swapped));
    let Written::Refused(reading) = store.write(id(1), Change::Insert(&claim)).await.expect("an answer")
    else {
        panic!("it was there already")
    };
    assert_eq!(reading.record(), Some(&long));
}

#[tokio::test(flavor = "multi_thread")]
async fn accepted_writes_are_written_before_the_store_closes() {
    let schema = Schema::new();
    let store = opened(&schema).await;
    let mut writes = JoinSet::new();
    for number in 0..MANY {
        let store = Arc::clone(&store);
        writes.spawn(async move { store.write(id(number), Change::Insert(&claimed(number))).await });
    }
    tokio::task::yield_now().await;
    store.close().await;
    while let Some(written) = writes.join_next().await {
        match written.expect("no panic") {
            Ok(written) => assert!(is_done(&written)),
            Err(error) => assert_eq!(error.kind(), Kind::Closed, "{error}"),
        }
    }
    assert_eq!(store.get(id(1)).await.map_err(|error| error.kind()).err(), Some(Kind::Closed));
    assert_eq!(store.settings().await.map_err(|error| error.kind()).err(), Some(Kind::Closed));
}
