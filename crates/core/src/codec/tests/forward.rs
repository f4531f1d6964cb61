//! How nodes of different versions read each other's records.

use super::{claimed, content, record, sealed};
use crate::codec::{Error, FORMAT, Newer, decode, encode, encode_record};
use crate::machine::{self, Stamp};
use crate::record::Entry;
use crate::time::Time;
use bytes::Bytes;

/// A record to which a newer node has added these bytes.
fn extended(extensions: &[u8]) -> Bytes {
    sealed([&content(&claimed()), extensions].concat())
}

#[test]
fn an_extension_that_may_be_ignored_survives_an_older_nodes_write() {
    // Tag 2 with three bytes, tag 6 with none, tag 300 (two bytes long) with one.
    let extensions = [2, 3, b'a', b'b', b'c', 6, 0, 0xac, 0x02, 1, b'd'];
    let bytes = extended(&extensions);
    let read = record(&bytes);
    assert_eq!(encode_record(&read), bytes);
    assert!(format!("{read:?}").contains("extensions: 11 bytes"), "unknown bytes do not belong in a log");
    let started = machine::start(&read, read.token(), Stamp::new(Time::from_millis(6), "", ""));
    let written = encode_record(&started.unwrap().next);
    assert_eq!(written[..written.len() - 4][written.len() - 4 - extensions.len()..], extensions);
}

#[test]
fn an_extension_that_must_be_understood_makes_the_record_newer() {
    assert_eq!(decode(&extended(&[1, 0])), Err(Error::Newer(Newer::Extension(1))));
    let among_others = [2, 0, 5, 1, 9, 7, 0, 8, 0];
    assert_eq!(decode(&extended(&among_others)), Err(Error::Newer(Newer::Extension(5))));
}

#[test]
fn extensions_are_ordered_and_unique() {
    let at = content(&claimed()).len();
    let out_of_order = |at| Err(Error::Damaged { at, what: "the extensions are out of order" });
    assert_eq!(decode(&extended(&[4, 0, 2, 0])), out_of_order(at + 2));
    assert_eq!(decode(&extended(&[4, 0, 4, 0])), out_of_order(at + 2));
    assert_eq!(
        decode(&extended(&[1, 0, 0, 0])),
        out_of_order(at + 2),
        "damage is checked before the version"
    );
}

#[test]
fn a_newer_format_is_not_damage() {
    for format in FORMAT + 1..=u8::MAX {
        let mut newer = content(&claimed());
        newer[0] = format;
        newer.truncate(1 + usize::from(format) % newer.len());
        assert_eq!(decode(&sealed(newer.clone())), Err(Error::Newer(Newer::Format(format))));
        let mut damaged = sealed(newer).to_vec();
        damaged[0] ^= 0x80;
        assert!(matches!(decode(&damaged.into()), Err(Error::Damaged { .. })), "format {format}");
    }
}

#[test]
fn each_error_says_what_it_means_and_what_to_do() {
    let newer = Error::Newer(Newer::Format(2)).to_string();
    assert!(newer.contains("format 2") && newer.contains("upgrade"), "{newer}");
    let newer = Error::Newer(Newer::Extension(5)).to_string();
    assert!(newer.contains("extension 5") && newer.contains("upgrade"), "{newer}");
    let damaged = Error::Damaged { at: 7, what: "cut short" }.to_string();
    assert!(damaged.contains("byte 7: cut short") && damaged.contains("unknown"), "{damaged}");
}

#[test]
fn the_moved_marker_is_the_same_six_bytes_on_every_node() {
    assert_eq!(encode(&Entry::Moved), [1, 1, 40, 19, 197, 47]);
    let longer = sealed(vec![1, 1, 0]);
    assert_eq!(decode(&longer), Err(Error::Damaged { at: 2, what: "unexpected bytes after the marker" }));
}
