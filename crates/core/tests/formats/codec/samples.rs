//! Records in every state and variation, each made by the state machine, and the same bytes changed by a newer node or
//! a failing disk.

use bytes::Bytes;
use semel_core::classify::Ending;
use semel_core::codec;
use semel_core::fingerprint::{Error, Fingerprint, Payload, Selection};
use semel_core::id::{CallerHash, CommandId, KeyHash, OperationId};
use semel_core::machine::{
    self, Begin, Command, Decision, Found, NewAttempt, Refusal, Stamp, Verdict, Write,
};
use semel_core::outcome::{Body, Fields, Outcome, Status};
use semel_core::policy::{AfterExpiry, Class, Policy, PolicySettings};
use semel_core::record::{Entry, Record, Token};
use semel_core::time::Time;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const MORNING: Time = Time::from_millis(1_800_000_000_000);
pub(crate) const TOKEN: Token = Token::from_random(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);
const SECOND_TOKEN: Token = Token::from_random(0xffee_ddcc_bbaa_9988_7766_5544_3322_1100);

/// A payload whose fingerprint is the same under every selection.
pub(crate) struct Payment;

const FINGERPRINT: Fingerprint = Fingerprint::from_bytes([0x4f; 32]);

impl Payload for Payment {
    fn fingerprint(&self, _: &Selection) -> Result<Fingerprint, Error> {
        Ok(FINGERPRINT)
    }
}

pub(crate) fn command(policy: Policy) -> Command<'static> {
    Command {
        id: CommandId::from_bytes([0x1d; 32]),
        operation_id: OperationId::from_bytes(*b"operation id 16B"),
        key_hash: KeyHash::from_bytes([0x1e; 32]),
        caller_hash: CallerHash::from_bytes([0xca; 32]),
        operation: "POST /payments".into(),
        policy: Arc::new(policy),
        fingerprint: FINGERPRINT,
        payload: &Payment,
        generation: 0,
    }
}

pub(crate) fn new_attempt(token: Token, begin: Begin) -> NewAttempt {
    NewAttempt { token, begin }
}

pub(crate) fn stamp(now: Time) -> Stamp<'static> {
    Stamp::new(now, "node-1", "")
}

/// The first attempt at a command under `policy`.
pub(crate) fn claim(policy: Policy, begin: Begin) -> Record {
    run(Found::Nothing, policy, new_attempt(TOKEN, begin), MORNING)
}

fn run(found: Found<'_>, policy: Policy, new_attempt: NewAttempt, now: Time) -> Record {
    match machine::decide(found, &command(policy), new_attempt, stamp(now)) {
        Decision::Run(write) => write.next,
        other => panic!("expected an attempt, got: {other:?}"),
    }
}

fn processing(class: Class) -> Record {
    claim(Policy::new(class), Begin::Processing)
}

pub(crate) fn after(seconds: u64) -> Time {
    MORNING + Duration::from_secs(seconds)
}

fn ended(record: &Record, ending: Ending) -> Record {
    next(machine::finish(record, TOKEN, ending, stamp(after(2))))
}

fn next(write: Result<Write, Refusal>) -> Record {
    write.unwrap().next
}

fn succeeded(outcome: Outcome) -> Record {
    ended(&processing(Class::External), Ending::Succeeded(outcome))
}

fn charged() -> Outcome {
    let headers = [
        ("content-type", "application/json"),
        ("location", "/payments/7"),
        ("link", "</a>; rel=a"),
        ("link", "</b>; rel=b"),
    ];
    Outcome::http(201, headers, "{\"id\":7}")
}

fn by_hand(now: Time) -> Stamp<'static> {
    Stamp::new(now, "operator:zoë", "asked the bank — nothing booked")
}

/// Every record that the fixtures hold, under the name of its fixture.
pub(crate) fn records() -> Vec<(&'static str, Record)> {
    let lapsed = next(machine::lapse(&processing(Class::External), stamp(after(31))));
    let refused = ended(
        &processing(Class::External),
        Ending::NotApplied(Some(Outcome::http(401, [("", ""); 0], "no"))),
    );
    let grpc = Outcome {
        headers: Fields::from_iter([("content-type", "application/grpc")]),
        body: Body::Kept(Bytes::from_static(b"\0\0\0\0\x02\x08\x07")),
        trailers: Fields::from_iter([("grpc-status", b"0".as_slice()), ("x-bin", b"\xff\0")]),
        ..Outcome::not_retained(Status::Grpc(0))
    };
    let dead_claim = claim(Policy::new(Class::External), Begin::Claimed);
    let expired = next(machine::expire(&succeeded(charged()), stamp(after(90_000))));
    let denied = Ending::FailedReplayable(Outcome::http(422, [("x", "")], "[]"));
    vec![
        ("claimed", claim(Policy::new(Class::External), Begin::Claimed)),
        ("processing", next(machine::start(&dead_claim, TOKEN, stamp(after(1))))),
        ("processing_renewed", next(machine::renew(&processing(Class::Downstream), TOKEN, after(10)))),
        ("processing_after_a_doubt", taken_over()),
        ("processing_under_a_selection", claim(selective(1), Begin::Processing)),
        ("processing_under_a_newer_selection", claim(selective(9), Begin::Processing)),
        ("processing_under_odd_durations", claim(odd_durations(), Begin::Processing)),
        ("succeeded", succeeded(charged())),
        ("succeeded_empty", succeeded(Outcome::http(204, [("", ""); 0], ""))),
        ("succeeded_binary", succeeded(Outcome::http(200, [("", ""); 0], (0..=255).collect::<Vec<u8>>()))),
        ("succeeded_grpc", succeeded(grpc)),
        ("succeeded_local", ended(&processing(Class::Local), Ending::Succeeded(Outcome::value("false")))),
        (
            "succeeded_not_retained",
            next(machine::resolve(&lapsed, Verdict::Applied(None), by_hand(after(40)))),
        ),
        ("failed_replayable", ended(&processing(Class::External), denied)),
        ("failed_not_replayable", refused.clone()),
        ("failed_not_replayable_never_began", next(machine::lapse(&dead_claim, stamp(after(30))))),
        (
            "failed_not_replayable_by_verdict",
            next(machine::resolve(
                &lapsed,
                Verdict::NotApplied { asked_at: after(4_000) },
                by_hand(after(4_000)),
            )),
        ),
        ("failed_not_replayable_released", next(machine::release(&refused, by_hand(after(60))))),
        ("unknown_lapsed", lapsed.clone()),
        ("unknown_by_owner", ended(&processing(Class::External), Ending::InDoubt)),
        ("unknown_left_to_an_operator", given_up(&lapsed)),
        ("expired", expired),
        ("processing_of_a_later_generation", of_generation(1)),
        ("processing_of_the_last_generation", of_generation(u32::MAX)),
        ("succeeded_sealed", succeeded(sealed_outcome(Status::Http(201)))),
        ("succeeded_sealed_grpc", succeeded(sealed_outcome(Status::Grpc(0)))),
        ("long_history", often_tried()),
    ]
}

