//! No two scopes and keys have the same encoding.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::fingerprint::Fingerprint;
use crate::key::Key;
use crate::scope::{Caller, Identity, Operation, Scope};

/// Few characters, among them the bytes of tags and lengths, so that collisions are likely if they are possible.
fn text() -> impl Strategy<Value = String> {
    "[a:\x00\x01]{0,3}"
}

fn caller() -> impl Strategy<Value = Caller> {
    prop_oneof![
        Just(Caller::Anonymous),
        text().prop_map(|name| Identity::header(name).into()),
        text().prop_map(|name| Identity::api_key(name).into()),
        text().prop_map(|name| Identity::cookie(name).into()),
        text().prop_map(|name| Identity::mtls(name).into()),
        (text(), text()).prop_map(|(what, name)| Identity::header(name).found_in(&what).into()),
        (text(), text()).prop_map(|(what, name)| Identity::api_key(name).found_in(&what).into()),
        (text(), text()).prop_map(|(what, name)| Identity::cookie(name).found_in(&what).into()),
        (text(), text()).prop_map(|(what, name)| Identity::mtls(name).found_in(&what).into()),
        (text(), text()).prop_map(|(issuer, subject)| Identity::jwt(&issuer, &subject).into()),
        (text(), text()).prop_map(|(scheme, rest)| Identity::authorization(&scheme, rest).into()),
    ]
}

fn scope() -> impl Strategy<Value = Scope> {
    let operation = prop_oneof![
        text().prop_map(Operation::named),
        (text(), text()).prop_map(|(method, path)| Operation::route(method, path)),
    ];
    (proptest::option::of(text()), caller(), operation).prop_map(|(tenant, caller, operation)| {
        let scope = Scope::new(caller, operation);
        tenant.map_or(scope.clone(), |tenant| scope.in_tenant(tenant))
    })
}

fn key() -> impl Strategy<Value = Key> {
    let simple = || {
        prop_oneof![
            8 => "[a:,]{1,3}".prop_map(|text| Key::from_source(&text).unwrap()),
            1 => (0..2_u8).prop_map(|byte| Key::from_fingerprint(Fingerprint::from_bytes([byte; 32]))),
        ]
    };
    let composite =
        proptest::collection::vec(simple(), 2..4).prop_map(|parts| Key::composite(parts).unwrap());
    prop_oneof![simple(), composite]
}

fn written(scope: &Scope, key: &Key) -> Vec<u8> {
    let mut out = Vec::new();
    scope.encode(&mut out);
    key.encode(&mut out);
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// All pairs among 150 values.
    #[test]
    fn no_two_scopes_and_keys_are_written_the_same(
        all in proptest::collection::vec((scope(), key()), 150),
    ) {
        assert_no_two_alike(&all);
    }
}

/// The full product of a few choices. Random values seldom differ in one place only; these all do.
#[test]
fn no_two_small_scopes_are_written_the_same() {
    let texts = ["", "a", ":", "a:"];
    let pairs = || texts.iter().flat_map(|one| texts.map(|two| (*one, two)));
    let callers: Vec<Caller> = std::iter::once(Caller::Anonymous)
        .chain(texts.into_iter().flat_map(|name| {
            [Identity::header, Identity::api_key, Identity::cookie, Identity::mtls].map(|of| of(name).into())
        }))
        .chain(pairs().map(|(issuer, subject)| Identity::jwt(issuer, subject).into()))
        .chain(pairs().map(|(scheme, rest)| Identity::authorization(scheme, rest).into()))
        .chain(pairs().flat_map(|(what, name)| {
            [Identity::header, Identity::api_key, Identity::cookie, Identity::mtls]
                .map(|of| of(name).found_in(what).into())
        }))
        .collect();
    let operations: Vec<Operation> = ["", "a", "a:", "a a", " "]
        .map(Operation::named)
        .into_iter()
        .chain(pairs().map(|(method, path)| Operation::route(method, path)))
        .collect();
    let text = |text: &str| Key::from_source(text).unwrap();
    let print = || Key::from_fingerprint(Fingerprint::from_bytes([b'a'; 32]));
    let simple = [text("a"), text("a:"), text(&"a".repeat(32)), text(&"61".repeat(32)), print()];
    let two = simple.iter().flat_map(|one| simple.each_ref().map(|two| vec![one.clone(), two.clone()]));
    let three = [vec![text("a"); 3], vec![text("a"), text("a"), print()]];
    let composites = two.chain(three).map(|parts| Key::composite(parts).unwrap());
    let keys: Vec<Key> = simple.iter().cloned().chain(composites).collect();

    let mut all = Vec::new();
    for caller in &callers {
        for operation in &operations {
            for key in &keys {
                let scope = Scope::new(caller.clone(), operation.clone());
                all.extend(texts.map(|tenant| (scope.clone().in_tenant(tenant), key.clone())));
                all.push((scope, key.clone()));
            }
        }
    }
    assert_eq!(all.len(), (49 + 64) * 21 * 32 * 5);
    assert_no_two_alike(&all);
}

/// No encoding is a prefix of another, so that bytes written after it cannot hide a difference.
fn assert_no_two_alike(all: &[(Scope, Key)]) {
    let mut seen: BTreeMap<Vec<u8>, &(Scope, Key)> = BTreeMap::new();
    for pair in all {
        if let Some(earlier) = seen.insert(written(&pair.0, &pair.1), pair) {
            assert!(earlier == pair, "written the same: {earlier:?} {pair:?}");
        }
    }
    let mut sorted: Vec<_> = seen.keys().collect();
    sorted.sort();
    assert!(sorted.windows(2).all(|two| !two[1].starts_with(two[0])), "one begins another");
}
