//! IDs, callers and operations are distinguished to the last bit.

use crate::harness::Subject;
use crate::scene::{
    START, TestCommand, assert_stored, command, command_in, first, insert, policy, read, token,
};
use semel_core::id::{CommandId, OperationId};
use semel_core::scope::{Caller, Identity, Operation, Scope};
use semel_core::store::{Count, Filter};

/// IDs that a careless comparison would treat as equal: they differ in case, padding, a sign or one bit.
pub async fn ids_are_distinguished_to_the_last_bit(subject: Subject) {
    subject.set_time(START).await;
    let store = &**subject.store();
    let with = |fill: u8, at: usize, byte: u8| {
        let mut id = [fill; 32];
        id[at] = byte;
        CommandId::from_bytes(id)
    };
    let ids = [
        with(0, 0, 0),
        with(0, 31, 1),
        with(0, 0, 1),
        with(b'a', 0, b'a'),
        with(b'a', 0, b'A'),
        with(b'a', 31, b'A'),
        with(b' ', 31, b' '),
        with(b' ', 31, 0),
        with(0x7f, 0, 0x80),
        with(0xff, 31, 0xff),
        with(0xff, 31, 0xfe),
        with(b'%', 0, b'_'),
        with(b'\'', 0, b'\\'),
    ];
    let commands: Vec<TestCommand> = ids
        .iter()
        .map(|id| TestCommand { id: *id, operation_id: OperationId::of(id), ..command(1) })
        .collect();
    for (n, command) in (0..).zip(&commands) {
        insert(store, command, &first(command, token(n), START)).await;
    }
    for (n, command) in (0..).zip(&commands) {
        assert_stored(store, command, &first(command, token(n), START)).await;
        let (_, found) = store.find(command.operation_id).await.expect("an answer");
        assert_eq!(found.map(|item| item.id), Some(command.id), "found by its operation id");
    }
}

/// Scopes that look equal when their parts are joined, cut, trimmed, folded or read as text.
fn lookalikes() -> Vec<(Scope, &'static str)> {
    let named =
        |caller: &[u8], operation: &str| Scope::new(Identity::api_key(caller), Operation::named(operation));
    let long = "o".repeat(64 * 1024);
    vec![
        (named(b"a", "b"), "k-1"),
        (named(b"a:b", "c"), "k-1"),
        (named(b"a", "b:c"), "k-1"),
        (named(b"a", "b\0"), "k-1"),
        (named(b"a\0", "b"), "k-1"),
        (named(b"a", "B"), "k-1"),
        (named(b"a", "b "), "k-1"),
        (named(b"a", "b%"), "k-1"),
        (named(b"a", "_"), "k-1"),
        (named(b"a", ""), "k-1"),
        (named(b"a", "caf\u{e9}"), "k-1"),
        (named(b"a", "cafe\u{301}"), "k-1"),
        (named(b"a", "stra\u{df}e"), "k-1"),
        (named(b"a", "strasse"), "k-1"),
        (named(b"a", "'; DROP TABLE records; --"), "k-1"),
        (named(b"a", "{b}\r\n*1\r\n$4\r\nQUIT\r\n"), "k-1"),
        (named(b"a", "\u{1f4b3}\u{202e}"), "k-1"),
        (named(&[0xff, 0xfe, 0x80], "b"), "k-1"),
        (named(&[0xff, 0xfe, 0x81], "b"), "k-1"),
        (named(&[], "b"), "k-1"),
        (Scope::new(Caller::Anonymous, Operation::named("b")), "k-1"),
        (named(b"a", "b").in_tenant("t"), "k-1"),
        (named(b"a", "b"), "K-1"),
        (named(b"a", "b"), "k-1 "),
        (named(b"a", "b"), "\u{43a}-1"),
        (named(b"a", &long), "k-1"),
        (named(b"a", &format!("{long}o")), "k-1"),
    ]
}

/// Hostile callers, operations and keys are each a separate command, and read back unchanged.
pub async fn hostile_scopes_and_keys_are_kept_apart(subject: Subject) {
    subject.set_time(START).await;
    let store = &**subject.store();
    let commands: Vec<_> = lookalikes().iter().map(|(scope, key)| command_in(scope, key, policy())).collect();
    for (n, command) in (0..).zip(&commands) {
        assert_eq!(read(store, command).await.entry, None, "{:?} was treated as another", command.operation);
        insert(store, command, &first(command, token(n), START)).await;
    }
    for (n, command) in (0..).zip(&commands) {
        assert_stored(store, command, &first(command, token(n), START)).await;
    }
}

/// A filter by operation, caller or key matches exactly that one; so does a count.
pub async fn hostile_scopes_and_keys_are_searched_for_exactly(subject: Subject) {
    subject.set_time(START).await;
    let store = &**subject.store();
    let commands: Vec<_> = lookalikes().iter().map(|(scope, key)| command_in(scope, key, policy())).collect();
    let records: Vec<_> = commands.iter().map(|command| first(command, token(1), START)).collect();
    for (command, record) in commands.iter().zip(&records) {
        insert(store, command, record).await;
    }
    for command in &commands {
        let operation = Filter { operation: Some(command.operation.to_string()), ..Filter::default() };
        let caller = Filter { caller: Some(command.caller_hash.into()), ..Filter::default() };
        let key = Filter { key: Some(command.key_hash), ..Filter::default() };
        for filter in [operation, caller, key] {
            let shown = crate::walk::page(store, &filter, 100).await;
            let matching = records.iter().filter(|record| filter.wants(record)).count();
            assert_eq!(shown.len(), matching, "how many are shown for {filter:?}");
            assert!(shown.iter().all(|item| item.record().is_some_and(|record| filter.wants(record))));
        }
        let of_caller = records.iter().filter(|record| record.caller_hash() == command.caller_hash).count();
        let counted = store.count(Count::Caller(command.caller_hash), 100).await.expect("an answer");
        assert_eq!(counted.count, of_caller as u64);
    }
}
