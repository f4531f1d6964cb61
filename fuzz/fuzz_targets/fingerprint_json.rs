//! JSON: canonical text is stable, accepted bodies are JSON for another parser too, and no selection panics.
#![no_main]

use libfuzzer_sys::fuzz_target;
use semel_core::fingerprint::{Limits, Pointer, Request, Selection, json};

fuzz_target!(|body: &[u8]| {
    let request = Request { content_type: &[b"application/json"], ..Request::new("POST", "x", "/x", body) };
    let fingerprint = request.fingerprint(&Selection::default(), &Limits::default());
    let Ok(canonical) = json::canonical(body) else {
        // An empty body is not JSON, but it has a fingerprint.
        assert_eq!(fingerprint.is_ok(), body.is_empty());
        return;
    };
    // Another parser must accept every body that we accept.
    assert!(serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok());
    assert_eq!(json::canonical(canonical.as_bytes()).as_deref(), Ok(&*canonical));
    let again = Request { body: canonical.as_bytes(), ..request };
    assert_eq!(again.fingerprint(&Selection::default(), &Limits::default()), fingerprint);

    // An included path appears with its value or as absent; excluding it changes nothing else.
    let include = Selection::default().including(["/a", "/a/0", "/b/c", ""]).expect("pointers");
    let places = request.canonical_body(&include, &Limits::default()).expect("the body was accepted");
    let start = format!("{{\"\":{canonical},\"/a\":");
    assert!(places.starts_with(start.as_bytes()));
    let exclude = Selection::default().excluding(["/a/0", "/b", "/b/c"]).expect("pointers");
    let less = request.canonical_body(&exclude, &Limits::default()).expect("the body was accepted");
    assert!(less.len() <= canonical.len());
    assert_eq!(json::canonical(&less).map(String::into_bytes), Ok(less));
    let _ =
        json::scalar_at(body, &Pointer::parse("/a/0").expect("a pointer")).expect("the body was accepted");
});
