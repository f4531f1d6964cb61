//! What sealing promises.

use bytes::Bytes;
use proptest::prelude::*;
use semel::Random;
use semel::core::id::CommandId;
use semel::core::outcome::{Body, Fields, Outcome, Status};
use semel::sealing::{KeyError, KeyRing, SealingKey, UnsealError};
use std::sync::atomic::{AtomicU64, Ordering};

const ID: CommandId = CommandId::from_bytes([0x1d; 32]);
const OTHER_ID: CommandId = CommandId::from_bytes([0x1e; 32]);

/// Different bits on every draw, the same on every run.
#[derive(Default)]
struct Counting(AtomicU64);

impl Random for Counting {
    fn bits(&self) -> u128 {
        let draw = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        u128::from(draw).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
    }
}

fn key(name: &str, byte: u8) -> SealingKey {
    SealingKey::new(name, &[byte; 32]).expect("a valid key")
}

fn ring() -> KeyRing {
    KeyRing::new(key("2026-11", 7))
}

fn sealed(outcome: &Outcome) -> Outcome {
    ring().seal(&ID, outcome, &Counting::default())
}

fn bytes(outcome: &Outcome) -> Bytes {
    match &outcome.body {
        Body::Sealed(bytes) => bytes.clone(),
        other => panic!("not sealed: {other:?}"),
    }
}

fn with_bytes(bytes: impl Into<Bytes>, status: Status) -> Outcome {
    Outcome { body: Body::Sealed(bytes.into()), ..Outcome::not_retained(status) }
}

fn grpc() -> Outcome {
    Outcome {
        headers: Fields::from_iter([("content-type", "application/grpc")]),
        body: Body::Kept(Bytes::from_static(b"\0\0\0\0\x02\x08\x07")),
        trailers: Fields::from_iter([("grpc-status", b"0".as_slice()), ("x-bin", b"\xff\0")]),
        ..Outcome::not_retained(Status::Grpc(0))
    }
}

fn shapes() -> Vec<Outcome> {
    let none = [("", ""); 0];
    let repeated = [("link", "</a>"), ("Link", "</b>"), ("link", "</a>"), ("", "")];
    vec![
        Outcome::http(201, [("location", "/payments/7")], "{\"id\":7}"),
        Outcome::http(204, none, ""),
        Outcome::http(200, none, (0..=255).collect::<Vec<u8>>()),
        Outcome::http(200, repeated, vec![0; 100_000]),
        Outcome { body: Body::NotRetained, ..Outcome::http(200, [("etag", "\"7\"")], "") },
        Outcome::value("false"),
        Outcome::value(""),
        grpc(),
    ]
}

#[test]
fn every_shape_of_outcome_comes_back_as_it_was() {
    for outcome in shapes() {
        let stored = sealed(&outcome);
        assert!(stored.headers.is_empty() && stored.trailers.is_empty());
        assert_eq!(stored.status, outcome.status, "the status stays readable");
        assert!(matches!(stored.body, Body::Sealed(_)));
        assert_eq!(ring().open(&ID, &stored), Ok(outcome));
    }
}

#[test]
fn an_outcome_without_content_or_already_sealed_stays_unchanged() {
    let lost = Outcome::not_retained(Status::Http(200));
    assert_eq!(sealed(&lost), lost);
    let once = sealed(&grpc());
    assert_eq!(sealed(&once), once, "not sealed twice");
}

#[test]
fn outcomes_from_before_sealing_stay_readable() {
    for outcome in shapes() {
        assert_eq!(ring().open(&ID, &outcome), Ok(outcome.clone()));
    }
}

#[test]
fn a_sealed_outcome_opens_for_its_own_record_and_status_only() {
    let stored = sealed(&shapes()[0]);
    assert_eq!(ring().open(&OTHER_ID, &stored), Err(UnsealError::Damaged));
    for status in [Status::Http(200), Status::Grpc(201), Status::Value] {
        let moved = Outcome { status, ..stored.clone() };
        assert_eq!(ring().open(&ID, &moved), Err(UnsealError::Damaged), "{status:?}");
    }
    let headed = Outcome { headers: Fields::from_iter([("x", "y")]), ..stored.clone() };
    assert_eq!(ring().open(&ID, &headed), Err(UnsealError::Damaged), "an unsealed header");
    let trailed = Outcome { trailers: Fields::from_iter([("x", "y")]), ..stored };
    assert_eq!(ring().open(&ID, &trailed), Err(UnsealError::Damaged));
}

#[test]
fn another_key_of_the_same_name_opens_nothing() {
    let stored = sealed(&shapes()[0]);
    assert_eq!(KeyRing::new(key("2026-11", 8)).open(&ID, &stored), Err(UnsealError::Damaged));
}

#[test]
fn a_missing_key_is_named_and_not_damage() {
    let stored = sealed(&shapes()[0]);
    let missing = KeyRing::new(key("2027-02", 7)).open(&ID, &stored);
    assert_eq!(missing, Err(UnsealError::KeyMissing("2026-11".to_owned())));
    let text = missing.expect_err("missing").to_string();
    assert!(text.contains("`2026-11`") && text.contains("add that key"), "{text}");
}

