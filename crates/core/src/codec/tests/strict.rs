//! Bytes with a matching checksum that no node would write.

use super::{claimed, content, record, sealed, small};
use crate::codec::{Error, decode, encode_record};
use crate::labels::Labels;
use crate::outcome::{Body, Outcome, Status};
use crate::record::{Doubt, Proof, Record, State};
use crate::time::Time;
use bytes::Bytes;
use std::ops::Range;

// The offsets of fields in a small record (see the layout in docs/decisions/codec.md).
const KIND: usize = 1;
const VERSION: usize = 18;
const HEAD: usize = 131;
const OPERATION: usize = 132;
const ATTEMPT: usize = 135;
const FENCE: usize = 136;
const LEASE: usize = 140;
const SELECTION: usize = 148;
const STATE: usize = 152;
/// In a claimed record, whose state takes one byte.
const HISTORY: usize = 153;

/// The result of decoding the record after `range` of its bytes is replaced.
fn reading(record: &Record, range: Range<usize>, bytes: &[u8]) -> Result<(), (usize, &'static str)> {
    let mut content = content(record);
    content.splice(range, bytes.iter().copied());
    match decode(&sealed(content)) {
        Ok(_) => Ok(()),
        Err(Error::Damaged { at, what }) => Err((at, what)),
        Err(newer) => panic!("not damaged: {newer}"),
    }
}

fn replaced(at: usize, bytes: &[u8]) -> Result<(), (usize, &'static str)> {
    reading(&claimed(), at..at + 1, bytes)
}

const CUT_SHORT: &str = "cut short";
const LONGER: &str = "a number is not in its shortest form";
const TOO_LARGE: &str = "a number is too large";
const ANNOUNCED: &str = "a length exceeds the remaining bytes";

#[test]
fn the_offsets_named_here_are_those_of_the_fields() {
    assert_eq!(replaced(KIND, &[0]), Ok(()));
    let places = [
        (VERSION, 9),
        (HEAD, 0x20),
        (OPERATION, 2),
        (ATTEMPT, 1),
        (FENCE, 2),
        (LEASE, 2),
        (SELECTION, 1),
        (STATE, 6),
        (HISTORY, 0),
    ];
    for (at, byte) in places {
        assert_eq!(content(&claimed())[at], byte, "at {at}");
    }
}

#[test]
fn an_unknown_format_kind_state_or_class_is_damage() {
    assert_eq!(replaced(0, &[0]), Err((0, "format 0 does not exist")));
    assert_eq!(replaced(KIND, &[3]), Err((KIND, "unknown kind of entry")));
    assert_eq!(replaced(HEAD, &[0x27]), Err((HEAD, "unknown state of the record")));
    assert_eq!(replaced(HEAD, &[0x30]), Err((HEAD, "unknown guarantee class")));
    assert_eq!(replaced(HISTORY + 3, &[7]), Err((HISTORY + 3, "unknown state in the history")));
    assert_eq!(replaced(HISTORY + 3, &[6]), Ok(()));
}

#[test]
fn an_impossible_version_is_damage() {
    let reason = "impossible version";
    let mut last = [0xff; 9];
    last[8] = 0x7f;
    assert_eq!(replaced(VERSION, &last), Ok(()), "2^63 - 1");
    assert_eq!(replaced(VERSION, &[0]), Err((VERSION, reason)));
    let beyond = [[0x80; 9].as_slice(), &[1]].concat();
    assert_eq!(replaced(VERSION, &beyond), Err((VERSION, reason)), "2^63");
}

