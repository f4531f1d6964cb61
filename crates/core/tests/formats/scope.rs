//! What scopes and the ids derived from them promise, beyond the cases in `vectors/ids/`.

use semel_core::id::{CommandId, OperationId};
use semel_core::key::{Key, Rules};
use semel_core::scope::{
    Caller, Identity, Lifetime, NameError, Operation, Scope, Secret, SecretTooShort, Source,
};

const SECRET: &[u8; 32] = b"an example; take 32 random bytes";

fn secret() -> Secret {
    Secret::from_bytes(SECRET).unwrap()
}

fn key(text: &str) -> Key {
    Key::from_source(text).unwrap()
}

fn charges() -> Operation {
    Operation::route("POST", "/charges")
}

fn command(scope: &Scope) -> CommandId {
    secret().command_id(scope, &key("8e03978e-40d5-43dd-bc93-6894a57f9324"))
}

fn all_different(scopes: &[Scope]) {
    let ids: std::collections::BTreeSet<_> = scopes.iter().map(command).collect();
    assert_eq!(ids.len(), scopes.len(), "{scopes:?}");
}

#[test]
fn peer_bug_keys_were_not_scoped_to_caller_method_or_path() {
    let alice = || Identity::header("alice");
    all_different(&[
        Scope::new(Caller::Anonymous, charges()),
        Scope::new(alice(), charges()),
        Scope::new(Identity::header("bob"), charges()),
        Scope::new(alice(), charges()).in_tenant("acme"),
        Scope::new(alice(), charges()).in_tenant("globex"),
        Scope::new(alice(), Operation::route("PATCH", "/charges")),
        Scope::new(alice(), Operation::route("POST", "/refunds")),
        Scope::new(alice(), Operation::named("charge")),
    ]);
}

#[test]
fn peer_bug_a_rotated_token_was_silently_another_caller() {
    // The hash of a token changes with it, and the source says so.
    let before = Scope::new(Identity::authorization("Bearer", "token-1"), charges());
    let after = Scope::new(Identity::authorization("Bearer", "token-2"), charges());
    assert_ne!(command(&before), command(&after));
    let lifetimes = [
        (Source::Header, Lifetime::Identity),
        (Source::Jwt, Lifetime::Identity),
        (Source::ApiKey, Lifetime::Credential),
        (Source::Mtls, Lifetime::Credential),
        (Source::Cookie, Lifetime::Session),
        (Source::Authorization, Lifetime::Token),
    ];
    for (source, lifetime) in lifetimes {
        assert_eq!(source.lifetime(), lifetime, "{source:?}");
    }
}

#[test]
fn peer_bug_fields_joined_by_a_delimiter_could_be_forged() {
    let scope =
        |tenant: &str, caller: &str| Scope::new(Identity::header(caller), charges()).in_tenant(tenant);
    all_different(&[
        scope("a", "bc"),
        scope("ab", "c"),
        scope("abc", ""),
        scope("", "abc"),
        scope("a:b", "c"),
        scope("a", "b:c"),
        scope("a\0b", "c"),
        scope("a", "b\0c"),
        Scope::new(Identity::header("abc"), charges()),
    ]);
    // Only a boundary separates these two fields, so a delimiter would fail here first.
    let jwt = |issuer: &str, subject: &str| Scope::new(Identity::jwt(issuer, subject), charges());
    all_different(&[jwt("a", "bc"), jwt("ab", "c"), jwt("", "abc"), jwt("abc", "")]);
    for delimiter in [":", "|", "\0", ",", "/", "\n"] {
        let joined = |one, two| format!("{one}{delimiter}{two}");
        all_different(&[jwt(&joined("a", "b"), "c"), jwt("a", &joined("b", "c"))]);
    }
    let pair = |one, two| Key::composite([key(one), key(two)]).unwrap();
    let scope = scope("a", "b");
    assert_ne!(
        secret().command_id(&scope, &pair("x", "y:z")),
        secret().command_id(&scope, &pair("x:y", "z"))
    );
}

#[test]
fn peer_bug_callers_and_secrets_in_logs() {
    let identities = [
        Identity::header("hush"),
        Identity::jwt("hush", "hush"),
        Identity::api_key("hush"),
        Identity::cookie("hush"),
        Identity::mtls("hush"),
        Identity::authorization("hush", "hush"),
    ];
    for identity in identities {
        let scope = Scope::new(identity.clone(), charges()).in_tenant("hush");
        let text = format!("{identity:?} {scope:?} {scope:#?}");
        assert!(!text.contains("hush"), "{text}");
        assert!(text.contains(&format!("{:?}", identity.source())), "{text}");
        assert!(text.contains("/charges"), "{text}");
    }
    assert_eq!(format!("{:?}", secret()), "Secret(…)");
    assert_eq!(
        format!("{:?}", Scope::new(Caller::Anonymous, Operation::named("charge"))),
        r#"Scope { tenant: None, caller: Anonymous, operation: Named("charge") }"#
    );
}

#[test]
fn nothing_and_the_empty_text_are_different() {
    all_different(&[
        Scope::new(Caller::Anonymous, charges()),
        Scope::new(Caller::Anonymous, charges()).in_tenant(""),
        Scope::new(Identity::header(""), charges()),
        Scope::new(Identity::header(""), charges()).in_tenant(""),
        Scope::new(Identity::authorization("", ""), charges()),
    ]);
}

