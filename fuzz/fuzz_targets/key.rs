//! Header lines of any bytes: parsing never panics, and a parsed key has the same meaning in every spelling.
//!
//! The first byte selects the rules; the rest is the lines, split at line feeds, and again as a single line.

#![no_main]

use libfuzzer_sys::fuzz_target;
use semel_core::key::{Error, Key, Parsed, Rules, Treatment};

fuzz_target!(|data: &[u8]| {
    let Some((choice, rest)) = data.split_first() else { return };
    let rules = match choice % 4 {
        0 => Rules::default(),
        1 => Rules::default().with_weak(Treatment::Warn),
        2 => Rules::other_header(),
        _ => Rules::new(1, Rules::MAX).expect("fixed bounds are valid").with_weak(Treatment::Allow),
    };
    let lines: Vec<&[u8]> = rest.split(|byte| *byte == b'\n').collect();
    check(&lines, &rules);
    check(&[rest], &rules);
    if let Ok(text) = std::str::from_utf8(rest) {
        check_source(text);
    }
});

fn check(lines: &[&[u8]], rules: &Rules) {
    match Key::from_header(lines.iter().copied(), rules) {
        Ok(parsed) => {
            assert_eq!(lines.len(), 1, "several lines were taken");
            check_spellings(&parsed, rules);
        }
        Err(error) => {
            assert_ne!(error, Error::Missing, "a line that is there is not missing");
            assert_eq!(lines.len() > 1, error == Error::SeveralLines);
            assert!(error.to_string().is_ascii(), "a sentence of ours, not of the client's");
        }
    }
}

fn check_spellings(parsed: &Parsed, rules: &Rules) {
    let text = parsed.key.expose();
    assert!((rules.min()..=rules.max()).contains(&text.len()));
    assert!(text.bytes().all(|byte| byte.is_ascii_graphic()));
    assert!(parsed.warning.is_none() || rules.weak() == Treatment::Warn);
    assert_eq!(format!("{:?}", parsed.key), format!("Key({} characters)", text.len()));

    let written = parsed.key.to_header().expect("a key from a header fits into a header");
    let quoted = format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    let spaced = format!("\t {written} \t");
    for spelling in [&written, &quoted, &spaced] {
        assert_eq!(Key::from_header([spelling.as_bytes()], rules).as_ref(), Ok(parsed));
    }
    assert_eq!(Key::from_text(&text, rules).as_ref(), Ok(parsed));
    for suffix in [";a=1", ",\"b\"", "x"] {
        assert!(Key::from_header([(quoted.clone() + suffix).as_bytes()], rules).is_err());
    }
}

fn check_source(text: &str) {
    let Ok(key) = Key::from_source(text) else { return };
    assert_eq!(key.expose(), text);
    if let Some(header) = key.to_header() {
        let rules = Rules::other_header();
        assert_eq!(Key::from_header([header.as_bytes()], &rules).map(|parsed| parsed.key), Ok(key));
    }
}
