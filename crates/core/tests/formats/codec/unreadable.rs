//! An unreadable entry is answered as unknown: never absent, never taken over, never overwritten.

use super::samples::{self, MORNING, TOKEN, after, command, new_attempt, stamp};
use bytes::Bytes;
use semel_core::codec::{self, Error};
use semel_core::machine::{self, Begin, Decision, Expect, Found, Reply, Route, Stage, Write};
use semel_core::policy::{Class, Policy};
use semel_core::record::{Entry, Record};
use semel_core::time::Time;

const CLASSES: [Class; 3] = [Class::Local, Class::Downstream, Class::External];

/// Every kind of unreadable entry in the fixtures.
fn unreadable() -> Vec<(&'static str, Result<Entry, Error>)> {
    let decoded = |(name, bytes): (_, Vec<u8>)| (name, codec::decode(&Bytes::from(bytes)));
    let unreadable: Vec<_> =
        samples::all().into_iter().map(decoded).filter(|(_, read)| read.is_err()).collect();
    assert!(unreadable.iter().any(|(_, read)| matches!(read, Err(Error::Newer(_)))));
    assert!(unreadable.iter().any(|(_, read)| matches!(read, Err(Error::Damaged { .. }))));
    unreadable
}

fn claimed(class: Class) -> Record {
    samples::claim(Policy::new(class), Begin::Processing)
}

#[test]
fn a_decoded_entry_reaches_the_machine_by_its_kind() {
    for (name, record) in samples::records() {
        let decoded = codec::decode(&codec::encode_record(&record).into());
        assert_eq!(codec::found(&decoded), Found::Record(&record), "{name}");
    }
    assert_eq!(codec::found(&Ok(Entry::Moved)), Found::Moved);
}

#[test]
fn an_unreadable_record_is_reported_in_every_class_and_time() {
    for (name, decoded) in unreadable() {
        let found = codec::found(&decoded);
        for class in CLASSES {
            for now in [Time::from_millis(0), MORNING, after(3_600), Time::MAX] {
                for begin in [Begin::Claimed, Begin::Processing] {
                    let command = command(Policy::new(class));
                    let decision = machine::decide(found, &command, new_attempt(TOKEN, begin), stamp(now));
                    assert_eq!(decision, Decision::Answer(Reply::Unreadable), "{name} {class} {now:?}");
                    assert_eq!(machine::attend(found, &command, now), Reply::Unreadable, "{name} {class}");
                }
            }
        }
    }
}

#[test]
fn no_write_expects_an_unreadable_entry() {
    for (name, decoded) in unreadable() {
        let found = codec::found(&decoded);
        assert!(!Expect::Absent.met_by(found), "{name}");
        for class in CLASSES {
            let record = claimed(class);
            let expect = Expect::unchanged(&record);
            assert!(expect.met_by(Found::Record(&record)));
            assert!(!expect.met_by(found), "{name}");
            let write = Write { expect, next: record };
            assert!(!machine::was_applied(&write, found), "{name}");
            assert_eq!(machine::applied_claim(&write, found), None, "{name}");
        }
    }
}

#[test]
fn no_marker_is_planted_over_an_unreadable_entry() {
    for (name, decoded) in unreadable() {
        for stage in [Stage::Announced, Stage::Moving] {
            assert_eq!(machine::route(stage, codec::found(&decoded)), Route::Old, "{name}");
        }
    }
}

#[test]
fn a_write_is_recognised_after_encoding_and_decoding() {
    for (name, record) in samples::records() {
        let write = Write { expect: Expect::Absent, next: record };
        let reread = codec::decode(&codec::encode_record(&write.next).into());
        assert!(machine::was_applied(&write, codec::found(&reread)), "{name}");
    }
}
