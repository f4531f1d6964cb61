//! Checks `vectors/ids/`, which clients in other languages use too.

use std::collections::BTreeMap;

use semel_core::fingerprint::Fingerprint;
use semel_core::id::OperationId;
use semel_core::key::Key;
use semel_core::scope::{Caller, Identity, Operation, Scope, Secret};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    secret: String,
    tenant: Option<String>,
    caller: Option<Who>,
    operation: OperationKind,
    key: KeyForm,
    secret_id: String,
    command_id: String,
    key_hash: String,
    caller_hash: String,
    operation_id: String,
    events: Vec<Event>,
    resources: Vec<Resource>,
}

#[derive(Deserialize)]
#[serde(tag = "source", rename_all = "kebab-case")]
enum Who {
    Header(Named),
    Jwt { issuer: String, subject: String },
    ApiKey(Named),
    Cookie(Named),
    Mtls(Named),
    Authorization { scheme: String, credentials: Option<String>, credentials_hex: Option<String> },
}

/// A name as text, or as hexadecimal digits if it is not UTF-8, and where it was found.
#[derive(Deserialize)]
struct Named {
    name: Option<String>,
    name_hex: Option<String>,
    found_in: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OperationKind {
    Named { name: String },
    Route { method: String, path: String },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum KeyForm {
    Text { text: String },
    Fingerprint { fingerprint: String },
    Composite { parts: Vec<KeyForm> },
}

#[derive(Deserialize)]
struct Event {
    name: String,
    id: String,
}

#[derive(Deserialize)]
struct Resource {
    kind: String,
    name: String,
    id: String,
}

fn unhex(digits: &str) -> Vec<u8> {
    hex::decode(digits).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    hex::encode(bytes)
}

fn key(form: &KeyForm) -> Key {
    match form {
        KeyForm::Text { text } => Key::from_source(text).unwrap(),
        KeyForm::Fingerprint { fingerprint } => {
            Key::from_fingerprint(Fingerprint::from_bytes(unhex(fingerprint).try_into().unwrap()))
        }
        KeyForm::Composite { parts } => Key::composite(parts.iter().map(key)).unwrap(),
    }
}

fn bytes(text: Option<&String>, hex: Option<&String>) -> Vec<u8> {
    match (text, hex) {
        (Some(text), None) => text.clone().into_bytes(),
        (None, Some(hex)) => unhex(hex),
        _ => panic!("a value is either text or hexadecimal digits"),
    }
}

fn named(by: fn(Vec<u8>) -> Identity, who: &Named) -> Identity {
    let identity = by(bytes(who.name.as_ref(), who.name_hex.as_ref()));
    match &who.found_in {
        Some(what) => identity.found_in(what),
        None => identity,
    }
}

fn scope(case: &Case) -> Scope {
    let caller = case.caller.as_ref().map_or(Caller::Anonymous, |who| {
        Caller::from(match who {
            Who::Header(name) => named(Identity::header, name),
            Who::Jwt { issuer, subject } => Identity::jwt(issuer, subject),
            Who::ApiKey(name) => named(Identity::api_key, name),
            Who::Cookie(name) => named(Identity::cookie, name),
            Who::Mtls(name) => named(Identity::mtls, name),
            Who::Authorization { scheme, credentials, credentials_hex } => {
                Identity::authorization(scheme, bytes(credentials.as_ref(), credentials_hex.as_ref()))
            }
        })
    });
    let operation = match &case.operation {
        OperationKind::Named { name } => Operation::named(name.as_str()),
        OperationKind::Route { method, path } => Operation::route(method.as_str(), path.as_str()),
    };
    let scope = Scope::new(caller, operation);
    match &case.tenant {
        Some(tenant) => scope.in_tenant(tenant.as_str()),
        None => scope,
    }
}

fn cases() -> Vec<Case> {
    serde_json::from_str(include_str!("../../../../vectors/ids/ids.json")).unwrap()
}

#[test]
fn ids_are_derived_as_the_vectors_say() {
    let cases = cases();
    assert!(cases.len() >= 55);
    for case in cases {
        let (name, scope, key) = (&case.name, scope(&case), key(&case.key));
        let secret = Secret::from_bytes(&unhex(&case.secret)).unwrap();
        let command = secret.command_id(&scope, &key);
        assert_eq!(hex(secret.id().as_bytes()), case.secret_id, "{name}");
        assert_eq!(hex(command.as_bytes()), case.command_id, "{name}");
        assert_eq!(hex(secret.key_hash(&key).as_bytes()), case.key_hash, "{name}");
        assert_eq!(hex(secret.caller_hash(&scope).as_bytes()), case.caller_hash, "{name}");
        let operation = OperationId::of(&command);
        assert_eq!(operation.to_string(), case.operation_id, "{name}");
        for event in case.events {
            assert_eq!(operation.event_id(&event.name).unwrap().to_string(), event.id, "{name}");
        }
        for resource in case.resources {
            assert_eq!(
                operation.resource_id(&resource.kind, &resource.name).to_string(),
                resource.id,
                "{name}"
            );
        }
    }
}

#[test]
fn only_the_one_case_that_says_so_shares_a_command_id() {
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    let mut duplicates = Vec::new();
    for case in cases() {
        if let Some(first) = seen.insert(case.command_id, case.name.clone()) {
            duplicates.push((first, case.name));
        }
    }
    assert_eq!(duplicates.len(), 1, "{duplicates:?}");
    assert!(duplicates[0].1.ends_with("the same caller"));
}
