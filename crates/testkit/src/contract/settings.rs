//! Settings that every node shares change by compare-and-swap.

use crate::crowd::at_once;
use crate::harness::Subject;
use bytes::Bytes;
use semel_core::store::{Setting, Store};
use std::sync::Arc;

async fn value(store: &dyn Store, name: &str) -> Option<Bytes> {
    let settings = store.settings().await.expect("an answer");
    settings.into_iter().find(|(found, _)| found == name).map(|(_, value)| value)
}

async fn done(store: &dyn Store, name: &str, expect: Option<&[u8]>, next: Option<&[u8]>) {
    assert_eq!(store.set(name, expect, next).await.expect("an answer"), Setting::Done, "{name}");
    assert_eq!(value(store, name).await.as_deref(), next, "{name}");
}

/// A setting is replaced only if it has the expected value; a refusal shows its value.
pub async fn a_setting_changes_only_from_what_was_expected(subject: Subject) {
    let store = &**subject.store();
    assert_eq!(store.settings().await.expect("an answer"), [], "a fresh store has none");
    let refused_with = async |expect: Option<&[u8]>, shown: Option<&'static [u8]>| {
        let refused = store.set("secret", expect, Some(b"other")).await.expect("an answer");
        assert_eq!(refused, Setting::Refused(shown.map(Bytes::from_static)));
        let refused = store.set("secret", expect, None).await.expect("an answer");
        assert_eq!(refused, Setting::Refused(shown.map(Bytes::from_static)));
        assert_eq!(value(store, "secret").await.as_deref(), shown, "a refused change changes nothing");
    };
    refused_with(Some(b"one"), None).await;
    refused_with(Some(b""), None).await;
    done(store, "secret", None, Some(b"one")).await;
    for wrong in [None, Some(&b""[..]), Some(b"on"), Some(b"one "), Some(b"ONE"), Some(b"one\0")] {
        refused_with(wrong, Some(b"one")).await;
    }
    done(store, "secret", Some(b"one"), Some(b"two")).await;
    refused_with(Some(b"one"), Some(b"two")).await;
    done(store, "secret", Some(b"two"), None).await;
    refused_with(Some(b"two"), None).await;
}

/// An empty value is a value, binary values are kept exactly, and names are distinguished.
pub async fn settings_keep_their_names_and_bytes(subject: Subject) {
    let store = &**subject.store();
    let every_byte: Vec<u8> = (0..=u8::MAX).collect();
    let values: [(&str, &[u8]); 6] = [
        ("a", b""),
        ("A", &every_byte),
        ("a.b:c/d-e_f", b"\0"),
        ("%", b"1"),
        ("caf\u{e9}", &[0xff; 10_000]),
        ("'; --", b"'"),
    ];
    for (name, bytes) in values {
        done(store, name, None, Some(bytes)).await;
    }
    let refused = store.set("a", None, Some(b"x")).await.expect("an answer");
    assert_eq!(refused, Setting::Refused(Some(Bytes::new())), "an empty value is not absent");
    let mut all = store.settings().await.expect("an answer");
    all.sort_unstable();
    let mut expected = values.map(|(name, bytes)| (name.to_owned(), Bytes::copy_from_slice(bytes)));
    expected.sort_unstable();
    assert_eq!(all, expected);
}

/// Of many nodes that create the same setting, one succeeds, and all others are shown its value.
pub async fn of_many_creators_of_a_setting_one_wins(subject: Subject) {
    let handles = subject.two_handles().await;
    for round in 0..10 {
        let name = format!("secret-{round}");
        let create = |n: u8| {
            let store = Arc::clone(&handles[usize::from(n % 2)]);
            let name = name.clone();
            async move { (n, store.set(&name, None, Some(&[n; 32])).await.expect("an answer")) }
        };
        let answers = at_once((0..16).map(create)).await;
        let winners: Vec<u8> =
            answers.iter().filter(|(_, answer)| *answer == Setting::Done).map(|(n, _)| *n).collect();
        assert_eq!(winners.len(), 1, "how many created one setting");
        let won = Bytes::from(vec![winners[0]; 32]);
        for (_, answer) in answers {
            assert!(answer == Setting::Done || answer == Setting::Refused(Some(won.clone())), "{answer:?}");
        }
        assert_eq!(value(&*handles[1], &name).await, Some(won));
    }
}
