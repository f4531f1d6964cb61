//! Shared by the tests: a clock, keys, tokens, and requests.

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Request};
use ring::hmac;
use ring::signature::Ed25519KeyPair;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use semel::core::scope::{Caller, Identity as Name};
use semel::core::time::Time;
use semel_gateway::caller_rules::CallerRules;
use semel_identity::jwt::{Audience, Issuer, KeySource, Secret};
use semel_identity::{Identity, Peer, Source};
use semel_testkit::FakeClock;
use serde_json::{Value, json};
use std::sync::Arc;

/// The time for which the fixtures were made, in seconds.
pub(crate) const NOW: u64 = 1_800_000_000;
pub(crate) const ISSUER: &str = "https://id.example";
pub(crate) const SECRET: &[u8] = b"a test secret of sixty-four bytes, which is as many as HS512 has";
pub(crate) const JWKS: &str = include_str!("fixtures/jwks.json");
pub(crate) const RSA_PEM: &[u8] = include_bytes!("fixtures/rsa.pub.pem");
pub(crate) const P256_PEM: &[u8] = include_bytes!("fixtures/p256.pub.pem");
pub(crate) const P384_PEM: &[u8] = include_bytes!("fixtures/p384.pub.pem");
pub(crate) const ED25519_PEM: &[u8] = include_bytes!("fixtures/ed25519.pub.pem");

pub(crate) fn clock() -> FakeClock {
    FakeClock::at(Time::from_millis(NOW * 1_000))
}

/// A token from another implementation.
pub(crate) fn fixture(name: &str) -> String {
    let tokens: Value = serde_json::from_str(include_str!("fixtures/tokens.json")).expect("JSON");
    tokens[name].as_str().expect(name).to_owned()
}

pub(crate) fn issuer(keys: KeySource) -> Issuer {
    Issuer::new(ISSUER, Audience::OneOf(vec!["payments".to_owned()]), keys)
}

pub(crate) fn by_secret() -> Issuer {
    issuer(KeySource::Secret(Secret::new(SECRET)))
}

pub(crate) fn by(sources: impl Into<Vec<Source>>) -> Identity {
    Identity { sources: sources.into(), ..Identity::default() }
}

pub(crate) fn by_token(issuer: Issuer) -> Identity {
    by([Source::Jwt(vec![issuer])])
}

pub(crate) async fn live(identity: Identity) -> CallerRules {
    live_at(identity, &clock()).await
}

pub(crate) async fn live_at(identity: Identity, clock: &FakeClock) -> CallerRules {
    let peer = |extensions: &http::Extensions| extensions.get::<Peer>().cloned();
    CallerRules::start(identity, Arc::new(clock.clone()), peer).await.expect("safe settings")
}

/// A request head, prepared like in the gateway.
pub(crate) fn prepared(live: &CallerRules, from: &str, headers: &[(&str, &str)]) -> Parts {
    let peer = Peer { address: from.parse().expect(from), certificate: None };
    prepared_from(live, Some(peer), headers)
}

pub(crate) fn prepared_from(live: &CallerRules, peer: Option<Peer>, headers: &[(&str, &str)]) -> Parts {
    let (mut parts, ()) = Request::post("/charges").body(()).expect("a request").into_parts();
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
        parts.headers.append(name, HeaderValue::from_str(value).expect("a value"));
    }
    if let Some(peer) = peer {
        parts.extensions.insert(peer);
    }
    live.prepare(&mut parts.headers, &mut parts.extensions);
    parts
}

/// The caller with these headers, from an untrusted address.
pub(crate) fn identify(live: &CallerRules, headers: &[(&str, &str)]) -> Result<Caller, String> {
    identify_from(live, "203.0.113.7", headers)
}

pub(crate) fn identify_from(
    live: &CallerRules,
    from: &str,
    headers: &[(&str, &str)],
) -> Result<Caller, String> {
    live.callers().identify(&prepared(live, from, headers)).map_err(|why| why.to_string())
}

/// The caller of a token.
pub(crate) fn bearer(live: &CallerRules, token: &str) -> Result<Caller, String> {
    identify(live, &[("authorization", &format!("Bearer {token}"))])
}

#[expect(clippy::unnecessary_wraps, reason = "what it is compared with may be a refusal")]
pub(crate) fn alice() -> Result<Caller, String> {
    Ok(Name::jwt(ISSUER, "alice").into())
}

/// The message for a token that is refused for this reason.
pub(crate) fn refused(why: &str) -> Result<Caller, String> {
    Err(format!("The bearer token is not accepted: {why}. (Service: see `identity.issuer`.)"))
}

/// Valid claims, with some of them replaced; `null` removes one.
pub(crate) fn claims(changed: Value) -> Value {
    let mut claims = json!({ "iss": ISSUER, "sub": "alice", "aud": "payments", "exp": NOW + 300 });
    let Value::Object(changed) = changed else { panic!("an object of claims") };
    let members = claims.as_object_mut().expect("an object");
    members.extend(changed);
    members.retain(|_, value| !value.is_null());
    claims
}

pub(crate) fn base64url(bytes: impl AsRef<[u8]>) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

/// A token with exactly this header and these claims, signed with HMAC-SHA-256.
pub(crate) fn hs256_of(header: &str, claims: &str, secret: &[u8]) -> String {
    let message = format!("{}.{}", base64url(header), base64url(claims));
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), message.as_bytes());
    format!("{message}.{}", base64url(tag))
}

pub(crate) fn hs256(claims: &Value) -> String {
    hs256_of(r#"{"alg":"HS256"}"#, &claims.to_string(), SECRET)
}

/// The key pair of the fixtures, or one derived from a number.
pub(crate) struct Signer {
    pair: Ed25519KeyPair,
}

impl Signer {
    pub(crate) fn of_fixtures() -> Self {
        let pem = include_bytes!("fixtures/ed25519.test-key.pem");
        let der = PrivatePkcs8KeyDer::from_pem_slice(pem).expect("a key");
        Self { pair: Ed25519KeyPair::from_pkcs8_maybe_unchecked(der.secret_pkcs8_der()).expect("a key") }
    }

    pub(crate) fn numbered(number: u8) -> Self {
        Self { pair: Ed25519KeyPair::from_seed_unchecked(&[number; 32]).expect("a key") }
    }

    /// A token for alice, signed with this key under that key ID.
    pub(crate) fn token(&self, kid: &str) -> String {
        self.token_of(&json!({ "alg": "EdDSA", "kid": kid }), &claims(json!({})))
    }

    pub(crate) fn token_of(&self, header: &Value, claims: &Value) -> String {
        let message = format!("{}.{}", base64url(header.to_string()), base64url(claims.to_string()));
        format!("{message}.{}", base64url(self.pair.sign(message.as_bytes())))
    }

    pub(crate) fn jwk(&self, kid: &str) -> Value {
        use ring::signature::KeyPair as _;
        json!({ "kty": "OKP", "crv": "Ed25519", "x": base64url(self.pair.public_key()), "kid": kid })
    }
}

/// A key set as issuers publish it.
pub(crate) fn jwks(keys: &[Value]) -> String {
    json!({ "keys": keys }).to_string()
}