#[test]
fn every_number_has_one_spelling() {
    assert_eq!(replaced(FENCE, &[0x80, 0x00]), Err((FENCE, LONGER)));
    assert_eq!(replaced(FENCE, &[0x82, 0x80, 0x00]), Err((FENCE, LONGER)));
    assert_eq!(replaced(FENCE, &[0x80, 0x01]), Ok(()));
    let largest = [[0xff; 9].as_slice(), &[0x01]].concat();
    assert_eq!(replaced(FENCE, &largest), Ok(()));
    for last in [0x02, 0x03, 0x7f, 0x80, 0x81] {
        let beyond = [[0xff; 9].as_slice(), &[last]].concat();
        assert_eq!(replaced(FENCE, &beyond), Err((FENCE, "a number has more than 64 bits")), "{last:x}");
    }
    let zero = [[0x80; 9].as_slice(), &[0x00]].concat();
    assert_eq!(replaced(FENCE, &zero), Err((FENCE, LONGER)));
    let end = content(&claimed()).len();
    assert_eq!(reading(&claimed(), end..end, &[0x80; 9]), Err((end + 9, CUT_SHORT)));
    assert_eq!(reading(&claimed(), end..end, &[0x80; 10]), Err((end, "a number has more than 64 bits")));
}

#[test]
fn a_number_fits_its_field() {
    let u32_max = [0xff, 0xff, 0xff, 0xff, 0x0f];
    assert_eq!(replaced(ATTEMPT, &u32_max), Ok(()));
    assert_eq!(replaced(ATTEMPT, &[0x80, 0x80, 0x80, 0x80, 0x10]), Err((ATTEMPT, TOO_LARGE)));
    let outcome = Outcome::not_retained(Status::Http(1));
    let record = small(State::Succeeded { outcome, expires_at: Time::from_millis(6) });
    let status = STATE + 2..STATE + 3;
    assert_eq!(reading(&record, status.clone(), &[0xff, 0xff, 0x03]), Ok(()));
    assert_eq!(reading(&record, status, &[0x80, 0x80, 0x04]), Err((STATE + 2, TOO_LARGE)));
}

#[test]
fn a_length_beyond_the_end_is_damage_and_costs_nothing() {
    let huge = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x10];
    assert_eq!(replaced(OPERATION, &huge), Err((OPERATION, ANNOUNCED)), "a text of 2^60 bytes");
    for list in SELECTION + 1..=SELECTION + 3 {
        assert_eq!(replaced(list, &huge), Err((list, ANNOUNCED)), "2^60 texts");
    }
    assert_eq!(replaced(HISTORY + 1, &huge), Err((HISTORY + 1, ANNOUNCED)), "2^60 history entries");
    let outcome = Outcome::value("");
    let record = small(State::Succeeded { outcome, expires_at: Time::from_millis(6) });
    for at in STATE + 2..=STATE + 4 {
        assert_eq!(reading(&record, at..at + 1, &huge), Err((at, ANNOUNCED)), "headers, trailers, body");
    }
    let end = content(&claimed()).len();
    assert_eq!(reading(&claimed(), end..end, &[[2].as_slice(), &huge].concat()), Err((end + 1, ANNOUNCED)));
}

#[test]
fn a_count_larger_than_the_remaining_bytes_is_damage() {
    // Fourteen bytes follow the history's count: room for two entries of five bytes, not for three.
    assert_eq!(content(&claimed()).len() - (HISTORY + 2), 14);
    assert_eq!(replaced(HISTORY + 1, &[3]), Err((HISTORY + 1, ANNOUNCED)));
    assert_ne!(replaced(HISTORY + 1, &[2]), Err((HISTORY + 1, ANNOUNCED)));
}

#[test]
fn a_text_is_utf_8() {
    let reason = "invalid UTF-8";
    assert_eq!(replaced(OPERATION + 2, &[0xff]), Err((OPERATION + 2, reason)));
    assert_eq!(replaced(HISTORY + 6, &[0xff]), Err((HISTORY + 6, reason)), "who");
    assert_eq!(replaced(HISTORY + 9, &[0xff]), Err((HISTORY + 9, reason)), "why");
    assert_eq!(replaced(SELECTION + 1, &[1, 1, 0xff]), Err((SELECTION + 3, reason)), "a chosen header");
}

