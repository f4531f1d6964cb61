//! What a record costs on its way out of a store, through a decision and back.
//!
//! `cargo bench -p semel-core --bench codec`

use bytes::Bytes;
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use semel_core::classify::Ending;
use semel_core::codec;
use semel_core::fingerprint::{Error, Fingerprint, Payload, Selection};
use semel_core::id::{CallerHash, CommandId, KeyHash, OperationId};
use semel_core::machine::{self, Begin, Command, Decision, Found, Stamp, Ticket};
use semel_core::outcome::Outcome;
use semel_core::policy::{Class, Policy};
use semel_core::record::{Record, Token};
use semel_core::time::Time;
use std::hint::black_box;
use std::time::Duration;

const NOW: Time = Time::from_millis(1_800_000_000_000);
const TICKET: Ticket = Ticket { token: Token::from_random(7), begin: Begin::Processing };
const FINGERPRINT: Fingerprint = Fingerprint::from_bytes([4; 32]);

struct Payment;

impl Payload for Payment {
    fn fingerprint(&self, _: &Selection) -> Result<Fingerprint, Error> {
        Ok(FINGERPRINT)
    }
}

fn command() -> Command<'static> {
    Command {
        id: CommandId::from_bytes([0; 32]),
        operation_id: OperationId::from_bytes([1; 16]),
        key_hash: KeyHash::from_bytes([2; 32]),
        caller_hash: CallerHash::from_bytes([3; 32]),
        operation: "POST /v1/payments".into(),
        policy: Policy::new(Class::Downstream).into(),
        fingerprint: FINGERPRINT,
        payload: &Payment,
    }
}

fn stamp(now: Time) -> Stamp<'static> {
    Stamp { now, who: "gateway-7f9c", why: "" }
}

fn processing() -> Record {
    match machine::decide(Found::Nothing, &command(), TICKET, stamp(NOW)) {
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
    match machine::finish(&processing(), TICKET.token, ending, stamp(NOW)) {
        Ok(write) => write.next,
        Err(refusal) => panic!("{refusal}"),
    }
}

fn codec(c: &mut Criterion) {
    for (name, record) in [("succeeded", succeeded()), ("processing", processing())] {
        let bytes = Bytes::from(codec::encode_record(&record));
        println!("{name}: {} bytes", bytes.len());
        let mut group = c.benchmark_group(name);
        group.bench_function("encode", |b| b.iter(|| codec::encode_record(black_box(&record))));
        group.bench_function("decode", |b| b.iter(|| codec::decode(black_box(&bytes))));
        group.bench_function("decode, bytes from a driver", |b| {
            b.iter_batched(|| bytes.to_vec(), |vec| codec::decode(&vec.into()), BatchSize::SmallInput);
        });
        group.bench_function("crc", |b| b.iter(|| crc32fast::hash(black_box(&bytes))));
    }
}

/// What a request costs that meets the record: read, decide, write what follows (or what was read).
fn round_trip(c: &mut Criterion) {
    let command = command();
    let dead = NOW + Duration::from_secs(31);
    let cases = [
        ("succeeded, replayed", succeeded(), NOW),
        ("processing, in progress", processing(), NOW),
        ("processing, taken over", processing(), dead),
    ];
    let mut group = c.benchmark_group("decode + decide + encode");
    for (name, record, now) in cases {
        let bytes = Bytes::from(codec::encode_record(&record));
        group.bench_function(name, |b| {
            b.iter(|| {
                let decoded = codec::decode(black_box(&bytes));
                match machine::decide(codec::found(&decoded), &command, TICKET, stamp(now)) {
                    Decision::Run(write) => codec::encode_record(&write.next),
                    _ => decoded.as_ref().map(codec::encode).unwrap_or_default(),
                }
            });
        });
    }
    group.finish();
    c.bench_function("decide, nothing there", |b| {
        b.iter(|| machine::decide(Found::Nothing, black_box(&command), TICKET, stamp(NOW)));
    });
    let stored = succeeded();
    c.bench_function("decide, replayed", |b| {
        b.iter(|| {
            let decision = machine::decide(Found::Record(black_box(&stored)), &command, TICKET, stamp(NOW));
            matches!(decision, Decision::Answer(_))
        });
    });
}

criterion_group!(benches, codec, round_trip);
criterion_main!(benches);
