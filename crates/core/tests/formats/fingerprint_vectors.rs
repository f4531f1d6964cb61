//! Checks the vectors in `vectors/fingerprint`, which clients in any language can use.

use semel_core::fingerprint::{Error, ErrorKind, Limits, Request, Selection, json};
use serde::Deserialize;
use serde::de::DeserializeOwned;

fn load<T: DeserializeOwned>(name: &str) -> Vec<T> {
    let path = format!("{}/../../vectors/fingerprint/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let vectors: Vec<T> = serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{path}: {error}"));
    assert!(!vectors.is_empty(), "{path} holds no vectors");
    vectors
}

/// Bytes, as text or as hexadecimal digits.
#[derive(Deserialize, Clone)]
#[serde(rename_all = "snake_case")]
enum Bytes {
    Text(String),
    Hex(String),
}

impl Bytes {
    fn get(&self) -> Vec<u8> {
        match self {
            Self::Text(text) => text.clone().into_bytes(),
            Self::Hex(digits) => hex::decode(digits).unwrap(),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CanonicalJson {
    why: String,
    input: Bytes,
    canonical: Option<String>,
    error_at: Option<usize>,
}

#[test]
fn canonical_json_is_what_the_vectors_say() {
    for vector in load::<CanonicalJson>("canonical-json.json") {
        let found = json::canonical(&vector.input.get());
        match (vector.canonical, vector.error_at) {
            (Some(expected), None) => assert_eq!(found.as_deref(), Ok(&*expected), "{}", vector.why),
            (None, Some(position)) => {
                let error = found.expect_err(&vector.why);
                assert_eq!(error.kind(), ErrorKind::Malformed, "{}", vector.why);
                assert_eq!(error.position(), Some(position), "{}: {error}", vector.why);
            }
            _ => panic!("{}: a vector has either a canonical form or an error", vector.why),
        }
    }
}

/// The lines of a header: none, one, or a list of them.
#[derive(Deserialize, Clone, Default)]
#[serde(untagged)]
enum Lines {
    #[default]
    None,
    One(String),
    Several(Vec<String>),
}

impl Lines {
    fn get(&self) -> Vec<&[u8]> {
        match self {
            Self::None => Vec::new(),
            Self::One(line) => vec![line.as_bytes()],
            Self::Several(lines) => lines.iter().map(String::as_bytes).collect(),
        }
    }
}

#[derive(Deserialize, Clone, Default)]
#[serde(deny_unknown_fields, default)]
struct RequestCase {
    method: Option<String>,
    operation: Option<String>,
    path: Option<String>,
    query: Option<String>,
    content_type: Lines,
    content_encoding: Vec<String>,
    headers: Vec<(String, String)>,
    body: Option<Bytes>,
    select_headers: Vec<String>,
    include: Vec<String>,
    exclude: Vec<String>,
}

impl RequestCase {
    fn with<T>(&self, ask: impl FnOnce(&Request<'_>, &Selection) -> T) -> T {
        let body = self.body.as_ref().map(Bytes::get).unwrap_or_default();
        let types = self.content_type.get();
        let encodings: Vec<&[u8]> = self.content_encoding.iter().map(String::as_bytes).collect();
        let headers: Vec<(&str, &[u8])> =
            self.headers.iter().map(|(n, v)| (n.as_str(), v.as_bytes())).collect();
        let request = Request {
            query: self.query.as_deref().map(str::as_bytes),
            content_type: &types,
            content_encoding: &encodings,
            headers: &headers,
            ..Request::new(
                self.method.as_deref().unwrap_or("POST"),
                self.operation.as_deref().unwrap_or("/payments"),
                self.path.as_deref().unwrap_or("/payments"),
                &body,
            )
        };
        let (headers, include, exclude) =
            (self.select_headers.clone(), self.include.clone(), self.exclude.clone());
        let selection = Selection::from_parts(1, headers, include, exclude).unwrap();
        ask(&request, &selection)
    }

    fn fingerprint(&self) -> Result<String, Error> {
        self.with(|request, selection| request.fingerprint(selection, &Limits::default()))
            .map(|fingerprint| fingerprint.to_hex())
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestVector {
    why: String,
    request: RequestCase,
    canonical_body: Option<String>,
    fingerprint: Option<String>,
    error: Option<String>,
    error_at: Option<usize>,
}

#[test]
fn fingerprints_of_whole_requests_are_what_the_vectors_say() {
    let mut missing = Vec::new();
    for vector in load::<RequestVector>("requests.json") {
        let found = vector.request.fingerprint();
        if let Some(expected) = &vector.error {
            let error = found.expect_err(&vector.why);
            assert_eq!(&format!("{:?}", error.kind()), expected, "{}", vector.why);
            if vector.error_at.is_some() {
                assert_eq!(error.position(), vector.error_at, "{}: {error}", vector.why);
            }
            continue;
        }
        let found = found.unwrap_or_else(|error| panic!("{}: {error}", vector.why));
        if let Some(expected) = &vector.canonical_body {
            let body = vector
                .request
                .with(|request, selection| request.canonical_body(selection, &Limits::default()))
                .unwrap();
            assert_eq!(&String::from_utf8_lossy(&body), expected, "{}", vector.why);
        }
        if vector.fingerprint.as_ref() != Some(&found) {
            missing.push(format!("{}: {found}", vector.why));
        }
    }
    assert!(missing.is_empty(), "the results differ from the vectors:\n{}", missing.join("\n"));
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Groups {
    why: String,
    /// Requests in one list are equal; requests in different lists are not.
    groups: Vec<Vec<RequestCase>>,
}

#[test]
fn requests_are_equal_and_unequal_as_the_vectors_say() {
    for vector in load::<Groups>("equality.json") {
        let mut seen: Vec<String> = Vec::new();
        for (number, group) in vector.groups.iter().enumerate() {
            let all: Vec<String> = group
                .iter()
                .map(|sent| sent.fingerprint().unwrap_or_else(|error| panic!("{}: {error}", vector.why)))
                .collect();
            assert!(
                all.iter().all(|one| *one == all[0]),
                "{}: group {number} has different fingerprints",
                vector.why
            );
            assert!(!seen.contains(&all[0]), "{}: group {number} equals an earlier one", vector.why);
            seen.push(all[0].clone());
        }
    }
}