#[test]
fn each_byte_that_changes_breaks_the_seal() {
    let stored = sealed(&grpc());
    let sealed_bytes = bytes(&stored);
    for at in 0..sealed_bytes.len() {
        for bit in 0..8 {
            let mut changed = sealed_bytes.to_vec();
            changed[at] ^= 1 << bit;
            assert!(ring().open(&ID, &with_bytes(changed, stored.status)).is_err(), "byte {at}, bit {bit}");
        }
    }
    for end in 0..sealed_bytes.len() {
        let cut = with_bytes(sealed_bytes.slice(..end), stored.status);
        assert_eq!(ring().open(&ID, &cut), Err(UnsealError::Damaged), "{end} bytes");
    }
    let longer = with_bytes([&sealed_bytes[..], b"\0"].concat(), stored.status);
    assert_eq!(ring().open(&ID, &longer), Err(UnsealError::Damaged));
}

#[test]
fn a_newer_seal_is_not_damage() {
    let stored = sealed(&grpc());
    let mut newer = bytes(&stored).to_vec();
    newer[0] = 2;
    assert_eq!(ring().open(&ID, &with_bytes(newer.clone(), stored.status)), Err(UnsealError::Newer(2)));
    newer[0] = 0;
    assert_eq!(ring().open(&ID, &with_bytes(newer, stored.status)), Err(UnsealError::Damaged));
}

#[test]
fn after_a_key_change_old_outcomes_still_open() {
    let old = sealed(&shapes()[0]);
    let turned = KeyRing::new(key("2027-02", 9)).and(key("2026-11", 7)).expect("two names");
    assert_eq!(turned.open(&ID, &old), Ok(shapes()[0].clone()));
    let new = turned.seal(&ID, &shapes()[0], &Counting::default());
    assert_eq!(ring().open(&ID, &new), Err(UnsealError::KeyMissing("2027-02".to_owned())));
    assert_eq!(KeyRing::new(key("2027-02", 9)).open(&ID, &new), Ok(shapes()[0].clone()));
}

#[test]
fn no_two_seals_share_a_nonce() {
    let random = Counting::default();
    let seals: Vec<_> = (0..3).map(|_| bytes(&ring().seal(&ID, &grpc(), &random))).collect();
    let nonces: Vec<_> = seals.iter().map(|seal| &seal[9..33]).collect();
    assert!(nonces[0] != nonces[1] && nonces[1] != nonces[2] && nonces[0] != nonces[2]);
    for nonce in nonces {
        assert!(nonce[16..] != [0; 8] && nonce[16..] != nonce[..8], "the last eight bytes");
    }
}

#[test]
fn nothing_of_the_answer_can_be_read_in_the_sealed_bytes() {
    let secret = "account-4711-balance-1234567";
    let outcome = Outcome {
        trailers: Fields::from_iter([("x-trailer", secret)]),
        ..Outcome::http(200, [("x-private", secret)], format!("{{\"body\":\"{secret}\"}}"))
    };
    let stored = bytes(&sealed(&outcome));
    for fragment in [&secret.as_bytes()[..6], b"x-private", b"x-trailer", b"body", b"1234567"] {
        assert!(!stored.windows(fragment.len()).any(|window| window == fragment), "{fragment:?}");
    }
}

#[test]
fn keys_are_named_and_have_32_bytes() {
    assert_eq!(SealingKey::new("k", &[1; 31]).map(|_| ()), Err(KeyError::Length(31)));
    assert_eq!(SealingKey::new("k", &[1; 33]).map(|_| ()), Err(KeyError::Length(33)));
    for name in ["", "a b", "é", "a/b", &"n".repeat(33)] {
        assert_eq!(SealingKey::new(name, &[1; 32]).map(|_| ()), Err(KeyError::Name), "{name:?}");
    }
    assert_eq!(key(&"n".repeat(32), 1).name().len(), 32);
    let taken = ring().and(key("2026-11", 9)).map(|_| ());
    assert_eq!(taken, Err(KeyError::NameTaken("2026-11".to_owned())));
}

#[test]
fn debug_output_of_a_ring_shows_names_only() {
    let text = format!("{:?}", ring());
    assert_eq!(text, "KeyRing { sealing: SealingKey(2026-11), others: [] }");
}

fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..300)
}

fn any_fields() -> impl Strategy<Value = Fields> {
    prop::collection::vec((any_bytes(), any_bytes()), 0..4).prop_map(Fields::from_iter)
}

proptest! {
    #[test]
    fn a_sealed_outcome_opens_only_for_its_own_record(
        status in prop_oneof![
            any::<u16>().prop_map(Status::Http), any::<u32>().prop_map(Status::Grpc), Just(Status::Value)
        ],
        headers in any_fields(),
        body in any_bytes(),
        trailers in any_fields(),
        (id, other) in (any::<[u8; 32]>(), any::<[u8; 32]>()),
        flip in (any::<prop::sample::Index>(), 0..8u32),
    ) {
        let (id, other) = (CommandId::from_bytes(id), CommandId::from_bytes(other));
        let outcome = Outcome { headers, body: Body::Kept(body.into()), trailers, ..Outcome::not_retained(status) };
        let stored = ring().seal(&id, &outcome, &Counting::default());
        prop_assert_eq!(ring().open(&id, &stored), Ok(outcome));
        if id != other {
            prop_assert_eq!(ring().open(&other, &stored), Err(UnsealError::Damaged));
        }
        let mut changed = bytes(&stored).to_vec();
        let at = flip.0.index(changed.len());
        changed[at] ^= 1 << flip.1;
        prop_assert!(ring().open(&id, &with_bytes(changed, status)).is_err());
    }

    #[test]
    fn no_bytes_make_the_opener_panic(noise in any_bytes()) {
        prop_assert!(ring().open(&ID, &with_bytes(noise, Status::Value)).is_err());
    }
}
