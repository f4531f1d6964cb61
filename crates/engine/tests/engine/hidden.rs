//! No debug output of a public type shows a stored answer, a request, a key, a caller or a secret.

use bytes::Bytes;
use semel::core::classify::{Answer as Response, Ending, Rules};
use semel::core::fingerprint::json::{self, Scalar};
use semel::core::fingerprint::{Fingerprint, Limits, Pointer, Request};
use semel::core::id::{CallerHash, CommandId, KeyHash};
use semel::core::key::{Key, Parsed};
use semel::core::machine::{
    self, Begin, Command, Decision, Expect, Found, NewAttempt, Reply, Stamp, Unchanged, Verdict, Write,
};
use semel::core::outcome::{Body, Fields, Outcome, Status};
use semel::core::policy::{Class, Policy};
use semel::core::record::{Entry, Record, State, Token};
use semel::core::scope::{Caller, Identity, Operation, Scope, Secret};
use semel::core::store::{Change, Count, Cursor, Filter, Item, Page, Reading, Setting, Store as _, Written};
use semel::core::time::Time;
use semel::sealing::{KeyRing, SealingKey};
use semel::{
    CallerOperation, ExecuteResponse, Finding, FoundRecord, Intent, RanAttempt, Replayed, RequestOutcome,
    Stored, WorkResult, archive, payload,
};
use semel_testkit::assert_hidden;
use std::fmt::Debug;
use std::sync::Arc;

/// Contains a quote and a line break, so that its debug form differs from its text.
const BODY: &[u8] = b"card \"4111 1111\"\nof Ada";
const HEADER: &[u8] = b"session=5e55-10n-c00k1e";
const SECRET: &[u8; 32] = b"hashing secret of thirty-two by\xff";
const KEY: &str = "order-1234-charge-ada@example.com";
const CALLER: &str = "sk_live_51H8xCallerToken";
/// The planted digest: 32 equal bytes would contain their own prefix.
const DIGEST: [u8; 32] = *b"\x01\x23\x45\x67\x89\xab\xcd\xefthe rest of this digest.";

fn hides(name: &str, value: &dyn Debug) {
    for secret in [BODY, HEADER, SECRET, KEY.as_bytes(), CALLER.as_bytes(), &DIGEST, &DIGEST[4..12]] {
        assert_hidden(name, value, secret);
    }
}

fn outcome() -> Outcome {
    let headers = [("set-cookie", HEADER), ("location", HEADER)];
    let trailers = Fields::from_iter([("grpc-message", HEADER)]);
    Outcome { trailers, ..Outcome::http(201, headers, BODY) }
}

fn stamp(millis: u64) -> Stamp<'static> {
    Stamp::new(Time::from_millis(millis), "worker", "")
}

fn scope() -> Scope {
    Scope::new(Identity::api_key(CALLER), Operation::route("POST", "/charges")).in_tenant(CALLER)
}

static FINGERPRINT: Fingerprint = Fingerprint::from_bytes(DIGEST);

fn command() -> Command<'static> {
    let id = CommandId::from_bytes(DIGEST);
    Command {
        id,
        operation_id: semel::core::id::OperationId::of(&id),
        key_hash: KeyHash::from_bytes(DIGEST),
        caller_hash: CallerHash::from_bytes(DIGEST),
        operation: "POST /charges".into(),
        policy: Policy::new(Class::External).into(),
        fingerprint: FINGERPRINT,
        payload: &FINGERPRINT,
        generation: 0,
    }
}

/// A token; only its first digits may be shown.
fn token() -> Token {
    let mut bytes = [0x0a; 16];
    bytes[4..].copy_from_slice(&DIGEST[4..16]);
    Token::from_random(u128::from_be_bytes(bytes))
}

fn claimed() -> Write {
    let new_attempt = NewAttempt { token: token(), begin: Begin::Processing };
    match machine::decide(Found::Nothing, &command(), new_attempt, stamp(1)) {
        Decision::Run(write) => *write,
        other => panic!("a command never seen is run: {other:?}"),
    }
}

