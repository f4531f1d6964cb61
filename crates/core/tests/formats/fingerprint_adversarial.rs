//! Hostile bodies, and what the fingerprint promises about them.

use std::io::Write as _;

use semel_core::fingerprint::json::Scalar;
use semel_core::fingerprint::{Error, ErrorKind, Fingerprint, Limits, Pointer, Request, Selection, json};

fn fingerprint(content_type: &str, body: &[u8]) -> Result<Fingerprint, Error> {
    let content_type = [content_type.as_bytes()];
    let request = Request { content_type: &content_type, ..Request::new("POST", "pay", "/payments", body) };
    request.fingerprint(&Selection::default(), &Limits { decoded_body_bytes_max: 64 << 20 })
}

fn of_json(body: &str) -> Fingerprint {
    fingerprint("application/json", body.as_bytes()).unwrap()
}

fn hex(text: &str) -> Vec<u8> {
    hex::decode(text).unwrap()
}

#[test]
fn peer_bug_json_numbers_through_f64_or_through_text() {
    assert_ne!(of_json("9007199254740992"), of_json("9007199254740993"));
    assert_eq!(of_json("1"), of_json("1.0"));
    assert_ne!(of_json("0.1"), of_json("0.1000000000000000055511151231257827"));
    assert_ne!(of_json("1e400"), of_json("1e401"));
}

