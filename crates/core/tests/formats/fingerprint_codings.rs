//! Content encodings at their limits: exact sizes, several members, damage, and their errors.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use semel_core::fingerprint::{Error, ErrorKind, Limits, Request, Selection};

fn hex(text: &str) -> Vec<u8> {
    hex::decode(text).unwrap()
}

fn decoded(coding: &str, body: &[u8], decoded_body_bytes_max: usize) -> Result<Vec<u8>, Error> {
    let coding = [coding.as_bytes()];
    let request = Request { content_encoding: &coding, ..Request::new("POST", "x", "/x", body) };
    request.canonical_body(&Selection::default(), &Limits { decoded_body_bytes_max })
}

fn refused(coding: &str, body: &[u8], decoded_body_bytes_max: usize) -> (ErrorKind, Option<usize>) {
    let error = decoded(coding, body, decoded_body_bytes_max).unwrap_err();
    (error.kind(), error.position())
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn bare_deflate(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

/// Eighteen bytes of zstd: a frame that declares `stated` bytes and holds one byte `length` times, in a window of 1
/// MiB.
fn zstd_run(stated: u64, length: u32) -> Vec<u8> {
    let last_run = length << 3 | 1 << 1 | 1;
    [&hex("28b52ffdc050")[..], &stated.to_le_bytes(), &last_run.to_le_bytes()[..3], &[7]].concat()
}

#[test]
fn a_decoded_body_may_be_exactly_as_large_as_the_limit() {
    let body = vec![7; 100_000];
    for (coding, encoded) in [
        ("identity", body.clone()),
        ("gzip", gzip(&body)),
        ("deflate", zlib(&body)),
        ("deflate", bare_deflate(&body)),
        ("zstd", zstd(&body)),
        ("zstd", zstd_run(100_000, 100_000)),
    ] {
        assert_eq!(decoded(coding, &encoded, body.len()).as_deref(), Ok(&body[..]), "{coding}");
        let limit = body.len() - 1;
        assert_eq!(refused(coding, &encoded, limit), (ErrorKind::TooLarge, Some(limit)), "{coding}");
    }
}

#[test]
fn several_gzip_members_and_zstd_frames_are_one_body() {
    let members = [gzip(b"one "), gzip(b""), gzip(b"two")].concat();
    assert_eq!(decoded("gzip", &members, 100).unwrap(), b"one two");
    let skippable = hex("502a4d1803000000aabbcc");
    let frames = [zstd(b"one "), skippable.clone(), zstd(b"two"), skippable].concat();
    assert_eq!(decoded("zstd", &frames, 100).unwrap(), b"one two");
}

#[test]
fn a_body_may_have_4096_gzip_members() {
    // Each member needs a new decoder, whatever its size.
    for (coding, member) in [("gzip", gzip(b"")), ("zstd", hex("502a4d1800000000"))] {
        assert_eq!(decoded(coding, &member.repeat(4096), 1 << 20).unwrap(), b"", "{coding}");
        for more in [1, 904] {
            let error = refused(coding, &member.repeat(4096 + more), 1 << 20);
            assert_eq!(error, (ErrorKind::Malformed, Some(4096 * member.len())), "{coding}");
        }
    }
}

#[test]
fn a_damaged_gzip_member_is_noticed_inside_it() {
    let (first, second) = (gzip(b"one"), gzip(b"two"));
    let encoded = [&first[..], &second].concat();
    for damaged in [0, 1, 2, second.len() - 8, second.len() - 5, second.len() - 4, second.len() - 1] {
        let mut body = encoded.clone();
        body[first.len() + damaged] ^= 0x10;
        let (kind, position) = refused("gzip", &body, 100);
        assert_eq!(kind, ErrorKind::Malformed, "byte {damaged}");
        assert!(position.is_some_and(|at| (first.len()..=body.len()).contains(&at)), "{position:?}");
    }
    let trailed = [&first[..], b"what follows is not a member"].concat();
    let (kind, position) = refused("gzip", &trailed, 100);
    assert_eq!(kind, ErrorKind::Malformed);
    assert!(position.is_some_and(|at| (first.len()..trailed.len()).contains(&at)), "{position:?}");
}

#[test]
fn deflate_of_any_size_is_read_piece_by_piece() {
    let noise: Vec<u8> = (0..120_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for len in [0, 1, 16_383, 16_384, 16_385, 32_767, 32_768, 32_769, 49_152, 65_537, 120_000] {
        for content in [&vec![0; len], &noise[..len]] {
            assert_eq!(decoded("deflate", &zlib(content), 1 << 20).as_deref(), Ok(content), "{len}");
            assert_eq!(decoded("deflate", &bare_deflate(content), 1 << 20).as_deref(), Ok(content), "{len}");
        }
    }
}

#[test]
fn bytes_after_a_deflate_stream_are_refused_at_their_offset() {
    let encoded = bare_deflate(b"one");
    let error = decoded("deflate", &[&encoded[..], b"more"].concat(), 100).unwrap_err();
    let expected = "Content-Encoding: unexpected data after the deflate stream";
    assert_eq!(error.to_string(), format!("{expected} (byte {})", encoded.len()));
    let error = decoded("deflate", &encoded[..encoded.len() - 1], 100).unwrap_err();
    let expected = "Content-Encoding: the deflate stream is cut short";
    assert_eq!(error.to_string(), format!("{expected} (byte {})", encoded.len() - 1));
}

#[test]
fn a_bare_deflate_stream_that_starts_like_zlib_is_still_read() {
    // A stored block of one byte, whose padding and length happen to be a zlib header, and an empty last block.
    assert_eq!(decoded("deflate", &hex("780100feff78010000ffff"), 100).unwrap(), b"x");
}

#[test]
fn zlib_over_the_limit_is_not_retried_as_bare_deflate() {
    // As zlib, these bytes repeat one byte over and over; as a bare stream, they are one stored block and an end.
    let repeats = hex("148c8251300a46c1281805a360").into_iter().cycle().take(2559);
    let stored: Vec<u8> = hex("c071").into_iter().chain(repeats).collect();
    let body = [&hex("78010afef5")[..], &stored, &hex("010000ffff")].concat();
    assert_eq!(refused("deflate", &body, 100_000), (ErrorKind::TooLarge, Some(100_000)));
    // If all of it fits, it is not a complete zlib stream.
    assert_eq!(decoded("deflate", &body, 1 << 20).unwrap(), stored);
}

#[test]
fn a_zstd_frame_must_hold_what_it_states() {
    assert_eq!(decoded("zstd", &zstd_run(300, 300), 1000).unwrap(), [7; 300]);
    for (stated, length) in [(300, 299), (299, 300), (0, 300)] {
        let body = [zstd_run(300, 300), zstd_run(stated, length)].concat();
        assert_eq!(refused("zstd", &body, 1000), (ErrorKind::Malformed, Some(18)), "{stated} {length}");
    }
}

#[test]
fn a_zstd_frame_that_declares_too_much_is_refused_unread() {
    for stated in [101, 200, 500, u64::from(u32::MAX), u64::MAX] {
        let body = [zstd_run(200, 200), zstd_run(stated, 50)].concat();
        assert_eq!(refused("zstd", &body, 300), (ErrorKind::TooLarge, Some(300)), "{stated}");
    }
    let body = [zstd_run(200, 200), zstd_run(100, 50)].concat();
    assert_eq!(refused("zstd", &body, 300), (ErrorKind::Malformed, Some(18)));
}

#[test]
fn a_damaged_zstd_block_is_found_at_its_offset() {
    let mut frame = zstd_run(300, 300);
    // A kind of block that does not exist.
    frame[14] |= 3 << 1;
    let body = [zstd_run(300, 300), frame, zstd_run(300, 300)].concat();
    assert_eq!(refused("zstd", &body, 1000), (ErrorKind::Malformed, Some(18 + 17)));
}

/// A frame of one block that holds `block` and declares a checksum. `size` is that of the decoded block.
fn zstd_with_checksum(kind: u32, size: usize, block: &[u8], checksum: &[u8]) -> Vec<u8> {
    let header = u32::try_from(size).unwrap() << 3 | kind << 1 | 1;
    [&hex("28b52ffd0450")[..], &header.to_le_bytes()[..3], block, checksum].concat()
}

/// The checksums are those that `zstd --check` writes.
#[test]
fn the_checksum_of_a_zstd_frame_is_verified_at_every_length() {
    let next = |state: &u64| Some(state.wrapping_mul(11_400_714_785_074_694_797));
    let states = std::iter::successors(Some(2_654_435_761_u64), next);
    let noise: Vec<u8> = states.take(222).map(|state| state.to_be_bytes()[0]).collect();
    let raw = |length: usize, checksum: &str| {
        let frame = |checksum: &[u8]| zstd_with_checksum(0, length, &noise[..length], checksum);
        (frame(&hex(checksum)), frame(&hex("00000000")), noise[..length].to_vec())
    };
    let run = |length: usize, checksum: &str| {
        let frame = |checksum: &[u8]| zstd_with_checksum(1, length, &[7], checksum);
        (frame(&hex(checksum)), frame(&hex("00000000")), vec![7; length])
    };
    let frames = [
        raw(0, "99e9d851"),
        raw(1, "682705db"),
        raw(3, "4a7950cb"),
        raw(4, "ee5774a5"),
        raw(7, "25ed019f"),
        raw(8, "48131de7"),
        raw(11, "70da356f"),
        raw(12, "9aad6e08"),
        raw(31, "83d7e690"),
        raw(32, "704bb42b"),
        raw(33, "595b8f57"),
        raw(63, "e7f4f3a0"),
        raw(64, "cdb5c2ca"),
        raw(65, "7aaf3126"),
        raw(222, "74c191b6"),
        run(300, "dbc71d0c"),
        run(16_384, "9c35ed03"),
        run(40_000, "78ac28ad"),
    ];
    let mut all = (Vec::new(), Vec::new());
    for (frame, damaged, body) in frames {
        assert_eq!(decoded("zstd", &frame, 100_000).unwrap(), body, "{} bytes", body.len());
        let after_another = [&frame[..], &damaged].concat();
        let found = refused("zstd", &after_another, 100_000);
        assert_eq!(found, (ErrorKind::Malformed, Some(frame.len())), "{} bytes", body.len());
        all.0.extend(frame);
        all.1.extend(body);
    }
    assert_eq!(decoded("zstd", &all.0, 100_000).unwrap(), all.1);
}
