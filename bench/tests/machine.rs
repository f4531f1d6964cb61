//! The memory use of a decision and of encoding and decoding.

use bytes::Bytes;
use semel_bench::sample::{NEW_ATTEMPT, NOW, command, stamp, succeeded};
use semel_bench::{Counting, measure};
use semel_core::codec;
use semel_core::machine::{self, Decision, Found, Reply};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_replay_is_decided_without_allocating() {
    let command = command();
    let record = succeeded();
    let decide = || machine::decide(Found::Record(&record), &command, NEW_ATTEMPT, stamp(NOW));
    let (decision, cost) = measure(decide);
    assert!(matches!(decision, Decision::Answer(Reply::Replay(_))));
    assert_eq!(cost.calls, 0);
}

#[test]
fn a_first_claim_allocates_only_the_record_and_a_history_entry() {
    let command = command();
    let (decision, cost) = measure(|| machine::decide(Found::Nothing, &command, NEW_ATTEMPT, stamp(NOW)));
    assert!(matches!(decision, Decision::Run(_)));
    println!("a first claim: {cost:?}");
    assert!(cost.calls <= 4, "{cost:?}");
}

#[test]
fn a_record_is_encoded_in_one_allocation_and_decoded_in_few() {
    let record = succeeded();
    let (bytes, cost) = measure(|| codec::encode_record(&record));
    assert_eq!(cost.calls, 1, "writing");
    let bytes = Bytes::from(bytes);
    let (entry, cost) = measure(|| codec::decode(&bytes));
    assert!(entry.is_ok());
    println!("reading back {} bytes: {cost:?}", bytes.len());
    assert!(cost.calls <= 7, "{cost:?}");
    assert!(cost.bytes_max < bytes.len(), "the body is shared, not copied: {cost:?}");
}
