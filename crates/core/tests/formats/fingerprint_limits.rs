//! The exact limits of fingerprints, in bytes.

use std::io::Write as _;

use semel_core::fingerprint::json::Scalar;
use semel_core::fingerprint::{ErrorKind, Fingerprint, Limits, Pointer, Request, Selection, json};

fn kind(content_encoding: &[&[u8]], body: &[u8], limit: usize) -> Result<Fingerprint, ErrorKind> {
    let request = Request { content_encoding, ..Request::new("POST", "op", "/", body) };
    let limits = Limits { decoded_body_bytes_max: limit };
    request.fingerprint(&Selection::default(), &limits).map_err(|error| error.kind())
}

#[test]
fn a_body_may_be_exactly_as_large_as_the_limit() {
    assert!(kind(&[], &[0; 1000], 1000).is_ok());
    assert_eq!(kind(&[], &[0; 1001], 1000), Err(ErrorKind::TooLarge));
    assert_eq!(kind(&[], &[0; 3000], 1000), Err(ErrorKind::TooLarge));
    assert!(kind(&[], &[], 0).is_ok());
}

#[test]
fn a_decoded_body_may_be_exactly_as_large_as_the_limit() {
    let gzip = |length| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(&vec![7; length]).unwrap();
        encoder.finish().unwrap()
    };
    for limit in [1_000, 100_000, 1_000_000] {
        assert!(kind(&[b"gzip"], &gzip(limit), limit).is_ok());
        assert_eq!(kind(&[b"gzip"], &gzip(limit + 1), limit), Err(ErrorKind::TooLarge));
    }
}

/// A JSON string of zeros, 10 MiB - 61 bytes long, in brotli.
const BROTLI: [u8; 41] = [
    0xcb, 0xff, 0xff, 0x3f, 0xf8, 0x8d, 0xd4, 0x60, 0xcd, 0x98, 0x63, 0xa5, 0x88, 0xce, 0x5e, 0xc1, 0x84,
    0xc5, 0x6d, 0x81, 0xc0, 0xd9, 0xfb, 0xbf, 0x15, 0x29, 0xfc, 0xff, 0x81, 0x5f, 0x4a, 0xa4, 0xaf, 0x24,
    0x39, 0x2c, 0x02, 0xb8, 0x77, 0xff, 0x41,
];

#[test]
fn a_body_may_expand_by_any_factor_within_the_limit() {
    let length = (10 << 20) - 61;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(&vec![0; length]).unwrap();
    for (coding, body) in [(&b"br"[..], BROTLI.to_vec()), (b"gzip", encoder.finish().unwrap())] {
        assert!(kind(&[coding], &body, length).is_ok());
        assert_eq!(kind(&[coding], &body, length - 1), Err(ErrorKind::TooLarge));
    }
}

#[test]
fn an_error_names_the_limit_or_the_offset() {
    let error_text = |content_type: &[&[u8]], body: &[u8]| {
        let request = Request { content_type, ..Request::new("POST", "op", "/", body) };
        let limits = Limits { decoded_body_bytes_max: 10 };
        let error = request.fingerprint(&Selection::default(), &limits).unwrap_err();
        (error.position(), error.to_string())
    };
    let (position, text) = error_text(&[], &[0; 11]);
    assert_eq!(position, Some(10));
    assert!(text.ends_with("(the limit is 10 bytes)"), "{text}");
    let (position, text) = error_text(&[b"application/json"], b"[1,]");
    assert_eq!(position, Some(3));
    assert!(text.ends_with("(byte 3)"), "{text}");
}

#[test]
fn four_codings_may_be_named_and_five_may_not() {
    assert!(kind(&[b"a, b, c, d"], b"x", 10).is_ok());
    assert_eq!(kind(&[b"a, b, c, d, e"], b"x", 10), Err(ErrorKind::Malformed));
    assert_eq!(kind(&[b"a, b", b"c", b"d, e"], b"x", 10), Err(ErrorKind::Malformed));
}

#[test]
fn debug_output_of_a_fingerprint_shows_its_beginning() {
    let fingerprint = Fingerprint::from_bytes([0xab; 32]);
    assert_eq!(format!("{fingerprint:?}"), "Fingerprint(abababab…)");
    assert_eq!(fingerprint.to_hex(), "ab".repeat(32));
}

#[test]
fn a_pointer_reaches_into_arrays_by_plain_numbers_only() {
    let items: Vec<String> = (0..12).map(|n| format!(r#"{{"id":"v{n}"}}"#)).collect();
    let body = format!(r#"{{"items":[{}]}}"#, items.join(" , "));
    let at = |text: &str| json::scalar_at(body.as_bytes(), &Pointer::parse(text).unwrap()).unwrap();
    for index in 0..12 {
        assert_eq!(at(&format!("/items/{index}/id")), Scalar::Text(format!("v{index}")));
    }
    for nowhere in
        ["/items/12/id", "/items/00/id", "/items/01/id", "/items/-/id", "/items//id", "/items/1x/id"]
    {
        assert_eq!(at(nowhere), Scalar::Absent, "{nowhere}");
    }
    assert_eq!(at("/items/3"), Scalar::Unusable);
}

#[test]
fn a_leading_zero_has_its_own_error() {
    let error = json::canonical(b"[-012]").unwrap_err();
    assert_eq!((error.position(), error.to_string().contains("leading zeros")), (Some(3), true), "{error}");
}

#[test]
fn a_content_type_of_exactly_eight_kibibytes_passes() {
    let with = |length: usize| {
        let content_type = [b"text/plain;a=".as_slice(), &vec![b'x'; length - 13]].concat();
        let request = Request { content_type: &[&content_type], ..Request::new("POST", "op", "/", b"x") };
        request.fingerprint(&Selection::default(), &Limits::default()).map_err(|error| error.kind())
    };
    assert!(with(8192).is_ok());
    assert_eq!(with(8193), Err(ErrorKind::Malformed));
    assert_eq!(with(20_000), Err(ErrorKind::Malformed));
}