#[test]
fn every_duration_has_one_spelling() {
    let reason = "a duration is not in its shortest form";
    // One nanosecond, and 1,000,000 nanoseconds, which are a millisecond.
    assert_eq!(replaced(LEASE, &[3, 0]), Ok(()));
    assert_eq!(replaced(LEASE, &[0x81, 0x89, 0x7a, 0]), Err((LEASE, reason)));
    assert_eq!(replaced(LEASE, &[1, 9]), Err((LEASE, reason)));
    let too_many = "a duration has more than a billion nanoseconds in a second";
    assert_eq!(replaced(LEASE, &[0x81, 0xa8, 0xd6, 0xb9, 0x07, 0]), Err((LEASE, too_many)), "1,000,000,000");
    assert_eq!(replaced(LEASE, &[0xff, 0xa7, 0xd6, 0xb9, 0x07, 0]), Ok(()), "999,999,999");
    assert_eq!(replaced(LEASE, &[0x83, 0x80, 0x80, 0x80, 0x20, 0]), Err((LEASE, too_many)), "2^32 + 1");
}

#[test]
fn a_selection_is_valid_and_in_its_own_order() {
    let order = "the fingerprint selection is not in canonical order";
    assert_eq!(replaced(SELECTION + 1, &[2, 1, b'a', 1, b'b']), Ok(()));
    assert_eq!(replaced(SELECTION + 1, &[2, 1, b'b', 1, b'a']), Err((SELECTION, order)));
    assert_eq!(replaced(SELECTION + 1, &[2, 1, b'a', 1, b'a']), Err((SELECTION, order)));
    let invalid = "invalid fingerprint selection";
    assert_eq!(replaced(SELECTION + 1, &[1, 0]), Err((SELECTION, invalid)), "a header without a name");
    assert_eq!(replaced(SELECTION + 2, &[1, 1, b'a']), Err((SELECTION, invalid)), "not a pointer");
}

#[test]
fn unknown_flags_are_damage() {
    let expires_at = Time::from_millis(6);
    let not_replayable =
        small(State::FailedNotReplayable { outcome: None, proof: Proof::Owner, bound: false, expires_at });
    let state = STATE..STATE + 1;
    assert_eq!(reading(&not_replayable, state.clone(), &[2]), Ok(()));
    assert_eq!(reading(&not_replayable, state.clone(), &[3]), Err((STATE, "unknown proof")));
    assert_eq!(reading(&not_replayable, state.clone(), &[16]), Err((STATE, "unknown flags in a state")));

    let unknown =
        small(State::Unknown { doubt: Doubt::Lapsed, since: expires_at, probes: 0, next_probe_at: None });
    assert_eq!(reading(&unknown, state.clone(), &[1]), Ok(()));
    assert_eq!(reading(&unknown, state, &[4]), Err((STATE, "unknown flags in a state")));

    let outcome = Outcome::not_retained(Status::Value);
    let succeeded = small(State::Succeeded { outcome, expires_at });
    let outcome = STATE + 1..STATE + 2;
    assert_eq!(reading(&succeeded, outcome.clone(), &[3]), Err((STATE + 1, "unknown kind of status")));
    assert_eq!(reading(&succeeded, outcome, &[18]), Err((STATE + 1, "unknown flags in an outcome")));
}

#[test]
fn a_body_is_kept_or_sealed_and_not_both() {
    let expires_at = Time::from_millis(6);
    let outcome = Outcome { body: Body::Sealed("s".into()), ..Outcome::value("") };
    let sealed = small(State::Succeeded { outcome, expires_at });
    let flags = STATE + 1..STATE + 2;
    assert_eq!(content(&sealed)[STATE + 1], 10);
    assert_eq!(reading(&sealed, flags.clone(), &[6]), Ok(()), "the same bytes, kept");
    assert_eq!(reading(&sealed, flags, &[14]), Err((STATE + 1, "a body is both kept and sealed")));
}

