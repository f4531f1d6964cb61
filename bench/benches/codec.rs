//! The cost of reading a record, deciding about it and writing it back.
//!
//! `cargo bench -p semel-bench --bench codec`

use bytes::Bytes;
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use semel_bench::sample::{NEW_ATTEMPT, NOW, command, processing, stamp, succeeded};
use semel_core::codec;
use semel_core::machine::{self, Decision, Found};
use std::hint::black_box;
use std::time::Duration;

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

/// The cost of a request for an existing record: decode it, decide, encode the result.
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
                match machine::decide(codec::found(&decoded), &command, NEW_ATTEMPT, stamp(now)) {
                    Decision::Run(write) => codec::encode_record(&write.next),
                    _ => decoded.as_ref().map(codec::encode).unwrap_or_default(),
                }
            });
        });
    }
    group.finish();
    c.bench_function("decide, nothing there", |b| {
        b.iter(|| machine::decide(Found::Nothing, black_box(&command), NEW_ATTEMPT, stamp(NOW)));
    });
    let stored = succeeded();
    c.bench_function("decide, replayed", |b| {
        b.iter(|| {
            let decision =
                machine::decide(Found::Record(black_box(&stored)), &command, NEW_ATTEMPT, stamp(NOW));
            matches!(decision, Decision::Answer(_))
        });
    });
}

criterion_group!(benches, codec, round_trip);
criterion_main!(benches);
