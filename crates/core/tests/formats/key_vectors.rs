//! Checks `vectors/keys/`, which clients in other languages use too.

use semel_core::fingerprint::Pointer;
use semel_core::fingerprint::json::{self, Scalar};
use semel_core::key::{Key, Rules, Treatment, Weakness, mint};
use semel_core::time::Time;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parse {
    name: String,
    lines: Option<Vec<String>>,
    lines_hex: Option<Vec<String>>,
    rules: Option<Bounds>,
    key: Option<String>,
    header: Option<String>,
    warning: Option<String>,
    error: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Bounds {
    min: usize,
    max: usize,
    weak: String,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Mint {
    method: String,
    #[serde(default)]
    random: String,
    #[serde(default)]
    time_ms: u64,
    #[serde(default)]
    parts: Vec<String>,
    key: Option<String>,
    error: Option<String>,
}

fn unhex<const N: usize>(digits: &str) -> [u8; N] {
    unhex_any(digits).try_into().unwrap()
}

fn unhex_any(digits: &str) -> Vec<u8> {
    hex::decode(digits).unwrap()
}

fn rules(bounds: Option<&Bounds>) -> Rules {
    let Some(bounds) = bounds else { return Rules::default() };
    Rules::new(bounds.min, bounds.max).unwrap().with_weak(match bounds.weak.as_str() {
        "refuse" => Treatment::Refuse,
        "warn" => Treatment::Warn,
        "allow" => Treatment::Allow,
        other => panic!("no such treatment: {other}"),
    })
}

#[test]
fn header_lines_are_read_as_the_vectors_say() {
    let cases: Vec<Parse> =
        serde_json::from_str(include_str!("../../../../vectors/keys/parse.json")).unwrap();
    assert!(cases.len() >= 70);
    for case in cases {
        let lines: Vec<Vec<u8>> = match (&case.lines, &case.lines_hex) {
            (Some(lines), None) => lines.iter().map(|line| line.as_bytes().to_vec()).collect(),
            (None, Some(lines)) => lines.iter().map(|line| unhex_any(line)).collect(),
            _ => panic!("{}: lines or lines_hex", case.name),
        };
        let read = Key::from_header(lines.iter().map(Vec::as_slice), &rules(case.rules.as_ref()));
        match read {
            Ok(parsed) => {
                assert_eq!(Some(parsed.key.expose().as_ref()), case.key.as_deref(), "{}", case.name);
                assert_eq!(parsed.key.to_header(), case.header, "{}", case.name);
                assert_eq!(parsed.warning.map(Weakness::name), case.warning.as_deref(), "{}", case.name);
                assert_eq!(case.error, None, "{}", case.name);
            }
            Err(error) => assert_eq!(Some(error.name()), case.error.as_deref(), "{}", case.name),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Source {
    name: String,
    lines: Option<Vec<String>>,
    lines_hex: Option<Vec<String>>,
    text: Option<String>,
    json: Option<String>,
    pointer: Option<String>,
    key: Option<String>,
    error: Option<String>,
}

/// The key, or the name of the error.
fn found_in(case: &Source) -> Result<Key, String> {
    let named = |error: semel_core::key::Error| error.name().to_owned();
    if let Some(text) = &case.text {
        return Key::from_source(text).map_err(named);
    }
    if let (Some(body), Some(pointer)) = (&case.json, &case.pointer) {
        return match json::scalar_at(body.as_bytes(), &Pointer::parse(pointer).unwrap()) {
            Ok(Scalar::Text(text) | Scalar::Number(text)) => Key::from_source(&text).map_err(named),
            Ok(Scalar::Absent) => Err("missing".to_owned()),
            Ok(Scalar::Unusable) => Err("not-text".to_owned()),
            Err(_) => Err("malformed-body".to_owned()),
        };
    }
    let lines: Vec<Vec<u8>> = match (&case.lines, &case.lines_hex) {
        (Some(lines), None) => lines.iter().map(|line| line.as_bytes().to_vec()).collect(),
        (None, Some(lines)) => lines.iter().map(|line| unhex_any(line)).collect(),
        _ => panic!("{}: a source", case.name),
    };
    let read = Key::from_header(lines.iter().map(Vec::as_slice), &Rules::other_header());
    read.map(|parsed| parsed.key).map_err(named)
}

#[test]
fn keys_from_other_sources_are_what_the_vectors_say() {
    let cases: Vec<Source> =
        serde_json::from_str(include_str!("../../../../vectors/keys/source.json")).unwrap();
    assert!(cases.len() >= 40);
    for case in cases {
        let (key, error) = match found_in(&case) {
            Ok(key) => (Some(key.expose().into_owned()), None),
            Err(error) => (None, Some(error)),
        };
        assert_eq!((key, error), (case.key, case.error), "{}", case.name);
    }
}

#[test]
fn minted_keys_match_the_vectors_and_the_default_rules() {
    let cases: Vec<Mint> = serde_json::from_str(include_str!("../../../../vectors/keys/mint.json")).unwrap();
    assert!(cases.len() >= 36);
    for case in &cases {
        let parts = case.parts.iter().map(String::as_str);
        let minted = match case.method.as_str() {
            "uuid-v4" => Ok(mint::uuid_v4(unhex(&case.random))),
            "uuid-v7" => Ok(mint::uuid_v7(Time::from_millis(case.time_ms), unhex(&case.random))),
            "ulid" => Ok(mint::ulid(Time::from_millis(case.time_ms), unhex(&case.random))),
            "structured" => mint::structured(parts),
            "sha256" => mint::sha256(parts.map(str::as_bytes)),
            other => panic!("no such method: {other}"),
        };
        match minted {
            Ok(key) => {
                assert_eq!(Some(key.expose().as_ref()), case.key.as_deref(), "{case:?}");
                let header = key.to_header().unwrap();
                assert_eq!(header, key.expose(), "minted keys fit the bare form: {case:?}");
                let read = Key::from_header([header.as_bytes()], &Rules::default()).unwrap();
                assert_eq!(read.key, key, "{case:?}");
            }
            Err(error) => {
                let name = match error {
                    mint::Error::NoParts => "no-parts",
                    mint::Error::EmptyPart { .. } => "empty-part",
                    mint::Error::Key(error) => error.name(),
                    _ => panic!("a vector for every error: {error:?}"),
                };
                assert_eq!(Some(name), case.error.as_deref(), "{case:?}");
            }
        }
    }
}
