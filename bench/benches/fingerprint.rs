//! The cost of a JSON body's fingerprint, compared with the usual way: parse into a tree and hash the bytes.
//!
//! The usual way does less (it neither sorts by code points nor compares numbers exactly); ours must still
//! cost less. Run with `cargo bench -p semel-bench --bench fingerprint`.

use std::fmt::Write as _;
use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use semel_core::fingerprint::{Limits, Request, Selection};
use sha2::{Digest as _, Sha256};

/// An order as shops send them: members in no particular order, amounts, texts with an escape here and there.
fn order(bytes_min: usize) -> String {
    let mut text = String::from(
        r#"{"order_id":"ord_8e03978e40d5","customer":{"name":"Zo\u00eb Müller","email":"zoe@example.com","address":{"street":"12 Harbour Road","city":"Cork","country":"IE","zip":"T12 X2Y3"}},"created":"2026-11-15T16:05:46Z","currency":"EUR","items":["#,
    );
    let mut item = 0;
    while text.len() + 130 < bytes_min || item == 0 {
        if item > 0 {
            text.push(',');
        }
        write!(
            text,
            r#"{{"sku":"A-{:05}","quantity":{},"price":{}.{:02},"discount":null,"title":"Item \"{item}\" of the order","gift":{},"tax":{{"rate":0.23,"code":"STD"}}}}"#,
            item * 7919 % 100_000,
            item % 9 + 1,
            item % 900 + 1,
            item % 100,
            item % 2 == 0,
        )
        .expect("writing to a string");
        item += 1;
    }
    text.push_str(r#"],"total":1234.50,"metadata":{"source":"web","attempt":1,"campaign":"autumn"}}"#);
    text
}

fn compare(c: &mut Criterion) {
    let (selection, limits) = (Selection::default(), Limits::default());
    for (name, bytes_min) in [("1KiB", 1024), ("1MiB", 1024 * 1024)] {
        let body = order(bytes_min);
        let mut group = c.benchmark_group(name);
        group.throughput(Throughput::Bytes(body.len() as u64));
        group.bench_with_input(BenchmarkId::from_parameter("fingerprint"), body.as_bytes(), |b, body| {
            b.iter(|| {
                let request = Request {
                    content_type: &[b"application/json"],
                    ..Request::new("POST", "POST /orders", "/orders", black_box(body))
                };
                request.fingerprint(&selection, &limits)
            });
        });
        group.bench_with_input(BenchmarkId::from_parameter("serde_json"), body.as_bytes(), |b, body| {
            b.iter(|| {
                let value: serde_json::Value = serde_json::from_slice(black_box(body)).expect("valid JSON");
                let hash: [u8; 32] = Sha256::digest(body).into();
                (value, hash)
            });
        });
        group.finish();
    }
}

criterion_group!(benches, compare);
criterion_main!(benches);
