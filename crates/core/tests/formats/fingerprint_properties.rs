//! JSON fingerprints against an independent model: a tree with sorted maps and exact decimals.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use proptest::prelude::*;
use semel_core::fingerprint::{Fingerprint, Limits, Request, Selection, json};

/// A document in the model. Numbers are a sign, digits and a power of ten, in lowest terms.
#[derive(Debug, Clone, PartialEq)]
enum Doc {
    Null,
    Bool(bool),
    Number(Decimal),
    Text(String),
    Array(Vec<Doc>),
    Object(BTreeMap<String, Doc>),
}

#[derive(Debug, Clone, PartialEq)]
struct Decimal {
    negative: bool,
    digits: String,
    exponent: i64,
}

impl Decimal {
    fn new(negative: bool, digits: &str, exponent: i64) -> Self {
        let trimmed = digits.trim_end_matches('0');
        let exponent = exponent + i64::try_from(digits.len() - trimmed.len()).unwrap();
        let digits = trimmed.trim_start_matches('0').to_owned();
        if digits.is_empty() {
            return Self { negative: false, digits: "0".into(), exponent: 0 };
        }
        Self { negative, digits, exponent }
    }
}

/// The canonical text, computed naively.
fn model(doc: &Doc, out: &mut String) {
    match doc {
        Doc::Null => out.push_str("null"),
        Doc::Bool(value) => write!(out, "{value}").unwrap(),
        Doc::Number(number) => {
            let sign = if number.negative { "-" } else { "" };
            write!(out, "{sign}{}", number.digits).unwrap();
            if number.exponent != 0 {
                write!(out, "e{}", number.exponent).unwrap();
            }
        }
        Doc::Text(text) => model_text(text, out),
        Doc::Array(items) => {
            out.push('[');
            for (number, item) in items.iter().enumerate() {
                out.push_str(if number > 0 { "," } else { "" });
                model(item, out);
            }
            out.push(']');
        }
        Doc::Object(members) => {
            out.push('{');
            for (number, (name, value)) in members.iter().enumerate() {
                out.push_str(if number > 0 { "," } else { "" });
                model_text(name, out);
                out.push(':');
                model(value, out);
            }
            out.push('}');
        }
    }
}

fn model_text(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c < ' ' => write!(out, "\\u{:04x}", c as u32).unwrap(),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// A stream of choices for spelling one document in many ways.
struct Choices<'a>(std::iter::Cycle<std::slice::Iter<'a, u8>>);

impl Choices<'_> {
    fn pick(&mut self, options: usize) -> usize {
        usize::from(self.0.next().copied().unwrap_or(0)) % options
    }
}

/// Some spelling of `doc`: members in any order, any white space, any escapes, any way to write its numbers.
fn spell(doc: &Doc, choices: &mut Choices<'_>, out: &mut String) {
    space(choices, out);
    match doc {
        Doc::Null => out.push_str("null"),
        Doc::Bool(value) => write!(out, "{value}").unwrap(),
        Doc::Number(number) => spell_number(number, choices, out),
        Doc::Text(text) => spell_text(text, choices, out),
        Doc::Array(items) => {
            out.push('[');
            for (number, item) in items.iter().enumerate() {
                out.push_str(if number > 0 { "," } else { "" });
                spell(item, choices, out);
            }
            space(choices, out);
            out.push(']');
        }
        Doc::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            for at in (1..members.len()).rev() {
                let other = choices.pick(at + 1);
                members.swap(at, other);
            }
            out.push('{');
            for (number, (name, value)) in members.into_iter().enumerate() {
                out.push_str(if number > 0 { "," } else { "" });
                space(choices, out);
                spell_text(name, choices, out);
                space(choices, out);
                out.push(':');
                spell(value, choices, out);
            }
            space(choices, out);
            out.push('}');
        }
    }
    space(choices, out);
}

fn space(choices: &mut Choices<'_>, out: &mut String) {
    out.push_str(["", "", "", " ", "\n", "\r\n\t"][choices.pick(6)]);
}

fn spell_text(text: &str, choices: &mut Choices<'_>, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        let must = c < ' ' || c == '"' || c == '\\';
        match (c, choices.pick(4)) {
            ('\n', 0) => out.push_str("\\n"),
            ('"' | '\\' | '/', 0) => out.extend(['\\', c]),
            (c, pick) if must || pick == 1 => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    if pick % 2 == 0 {
                        write!(out, "\\u{unit:04x}").unwrap();
                    } else {
                        write!(out, "\\u{unit:04X}").unwrap();
                    }
                }
            }
            (c, _) => out.push(c),
        }
    }
    out.push('"');
}

