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

#[test]
fn above_a_mebibyte_a_body_may_expand_a_hundredfold() {
    // Stored blocks that do not compress, then zeros that compress to almost nothing: this gives any ratio.
    let gzip = |noise: usize, zeros: usize| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        let mut seed = 1_u32;
        let noise: Vec<u8> = (0..noise)
            .map(|_| {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (seed >> 24) as u8
            })
            .collect();
        encoder.write_all(&noise).unwrap();
        encoder.write_all(&vec![0; zeros]).unwrap();
        encoder.finish().unwrap()
    };
    let limit = 10 << 20;
    let mebibyte = 1 << 20;
    assert!(gzip(0, mebibyte).len() < mebibyte / 900, "it expands far more than a hundred times");
    assert!(kind(&[b"gzip"], &gzip(0, mebibyte), limit).is_ok(), "up to a mebibyte that is allowed");
    assert_eq!(kind(&[b"gzip"], &gzip(0, mebibyte + 1), limit), Err(ErrorKind::TooLarge));
    for noise in [20_000, 50_000] {
        let decoded_max =
            |zeros| Limits { decoded_body_bytes_max: limit }.decoded_max(gzip(noise, zeros).len());
        let fits = |zeros| noise + zeros <= decoded_max(zeros);
        // The largest body that still fits.
        let mut step = limit;
        let mut zeros = 0;
        while step > 0 {
            if fits(zeros + step) {
                zeros += step;
            }
            step /= 2;
        }
        assert!(noise + zeros > mebibyte && !fits(zeros + 1_000_000), "{zeros}");
        assert!(kind(&[b"gzip"], &gzip(noise, zeros), limit).is_ok(), "{zeros}");
        let refused = kind(&[b"gzip"], &gzip(noise, zeros + 1_000_000), limit);
        assert_eq!(refused, Err(ErrorKind::TooLarge), "{zeros}");
    }
    let body = gzip(0, 2 * mebibyte);
    let request = Request { content_encoding: &[b"gzip"], ..Request::new("POST", "op", "/", &body) };
    let limits = Limits { decoded_body_bytes_max: limit };
    let error_text = request.fingerprint(&Selection::default(), &limits).unwrap_err().to_string();
    assert!(error_text.contains("more than a hundred times as long"), "{error_text}");
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
