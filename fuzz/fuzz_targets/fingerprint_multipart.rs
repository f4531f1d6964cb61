//! Multipart: another boundary changes nothing, and truncated bodies are refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use semel_core::fingerprint::{Error, Limits, Request, Selection};

fn canonical(content_type: &[u8], body: &[u8]) -> Result<Vec<u8>, Error> {
    let request = Request { content_type: &[content_type], ..Request::new("POST", "x", "/x", body) };
    let fingerprint = request.fingerprint(&Selection::default(), &Limits::default());
    let canonical = request.canonical_body(&Selection::default(), &Limits::default());
    assert_eq!(fingerprint.is_ok(), canonical.is_ok());
    canonical
}

fuzz_target!(|body: &[u8]| {
    // As a content type: never an error, never a panic.
    let cut = body.iter().position(|byte| *byte == b'\n').unwrap_or(body.len());
    let _ = canonical(&body[..cut], body);

    let Ok(found) = canonical(b"multipart/form-data; boundary=Zq7", body) else { return };
    if body.is_empty() {
        return;
    }
    assert!(found.is_empty() || found.starts_with(b"part\nname "));

    // The same body with a boundary of the same length that does not occur in it.
    let other =
        [&b"!#1"[..], b"!#2", b"!#3"].into_iter().find(|other| !body.windows(3).any(|part| part == *other));
    let Some(other) = other else { return };
    let mut moved = Vec::new();
    let mut rest = body;
    while let Some((first, after)) = rest.split_first() {
        if rest.starts_with(b"--Zq7") {
            moved.extend_from_slice(b"--");
            moved.extend_from_slice(other);
            rest = &rest[5..];
        } else {
            moved.push(*first);
            rest = after;
        }
    }
    // Data may contain the old boundary without its delimiters. Replacing it there changes the data; only
    // then may the two differ.
    let content_type = [b"multipart/form-data; boundary=", other].concat();
    let again = canonical(&content_type, &moved).expect("the same parts under another boundary");
    if !found.windows(5).any(|part| part == b"--Zq7") {
        assert_eq!(again, found);
    }
});
