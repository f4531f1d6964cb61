//! What a decision and a trip through the codec allocate.

use bytes::Bytes;
use semel_bench::{Counting, measure};
use semel_core::classify::Ending;
use semel_core::codec;
use semel_core::fingerprint::Fingerprint;
use semel_core::id::{CallerHash, CommandId, KeyHash, OperationId};
use semel_core::machine::{self, Begin, Command, Decision, Found, Reply, Stamp, Ticket};
use semel_core::outcome::Outcome;
use semel_core::policy::{Class, Policy};
use semel_core::record::{Record, Token};
use semel_core::time::Time;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static PAYLOAD: Fingerprint = Fingerprint::from_bytes([4; 32]);
const TICKET: Ticket = Ticket { token: Token::from_random(7), begin: Begin::Processing };

fn command() -> Command<'static> {
    Command {
        id: CommandId::from_bytes([0; 32]),
        operation_id: OperationId::from_bytes([1; 16]),
        key_hash: KeyHash::from_bytes([2; 32]),
        caller_hash: CallerHash::from_bytes([3; 32]),
        operation: "POST /v1/payments".into(),
        policy: Policy::new(Class::External).into(),
        fingerprint: PAYLOAD,
        payload: &PAYLOAD,
    }
}

fn stamp() -> Stamp<'static> {
    Stamp { now: Time::from_millis(1_800_000_000_000), who: "gateway-7f9c", why: "" }
}

fn claimed(command: &Command<'_>) -> Record {
    match machine::decide(Found::Nothing, command, TICKET, stamp()) {
        Decision::Run(write) => write.next,
        other => panic!("{other:?}"),
    }
}

fn paid() -> Ending {
    let headers = [("content-type", "application/json"), ("location", "/payments/7"), ("etag", "\"7\"")];
    Ending::Succeeded(Outcome::http(201, headers, vec![b'x'; 1024]))
}

#[test]
fn a_replay_is_decided_without_allocating() {
    let command = command();
    let record = machine::finish(&claimed(&command), TICKET.token, paid(), stamp()).unwrap().next;
    let decide = || machine::decide(Found::Record(&record), &command, TICKET, stamp());
    let (decision, cost) = measure(decide);
    assert!(matches!(decision, Decision::Answer(Reply::Replay(_))));
    assert_eq!(cost.calls, 0);
}

#[test]
fn a_first_claim_takes_the_record_and_its_first_history_entry() {
    let command = command();
    let (decision, cost) = measure(|| machine::decide(Found::Nothing, &command, TICKET, stamp()));
    assert!(matches!(decision, Decision::Run(_)));
    println!("a first claim: {cost:?}");
    assert!(cost.calls <= 4, "{cost:?}");
}

#[test]
fn a_record_is_written_in_one_allocation_and_read_in_few() {
    let command = command();
    let record = machine::finish(&claimed(&command), TICKET.token, paid(), stamp()).unwrap().next;
    let (bytes, cost) = measure(|| codec::encode_record(&record));
    assert_eq!(cost.calls, 1, "writing");
    let bytes = Bytes::from(bytes);
    let (entry, cost) = measure(|| codec::decode(&bytes));
    assert!(entry.is_ok());
    println!("reading back {} bytes: {cost:?}", bytes.len());
    assert!(cost.calls <= 7, "{cost:?}");
    assert!(cost.bytes_max < bytes.len(), "the body is shared, not copied: {cost:?}");
}
