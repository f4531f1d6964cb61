//! The memory use of fingerprints, counted by the allocator.

use std::fmt::Write as _;
use std::io::Write as _;

use semel_bench::{Cost, Counting, measure};
use semel_core::fingerprint::{Error, Fingerprint, Limits, Request, Selection};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn fingerprint(content_type: &str, body: &[u8]) -> Result<Fingerprint, Error> {
    let content_type = [content_type.as_bytes()];
    let request = Request { content_type: &content_type, ..Request::new("POST", "x", "/x", body) };
    request.fingerprint(&Selection::default(), &Limits { decoded_body_bytes_max: usize::MAX })
}

/// Allowance for the normalized content type and an error. Nothing here grows with the body.
const CONSTANT: usize = 1024;

fn shapes() -> Vec<(&'static str, String)> {
    let list = |open: &str, item: &str, close: &str, times: usize| {
        format!("{open}{}{close}", vec![item; times].join(","))
    };
    let many = |count: u32, name: fn(u32) -> String| {
        let mut text = String::from("{");
        for n in 0..count {
            let comma = if n > 0 { "," } else { "" };
            write!(text, "{comma}\"{}\":0", name(n)).unwrap();
        }
        text + "}"
    };
    let nested =
        |inner: &str, levels: usize| format!("{}0{}", "{\"a\":".repeat(levels), inner.repeat(levels));
    vec![
        ("a million members, sorted", many(1_000_000, |n| format!("{n:06x}"))),
        ("a million members, reversed", many(1_000_000, |n| format!("{:06x}", 0xff_ffff - n))),
        ("a million members, scattered", many(1_000_000, |n| format!("{:x}", n.wrapping_mul(2_654_435_761)))),
        ("empty objects", list("[", "{}", "]", 500_000)),
        ("two members out of order", list("[", r#"{"a":0,"":0}"#, "]", 200_000)),
        ("two members in order", list("[", r#"{"":0,"a":0}"#, "]", 200_000)),
        ("one member", list("[", r#"{"":0}"#, "]", 200_000)),
        ("deep and out of order", list("[", &nested(r#","":0}"#, 127), "]", 2_000)),
        ("deep and cut short", format!("[{},{}", nested("}", 127), "{\"\":".repeat(127))),
        ("one name over and over", list("{", r#""":0"#, "}", 300_000)),
        ("colons in a string", format!("\"{}\"", ":".repeat(2_000_000))),
        ("braces in a string", format!("\"{}\"", "{".repeat(2_000_000))),
        ("braces and colons in a string", format!("\"{}\"", "{:".repeat(1_000_000))),
        ("a long number", "7".repeat(10_000_000)),
        ("a long exponent", format!("1{}e{}", "0".repeat(1_000_000), "9".repeat(1_000_000))),
        ("brackets", "[".repeat(1_000_000)),
        ("not UTF-8 in the end", list("[", "\u{fffd}", "]", 100_000)),
    ]
}

#[test]
fn a_json_body_needs_at_most_twice_its_size_in_memory() {
    for (shape, body) in shapes() {
        let (_, Cost { bytes_max: peak, calls }) =
            measure(|| fingerprint("application/json", body.as_bytes()));
        let ratio = peak as f64 / body.len() as f64;
        println!("{shape:32} {:>9} bytes: {ratio:.2} times the body, {calls} allocations", body.len());
        assert!(peak <= 2 * body.len() + CONSTANT, "{shape}: {peak} for {}", body.len());
    }
}

#[test]
fn a_form_needs_at_most_twice_its_size_in_memory() {
    for (shape, body) in [
        ("one name", "a&".repeat(500_000)),
        ("two names", "b&a&".repeat(250_000)),
        ("no names", "=&".repeat(500_000)),
        ("separators", "&".repeat(1_000_000)),
    ] {
        let content_type = "application/x-www-form-urlencoded";
        let (_, Cost { bytes_max: peak, calls }) = measure(|| fingerprint(content_type, body.as_bytes()));
        println!(
            "{shape:32} {:>9} bytes: {:.2} times, {calls} allocations",
            body.len(),
            peak as f64 / body.len() as f64
        );
        assert!(peak <= 2 * body.len() + CONSTANT, "{shape}: {peak}");
    }
}

#[test]
fn a_multipart_body_needs_constant_extra_memory() {
    let part = "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n";
    let body = format!("{}--b--", part.repeat(50_000));
    let (result, Cost { bytes_max: peak, .. }) =
        measure(|| fingerprint("multipart/form-data; boundary=b", body.as_bytes()));
    assert!(result.is_ok());
    assert!(peak <= CONSTANT, "{peak}");
}

/// Allowance for one part's head of at most 16 KiB, parsed: mostly a content type with its parameters.
const HEAD: usize = 1 << 20;

#[test]
fn a_part_with_many_parameters_needs_constant_memory() {
    let parameters = |times| ";a=b".repeat(times);
    let numbered = |times: u32| (0..times).fold(String::new(), |text, n| text + &format!(";{n:x}=b"));
    let part = |disposition: &str, content_type: &str| {
        let name = "form-data; name=a";
        format!(
            "--b\r\nContent-Disposition: {name}{disposition}\r\nContent-Type: a/b{content_type}\r\n\r\n1\r\n--b--"
        )
    };
    let multipart = "multipart/form-data; boundary=b".to_owned();
    for (shape, content_type, body) in [
        ("10 MiB of parameters in a disposition", multipart.clone(), part(&parameters(10 << 18), "")),
        ("10 MiB of parameters in a type", multipart.clone(), part("", &parameters(10 << 18))),
        ("as many as a disposition may have", multipart.clone(), part(&parameters(4000), "")),
        ("as many as a type may have", multipart.clone(), part("", &numbered(2200))),
        ("10 MiB of header lines", multipart, format!("--b\r\n{}", "a:b\r\n".repeat(2 << 20))),
        ("a content type of 10 MiB", format!("a/b{}", parameters(10 << 18)), "1".to_owned()),
        ("a content type of 8 KiB", format!("a/b{}", numbered(1200)), "1".to_owned()),
    ] {
        let (_, Cost { bytes_max: peak, calls }) = measure(|| fingerprint(&content_type, body.as_bytes()));
        println!("{shape:40} {:>9} bytes: {peak} bytes, {calls} allocations", body.len());
        assert!(peak <= HEAD, "{shape}: {peak}");
    }
}

#[test]
fn a_kibibyte_of_json_takes_two_allocations() {
    let mut body = String::from(r#"{"to":{"name":"Zoë","city":"Cork"},"items":["#);
    while body.len() < 900 {
        body.push_str(r#"{"sku":"A-1","quantity":2,"price":9.90},"#);
    }
    body.push_str(r#"{}],"currency":"EUR","amount":10.50}"#);
    let (_, Cost { calls: with, .. }) = measure(|| fingerprint("application/json", body.as_bytes()).unwrap());
    println!("{} bytes: {with} allocations", body.len());
    assert!(with <= 2, "{with}");
}

/// The decoders' windows and tables, which do not depend on the limit. Zstandard's window of up to 8 MiB is
/// in a ring buffer of the next power of two, which grows by copying.
const DECODER: usize = 32 << 20;

#[test]
fn a_bomb_needs_the_limit_plus_constant_memory() {
    const LIMIT: usize = 10 << 20;
    let zeros = vec![0; 256 << 20];
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&zeros).unwrap();
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    zlib.write_all(&zeros).unwrap();
    drop(zeros);
    let mut zstd = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 13 << 3];
    for _ in 0..4096 {
        zstd.extend_from_slice(&[0x02, 0x00, 0x10, 0x00]);
    }
    let brotli = [
        0xcf, 0xff, 0xff, 0x7f, 0x00, 0x24, 0x00, 0xe2, 0xb1, 0x40, 0x72, 0xef, 0xff, 0xf9, 0xff, 0xff, 0x0f,
        0x80, 0x04, 0x40, 0x1c, 0x16, 0x80, 0xee, 0xfd, 0x3f, 0xff, 0xff, 0xff, 0x01, 0x90, 0x00, 0x88, 0xc3,
        0x02, 0xd0, 0xbd, 0xff, 0xcf, 0xff, 0xff, 0x7f, 0x00, 0x12, 0x00, 0x71, 0x58, 0x00, 0xba, 0xf7, 0xff,
    ];
    for (coding, bomb) in [
        ("gzip", gzip.finish().unwrap()),
        ("deflate", zlib.finish().unwrap()),
        ("br", brotli.to_vec()),
        ("zstd", zstd),
    ] {
        let codings = [coding.as_bytes()];
        for (content_type, held) in [("application/json", LIMIT + LIMIT / 4), ("image/png", 0)] {
            let content_type = [content_type.as_bytes()];
            let request = Request {
                content_encoding: &codings,
                content_type: &content_type,
                ..Request::new("POST", "x", "/x", &bomb)
            };
            let limits = Limits { decoded_body_bytes_max: LIMIT };
            let (result, Cost { bytes_max: peak, .. }) =
                measure(|| request.fingerprint(&Selection::default(), &limits));
            println!(
                "{coding:8} {:>7} bytes of bomb: {:.1} MiB",
                bomb.len(),
                peak as f64 / f64::from(1 << 20)
            );
            assert!(result.is_err());
            let decoder = if coding.len() < 4 || coding == "zstd" { DECODER } else { 1 << 20 };
            assert!(peak <= held + decoder, "{coding}: {peak}");
        }
    }
}

#[test]
fn a_body_hashed_byte_by_byte_is_decoded_as_a_stream() {
    let plain: Vec<u8> =
        (0..8_u32 << 20).map(|at| (at / 100).to_le_bytes()[0] ^ at.to_le_bytes()[2]).collect();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&plain).unwrap();
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    zlib.write_all(&plain).unwrap();
    for (coding, body) in [("gzip", gzip.finish().unwrap()), ("deflate", zlib.finish().unwrap())] {
        assert!(body.len() > plain.len() / 100, "{}", body.len());
        let codings = [coding.as_bytes()];
        let of = |codings, content_type, body| Request {
            content_encoding: codings,
            content_type,
            ..Request::new("POST", "x", "/x", body)
        };
        let (selection, limits) = (Selection::default(), Limits::default());
        let (image, text): (&[&[u8]], &[&[u8]]) = (&[b"image/png"], &[b"application/x-www-form-urlencoded"]);
        let request = of(&codings, image, &body);
        let (streamed, Cost { bytes_max: peak, .. }) =
            measure(|| request.fingerprint(&selection, &limits).unwrap());
        println!("{coding}: {peak} bytes for {} of {}", body.len(), plain.len());
        assert!(peak <= request.decoding_bytes_max(&limits) + CONSTANT, "{coding}: {peak}");
        assert!(peak <= 128 << 10, "{coding}: {peak}");
        assert_eq!(streamed, of(&[], image, &plain).fingerprint(&selection, &limits).unwrap());
        // A body that is parsed must be complete, and its size is declared.
        assert!(of(&codings, text, &body).decoding_bytes_max(&limits) >= plain.len());
    }
}