fn taken_over() -> Record {
    let first = processing(Class::Downstream);
    let policy = Policy::new(Class::Downstream);
    run(Found::Record(&first), policy, new_attempt(SECOND_TOKEN, Begin::Processing), after(45))
}

fn of_generation(generation: u32) -> Record {
    let command = command(Policy::new(Class::External)).with_generation(generation);
    let new_attempt = new_attempt(TOKEN, Begin::Processing);
    match machine::decide(Found::Nothing, &command, new_attempt, stamp(MORNING)) {
        Decision::Run(write) => write.next,
        other => panic!("expected an attempt, got: {other:?}"),
    }
}

fn sealed_outcome(status: Status) -> Outcome {
    Outcome { body: Body::Sealed(Bytes::from_static(b"\x01\xffsealed")), ..Outcome::not_retained(status) }
}

fn selective(version: u8) -> Policy {
    let list = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
    let headers = list(&["x-currency", "x-region"]);
    let selection = Selection::from_parts(version, headers, list(&["/amount"]), list(&["/sent_at", "/é"]));
    Policy::new(Class::External).with(|policy| policy.selection = selection.unwrap()).expect("valid")
}

fn odd_durations() -> Policy {
    Policy::as_stored(PolicySettings {
        lease: Duration::from_nanos(30_000_000_001),
        work_deadline: Duration::from_micros(1_500),
        skew: Duration::from_nanos(999_999_999),
        ttl: Duration::from_millis(u64::MAX >> 1),
        tombstone: Duration::MAX,
        attempts_max: Some(3),
        after_expiry: AfterExpiry::RunAsNew,
        ..Policy::new(Class::Downstream).into()
    })
}

fn given_up(unknown: &Record) -> Record {
    let asked_twice = next(machine::postpone(unknown, Some(after(60)), after(50)));
    next(machine::postpone(&asked_twice, None, after(60)))
}

fn often_tried() -> Record {
    let policy =
        || Policy::new(Class::External).with(|policy| policy.history_entries_max = 3).expect("valid");
    let first = new_attempt(Token::from_random(1), Begin::Processing);
    let mut record = run(Found::Nothing, policy(), first, MORNING);
    for (minute, token) in [(1, Token::from_random(2)), (2, SECOND_TOKEN), (3, TOKEN)] {
        record = next(machine::abandon(&record, record.token(), stamp(after(60 * minute))));
        let new_attempt = new_attempt(token, Begin::Processing);
        record = run(Found::Record(&record), policy(), new_attempt, after(60 * minute + 1));
    }
    record
}

/// Every sample, also the unreadable ones, under the name of its fixture.
pub(crate) fn all() -> Vec<(&'static str, Vec<u8>)> {
    let mut all: Vec<_> =
        records().into_iter().map(|(name, record)| (name, codec::encode_record(&record))).collect();
    all.push(("moved", codec::encode(&Entry::Moved)));
    let bytes = codec::encode_record(&claim(Policy::new(Class::External), Begin::Claimed));
    let content = &bytes[..bytes.len() - 4];
    let changed = |at: usize, byte: u8| {
        let mut content = content.to_vec();
        content[at] = byte;
        sealed(content)
    };
    all.extend([
        ("extended", sealed([content, &[2, 3, b'n', b'e', b'w', 0xac, 2, 0]].concat())),
        ("newer_extension", sealed([content, &[2, 0, 3, 1, 0xff]].concat())),
        ("newer_format", changed(0, 2)),
        ("damaged_nothing_left", Vec::new()),
        ("damaged_cut_short", bytes[..bytes.len() / 2].to_vec()),
        ("damaged_followed_by_more", [&bytes[..], b"\0"].concat()),
        ("damaged_one_bit", bytes.iter().enumerate().map(|(at, b)| b ^ u8::from(at == 40)).collect()),
        ("damaged_unknown_kind", changed(1, 9)),
        ("damaged_unknown_state", changed(131, 0x27)),
        ("damaged_text", changed(135, 0xc0)),
        ("damaged_length", changed(132, 0x7f)),
    ]);
    all
}

/// The content with a matching checksum.
fn sealed(mut content: Vec<u8>) -> Vec<u8> {
    let sum = crc32fast::hash(&content);
    content.extend_from_slice(&sum.to_le_bytes());
    content
}
