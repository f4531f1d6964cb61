//! Nothing is lost, nothing is added, and nothing is copied needlessly.

use super::{arbitrary, claimed, content, record, sealed, small};
use crate::codec::{decode, decode_outcome, encode, encode_into, encode_outcome, encode_record};
use crate::outcome::{Body, Outcome};
use crate::policy::{Class, Policy, PolicySettings};
use crate::record::{Entry, State};
use crate::time::Time;
use bytes::Bytes;
use proptest::prelude::*;
use std::sync::Arc;
use std::time::Duration;

proptest! {
    #[test]
    fn every_record_reads_back_as_it_was_written(written in arbitrary::record()) {
        let bytes = Bytes::from(encode_record(&written));
        prop_assert_eq!(record(&bytes), written);
    }

    #[test]
    fn every_readable_record_is_written_back_the_same(
        original in arbitrary::record(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut changed = content(&original);
        for (index, byte) in changes {
            let at = index.index(changed.len());
            changed[at] = byte;
        }
        let changed = sealed(changed);
        if let Ok(entry) = decode(&changed) {
            prop_assert_eq!(encode(&entry), changed);
        }
    }

    #[test]
    fn an_outcome_alone_has_exactly_one_encoding(
        written in arbitrary::outcome(),
        more in prop::collection::vec(any::<u8>(), 1..4),
    ) {
        let bytes = Bytes::from(encode_outcome(&written));
        prop_assert_eq!(decode_outcome(&bytes), Ok(written));
        for end in 0..bytes.len() {
            prop_assert!(decode_outcome(&bytes.slice(..end)).is_err(), "{} bytes", end);
        }
        let followed = Bytes::from([&bytes[..], &more].concat());
        prop_assert!(decode_outcome(&followed).is_err());
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = decode(&sealed([&[1, 0], &bytes[..]].concat()));
        let _ = decode(&Bytes::from(bytes));
    }
}

#[test]
fn whole_milliseconds_of_a_policy_take_one_short_number_each() {
    let mut record = claimed();
    let bare = encode_record(&record).len();
    record.policy = Arc::new(Policy::new(Class::External));
    // 30 s, 65 s, 0, 24 h, 5 min, 30 days, 24 h in doubled milliseconds, instead of seven single bytes.
    assert_eq!(encode_record(&record).len() - bare, (3 + 3 + 1 + 4 + 3 + 5 + 4) - 7);
    assert_eq!(super::record(&encode_record(&record).into()), record);
}

#[test]
fn a_duration_finer_than_a_millisecond_is_not_rounded() {
    let mut record = claimed();
    let millis_max = Duration::from_millis(u64::MAX >> 1);
    for skew in [
        Duration::from_nanos(1),
        Duration::from_micros(1_500),
        Duration::from_nanos(999_999_999),
        millis_max,
        millis_max + Duration::from_millis(1),
        Duration::MAX,
    ] {
        let settings = PolicySettings { skew, ..Policy::clone(&record.policy).into() };
        record.policy = Policy::as_stored(settings).into();
        assert_eq!(super::record(&encode_record(&record).into()).policy.skew, skew);
    }
}

#[test]
fn appending_an_entry_changes_nothing_before_it() {
    for entry in [Entry::Moved, Entry::Record(Box::new(claimed()))] {
        let mut out = b"before".to_vec();
        encode_into(&entry, &mut out);
        assert_eq!(out, [b"before", &encode(&entry)[..]].concat());
        assert_eq!(decode(&Bytes::from(out).slice(6..)), Ok(entry));
    }
}

#[test]
fn bodies_and_headers_are_slices_of_what_was_read() {
    let outcome = Outcome::http(200, [("etag", "\"7\"")], "body");
    let bytes =
        Bytes::from(encode_record(&small(State::Succeeded { outcome, expires_at: Time::from_millis(6) })));
    let State::Succeeded { outcome, .. } = record(&bytes).state else { panic!() };
    let Body::Kept(body) = outcome.body else { panic!() };
    let within = bytes.as_ptr_range();
    let (name, value) = outcome.headers.iter().next().unwrap();
    for slice in [name, value, &body] {
        assert!(within.contains(&slice.as_ptr()), "{slice:?} was copied");
    }
}

#[test]
fn the_size_estimate_is_enough_for_a_usual_record() {
    let mut record = claimed();
    let now = Time::from_millis(1_800_000_000_000);
    record.policy = Arc::new(Policy::new(Class::External));
    (record.created_at, record.updated_at, record.owner_wrote_at) = (now, now, now);
    record.fence = now.as_millis();
    record.operation = "POST /v1/payments/charges".into();
    let headers = [("content-type", "application/json"), ("location", "/v1/payments/charges/7")];
    let outcome = Outcome::http(201, headers, vec![7; 5_000]);
    for state in [State::Claimed { lease_until: now }, State::Succeeded { outcome, expires_at: now }] {
        record.state = state;
        let (guess, taken) = (crate::codec::record::size_hint(&record), encode_record(&record).len());
        assert!(taken <= guess + 6 && guess <= taken + 80, "guessed {guess}, took {taken}");
    }
}
