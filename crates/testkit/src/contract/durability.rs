//! Acknowledged writes survive a restart; a store that cannot promise this reports a hazard.

use crate::harness::Subject;
use crate::scene::{HOUR, START, assert_stored, bring, command, read, token};
use crate::walk;
use bytes::Bytes;
use semel_core::machine::{Found, Unchanged};
use semel_core::record::{Record, StateName};
use semel_core::store::{Change, Count, Filter, Setting, Severity, Written};

/// Records, markers, settings, orders and counts are the same after a restart; removed ones stay removed.
pub async fn acknowledged_writes_survive_a_restart(subject: Subject) {
    subject.set_time(START).await;
    let store = subject.store();
    let mut records: Vec<Record> = Vec::new();
    for (n, state) in (0..).zip(StateName::ALL) {
        records.push(bring(&**store, state, &command(n), token(n), START).await);
    }
    let removed = bring(&**store, StateName::Expired, &command(50), token(50), START).await;
    assert!(matches!(
        store.write(command(50).id, Change::Remove(Unchanged::of(&removed))).await.expect("an answer"),
        Written::Done { .. }
    ));
    assert!(matches!(
        store.write(command(60).id, Change::InsertMarker).await.expect("an answer"),
        Written::Done { .. }
    ));
    assert_eq!(store.set("secret", None, Some(b"\0value")).await.expect("an answer"), Setting::Done);
    let hazards = store.hazards().await.expect("an answer");
    let durable = store.capabilities().durable;

    let Some(subject) = subject.reopen().await else {
        assert!(!durable);
        let is_reported = hazards.iter().any(|hazard| hazard.severity == Severity::Danger);
        assert!(is_reported, "a store that survives no restart has to say so among its hazards: {hazards:?}");
        return;
    };
    subject.set_time(START + 2 * HOUR).await;
    let store = &**subject.store();
    for (n, record) in (0..).zip(&records) {
        assert_stored(store, &command(n), record).await;
        let (_, found) = store.find(record.operation_id()).await.expect("an answer");
        assert_eq!(found.map(|item| item.id), Some(command(n).id));
    }
    assert_eq!(read(store, &command(50)).await.entry, None, "a removed record stays removed");
    assert_eq!(read(store, &command(60)).await.found(), Found::Moved);
    assert_eq!(walk::page(store, &Filter::default(), 3).await.len(), records.len());
    let now = START + 2 * HOUR;
    let due = records.iter().filter(|record| record.due_at().is_some_and(|at| at <= now)).count();
    assert_eq!(walk::due(store, 3).await.len(), due);
    let count = async |what| store.count(what, 100).await.expect("an answer").count;
    assert_eq!((count(Count::Records).await, count(Count::Markers).await), (records.len() as u64, 1));
    let settings = store.settings().await.expect("an answer");
    assert_eq!(settings, [("secret".to_owned(), Bytes::from_static(b"\0value"))]);
}

/// The store has a name, and each of its hazards says what is wrong and how to fix it.
pub async fn hazards_say_what_is_wrong_and_how_to_fix_it(subject: Subject) {
    assert!(!subject.store().name().is_empty());
    for hazard in subject.store().hazards().await.expect("an answer") {
        let texts = [hazard.code, &hazard.what, &hazard.fix];
        assert!(texts.iter().all(|text| !text.is_empty()), "{hazard:?}");
    }
}