#[test]
fn peer_bug_duplicate_members_collapsed_and_missing_read_as_null() {
    let error = fingerprint("application/json", br#"{"amount":1,"amount":1000}"#).unwrap_err();
    assert_eq!((error.kind(), error.position()), (ErrorKind::Malformed, Some(12)));
    assert_ne!(of_json(r#"{"a":null}"#), of_json("{}"));
}

#[test]
fn peer_bug_a_new_multipart_boundary_is_a_mismatch() {
    let with = |boundary: &str| {
        let body = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--{boundary}--\r\n"
        );
        fingerprint(&format!("multipart/form-data; boundary={boundary}"), body.as_bytes()).unwrap()
    };
    assert_eq!(with("7d91a0"), with("----other"));
}

#[test]
fn peer_bug_path_query_string_or_content_type_left_out() {
    let plain = Request::new("POST", "pay", "/payments", b"1");
    let all = [
        plain,
        Request { path: "/payments/2", ..plain },
        Request { path: "", ..plain },
        Request { query: Some(b"live=1"), ..plain },
        Request { query: Some(b"live=0"), ..plain },
        Request { content_type: &[b"text/plain"], ..plain },
        Request { content_type: &[b"text/html"], ..plain },
    ]
    .map(|request| request.fingerprint(&Selection::default(), &Limits::default()).unwrap());
    for (at, one) in all.iter().enumerate() {
        assert!(!all[..at].contains(one), "{at}");
    }
}

#[test]
fn peer_bug_only_a_prefix_of_a_large_body_hashed() {
    for content_type in ["text/plain", "application/json"] {
        let mut body = vec![b'1'; 5 << 20];
        let before = fingerprint(content_type, &body).unwrap();
        *body.last_mut().unwrap() = b'2';
        assert_ne!(before, fingerprint(content_type, &body).unwrap(), "{content_type}");
    }
}

#[test]
fn peer_bug_a_weak_hash_maps_many_bodies_to_one_value() {
    let mut seen = std::collections::BTreeSet::new();
    for amount in 0..20_000 {
        assert!(seen.insert(of_json(&format!(r#"{{"amount":{amount}.5}}"#))), "{amount}");
    }
}

#[test]
fn a_number_is_never_written_out() {
    assert_eq!(
        json::canonical(b"[1e999999999999,10E-99999999999]").unwrap(),
        "[1e999999999999,1e-99999999998]"
    );
}

#[test]
fn a_number_of_ten_million_digits_is_written_by_its_value() {
    let digits = "7".repeat(10_000_000);
    assert_eq!(json::canonical(digits.as_bytes()).unwrap().len(), digits.len());
    let zeros = format!("1{}", "0".repeat(10_000_000));
    assert_eq!(json::canonical(zeros.as_bytes()).unwrap(), "1e10000000");
    let small = format!("0.{}1", "0".repeat(9_999_999));
    assert_eq!(json::canonical(small.as_bytes()).unwrap(), "1e-10000000");
    let exponent = format!("10e{}", "9".repeat(10_000_000));
    assert_eq!(json::canonical(exponent.as_bytes()).unwrap(), format!("1e1{}", "0".repeat(10_000_000)));
}

#[test]
fn a_million_members_are_sorted() {
    let members: Vec<String> =
        (0..1_000_000_u32).map(|n| format!("\"{:08x}\":\"{n}\"", n.reverse_bits())).collect();
    let body = format!("{{{}}}", members.join(","));
    let mut sorted = members;
    sorted.sort_unstable();
    let canonical = json::canonical(body.as_bytes()).unwrap();
    assert!(canonical == format!("{{{}}}", sorted.join(",")), "a million members are out of order");
}

#[test]
fn members_with_a_long_common_prefix_are_sorted() {
    let prefix = "x".repeat(200);
    let members: Vec<String> = (0..50_000).rev().map(|n| format!("\"{prefix}{n:06}\":0")).collect();
    let body = format!("{{{}}}", members.join(","));
    assert!(json::canonical(body.as_bytes()).unwrap().starts_with(&format!("{{\"{prefix}000000\":0,")));
}

#[test]
fn names_before_enormous_form_values_are_sorted() {
    let enormous = format!("m={}", "x".repeat(5 << 20));
    let mut pairs: Vec<String> = (0..200_000_u32).map(|n| format!("{:08x}=1", n.reverse_bits())).collect();
    // In the middle, where a sort picks its pivot.
    for at in (0..pairs.len()).step_by(pairs.len() / 8) {
        pairs[at].clone_from(&enormous);
    }
    assert!(fingerprint("application/x-www-form-urlencoded", pairs.join("&").as_bytes()).is_ok());
}

#[test]
fn a_selection_of_an_unknown_version_is_an_error() {
    let newer = Selection::from_parts(2, vec![], vec![], vec![]).unwrap();
    let request = Request::new("POST", "pay", "/payments", b"1");
    let error = request.fingerprint(&newer, &Limits::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownVersion);
    assert!(!error.to_string().contains("newer"), "the version may also be invalid: {error}");
    assert_eq!(
        request.canonical_body(&newer, &Limits::default()).unwrap_err().kind(),
        ErrorKind::UnknownVersion
    );
}

/// About 64 MiB of zeros in each coding.
fn bombs() -> Vec<(&'static str, Vec<u8>)> {
    let zeros = vec![0; 64 << 20];
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&zeros).unwrap();
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    zlib.write_all(&zeros).unwrap();
    let brotli = hex(concat!(
        "cfffff7f002400e2b14072effff9ffff0f8004401c1680eefd3fffffff01",
        "900088c302d0bdffcfffff7f001200715800baf7ff",
    ));
    // One frame of run-length blocks, 128 KiB from four bytes each, with a window of 1 MiB.
    let mut zstd = hex("28b52ffd0050");
    for block in 0..512_u32 {
        let header = (128 << 10) << 3 | 1 << 1 | u32::from(block == 511);
        zstd.extend(&header.to_le_bytes()[..3]);
        zstd.push(0);
    }
    vec![
        ("gzip", gzip.finish().unwrap()),
        ("deflate", zlib.finish().unwrap()),
        ("br", brotli),
        ("zstd", zstd),
    ]
}

fn decoded(coding: &str, body: &[u8], decoded_body_bytes_max: usize) -> Result<Vec<u8>, Error> {
    let coding = [coding.as_bytes()];
    let request = Request { content_encoding: &coding, ..Request::new("POST", "x", "/x", body) };
    request.canonical_body(&Selection::default(), &Limits { decoded_body_bytes_max })
}

#[test]
fn a_decompression_bomb_of_any_coding_stops_at_the_limit() {
    for (coding, bomb) in bombs() {
        assert_eq!(decoded(coding, &bomb, 1 << 20).unwrap_err().kind(), ErrorKind::TooLarge, "{coding}");
    }
}

#[test]
fn stacked_codings_are_refused_before_decoding() {
    let bomb = bombs().swap_remove(0).1;
    for codings in ["br, gzip", "gzip,gzip", "zstd, identity, deflate", "x-gzip,br,zstd"] {
        let error = decoded(codings, &bomb, 1 << 30).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Malformed, "{codings}");
        assert_eq!(
            error.to_string(),
            "Content-Encoding: more than one content coding; use only one of gzip, deflate, br and zstd"
        );
    }
    let stopped = decoded("identity, gzip, identity", &bomb, 1 << 20).map(|body| body.len());
    assert_eq!(stopped.unwrap_err().kind(), ErrorKind::TooLarge);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(b"a sentence").unwrap();
    assert_eq!(decoded("identity, gzip, identity", &gzip.finish().unwrap(), 100).unwrap(), b"a sentence");
    // An unknown coding is not decoded, so it costs nothing.
    assert_eq!(decoded("own, gzip", b"x", 100).unwrap(), b"x");
    let names = "own,".repeat(5);
    assert_eq!(decoded(&names, b"x", 100).unwrap_err().kind(), ErrorKind::Malformed);
    // An empty body is not decoded at all.
    for codings in ["br, gzip", &names] {
        assert_eq!(decoded(codings, b"", 100).unwrap(), b"", "{codings}");
    }
}

#[test]
fn the_error_for_a_large_body_names_the_limit() {
    let error = decoded("", b"12345", 4).unwrap_err();
    assert_eq!(error.to_string(), "body: it is larger than allowed (the limit is 4 bytes)");
    assert_eq!(decoded("gzip", &bombs()[0].1, 1 << 20).unwrap_err().position(), Some(1 << 20));
}

#[test]
fn a_content_type_that_readers_could_take_differently_is_refused() {
    let ask = |content_type: &[&[u8]]| {
        let request = Request { content_type, ..Request::new("POST", "x", "/x", b"{}") };
        request.fingerprint(&Selection::default(), &Limits::default())
    };
    let json: &[u8] = b"application/json";
    assert!(ask(&[json]).is_ok());
    for twice in [[json, json], [json, b"text/plain"], [b"", json]] {
        let error = ask(&twice).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Malformed);
        assert_eq!(error.to_string(), "Content-Type: it was sent more than once");
    }
    let long = |len: usize| format!("application/json;a={}", "b".repeat(len - 19)).into_bytes();
    assert!(ask(&[&long(8 << 10)]).is_ok());
    let error = ask(&[&long((8 << 10) + 1)]).unwrap_err();
    assert_eq!(error.to_string(), "Content-Type: it is longer than 8 KiB");
}

#[test]
fn sloppy_parameters_do_not_make_json_anything_else() {
    for content_type in
        ["application/json; charset", "application/json;charset=", "application/json; charset = utf-8"]
    {
        let of = |body: &str| fingerprint(content_type, body.as_bytes());
        assert_eq!(of(r#"{"a":1,"b":2}"#).unwrap(), of(r#"{"b":2,"a":1.0}"#).unwrap(), "{content_type}");
        assert_eq!(of("{").unwrap_err().kind(), ErrorKind::Malformed, "{content_type}");
    }
    // How the parameters were sent still counts, byte by byte.
    assert_ne!(fingerprint("a/b+json; c", b"1").unwrap(), fingerprint("a/b+json;c", b"1").unwrap());
}

#[test]
fn grpc_messages_are_exact_bytes() {
    let message = b"\0\0\0\0\x02{}";
    for content_type in ["application/grpc+json", "application/grpc", "application/grpc-web+json"] {
        assert!(fingerprint(content_type, message).is_ok(), "{content_type}");
        assert_ne!(fingerprint(content_type, b"[1]"), fingerprint(content_type, b"[1.0]"), "{content_type}");
    }
}

#[test]
fn a_body_cut_short_anywhere_is_refused_in_every_coding() {
    let text = b"a body long enough that cutting it makes a difference, a difference, a difference";
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(text).unwrap();
    let mut raw = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
    raw.write_all(text).unwrap();
    let zstd = ruzstd::encoding::compress_to_vec(&text[..], ruzstd::encoding::CompressionLevel::Fastest);
    let brotli = hex("0b08807b2261223a312c2262223a5b322c335d7d03");
    let encoded = [
        ("gzip", gzip.finish().unwrap()),
        ("deflate", raw.finish().unwrap()),
        ("zstd", zstd),
        ("br", brotli),
    ];
    for (coding, encoded) in encoded {
        assert!(decoded(coding, &encoded, 1 << 20).is_ok(), "{coding}");
        for cut in 1..encoded.len() {
            let error = decoded(coding, &encoded[..cut], 1 << 20).expect_err(coding);
            assert_eq!(error.kind(), ErrorKind::Malformed, "{coding} cut at {cut}");
        }
    }
}

#[test]
fn a_multipart_body_cut_short_anywhere_is_refused() {
    let body = b"--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--b\r\n\
        Content-Disposition: form-data; name=\"f\"; filename=\"x\"\r\nContent-Type: a/b\r\n\r\n\r\n--b--";
    assert!(fingerprint("multipart/form-data; boundary=b", body).is_ok());
    for cut in 1..body.len() {
        let error = fingerprint("multipart/form-data; boundary=b", &body[..cut]).expect_err("cut short");
        assert_eq!(error.kind(), ErrorKind::Malformed, "cut at {cut}");
        assert!(error.position().is_some_and(|position| position <= cut), "cut at {cut}");
    }
}

#[test]
fn pointers_may_be_named_in_any_order_and_more_than_once() {
    let body = br#"{"a":{"x":1,"y":2},"a!":3,"b":{"c":4,"d":5}}"#;
    let request = Request { content_type: &[b"application/json"], ..Request::new("POST", "x", "/x", body) };
    let text = |selection: Selection| {
        String::from_utf8(request.canonical_body(&selection, &Limits::default()).unwrap()).unwrap()
    };
    // By the bytes of their text, where ! comes before the slash; step by step it would come after.
    let include = Selection::default().including(["/b/c", "/a/x"]).unwrap();
    let include = include.including(["/a!", "/b/c", "/a/x"]).unwrap();
    assert_eq!(text(include), r#"{"/a!":3,"/a/x":1,"/b/c":4}"#);
    let exclude = Selection::default().excluding(["/b/d", "/a/y", "/b/c", "/a!", "/b/d"]).unwrap();
    assert_eq!(text(exclude.clone()), r#"{"a":{"x":1},"b":{}}"#);
    assert_eq!(text(exclude.excluding(["/b"]).unwrap()), r#"{"a":{"x":1}}"#);
}

#[test]
fn a_scalar_is_found_only_in_json_encoded_or_not() {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(br#"{"id":7}"#).unwrap();
    let body = gzip.finish().unwrap();
    let ask = |content_type: &str, coding: &str, body: &[u8]| {
        let (content_type, coding) = ([content_type.as_bytes()], [coding.as_bytes()]);
        let request = Request {
            content_type: &content_type,
            content_encoding: &coding,
            ..Request::new("POST", "x", "/x", body)
        };
        request.scalar_at(&Pointer::parse("/id").unwrap(), &Limits::default())
    };
    assert_eq!(ask("application/json", "gzip", &body), Ok(Scalar::Number("7".into())));
    assert_eq!(ask("application/json; charset", "gzip", &body), Ok(Scalar::Number("7".into())));
    for (content_type, coding) in
        [("application/json", "own"), ("text/plain", ""), ("application/grpc+json", "")]
    {
        let error = ask(content_type, coding, br#"{"id":7}"#).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotJson, "{content_type} {coding}");
    }
    for content_type in ["application/json", "text/plain"] {
        assert_eq!(ask(content_type, "gzip", b""), Ok(Scalar::Absent), "{content_type}");
    }
    assert_eq!(ask("application/json", "", &body).unwrap_err().kind(), ErrorKind::Malformed);
}
