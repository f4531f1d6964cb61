//! What a key promises, beyond the cases in `vectors/keys/`.

use proptest::prelude::*;
use semel_core::fingerprint::Fingerprint;
use semel_core::key::{Error, Key, Rules, Treatment, Weakness, mint};
use semel_core::time::Time;

fn read(line: &str) -> Result<Key, Error> {
    Key::from_header([line.as_bytes()], &Rules::default()).map(|parsed| parsed.key)
}

fn quote(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', r"\\").replace('"', "\\\""))
}

/// Every length and every character that rules can allow.
fn widest() -> Rules {
    Rules::new(1, Rules::MAX).unwrap().with_weak(Treatment::Allow)
}

#[test]
fn peer_bug_quoted_and_bare_forms_were_two_keys() {
    let bare = read("8e03978e-40d5-43dd-bc93-6894a57f9324").unwrap();
    let quoted = read("\"8e03978e-40d5-43dd-bc93-6894a57f9324\"").unwrap();
    assert_eq!(bare, quoted);
}

#[test]
fn peer_bug_full_keys_in_logs_and_error_bodies() {
    let private = "bob@private.example";
    let weak = Rules::default().with_weak(Treatment::Warn);
    let parsed = Key::from_header([private.as_bytes()], &weak).unwrap();
    let composite = Key::composite([parsed.key.clone(), parsed.key.clone()]).unwrap();
    let mut texts = vec![format!("{parsed:?} {composite:?}"), format!("{parsed:#?} {composite:#?}")];
    for line in [
        private.to_owned(),
        format!("{private},"),
        format!("\"{private}"),
        format!("\"{private}\";a"),
        format!("\"{private}\\a\""),
        format!("{private} {private}"),
        private.repeat(20),
        format!("{private}\u{e9}"),
    ] {
        let error = read(&line).unwrap_err();
        texts.push(format!("{error} {error:?} {}", error.name()));
    }
    let error = mint::structured(["charge", private]).unwrap_err();
    texts.push(format!("{error} {error:?}"));
    for line in texts {
        assert!(!line.contains("private") && !line.contains("bob"), "{line}");
    }
}

#[test]
fn every_error_is_one_sentence_for_the_client() {
    let weak = |weakness| Error::Weak(weakness);
    let all = [
        Error::Missing,
        Error::Empty,
        Error::SeveralLines,
        Error::SeveralKeys,
        Error::Parameters,
        Error::Unterminated,
        Error::BadEscape,
        Error::TrailingText,
        Error::NeedsQuotes,
        Error::NonAscii,
        Error::Control,
        Error::Space,
        Error::TooShort { length: 3, min: 16 },
        Error::TooLong { length: 300, max: 255 },
        weak(Weakness::Email),
        weak(Weakness::Repeated),
        weak(Weakness::PlainWords),
        Error::Composite,
    ];
    let sentences: std::collections::BTreeSet<_> = all.iter().map(ToString::to_string).collect();
    let names: std::collections::BTreeSet<_> = all.iter().map(|error| error.name()).collect();
    assert_eq!((sentences.len(), names.len()), (all.len(), all.len()));
    for sentence in sentences {
        assert!(sentence.ends_with('.') && sentence.starts_with(char::is_uppercase), "{sentence}");
        assert!(sentence.contains("idempotency key"), "{sentence}");
    }
    assert!(all[12].to_string().contains("3 characters; at least 16"));
    assert!(all[13].to_string().contains("300 characters; at most 255"));
    assert_eq!(mint::Error::Key(Error::Space).to_string(), Error::Space.to_string());
    assert!(mint::Error::EmptyPart { index: 2 }.to_string().starts_with("part 2"));
    assert!(!mint::Error::NoParts.to_string().is_empty());
}

#[test]
fn other_sources_take_1_to_255_printable_characters() {
    let long = "ж".repeat(255);
    assert_eq!(Key::from_source(&long).unwrap().expose(), long);
    assert_eq!(Key::from_source(&format!("{long}ж")), Err(Error::TooLong { length: 256, max: 255 }));
    assert_eq!(Key::from_source(""), Err(Error::Empty));
    for control in ["\0", "a\nb", "\u{7f}", "a\u{85}"] {
        assert_eq!(Key::from_source(control), Err(Error::Control));
    }
    for fine in ["x", "retry", "aaaa", "bob@example.com", " a b ", "\u{200f}", "😀"] {
        assert_eq!(Key::from_source(fine).unwrap().expose(), fine);
    }
    assert_ne!(Key::from_source(" a"), Key::from_source("a"));
    assert_ne!(Key::from_source("\u{e9}"), Key::from_source("e\u{301}"), "nothing is normalised");
}

#[test]
fn text_is_one_key_whatever_its_source() {
    let text = "0123456789abcdef";
    assert_eq!(read(text), Key::from_source(text));
    assert_eq!(Ok(read(text).unwrap()), Key::from_text(text, &Rules::default()).map(|parsed| parsed.key));
}

#[test]
fn a_fingerprint_is_never_the_key_that_its_digits_are() {
    let print = Key::from_fingerprint(Fingerprint::from_bytes([0xab; 32]));
    assert_ne!(print, Key::from_source(&print.expose()).unwrap());
    assert_ne!(print, Key::from_fingerprint(Fingerprint::from_bytes([0xac; 32])));
}

