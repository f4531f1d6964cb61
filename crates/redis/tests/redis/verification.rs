//! What a verification of all records finds, and what it does not.

use crate::world::Keys;
use semel_core::id::OperationId;
use semel_core::machine::{self, Begin, Decision, Found, NewAttempt, Unchanged};
use semel_core::record::{Record, StateName, Token};
use semel_core::store::{Backend as _, Change, Inspection, Store as _};
use semel_redis::Backend;
use semel_testkit::records::{NOW, claimed, command, id, is_done, stamp};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

async fn inspected(keys: &Keys) -> Box<dyn Inspection> {
    let url = keys.url_with("");
    Backend.inspect(url.split_once(':').expect("a URL").1).await.expect("it may be looked at")
}

/// For a change in any part of a record, the finding names the operation.
#[tokio::test(flavor = "multi_thread")]
async fn verification_names_each_damaged_record_and_its_damage() {
    let Some(keys) = Keys::new() else { return };
    let store = keys.open("").await;
    assert!(is_done(&store.write(id(1), Change::Insert(&claimed(1))).await.expect("an answer")));
    let (key, mut client) = (keys.only_key("r:*"), keys.client());
    let (value, inspection) = (client.ask(&["GET", &key]).bytes(), inspected(&keys).await);
    assert_eq!(inspection.verify().await.expect("looked"), Vec::<String>::new());
    let operation_id = OperationId::of(&id(1)).to_string();
    for (at, problem) in [
        (0, "not a record of Semel's"),
        (30, "another command's record"),
        (60, "not those that were written"),
        (value.len() - 1, "not those that were written"),
    ] {
        let mut damaged = value.clone();
        damaged[at] ^= 0x80;
        client.ask(&[&b"SET"[..], key.as_bytes(), &damaged]);
        let findings = inspection.verify().await.expect("it does not give up");
        let [finding] = &findings[..] else { panic!("byte {at}: {findings:?}") };
        assert!(finding.contains(&operation_id) && finding.contains(problem), "byte {at}: {finding}");
    }
}

/// The attempt was abandoned, or the next one has begun: two states between which a record can alternate.
fn next(record: &Record, number: u32) -> Record {
    let stamp = stamp(NOW + u64::from(number));
    if record.state_name() == StateName::Processing {
        return machine::abandon(record, record.token(), stamp).expect("its owner may").next;
    }
    let new_attempt =
        NewAttempt { token: Token::from_random(1_000 + u128::from(number)), begin: Begin::Processing };
    let decided = machine::decide(Found::Record(record), &command(1), new_attempt, stamp);
    let Decision::Run(again) = decided else { panic!("the next attempt: {decided:?}") };
    again.next
}

/// Between the two commands of a check, the record moves to another list.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_written_during_verification_is_not_reported() {
    let Some(keys) = Keys::new() else { return };
    let store = keys.open("").await;
    let mut record = claimed(1);
    assert!(is_done(&store.write(id(1), Change::Insert(&record)).await.expect("an answer")));
    let is_over = Arc::new(AtomicBool::new(false));
    let writing = tokio::spawn({
        let is_over = Arc::clone(&is_over);
        async move {
            let mut number = 1;
            while !is_over.load(Ordering::Relaxed) {
                let next = next(&record, number);
                let change = Change::Replace(Unchanged::of(&record), &next);
                assert!(is_done(&store.write(id(1), change).await.expect("an answer")));
                (record, number) = (next, number + 1);
            }
            number
        }
    });
    let inspection = inspected(&keys).await;
    for _ in 0..100 {
        assert_eq!(inspection.verify().await.expect("looked"), Vec::<String>::new());
    }
    is_over.store(true, Ordering::Relaxed);
    assert!(writing.await.expect("no panic") > 100, "it was written all the while");
}

/// A record that is in no list is not found by operators, and never expires.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_missing_from_its_list_is_reported() {
    let Some(keys) = Keys::new() else { return };
    let store = keys.open("&buckets=1").await;
    assert!(is_done(&store.write(id(1), Change::Insert(&claimed(1))).await.expect("an answer")));
    let list = format!("{{{}:0}}s{}", keys.prefix, claimed(1).state_name().number());
    assert_eq!(keys.client().ask(&["DEL", &list]).number(), 1);
    let findings = inspected(&keys).await.verify().await.expect("looked");
    let [finding] = &findings[..] else { panic!("{findings:?}") };
    assert!(finding.contains("the list of its state does not have it"), "{finding}");
}