fn spell_number(number: &Decimal, choices: &mut Choices<'_>, out: &mut String) {
    if number.digits == "0" {
        out.push_str(["0", "-0", "0.0", "0e7", "-0.00E-3"][choices.pick(5)]);
        return;
    }
    out.push_str(if number.negative { "-" } else { "" });
    let mut digits = number.digits.clone();
    let mut exponent = number.exponent;
    for _ in 0..choices.pick(3) {
        digits.push('0');
        exponent -= 1;
    }
    // Put the point somewhere: before all digits, between two, or nowhere.
    let whole = choices.pick(digits.len() + 1);
    exponent += i64::try_from(digits.len() - whole).unwrap();
    let (left, right) = digits.split_at(whole);
    out.push_str(if left.is_empty() { "0" } else { left });
    if !right.is_empty() {
        write!(out, ".{right}").unwrap();
    }
    if exponent != 0 || choices.pick(3) == 0 {
        out.push_str(["e", "E"][choices.pick(2)]);
        let sign = if exponent < 0 { "-" } else { ["", "+"][choices.pick(2)] };
        let zeros = ["", "0", "00"][choices.pick(3)];
        write!(out, "{sign}{zeros}{}", exponent.unsigned_abs()).unwrap();
    }
}

fn text() -> impl Strategy<Value = String> {
    // Few names, so that neighbours are common; every kind of character that is escaped or sorts unusually.
    let c = prop_oneof![
        4 => prop::sample::select(vec!['a', 'b', 'A', '"', '\\', '/', '\n', '\u{0}', '\u{1f}', ' ', '!', '#']),
        1 => prop::sample::select(vec!['é', '\u{7f}', '\u{ffff}', '\u{e000}', '\u{10000}', '\u{1f600}']),
    ];
    prop::collection::vec(c, 0..12).prop_map(|chars| chars.into_iter().collect())
}

fn number() -> impl Strategy<Value = Decimal> {
    let exponent = prop_oneof![4 => -4_i64..4, 1 => -1_000_000_000_000_i64..1_000_000_000_000];
    (any::<bool>(), "[0-9]{1,25}", exponent).prop_map(|(sign, digits, exp)| Decimal::new(sign, &digits, exp))
}

fn doc() -> impl Strategy<Value = Doc> {
    let leaf = prop_oneof![
        Just(Doc::Null),
        any::<bool>().prop_map(Doc::Bool),
        number().prop_map(Doc::Number),
        text().prop_map(Doc::Text),
    ];
    leaf.prop_recursive(6, 60, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Doc::Array),
            prop::collection::btree_map(text(), inner, 0..8).prop_map(Doc::Object),
        ]
    })
}

fn fingerprint(body: &[u8]) -> Fingerprint {
    let request = Request { content_type: &[b"application/json"], ..Request::new("POST", "x", "/x", body) };
    request.fingerprint(&Selection::default(), &Limits::default()).unwrap()
}

fn spelled(doc: &Doc, choices: &[u8]) -> String {
    let mut out = String::new();
    spell(doc, &mut Choices(choices.iter().cycle()), &mut out);
    out
}