#[test]
fn a_composite_joins_2_to_16_simple_keys() {
    let key = || Key::from_source("k").unwrap();
    for count in [0, 1, 17, 1000] {
        assert_eq!(Key::composite((0..count).map(|_| key())), Err(Error::Composite), "{count}");
    }
    for count in [2, 16] {
        assert!(Key::composite((0..count).map(|_| key())).is_ok(), "{count}");
    }
    let pair = Key::composite([key(), key()]).unwrap();
    assert_eq!(Key::composite([key(), pair]), Err(Error::Composite));
}

#[test]
fn a_key_that_fits_no_header_is_not_written() {
    let key = |text| Key::from_source(text).unwrap();
    for text in ["a b", "é", " a"] {
        assert_eq!(key(text).to_header(), None, "{text}");
    }
    let print = Key::from_fingerprint(Fingerprint::from_bytes([1; 32]));
    assert_eq!(print.to_header(), None);
    assert_eq!(Key::composite([key("a"), print]).unwrap().to_header(), None);
}

#[test]
fn a_warning_is_given_only_on_request() {
    let weak = b"retry-retry-retry".as_slice();
    let with = |treatment| Key::from_header([weak], &Rules::default().with_weak(treatment));
    assert_eq!(with(Treatment::Refuse), Err(Error::Weak(Weakness::PlainWords)));
    assert_eq!(with(Treatment::Warn).unwrap().warning, Some(Weakness::PlainWords));
    assert_eq!(with(Treatment::Allow).unwrap().warning, None);
}

fn legal() -> impl Strategy<Value = String> {
    proptest::string::string_regex("[!-~]{1,80}").unwrap()
}

/// Bytes with many special characters.
fn odd_line() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![4 => any::<u8>(), 4 => proptest::sample::select(b"\"\\,; \ta1@.%".to_vec())];
    proptest::collection::vec(byte, 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_bytes_panic_and_every_key_can_be_written(lines in proptest::collection::vec(odd_line(), 0..3)) {
        for rules in [Rules::default(), widest(), Rules::other_header()] {
            if let Ok(parsed) = Key::from_header(lines.iter().map(Vec::as_slice), &rules) {
                prop_assert_eq!(lines.len(), 1);
                let header = parsed.key.to_header().unwrap();
                prop_assert_eq!(Key::from_header([header.as_bytes()], &rules), Ok(parsed));
            }
        }
    }

    #[test]
    fn quoted_and_bare_are_the_same_key(text in legal()) {
        let quoted = Key::from_header([quote(&text).as_bytes()], &widest()).unwrap();
        prop_assert_eq!(&quoted.key.expose(), &text);
        let bare = Key::from_header([text.as_bytes()], &widest());
        if text.contains([',', ';', '"', '\\']) {
            prop_assert!(bare.is_err() || text.starts_with('"'));
        } else {
            prop_assert_eq!(bare, Ok(quoted));
        }
    }

    #[test]
    fn what_is_written_reads_back_the_same(text in legal(), bounds in (1..80_usize, 0..80_usize)) {
        let rules = Rules::new(bounds.0, bounds.0 + bounds.1).unwrap();
        if let Ok(parsed) = Key::from_text(&text, &rules) {
            let header = parsed.key.to_header().unwrap();
            prop_assert_eq!(header.starts_with('"'), text.contains([',', ';', '"', '\\']));
            prop_assert_eq!(Key::from_header([header.as_bytes()], &rules), Ok(parsed));
        }
    }

    #[test]
    fn length_bounds_are_inclusive_and_counted_without_quotes(text in legal(), min in 1..90_usize, more in 0..90_usize) {
        let rules = Rules::new(min, min + more).unwrap().with_weak(Treatment::Allow);
        let read = Key::from_header([quote(&text).as_bytes()], &rules).map(|parsed| parsed.key.expose().into_owned());
        let length = text.len();
        prop_assert_eq!(read, if length < min {
            Err(Error::TooShort { length, min })
        } else if length > min + more {
            Err(Error::TooLong { length, max: min + more })
        } else {
            Ok(text)
        });
    }

    #[test]
    fn random_keys_of_letters_are_never_weak(text in "[a-z]{16,40}|[A-Z]{16,40}|[A-Za-z]{16,40}") {
        prop_assert!(read(&text).is_ok());
    }

    #[test]
    fn minted_keys_pass_the_default_rules(random: [u8; 16], short: [u8; 10], time: u64, field: Vec<u8>) {
        for key in [
            mint::uuid_v4(random),
            mint::uuid_v7(Time::from_millis(time), short),
            mint::sha256([field.as_slice()]).unwrap(),
        ] {
            prop_assert_eq!(read(&key.expose()), Ok(key));
        }
    }

    #[test]
    fn different_parts_never_make_the_same_structured_key(
        one in proptest::collection::vec("(:|%3A|%|%25){1,2}", 1..3),
        two in proptest::collection::vec("(:|%3A|%|%25){1,2}", 1..3),
    ) {
        // A last part that is long enough and not weak.
        let make = |parts: &[String]| {
            mint::structured(parts.iter().map(String::as_str).chain(["0123456789abcdef"])).unwrap()
        };
        prop_assert_eq!(make(&one) == make(&two), one == two);
        prop_assert!(!make(&one).to_header().unwrap().starts_with('"'));
    }

    #[test]
    fn debug_output_shows_only_the_length(text in "[!-~]{1,200}") {
        let key = Key::from_source(&text).unwrap();
        prop_assert_eq!(format!("{key:?}"), format!("Key({} characters)", text.len()));
    }
}
