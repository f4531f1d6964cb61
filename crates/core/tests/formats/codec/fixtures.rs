//! Files written by earlier builds, which every later build must read the same way.
//!
//! `fixtures/codec/v1/NAME.hex` contains the bytes and `NAME.txt` their description. To create the files of a new
//! sample, run `SEMEL_WRITE_FIXTURES=1 cargo test -p semel-core --test formats`. It never changes an existing file: if
//! a fixture has to change, the format needs a new number.

use super::describe::{describe, hex};
use super::samples;
use bytes::Bytes;
use semel_core::codec;
use semel_core::record::{Entry, StateName};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/codec/v1")
}

/// The name, bytes and description of every fixture.
fn fixtures() -> Vec<(String, Bytes, String)> {
    write_missing();
    let names = fs::read_dir(directory()).unwrap().map(|entry| entry.unwrap().path());
    let hexes = names.filter(|path| path.extension().is_some_and(|extension| extension == "hex"));
    let fixture = |path: PathBuf| {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let bytes = unhex(&fs::read_to_string(&path).unwrap());
        let text = fs::read_to_string(path.with_extension("txt")).unwrap();
        (name, bytes.into(), text)
    };
    let fixtures: Vec<_> = hexes.map(fixture).collect();
    assert!(fixtures.len() > 30, "there are no fixtures");
    fixtures
}

/// Adds missing fixtures if the variable is set.
fn write_missing() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        if std::env::var_os("SEMEL_WRITE_FIXTURES").is_some_and(|value| value == "1") {
            for (name, bytes) in samples::all() {
                let path = directory().join(name);
                let lines: Vec<_> = bytes.chunks(32).map(hex).collect();
                write_new(&path.with_extension("hex"), &(lines.join("\n") + "\n"));
                write_new(&path.with_extension("txt"), &describe(&codec::decode(&bytes.into())));
            }
        }
    });
}

fn write_new(path: &Path, text: &str) {
    if let Ok(mut file) = File::create_new(path) {
        file.write_all(text.as_bytes()).unwrap();
    }
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<_> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    hex::decode(digits).unwrap()
}

#[test]
fn every_fixture_still_reads_the_same() {
    for (name, bytes, text) in fixtures() {
        assert_eq!(describe(&codec::decode(&bytes)), text, "{name}");
    }
}

#[test]
fn every_readable_fixture_is_written_back_the_same() {
    let mut seen = BTreeSet::new();
    for (name, bytes, _) in fixtures() {
        if let Ok(entry) = codec::decode(&bytes) {
            assert_eq!(codec::encode(&entry), bytes, "{name}");
            seen.insert(match entry {
                Entry::Record(record) => record.state_name().as_str(),
                Entry::Moved => "moved",
            });
        }
    }
    let every = StateName::ALL.map(StateName::as_str).into_iter().chain(["moved"]);
    assert_eq!(seen, every.collect(), "the states in the fixtures");
}

/// Compares names only: a sample may change when the state machine does, but its old fixture must stay readable.
#[test]
fn every_sample_has_its_fixture() {
    let written: BTreeSet<_> = fixtures().into_iter().map(|(name, ..)| name).collect();
    let samples = samples::all();
    let missing: Vec<_> = samples.iter().filter(|(name, _)| !written.contains(*name)).collect();
    assert!(missing.is_empty(), "write them with SEMEL_WRITE_FIXTURES=1: {missing:?}");
    let names: BTreeSet<_> = samples.iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), samples.len(), "two samples share a name");
}

#[test]
fn every_flipped_bit_is_detected() {
    // In damaged bytes, one flip may repair the damage.
    for (name, bytes, _) in fixtures().into_iter().filter(|(name, ..)| !name.starts_with("damaged")) {
        let mut flipped = bytes.to_vec();
        for bit in 0..bytes.len() * 8 {
            flipped[bit / 8] ^= 1 << (bit % 8);
            let read = codec::decode(&Bytes::copy_from_slice(&flipped));
            assert!(read.is_err(), "{name}: bit {bit} was read as {read:?}");
            flipped[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