#[test]
fn the_same_text_from_two_sources_is_two_callers() {
    let scope = |identity: Identity| Scope::new(identity, charges());
    all_different(&[
        scope(Identity::header("42")),
        scope(Identity::jwt("", "42")),
        scope(Identity::api_key("42")),
        scope(Identity::cookie("42")),
        scope(Identity::mtls("42")),
        scope(Identity::authorization("", "42")),
    ]);
}

#[test]
fn a_scheme_is_compared_without_case_and_credentials_exactly() {
    let scope =
        |scheme, credentials: &str| Scope::new(Identity::authorization(scheme, credentials), charges());
    assert_eq!(command(&scope("Bearer", "abc")), command(&scope("BEARER", "abc")));
    all_different(&[
        scope("Bearer", "abc"),
        scope("Bearer", "ABC"),
        scope("Bearer", " abc"),
        scope("Basic", "abc"),
    ]);
}

#[test]
fn caller_hashes_ignore_the_operation_and_key_hashes_the_scope() {
    let one = Scope::new(Identity::header("alice"), charges()).in_tenant("acme");
    let two = Scope::new(Identity::header("alice"), Operation::named("refund")).in_tenant("acme");
    let bob = Scope::new(Identity::header("bob"), charges()).in_tenant("acme");
    let elsewhere = Scope::new(Identity::header("alice"), charges()).in_tenant("globex");
    assert_eq!(secret().caller_hash(&one), secret().caller_hash(&two));
    assert_ne!(secret().caller_hash(&one), secret().caller_hash(&bob));
    assert_ne!(secret().caller_hash(&one), secret().caller_hash(&elsewhere));
    assert_eq!(secret().key_hash(&key("a")), secret().key_hash(&key("a")));
    assert_ne!(secret().key_hash(&key("a")), secret().key_hash(&key("b")));
}

#[test]
fn a_secret_has_32_bytes_or_more_and_all_count() {
    assert_eq!(Secret::from_bytes(&SECRET[..31]).unwrap_err(), SecretTooShort { length: 31 });
    assert!(
        SecretTooShort { length: 31 }.to_string().contains("31 bytes; at least 32 random bytes are required")
    );
    let scope = Scope::new(Caller::Anonymous, charges());
    for at in [0, 31, 99] {
        let mut bytes = [7; 100];
        let before = Secret::from_bytes(&bytes).unwrap();
        bytes[at] ^= 1;
        let after = Secret::from_bytes(&bytes).unwrap();
        assert_ne!(before.id(), after.id());
        assert_ne!(before.command_id(&scope, &key("k")), after.command_id(&scope, &key("k")));
        assert_ne!(before.key_hash(&key("k")), after.key_hash(&key("k")));
        assert_ne!(before.caller_hash(&scope), after.caller_hash(&scope));
    }
    assert_eq!(secret().id(), secret().clone().id());
}

#[test]
fn an_operation_id_is_a_uuid_v8_per_command() {
    let mut seen = std::collections::BTreeSet::new();
    for byte in 0..=255 {
        let id = OperationId::of(&CommandId::from_bytes([byte; 32]));
        assert_eq!((id.as_bytes()[6] >> 4, id.as_bytes()[8] >> 6), (8, 0b10));
        let resource = id.resource_id("row", "1");
        assert_eq!((resource.as_bytes()[6] >> 4, resource.as_bytes()[8] >> 6), (8, 0b10));
        assert!(seen.insert(*id.as_bytes()) && seen.insert(*resource.as_bytes()));
    }
}

#[test]
fn resources_of_one_operation_differ_by_kind_and_name() {
    let one = OperationId::of(&CommandId::from_bytes([1; 32]));
    let two = OperationId::of(&CommandId::from_bytes([2; 32]));
    let ids = [
        one.resource_id("a", "bc"),
        one.resource_id("ab", "c"),
        one.resource_id("abc", ""),
        one.resource_id("", "abc"),
        two.resource_id("a", "bc"),
    ];
    assert_eq!(std::collections::BTreeSet::from(ids).len(), ids.len());
}

#[test]
fn an_event_id_is_a_valid_key_per_operation_and_event() {
    let operation = OperationId::of(&CommandId::from_bytes([1; 32]));
    let longest = "n".repeat(128);
    for name in ["x", "payment.captured", "Receipt_Sent-2", longest.as_str()] {
        let event = operation.event_id(name).unwrap();
        assert_eq!(event.to_string(), format!("{operation}:{name}"));
        assert_eq!(event.as_str(), event.to_string());
        let key = Key::from_header([event.as_str().as_bytes()], &Rules::default()).unwrap().key;
        assert_eq!(key.expose(), event.as_str());
    }
    let too_long = "n".repeat(129);
    for name in ["", "a b", "a:b", "a/b", "é", "a\n", "bob@example.com", too_long.as_str()] {
        assert_eq!(operation.event_id(name), Err(NameError), "{name}");
    }
    assert!(NameError.to_string().contains("1 to 128"));
}

#[test]
fn an_operation_is_displayed_as_given() {
    assert_eq!(charges().to_string(), "POST /charges");
    assert_eq!(format!("{:?}", charges()), r#"Route("POST", "/charges")"#);
    assert_eq!(Scope::new(Caller::Anonymous, charges()).operation(), &charges());
    assert_eq!(
        Scope::new(Identity::header("a"), charges()).caller(),
        &Caller::Identified(Identity::header("a"))
    );
}
