//! An unreadable entry is reported as such: never treated as absent, overwritten or skipped.
//!
//! These promises are waived if the harness declares that entries cannot be damaged.

use crate::harness::Subject;
use crate::scene::{HOUR, START, TestCommand, bring, command, finish, first, paid, read, token};
use crate::walk;
use bytes::Bytes;
use semel_core::codec;
use semel_core::machine::{Found, Unchanged};
use semel_core::record::{Record, StateName};
use semel_core::store::{Change, Count, Filter, Store, Written};

/// Stored records with damaged bytes, each in another way: flipped, cut short, emptied, newer than this node, random.
async fn damaged(subject: &Subject) -> Option<Vec<(TestCommand, Record)>> {
    subject.set_time(START).await;
    let mut all = Vec::new();
    for n in 0..5 {
        let command = command(n);
        let record = bring(&**subject.store(), StateName::Processing, &command, token(n), START).await;
        let mut bytes = codec::encode_record(&record);
        match n {
            0 => bytes[7] ^= 0x10,
            1 => bytes.truncate(bytes.len() / 2),
            2 => bytes.clear(),
            3 => bytes = newer(),
            _ => bytes = vec![0xa5; 300],
        }
        if !subject.damage(command.id, bytes.into()).await {
            return None;
        }
        all.push((command, record));
    }
    Some(all)
}

/// An undamaged entry in a format that no current node writes.
fn newer() -> Vec<u8> {
    let mut bytes = vec![0xfe, 0, 1, 2, 3];
    let sum = crc32(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    assert!(matches!(codec::decode(&Bytes::from(bytes.clone())), Err(codec::Error::Newer(_))));
    bytes
}

/// The codec's checksum, computed bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |sum: u32, _| if sum & 1 == 1 { (sum >> 1) ^ 0xedb8_8320 } else { sum >> 1 };
    !bytes.iter().fold(!0, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), step))
}

fn is_shown(entry: Option<&Result<semel_core::record::Entry, codec::Error>>) -> bool {
    matches!(entry, Some(Err(_)))
}

async fn assert_unchanged(store: &dyn Store, command: &TestCommand, written: Written) {
    let Written::Refused(shown) = written else { panic!("an unreadable entry was overwritten or removed") };
    assert_eq!(shown.found(), Found::Unreadable, "a refusal shows the stored entry");
    assert_eq!(read(store, command).await.found(), Found::Unreadable);
}

/// Reading it reports that it is unreadable.
pub async fn it_is_never_treated_as_absent(subject: Subject) {
    let Some(all) = damaged(&subject).await else { return };
    for (command, _) in &all {
        assert_eq!(read(&**subject.store(), command).await.found(), Found::Unreadable);
        let (_, found) = subject.store().find(command.operation_id).await.expect("an answer");
        assert!(found.is_none_or(|item| item.id == command.id && item.entry.is_err()), "found as a record");
    }
}

/// Neither a claim nor a marker replaces it.
pub async fn it_refuses_claims_and_markers(subject: Subject) {
    let Some(all) = damaged(&subject).await else { return };
    let store = &**subject.store();
    for (command, _) in &all {
        let claim = first(command, token(99), START);
        let written = store.write(command.id, Change::Insert(&claim)).await.expect("an answer");
        assert_unchanged(store, command, written).await;
        let written = store.write(command.id, Change::InsertMarker).await.expect("an answer");
        assert_unchanged(store, command, written).await;
    }
}

/// Its owner's own write is refused, and so is every removal.
pub async fn it_refuses_swaps_and_removals(subject: Subject) {
    let Some(all) = damaged(&subject).await else { return };
    let store = &**subject.store();
    for (command, record) in &all {
        let write = finish(record, paid(), START);
        for change in [Change::from(&write), Change::Remove(Unchanged::of(record)), Change::RemoveMarker] {
            let written = store.write(command.id, change).await.expect("an answer");
            assert_unchanged(store, command, written).await;
        }
    }
}

/// It is listed among due records and for operators, next to readable records, and is counted.
pub async fn it_is_shown_beside_readable_records(subject: Subject) {
    let Some(all) = damaged(&subject).await else { return };
    let sound = command(50);
    bring(&**subject.store(), StateName::Processing, &sound, token(50), START).await;
    subject.set_time(START + 2 * HOUR).await;
    is_shown_everywhere(&**subject.store(), &all, &sound).await;
}

/// The same after a restart: its index is not only in memory.
pub async fn it_is_shown_after_a_restart_too(subject: Subject) {
    let Some(all) = damaged(&subject).await else { return };
    let sound = command(50);
    bring(&**subject.store(), StateName::Processing, &sound, token(50), START).await;
    let Some(subject) = subject.reopen().await else { return };
    subject.set_time(START + 2 * HOUR).await;
    is_shown_everywhere(&**subject.store(), &all, &sound).await;
}

async fn is_shown_everywhere(store: &dyn Store, all: &[(TestCommand, Record)], sound: &TestCommand) {
    for limit in [1, 2, 100] {
        for items in [walk::page(store, &Filter::default(), limit).await, walk::due(store, limit).await] {
            assert_eq!(items.len(), all.len() + 1, "each once, in pages of {limit}");
            for (command, _) in all {
                let item = items.iter().find(|item| item.id == command.id);
                assert!(is_shown(item.map(|item| &item.entry)), "skipped, in pages of {limit}");
            }
            assert!(items.iter().any(|item| item.id == sound.id && item.record().is_some()));
        }
    }
    let counted = store.count(Count::Records, 100).await.expect("an answer");
    assert_eq!(counted.count, all.len() as u64 + 1);
}
