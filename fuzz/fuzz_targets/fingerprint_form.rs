//! Forms: never an error, stable, and independent only of the order of different names.
#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use semel_core::fingerprint::{Limits, Request, Selection};

fn canonical(body: &[u8]) -> Vec<u8> {
    let content_type: &[&[u8]] = &[b"application/x-www-form-urlencoded"];
    let request = Request { content_type, ..Request::new("POST", "x", "/x", body) };
    let limits = Limits { decoded_body_bytes_max: usize::MAX };
    request.fingerprint(&Selection::default(), &limits).expect("every body is a form");
    request.canonical_body(&Selection::default(), &limits).expect("every body is a form")
}

/// A naive implementation: decode into lists of values by name.
fn model(body: &[u8]) -> BTreeMap<Vec<u8>, Vec<Vec<u8>>> {
    let mut map: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for pair in body.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()) {
        let mut halves = pair.splitn(2, |byte| *byte == b'=');
        let name = decode(halves.next().unwrap_or_default());
        map.entry(name).or_default().push(decode(halves.next().unwrap_or_default()));
    }
    map
}

fn decode(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let code = text.get(at + 1..at + 3).filter(|_| text[at] == b'%');
        let code = code.filter(|code| code.iter().all(u8::is_ascii_hexdigit));
        let code = code.and_then(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok());
        out.push(code.unwrap_or(if text[at] == b'+' { b' ' } else { text[at] }));
        at += if code.is_some() { 3 } else { 1 };
    }
    out
}

fuzz_target!(|body: &[u8]| {
    let text = canonical(body);
    assert_eq!(canonical(&text), text);
    assert_eq!(model(&text), model(body));
    // Reversing the pairs gives the same form only if no name occurs with different values.
    let mut pairs: Vec<&[u8]> = body.split(|byte| *byte == b'&').collect();
    pairs.reverse();
    let reversed = pairs.join(&b'&');
    assert_eq!(canonical(&reversed) == text, model(&reversed) == model(body));
});