fn modelled(doc: &Doc) -> String {
    let mut out = String::new();
    model(doc, &mut out);
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn every_spelling_of_a_document_has_the_models_canonical_text(
        doc in doc(), choices in prop::collection::vec(any::<u8>(), 1..200),
    ) {
        let body = spelled(&doc, &choices);
        let canonical = json::canonical(body.as_bytes()).unwrap();
        prop_assert_eq!(&canonical, &modelled(&doc));
        prop_assert_eq!(json::canonical(canonical.as_bytes()).unwrap(), canonical);
    }

    #[test]
    fn two_spellings_of_one_document_have_one_fingerprint(
        doc in doc(),
        one in prop::collection::vec(any::<u8>(), 1..200),
        two in prop::collection::vec(any::<u8>(), 1..200),
    ) {
        let (one, two) = (spelled(&doc, &one), spelled(&doc, &two));
        prop_assert_eq!(fingerprint(one.as_bytes()), fingerprint(two.as_bytes()));
    }

    #[test]
    fn documents_that_differ_have_different_canonical_texts_and_fingerprints(
        one in doc(), two in doc(), choices in prop::collection::vec(any::<u8>(), 1..50),
    ) {
        let (a, b) = (spelled(&one, &choices), spelled(&two, &choices));
        let equal = json::canonical(a.as_bytes()) == json::canonical(b.as_bytes());
        prop_assert_eq!(equal, one == two);
        prop_assert_eq!(fingerprint(a.as_bytes()) == fingerprint(b.as_bytes()), one == two);
    }

    #[test]
    fn a_damaged_document_never_makes_the_parser_panic(
        doc in doc(), at in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        let mut body = spelled(&doc, &[0]).into_bytes();
        let at = at.index(body.len());
        body[at] = byte;
        if let Ok(canonical) = json::canonical(&body) {
            prop_assert!(serde_json::from_slice::<serde::de::IgnoredAny>(&body).is_ok());
            prop_assert_eq!(json::canonical(canonical.as_bytes()).unwrap(), canonical);
        }
        body.truncate(at);
        if let Ok(canonical) = json::canonical(&body) {
            prop_assert!(serde_json::from_slice::<serde::de::IgnoredAny>(&body).is_ok(), "{}", canonical);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic_under_any_type_or_coding(
        body in prop::collection::vec(any::<u8>(), 0..300),
        content_type in prop::sample::select(vec![
            "application/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=b", "x", "",
        ]),
        coding in prop::sample::select(vec!["", "gzip", "deflate", "br", "zstd", "zstd, gzip", "own"]),
    ) {
        let (content_type, coding) = ([content_type.as_bytes()], [coding.as_bytes()]);
        let request = Request {
            content_type: &content_type,
            content_encoding: &coding,
            ..Request::new("POST", "x", "/x", &body)
        };
        let _ = request.fingerprint(&Selection::default(), &Limits::default());
    }

    #[test]
    fn excluding_a_member_is_the_same_as_not_sending_it(
        doc in prop::collection::btree_map("[a-d]{1,2}", doc(), 1..6),
        choices in prop::collection::vec(any::<u8>(), 1..50),
    ) {
        let name = doc.keys().next().unwrap().clone();
        let mut without = doc.clone();
        without.remove(&name);
        let selection = Selection::default().excluding([format!("/{name}")]).unwrap();
        let body = spelled(&Doc::Object(doc), &choices);
        let request = Request {
            content_type: &[b"application/json"],
            ..Request::new("POST", "x", "/x", body.as_bytes())
        };
        let canonical = request.canonical_body(&selection, &Limits::default()).unwrap();
        prop_assert_eq!(String::from_utf8(canonical).unwrap(), modelled(&Doc::Object(without)));
    }

    #[test]
    fn form_pairs_are_reordered_only_across_different_names(
        pairs in prop::collection::vec(("[ab%&= +é]{0,3}", "[ab%&=]{0,2}"), 0..10),
        shuffle in prop::collection::vec(any::<u8>(), 10),
    ) {
        let encode = |text: &str| {
            text.bytes().fold(String::new(), |mut out, byte| {
                write!(out, "%{byte:02x}").unwrap();
                out
            })
        };
        let form = |pairs: &[(String, String)]| {
            let pairs: Vec<_> = pairs.iter().map(|(n, v)| format!("{}={}", encode(n), encode(v))).collect();
            pairs.join("&")
        };
        // Model: values by name, in order.
        let by_name = |pairs: &[(String, String)]| {
            let mut map: BTreeMap<String, Vec<String>> = BTreeMap::new();
            for (name, value) in pairs {
                map.entry(name.clone()).or_default().push(value.clone());
            }
            map
        };
        let mut moved = pairs.clone();
        for at in (1..moved.len()).rev() {
            moved.swap(at, usize::from(shuffle[at]) % (at + 1));
        }
        let canonical = |body: String| {
            let content_type = [&b"application/x-www-form-urlencoded"[..]];
            let request = Request { content_type: &content_type, ..Request::new("POST", "x", "/x", body.as_bytes()) };
            request.canonical_body(&Selection::default(), &Limits::default()).unwrap()
        };
        let (one, two) = (canonical(form(&pairs)), canonical(form(&moved)));
        prop_assert_eq!(one == two, by_name(&pairs) == by_name(&moved));
        prop_assert_eq!(canonical(String::from_utf8(one.clone()).unwrap()), one);
    }
}