fn finished() -> Record {
    let record = claimed().next;
    machine::finish(&record, record.token(), Ending::Succeeded(outcome()), stamp(2)).expect("its owner").next
}

#[test]
fn outcomes_and_records_show_no_stored_answer() {
    for body in [Body::Kept(BODY.into()), Body::Sealed(BODY.into())] {
        hides("Body", &body);
        hides("Outcome", &Outcome { body, ..outcome() });
    }
    assert_eq!(format!("{:?}", Body::Kept(BODY.into())), format!("Kept({} bytes)", BODY.len()));
    hides("Fields", &outcome().headers);
    let record = finished();
    hides("State", record.state());
    assert!(matches!(record.state(), State::Succeeded { .. }));
    hides("Record", &record);
    hides("Entry", &Entry::Record(Box::new(record.clone())));
    hides(
        "Reading",
        &Reading { now: Time::from_millis(3), entry: Some(Ok(Entry::Record(Box::new(record.clone())))) },
    );
    let reading =
        || Reading { now: Time::from_millis(3), entry: Some(Ok(Entry::Record(Box::new(finished())))) };
    hides("Written", &Written::Refused(reading()));
    hides("Change", &Change::Insert(&record));
    let item = || Item { id: CommandId::from_bytes(DIGEST), entry: Ok(Entry::Record(Box::new(finished()))) };
    hides("Item", &item());
    let next = Some(Cursor::from_bytes(Bytes::copy_from_slice(&DIGEST)));
    hides("Cursor", &next);
    hides("Page", &Page { now: Time::from_millis(3), items: vec![item()], next });
    hides("Found", &Found::Record(&record));
    hides("Write", &Write { expect: Expect::unchanged(&record), next: record.clone() });
    hides("Expect", &Unchanged::of(&record));
    hides("Count", &Count::Caller(CallerHash::from_bytes(DIGEST)));
    hides("Filter", &Filter { key: Some(KeyHash::from_bytes(DIGEST)), ..Filter::default() });
    hides("Setting", &Setting::Refused(Some(Bytes::copy_from_slice(SECRET))));
    hides("Archived", &archive::Archived { id: CommandId::from_bytes(DIGEST), record: &record });
}

#[test]
fn decisions_endings_and_verdicts_show_no_stored_answer() {
    for ending in [
        Ending::Succeeded(outcome()),
        Ending::FailedReplayable(outcome()),
        Ending::NotApplied(Some(outcome())),
        Ending::NotAppliedForGood(outcome()),
        Ending::of(Class::External, &Response::new(Status::Http(201)), &Rules::default(), outcome()),
    ] {
        hides("Ending", &ending);
        hides("WorkResult", &WorkResult::from(ending));
    }
    for verdict in [Verdict::Applied(Some(outcome())), Verdict::Failed(outcome())] {
        hides("Verdict", &verdict);
    }
    for finding in [Finding::Applied(Some(outcome())), Finding::Failed(outcome())] {
        hides("Finding", &finding);
    }
    hides("Decision", &Decision::Run(Box::new(claimed())));
    hides("Decision", &Decision::Answer(Reply::Replay(&outcome())));
    hides("Reply", &Reply::Replay(&outcome()));
    hides("NewAttempt", &NewAttempt { token: token(), begin: Begin::Claimed });
}

