//! No secret of a configuration, and nothing of a stored answer, shows in debug output.

use crate::config::{Config, Overrides, read};
use crate::{admin_client, difference};
use semel_admin as admin;
use semel_net::target::Target;
use semel_proxy::listen;
use semel_testkit::assert_hidden;
use std::ffi::OsString;
use std::fmt::Debug;
use std::sync::Arc;

const SECRETS: [&str; 6] = ["HASHING", "NEXT", "SEALING", "JWT", "OTLP", "PROBE"];

/// The secret in the variable `name`: 32 bytes in hexadecimal digits, different for each name.
fn secret(name: &str) -> String {
    let bytes: Vec<u8> = name.bytes().cycle().take(28).chain([0xfe, 0xdc, 0xba, 0x98]).collect();
    hex::encode(bytes)
}

fn hides(label: &str, value: &dyn Debug) {
    for name in SECRETS {
        let text = secret(name);
        let bytes = hex::decode(&text).expect("digits");
        assert_hidden(label, value, text.as_bytes());
        assert_hidden(label, value, &bytes);
    }
}

fn config() -> Config {
    let text = "[upstream]\nurl = \"http://127.0.0.1:1\"\n\
        [store]\nhashing_secret = \"env:HASHING\"\nhashing_secret_next = \"env:NEXT\"\n\
        [otlp]\nendpoint = \"http://127.0.0.1:4318\"\n\
        [[otlp.header]]\nname = \"authorization\"\nvalue = \"env:OTLP\"\n\
        [defaults.probe]\nurl = \"/effects/{operation_id}\"\nanswer = \"nothing\"\napplied = [200]\n\
        headers = { authorization = \"env:PROBE\" }\n\
        [identity]\nsources = [\"jwt\"]\n\
        [[identity.issuer]]\nname = \"https://id.example\"\naudience = [\"pay\"]\nsecret = \"env:JWT\"\n\
        [[sealing.key]]\nname = \"2026\"\nsecret = \"env:SEALING\"\n";
    let environment = |name: &str| SECRETS.contains(&name).then(|| OsString::from(secret(name)));
    read(text, &Overrides::default(), &environment).unwrap_or_else(|mistakes| panic!("{mistakes:#?}"))
}

#[test]
fn a_configuration_shows_none_of_its_secrets() {
    let config = config();
    hides("Config", &config);
    assert!(config.sealing.is_some() && config.storage.hashing.secret.is_some(), "they are in there");
    hides("KeyRing", &config.sealing);
    hides("Hashing", &config.storage.hashing);
    hides("Identity", &config.identity);
    hides("ServiceCallbacks", &config.callbacks);
    let configured = admin_client::Configured {
        sealing: config.sealing.clone(),
        hashing: config.storage.hashing.clone(),
        routes: None,
    };
    hides("Configured", &configured);
}

#[test]
fn tokens_credentials_and_certificates_are_hidden() {
    let hash = admin::TokenHash::of("semel_t0ken-of-an-operator");
    let token = admin::Token { name: "ops".into(), hash, roles: vec![admin::Role::Read] };
    let options = admin::Options { tokens: vec![token.clone()], ..admin::Options::default() };
    for shown in [format!("{token:?}"), format!("{options:#?}")] {
        assert!(shown.contains("TokenHash(…)"), "{shown}");
    }
    let refused = Target::parse("http://user:hunter2-hunter2@host/").expect_err("credentials");
    assert_hidden("TargetError", &refused, b"hunter2-hunter2");
    let certificate: Arc<[u8]> = Arc::from(&b"CN=ada, O=example"[..]);
    let address = std::net::IpAddr::from([127, 0, 0, 1]);
    let peer = semel_identity::Peer { address, certificate: Some(Arc::clone(&certificate)) };
    assert_hidden("Peer", &peer, &certificate);
    assert_hidden("ClientCertificate", &listen::ClientCertificate(Arc::clone(&certificate)), &certificate);
}

#[test]
fn answers_and_requests_are_hidden() {
    let document = serde_json::json!({ "response": { "body": "card 4111 1111" } });
    let reply = admin::client::Reply { status: 200, retry_after: None, document };
    assert_hidden("Reply", &reply, b"card 4111 1111");
    let differences =
        difference::differences(br#"{"card":"4111 1111 of Ada"}"#, br#"{"card":"4222 2222 of Eve"}"#);
    assert_eq!(differences.len(), 1);
    assert_hidden("Difference", &differences, b"4111 1111 of Ada");
    assert_hidden("Difference", &differences, b"4222 2222 of Eve");
}
