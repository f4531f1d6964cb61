//! Content encodings: hostile streams end with a result within the limit, and encoded data is decoded
//! unchanged.
#![no_main]

use std::io::Write as _;

use libfuzzer_sys::fuzz_target;
use semel_core::fingerprint::{Error, ErrorKind, Limits, Request, Selection};

const LIMIT: usize = 1 << 16;

fn decoded(coding: &[u8], body: &[u8]) -> Result<Vec<u8>, Error> {
    let request = Request { content_encoding: &[coding], ..Request::new("POST", "x", "/x", body) };
    request.canonical_body(&Selection::default(), &Limits { decoded_body_bytes_max: LIMIT })
}

fuzz_target!(|input: &[u8]| {
    let Some((choice, body)) = input.split_first() else { return };
    let coding: &[u8] =
        [&b"gzip"[..], b"deflate", b"br", b"zstd", b"br, gzip", b"zstd, deflate"][*choice as usize % 6];
    match decoded(coding, body) {
        Ok(bytes) => assert!(bytes.len() <= LIMIT && (bytes.is_empty() || !coding.contains(&b','))),
        Err(error) => assert!(matches!(error.kind(), ErrorKind::Malformed | ErrorKind::TooLarge)),
    }
    // Encoding takes far longer than refusing, so do it only for some inputs.
    if *choice < 0xe0 || body.len() > 4096 {
        return;
    }
    let level = flate2::Compression::fast();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), level);
    gzip.write_all(body).expect("memory");
    let gzip = gzip.finish().expect("memory");
    assert_eq!(decoded(b"gzip", &gzip).as_deref(), Ok(body));
    assert!(decoded(b"gzip", &gzip[..gzip.len() - 1]).is_err());
    let mut raw = flate2::write::DeflateEncoder::new(Vec::new(), level);
    raw.write_all(body).expect("memory");
    assert_eq!(decoded(b"deflate", &raw.finish().expect("memory")).as_deref(), Ok(body));
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), level);
    zlib.write_all(body).expect("memory");
    assert_eq!(decoded(b"deflate", &zlib.finish().expect("memory")).as_deref(), Ok(body));
    let zstd = ruzstd::encoding::compress_to_vec(body, ruzstd::encoding::CompressionLevel::Fastest);
    assert_eq!(decoded(b"zstd", &zstd).as_deref(), Ok(body));
});
