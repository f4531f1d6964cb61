//! A record is found by its operation ID as long as it exists.

use crate::harness::Subject;
use crate::scene::{START, bring, command, finish, first, insert, paid, swap, token};
use semel_core::id::{CommandId, OperationId};
use semel_core::machine::Unchanged;
use semel_core::record::{Record, StateName};
use semel_core::store::{Change, Store, Written};

async fn found(store: &dyn Store, operation_id: OperationId) -> Option<(CommandId, Record)> {
    let (_, item) = store.find(operation_id).await.expect("an answer");
    item.map(|item| (item.id, item.record().expect("it can be read").clone()))
}

/// A record is found in its current form after every change, and no longer after it is removed.
pub async fn a_record_is_found_by_its_operation_id(subject: Subject) {
    subject.set_time(START).await;
    let store = &**subject.store();
    let command = command(1);
    assert_eq!(found(store, command.operation_id).await, None);
    let record = first(&command, token(1), START);
    insert(store, &command, &record).await;
    assert_eq!(found(store, command.operation_id).await, Some((command.id, record.clone())));
    let done = finish(&record, paid(), START);
    swap(store, &command, &done).await;
    assert_eq!(found(store, command.operation_id).await, Some((command.id, done.next.clone())));
    assert!(matches!(
        store.write(command.id, Change::Remove(Unchanged::of(&done.next))).await.expect("an answer"),
        Written::Done { .. }
    ));
    assert_eq!(found(store, command.operation_id).await, None);
}

/// Each of many records is found, and only that one.
pub async fn each_of_many_records_is_found(subject: Subject) {
    subject.set_time(START).await;
    let store = &**subject.store();
    for n in 0..70_u32 {
        let n = u64::from(n);
        bring(store, StateName::ALL[usize::try_from(n % 7).expect("small")], &command(n), token(n), START)
            .await;
    }
    for n in 0..70 {
        assert_eq!(found(store, command(n).operation_id).await.map(|(id, _)| id), Some(command(n).id));
    }
    assert_eq!(found(store, command(70).operation_id).await, None);
}
