//! The limits of fingerprint rules: the last input that passes and the first that does not, in small bodies.
//!
//! Mutation testing runs these instead of the large bodies in `fingerprint_adversarial`.

use semel_core::fingerprint::json::Scalar;
use semel_core::fingerprint::{
    Error, ErrorKind, Fingerprint, Limits, Pointer, Request, Selection, SelectionError, json,
};

fn fingerprint(content_type: &str, body: &[u8]) -> Result<Fingerprint, Error> {
    let content_type = [content_type.as_bytes()];
    let request = Request { content_type: &content_type, ..Request::new("POST", "pay", "/payments", body) };
    request.fingerprint(&Selection::default(), &Limits::default())
}

#[test]
fn json_may_have_128_levels_of_nesting() {
    let nested =
        |open: &str, close: &str, levels| format!("{}1{}", open.repeat(levels), close.repeat(levels));
    for (open, close) in [("[", "]"), (r#"{"a":"#, "}"), (r#"{"b":2,"a":"#, "}")] {
        assert!(json::canonical(nested(open, close, 128).as_bytes()).is_ok());
        let error = json::canonical(nested(open, close, 129).as_bytes()).unwrap_err();
        assert_eq!(error.position(), Some(128 * open.len()));
    }
    // A body of only brackets is refused at the same position, however long it is.
    assert_eq!(json::canonical(&vec![b'['; 1 << 20]).unwrap_err().position(), Some(128));
}

#[test]
fn siblings_neither_add_to_depth_nor_take_from_it() {
    let nested = |levels| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    for sibling in ["[]", "{}", r#"[{"a":[]}]"#, r#"{"b":[],"a":{}}"#] {
        for outer in [1, 2, 3] {
            let with = |levels| {
                let list = format!("{sibling},").repeat(300) + &nested(levels);
                format!("{}{list}{}", "[".repeat(outer), "]".repeat(outer))
            };
            assert!(json::canonical(with(128 - outer).as_bytes()).is_ok(), "{sibling} in {outer}");
            let error = json::canonical(with(129 - outer).as_bytes()).unwrap_err();
            assert_eq!(error.position(), Some(300 * (sibling.len() + 1) + 128), "{sibling} in {outer}");
        }
    }
}

#[test]
fn nested_objects_are_sorted() {
    let body = br#"{"d":{"b":1,"a":2},"c":{"b":3,"a":{"z":4,"y":5}},"b":[{"b":6,"a":7},{"b":8,"a":9}],"a":{"b":0,"a":1}}"#;
    assert_eq!(
        json::canonical(body).unwrap(),
        r#"{"a":{"a":1,"b":0},"b":[{"a":7,"b":6},{"a":9,"b":8}],"c":{"a":{"y":5,"z":4},"b":3},"d":{"a":2,"b":1}}"#
    );
}

#[test]
fn a_scalar_is_taken_by_its_value() {
    let body = br#" {"id":"\u0061\n","n":-10.50,"list":[null,{"x/y":{"":1e3}}],"t":true} "#;
    let pointer = |text| Pointer::parse(text).unwrap();
    let at = |text| json::scalar_at(body, &pointer(text)).unwrap();
    assert_eq!(at("/id"), Scalar::Text("a\n".into()));
    assert_eq!(at("/n"), Scalar::Number("-105e-1".into()));
    assert_eq!(at("/list/1/x~1y/"), Scalar::Number("1e3".into()));
    for unusable in ["", "/t", "/list", "/list/0", "/list/1"] {
        assert_eq!(at(unusable), Scalar::Unusable, "{unusable}");
    }
    for absent in ["/list/2", "/list/01", "/list/-", "/list/*", "/nothing", "/id/0"] {
        assert_eq!(at(absent), Scalar::Absent, "{absent}");
    }
    let number = json::scalar_at(b"100", &pointer("")).unwrap();
    assert_ne!(number, json::scalar_at(br#""1e2""#, &pointer("")).unwrap());
    assert_eq!(json::scalar_at(br#"{"*":1,"a":2}"#, &pointer("/*")), Ok(Scalar::Number("1".into())));
    let error = json::scalar_at(br#"{"id":"a","x":1,"x":2}"#, &pointer("/id")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Malformed);
}

#[test]
fn a_form_reads_the_same_percent_encoded_or_plain() {
    let form = |body: String| fingerprint("application/x-www-form-urlencoded", body.as_bytes()).unwrap();
    for byte in (b'!'..=b'~').filter(|byte| !b"%&+=".contains(byte)) {
        let plain = form(format!("{0}={0}", char::from(byte)));
        assert_eq!(form(format!("%{byte:02x}=%{byte:02x}")), plain, "{byte:02x}");
        assert_eq!(form(format!("%{byte:02X}=%{byte:02X}")), plain, "{byte:02X}");
    }
    assert_eq!(form("a=%20".into()), form("a=+".into()));
    let canonical = |body: &[u8]| {
        let content_type: &[&[u8]] = &[b"application/x-www-form-urlencoded"];
        let request = Request { content_type, ..Request::new("POST", "/x", "/x", body) };
        request.canonical_body(&Selection::default(), &Limits::default()).unwrap()
    };
    assert_eq!(canonical(b"%31%39=%4a%5A"), b"19=JZ");
}

#[test]
fn a_boundary_that_readers_could_take_differently_is_refused() {
    let with = |boundary: &str| {
        let body = format!("--{boundary}--");
        fingerprint(&format!("multipart/form-data; boundary=\"{boundary}\""), body.as_bytes())
    };
    for fine in ["b", "b b", &"b".repeat(256)] {
        assert!(with(fine).is_ok(), "{fine}");
    }
    for odd in ["", "b ", "b\t", "b\r\nb", "b\nb", "b\0", &"b".repeat(257)] {
        let error = with(odd).unwrap_err();
        assert_eq!(error.to_string(), "multipart body: the content type has no valid boundary (byte 0)");
    }
}

#[test]
fn the_head_of_a_part_ends_at_sixteen_kibibytes() {
    let part = |len: usize| {
        let head = "Content-Disposition: form-data; name=\"a\"\r\nX: \r\n\r\n";
        let padded = head.replace("X: ", &format!("X: {}", "x".repeat(len - head.len())));
        fingerprint("multipart/form-data; boundary=b", format!("--b\r\n{padded}1\r\n--b--").as_bytes())
    };
    assert_eq!(part(16 << 10).unwrap(), part(100).unwrap(), "a header that does not count");
    let error = part((16 << 10) + 1).unwrap_err();
    assert!(error.to_string().contains("16 KiB"), "{error}");
}

#[test]
fn the_error_for_multipart_says_where_and_why() {
    let part = "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n";
    for (body, message) in [
        ("--b", "a boundary line has other text after the boundary, or is cut short (byte 3)"),
        ("--b\r\nContent-Disposition: form-data", "the body ends in the header of a part (byte 5)"),
        (
            &format!("{part}--b"),
            "a boundary line has other text after the boundary, or is cut short (byte 55)",
        ),
        (&format!("{part}--b--\r\n \t\r\nx"), "unexpected data after the last boundary line (byte 63)"),
    ] {
        let error = fingerprint("multipart/form-data; boundary=b", body.as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), format!("multipart body: {message}"), "{body}");
    }
}

#[test]
fn a_message_never_quotes_the_body() {
    let secret = "hunter2";
    for (content_type, body) in [
        ("application/json", format!(r#"{{"{secret}":1,"{secret}":2}}"#)),
        ("application/json", format!("{{\"a\":{secret}}}")),
        ("multipart/form-data; boundary=b", format!("--b\r\n{secret}\r\n\r\n")),
    ] {
        let error = fingerprint(content_type, body.as_bytes()).unwrap_err();
        assert!(!format!("{error} {error:?}").contains(secret), "{error}");
    }
    let request = Request {
        query: Some(secret.as_bytes()),
        content_type: &[secret.as_bytes()],
        content_encoding: &[secret.as_bytes()],
        headers: &[(secret, secret.as_bytes())],
        ..Request::new("POST", secret, secret, secret.as_bytes())
    };
    assert_eq!(format!("{request:?}"), "Request { method: \"POST\", body_bytes: 7, .. }");
}

#[test]
fn the_error_for_a_selection_says_why() {
    let message = |result: Result<Selection, SelectionError>| result.unwrap_err().to_string();
    let start = Selection::default;
    assert_eq!(message(start().with_headers(["a b"])), r#""a b" is not a header name"#);
    let forbidden = message(start().with_headers(["Cookie"]));
    assert!(forbidden.starts_with(r#"header "cookie" cannot be fingerprinted"#), "{forbidden}");
    assert_eq!(
        message(start().including(["a"])),
        r#""a" is not a JSON pointer: a JSON pointer must be empty or start with a slash"#
    );
    assert_eq!(
        message(start().excluding(["/~2"])),
        r#""/~2" is not a JSON pointer: in a JSON pointer, ~ must be followed by 0 or 1"#
    );
    assert!(message(start().excluding([""])).contains("all bodies would be equal"));
}