#[test]
fn a_record_of_the_first_generation_has_one_spelling() {
    let record = Record { generation: 7, ..claimed() };
    let at = content(&claimed()).len();
    assert_eq!(content(&record)[at..], [7], "behind the history");
    assert_eq!(reading(&record, at..at + 1, &[0]), Err((at, "generation 0 in a record of a later secret")));
    assert_eq!(reading(&record, at..at + 1, &[0x80, 0x80, 0x80, 0x80, 0x10]), Err((at, TOO_LARGE)));
    assert_eq!(
        reading(&record, KIND..KIND + 1, &[0]),
        Err((at + 1, CUT_SHORT)),
        "an extension without a length"
    );
    assert_eq!(replaced(KIND, &[2]), Err((at, CUT_SHORT)));
    let extended = Record { extensions: Bytes::from_static(&[2, 1, 9]), ..record };
    assert_eq!(super::record(&encode_record(&extended).into()), extended);
}

#[test]
fn no_prefix_of_a_record_is_readable() {
    let record_bytes = encode_record(&claimed());
    for end in 0..record_bytes.len() {
        let cut = Bytes::copy_from_slice(&record_bytes[..end]);
        assert!(matches!(decode(&cut), Err(Error::Damaged { .. })), "{end} bytes");
    }
    let content = content(&claimed());
    for end in 0..content.len() {
        let result = decode(&sealed(content[..end].to_vec()));
        assert!(matches!(result, Err(Error::Damaged { .. })), "{end} bytes with a checksum: {result:?}");
    }
    assert_eq!(decode(&sealed(vec![])), Err(Error::Damaged { at: 0, what: CUT_SHORT }), "four zero bytes");
    assert_eq!(decode(&Bytes::new()), Err(Error::Damaged { at: 0, what: CUT_SHORT }));
}

#[test]
fn a_wrong_checksum_is_always_damage() {
    let mut bytes = encode_record(&claimed());
    let at = bytes.len() - 4;
    bytes[at] ^= 1;
    assert_eq!(decode(&bytes.into()), Err(Error::Damaged { at, what: "the checksum does not match" }));
}

#[test]
fn bytes_that_follow_a_record_are_damage_or_extensions() {
    let end = content(&claimed()).len();
    assert_eq!(reading(&claimed(), end..end, &[0]), Err((end + 1, CUT_SHORT)));
    let kept = sealed([&content(&claimed())[..], &[2, 0]].concat());
    assert_eq!(record(&kept).extensions, [2, 0].as_slice());
}

#[test]
fn labels_have_one_spelling_and_precede_unknown_extensions() {
    let end = content(&claimed()).len();
    let labels = Labels { resource_id: Some("7".into()), ..Labels::default() };
    let extensions = Bytes::from_static(&[2, 1, 9]);
    let labelled = Record { labels, extensions, ..claimed() };
    assert_eq!(content(&labelled)[end..], [0, 4, 0, 1, b'7', 0, 2, 1, 9]);
    assert_eq!(record(&encode_record(&labelled).into()), labelled);
    let with = |bytes: &[u8]| reading(&claimed(), end..end, bytes);
    assert_eq!(with(&[0, 3, 0, 0, 0]), Err((end + 1, "empty labels")));
    assert_eq!(with(&[0, 5, 0, 1, b'7', 0, 0]), Err((end + 1, "the labels do not have their stated length")));
    assert_eq!(with(&[0, 3, 0, 1, b'7', 0]), Err((end + 1, "the labels do not have their stated length")));
    assert_eq!(with(&[0, 9, 0]), Err((end + 1, ANNOUNCED)));
    let long = [&[0, 0x83, 2, 0x80, 2][..], &[b'a'; 256], &[0, 0]].concat();
    assert_eq!(with(&long), Err((end + 3, "a label is too long")));
}

#[test]
fn an_empty_body_differs_from_one_not_retained() {
    let expires_at = Time::from_millis(6);
    for body in [Body::Kept(Bytes::new()), Body::NotRetained] {
        let outcome = Outcome { body, ..Outcome::value("") };
        let written = small(State::Succeeded { outcome, expires_at });
        assert_eq!(record(&encode_record(&written).into()), written);
    }
}
