//! What a record costs on its way: decode, decide, encode. `cargo run --release -p semel-bench --example round_trip`
//!
//! Prints the best of many short batches: on a machine that does other things as well, the best says what the code
//! costs and the mean what the neighbours do.

use bytes::Bytes;
use semel_core::classify::Ending;
use semel_core::codec;
use semel_core::fingerprint::Fingerprint;
use semel_core::id::{CallerHash, CommandId, KeyHash, OperationId};
use semel_core::machine::{self, Begin, Command, Decision, Found, Stamp, Ticket};
use semel_core::outcome::Outcome;
use semel_core::policy::{Class, Policy};
use semel_core::record::{Record, Token};
use semel_core::time::Time;
use std::hint::black_box;
use std::time::Instant;

const BATCHES: usize = 3000;
const CALLS: u32 = 200;
const TICKET: Ticket = Ticket { token: Token::from_random(7), begin: Begin::Processing };
static PAYLOAD: Fingerprint = Fingerprint::from_bytes([4; 32]);

fn command() -> Command<'static> {
    Command {
        id: CommandId::from_bytes([0; 32]),
        operation_id: OperationId::from_bytes([1; 16]),
        key_hash: KeyHash::from_bytes([2; 32]),
        caller_hash: CallerHash::from_bytes([3; 32]),
        operation: "POST /v1/payments".into(),
        policy: Policy::new(Class::Downstream).into(),
        fingerprint: PAYLOAD,
        payload: &PAYLOAD,
    }
}

fn stamp() -> Stamp<'static> {
    Stamp { now: Time::from_millis(1_800_000_000_000), who: "gateway-7f9c", why: "" }
}

fn processing() -> Record {
    match machine::decide(Found::Nothing, &command(), TICKET, stamp()) {
        Decision::Run(write) => write.next,
        other => panic!("{other:?}"),
    }
}

/// 1 KiB of body, six headers, two history entries.
fn succeeded() -> Record {
    let headers = [
        ("content-type", "application/json"),
        ("content-length", "1024"),
        ("location", "/v1/payments/0e8f8a52-7b1d-8a6c-9f00-2d9a4c1b7e35"),
        ("etag", "\"33a64df551425fcc55e4d42a148795d9f25f89d4\""),
        ("cache-control", "no-store"),
        ("x-request-cost", "17"),
    ];
    let ending = Ending::Succeeded(Outcome::http(201, headers, vec![b'x'; 1024]));
    machine::finish(&processing(), TICKET.token, ending, stamp()).expect("its own attempt").next
}

#[expect(clippy::disallowed_methods, reason = "a benchmark may look at the clock")]
fn best(what: &str, mut call: impl FnMut()) {
    let nanos = (0..BATCHES).map(|_| {
        let start = Instant::now();
        (0..CALLS).for_each(|_| call());
        start.elapsed().as_nanos() / u128::from(CALLS)
    });
    println!("  {what:<26} {:>5} ns", nanos.min().unwrap_or(0));
}

fn main() {
    let command = command();
    for (name, record) in [("SUCCEEDED", succeeded()), ("PROCESSING", processing())] {
        let bytes = Bytes::from(codec::encode_record(&record));
        println!("{name}, {} bytes, best of {BATCHES} batches of {CALLS}:", bytes.len());
        best("encode", || drop(black_box(codec::encode_record(black_box(&record)))));
        best("decode", || drop(black_box(codec::decode(black_box(&bytes)))));
        best("decide", || {
            drop(black_box(machine::decide(Found::Record(black_box(&record)), &command, TICKET, stamp())));
        });
        best("decode + decide + encode", || {
            let read = codec::decode(black_box(&bytes));
            drop(black_box(machine::decide(codec::found(&read), &command, TICKET, stamp())));
            drop(black_box(read.as_ref().map(codec::encode)));
        });
    }
}