#[test]
fn engine_responses_show_no_stored_answer() {
    let record = finished();
    let stored = Stored { state: record.state_name(), expires_at: record.expires_at() };
    let replayed = || Replayed { outcome: outcome(), stored };
    hides("Replayed", &replayed());
    let operation_id = record.operation_id();
    hides(
        "ExecuteResponse",
        &ExecuteResponse::<()> { operation_id, outcome: RequestOutcome::Replayed(replayed()) },
    );
    let ending = Ending::Succeeded(outcome());
    hides(
        "RequestOutcome",
        &RequestOutcome::Ran(RanAttempt {
            ending,
            stored: Some(stored),
            attempt: 1,
            repeatable: false,
            local: (),
        }),
    );
    let now = Time::from_millis(3);
    hides(
        "FoundRecord",
        &FoundRecord { id: CommandId::from_bytes(DIGEST), record: record.clone(), now: now.into() },
    );
    hides(
        "CallerOperation",
        &CallerOperation {
            record: record.clone(),
            outcome: Some(outcome()),
            is_key: true,
            is_expired: false,
        },
    );
    hides("Case", &semel::Case { operation_id, record: Arc::new(record) });
}

#[test]
fn requests_keys_and_callers_are_hidden() {
    let key = || Key::from_source(KEY).expect("a key");
    hides("Key", &key());
    hides("Parsed", &Parsed { key: key(), warning: None });
    hides("Key", &Key::from_fingerprint(FINGERPRINT));
    hides("Fingerprint", &FINGERPRINT);
    hides("Token", &token());
    hides("Identity", &Identity::api_key(CALLER));
    hides("Caller", &Caller::from(Identity::authorization("Bearer", CALLER)));
    hides("Scope", &scope());
    hides("Json", &payload::Json::of(&String::from_utf8_lossy(BODY)).expect("JSON"));
    hides("Json", &payload::Json::of(KEY).expect("JSON"));
    hides("Raw", &payload::Raw::from(Bytes::from_static(BODY)));
    let request = Request { headers: &[("cookie", HEADER)], ..Request::new("POST", "pay", "/pay", BODY) };
    hides("Request", &request);
    hides("Request", &(request, Limits::default()));
    let body = format!("{{\"id\":{KEY:?}}}");
    let scalar = json::scalar_at(body.as_bytes(), &Pointer::parse("/id").expect("a pointer")).expect("JSON");
    assert_eq!(scalar, Scalar::Text(KEY.to_owned()));
    hides("Scalar", &scalar);
    hides("Scalar", &Scalar::Number("4111111111111111".to_owned()));
    assert_hidden("Scalar", &Scalar::Number("4111111111111111".to_owned()), b"4111111111111111");
    let policy = Policy::new(Class::External);
    hides("Intent", &Intent::new(scope(), key(), policy, payload::Raw::from(Bytes::from_static(BODY))));
    for id in [format!("{:?}", CommandId::from_bytes(DIGEST)), format!("{:?}", KeyHash::from_bytes(DIGEST))] {
        hides("a digest", &id);
    }
}

#[tokio::test]
async fn secrets_are_hidden() {
    hides("Secret", &Secret::from_bytes(SECRET).expect("32 bytes"));
    let key = |name| SealingKey::new(name, SECRET).expect("32 bytes");
    hides("SealingKey", &key("a"));
    hides("KeyRing", &KeyRing::new(key("a")).and(key("b")).expect("another name"));
    // A store's answer if another secret is stored already: this node does not know that one.
    let store = semel::memory::Store::new();
    assert_eq!(store.set("secrets", None, Some(SECRET)).await.expect("set"), Setting::Done);
    let refused = store.set("secrets", None, Some(b"other")).await.expect("answered");
    assert_eq!(refused, Setting::Refused(Some(Bytes::copy_from_slice(SECRET))));
    hides("Setting", &refused);
    assert_eq!(format!("{refused:?}"), "Refused(32 bytes)");
}

#[tokio::test]
async fn an_engines_own_secret_is_hidden() {
    let store = Arc::new(semel::memory::Store::new());
    let engine = semel::Engine::builder(store.clone()).secret(SECRET.to_vec()).build().await.expect("built");
    let (key, policy) = (Key::from_source(KEY).expect("a key"), Policy::new(Class::External));
    let intent = Intent::new(scope(), key, policy, payload::Raw::from(Bytes::from_static(BODY)));
    hides("Claimed", &engine.claim(&intent).await.expect("claimed"));
    hides("memory::Store", &store);
}
