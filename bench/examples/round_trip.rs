//! The cost of one record: decode, decide, encode. `cargo run --release -p semel-bench --example round_trip`
//!
//! Prints the best of many short batches. On a shared machine, the best shows the cost of the code, and the
//! mean shows the load.

use bytes::Bytes;
use semel_bench::sample::{NEW_ATTEMPT, NOW, command, processing, stamp, succeeded};
use semel_core::codec;
use semel_core::machine::{self, Found};
use std::hint::black_box;
use std::time::Instant;

const BATCHES: usize = 3000;
const CALLS: u32 = 200;

#[expect(clippy::disallowed_methods, reason = "a benchmark may look at the clock")]
fn best(label: &str, mut call: impl FnMut()) {
    let nanos = (0..BATCHES).map(|_| {
        let start = Instant::now();
        (0..CALLS).for_each(|_| call());
        start.elapsed().as_nanos() / u128::from(CALLS)
    });
    println!("  {label:<26} {:>5} ns", nanos.min().unwrap_or(0));
}

fn main() {
    let command = command();
    for (name, record) in [("SUCCEEDED", succeeded()), ("PROCESSING", processing())] {
        let bytes = Bytes::from(codec::encode_record(&record));
        println!("{name}, {} bytes, best of {BATCHES} batches of {CALLS}:", bytes.len());
        best("encode", || drop(black_box(codec::encode_record(black_box(&record)))));
        best("decode", || drop(black_box(codec::decode(black_box(&bytes)))));
        best("decide", || {
            drop(black_box(machine::decide(
                Found::Record(black_box(&record)),
                &command,
                NEW_ATTEMPT,
                stamp(NOW),
            )));
        });
        best("decode + decide + encode", || {
            let read = codec::decode(black_box(&bytes));
            drop(black_box(machine::decide(codec::found(&read), &command, NEW_ATTEMPT, stamp(NOW))));
            drop(black_box(read.as_ref().map(codec::encode)));
        });
    }
}
