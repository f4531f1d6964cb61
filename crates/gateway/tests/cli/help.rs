//! Help, and JSON for programs.

use crate::world::{Scratch, command, run, semel};

#[test]
fn help_names_variables_and_not_what_they_hold() {
    for arguments in [&["serve", "--help"][..], &["doctor", "--help"], &["schema", "apply", "--help"]] {
        let mut help = command(arguments);
        help.env("SEMEL_STORE", "postgres://app:s3cret@db/semel");
        let out = run(help).exits(0).out;
        assert!(out.contains("SEMEL_STORE") && !out.contains("s3cret"), "{out}");
    }
}

#[test]
fn keys_are_printed_as_json_where_asked_for() {
    for form in ["uuid4", "uuid7", "ulid"] {
        let document = semel(&["key", "new", "--form", form, "--json"]).exits(0).json();
        assert!(document["key"].as_str().is_some_and(|key| key.len() >= 26), "{document}");
    }
    let derive = ["key", "derive", "order", "1234"];
    let plain = semel(&derive).exits(0).out;
    let document = semel(&[&derive[..], &["--json"]].concat()).exits(0).json();
    assert_eq!(document["key"].as_str(), Some(plain.trim_end()));
}

#[test]
fn a_token_is_printed_as_json_where_asked_for() {
    let token = ["key", "token", "o\"ps", "--role", "read", "--role", "operate", "--json"];
    let document = semel(&token).exits(0).json();
    assert_eq!(
        (&document["name"], &document["roles"]),
        (&"o\"ps".into(), &serde_json::json!(["read", "operate"]))
    );
    let token = document["token"].as_str().expect("a token");
    let hash = document["hash"].as_str().and_then(|hash| hash.strip_prefix("sha256:")).expect("a hash");
    assert_eq!(hash, semel_admin::TokenHash::of(token).digits());
}

#[test]
fn an_applied_schema_is_printed_as_json_where_asked_for() {
    let scratch = Scratch::new();
    let apply = || semel(&["schema", "apply", "--store", &scratch.store(), "--json"]).exits(0).json();
    let made = apply();
    assert_eq!((&made["store"], &made["schemaBefore"]), (&scratch.store().into(), &0.into()));
    assert!(made["schema"].as_u64().is_some_and(|schema| schema > 0), "{made}");
    let again = apply();
    assert_eq!((&again["schemaBefore"], &again["schema"]), (&made["schema"], &made["schema"]));
}
