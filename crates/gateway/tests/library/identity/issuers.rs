//! Valid tokens.

use super::world::{
    ED25519_PEM, JWKS, NOW, P256_PEM, P384_PEM, RSA_PEM, SECRET, Signer, alice, base64url, bearer, by_secret,
    by_token, claims, clock, fixture, hs256, hs256_of, identify, issuer, jwks, live, live_at, refused,
};
use semel::core::scope::Identity as Name;
use semel_identity::Source;
use semel_identity::jwt::{Algorithm, Audience, Issuer, KeySource, Secret};
use semel_test_support::ScratchDir;
use serde_json::json;
use std::time::Duration;

#[tokio::test]
async fn tokens_of_another_implementation_are_verified_under_every_algorithm() {
    let secret = || KeySource::Secret(Secret::new(SECRET));
    let pem = |pem: &[u8]| KeySource::Pem(pem.to_vec());
    for algorithm in Algorithm::ALL {
        let keys = match algorithm.as_str() {
            "ES256" => pem(P256_PEM),
            "ES384" => pem(P384_PEM),
            "EdDSA" => pem(ED25519_PEM),
            name if name.starts_with("HS") => secret(),
            _ => pem(RSA_PEM),
        };
        let rule = live(by_token(issuer(keys).by([algorithm]))).await;
        for made_by in Algorithm::ALL {
            let expected =
                if made_by == algorithm { alice() } else { refused("its algorithm is not accepted") };
            assert_eq!(bearer(&rule, &fixture(made_by.as_str())), expected, "{made_by} under {algorithm}");
        }
    }
}

#[tokio::test]
async fn the_key_that_a_token_names_decides_its_algorithm() {
    let folder = Folder::new("set");
    let rule = live(by_token(issuer(KeySource::File(folder.write(JWKS))))).await;
    for algorithm in Algorithm::asymmetric() {
        assert_eq!(bearer(&rule, &fixture(algorithm.as_str())), alice(), "{algorithm}");
    }
    for algorithm in ["HS256", "HS384", "HS512", "none"] {
        let refused = refused("its algorithm is not accepted");
        assert_eq!(bearer(&rule, &fixture(algorithm)), refused, "{algorithm}");
    }
}

#[tokio::test]
async fn an_unnamed_key_serves_tokens_without_a_key_name() {
    let mut nameless = Signer::of_fixtures().jwk("");
    nameless.as_object_mut().expect("an object").remove("kid");
    let folder = Folder::new("nameless");
    let set = jwks(&[Signer::numbered(1).jwk("a"), nameless]);
    let rule = live(by_token(issuer(KeySource::File(folder.write(&set))))).await;
    let unnamed = |signer: Signer| signer.token_of(&json!({ "alg": "EdDSA" }), &claims(json!({})));
    assert_eq!(bearer(&rule, &unnamed(Signer::of_fixtures())), alice());
    assert_eq!(bearer(&rule, &unnamed(Signer::numbered(1))), alice());
    assert_eq!(bearer(&rule, &unnamed(Signer::numbered(2))), refused("its signature is not valid"));
    let why = "its key is not known (if the key is new, try again later)";
    assert_eq!(bearer(&rule, &Signer::of_fixtures().token("b")), refused(why));
}

#[tokio::test]
async fn hs256_needs_permission_and_a_long_secret() {
    let secret = |kid: &str, bytes: &[u8]| json!({ "kty": "oct", "kid": kid, "k": base64url(bytes) });
    let folder = Folder::new("secrets");
    let set = jwks(&[secret("long", SECRET), secret("short", &SECRET[..31])]);
    let path = folder.write(&set);
    let token = |kid: &str, secret| {
        hs256_of(&json!({ "alg": "HS256", "kid": kid }).to_string(), &claims(json!({})).to_string(), secret)
    };
    let rule = live(by_token(issuer(KeySource::File(path.clone())).by([Algorithm::HS256]))).await;
    assert_eq!(bearer(&rule, &token("long", SECRET)), alice());
    assert!(bearer(&rule, &token("short", &SECRET[..31])).is_err());
    let rule = live(by_token(issuer(KeySource::File(path)))).await;
    assert_eq!(bearer(&rule, &token("long", SECRET)), refused("its algorithm is not accepted"));
}

#[tokio::test]
async fn a_caller_is_issuer_and_subject_and_survives_a_new_token() {
    let other = Issuer::new("https://other.example", Audience::Any, KeySource::Pem(ED25519_PEM.to_vec()));
    let mut identity = by_token(by_secret());
    identity.sources = vec![Source::Jwt(vec![by_secret(), other])];
    let rule = live(identity).await;
    let first = bearer(&rule, &hs256(&claims(json!({ "jti": "1" }))));
    assert_eq!(first, alice());
    assert_eq!(first, bearer(&rule, &hs256(&claims(json!({ "jti": "2", "exp": NOW + 900 })))));
    assert_ne!(first, bearer(&rule, &hs256(&claims(json!({ "sub": "bob" })))));
    let header = json!({ "alg": "EdDSA" });
    let elsewhere = claims(json!({ "iss": "https://other.example" }));
    let same_name = bearer(&rule, &Signer::of_fixtures().token_of(&header, &elsewhere));
    assert_eq!(same_name, Ok(Name::jwt("https://other.example", "alice").into()));
    // Each issuer is verified with its own keys only.
    let crossed = Signer::of_fixtures().token_of(&header, &claims(json!({})));
    assert_eq!(bearer(&rule, &crossed), refused("its algorithm is not accepted"));
    let forged = hs256(&elsewhere);
    assert_eq!(bearer(&rule, &forged), refused("its algorithm is not accepted"));
}

#[tokio::test]
async fn a_token_is_valid_for_its_time_plus_the_leeway() {
    let clock = clock();
    let rule = live_at(by_token(by_secret()), &clock).await;
    let token = hs256(&claims(json!({ "nbf": NOW + 60, "exp": NOW + 100 })));
    assert_eq!(bearer(&rule, &token), alice());
    assert_eq!(bearer(&rule, &hs256(&claims(json!({ "nbf": NOW + 61 })))), refused("it is not valid yet"));
    clock.advance(Duration::from_millis(159_999));
    assert_eq!(bearer(&rule, &token), alice());
    clock.advance(Duration::from_millis(1));
    assert_eq!(bearer(&rule, &token), refused("it has expired"));
}

#[tokio::test]
async fn without_leeway_the_end_is_the_end() {
    let mut issuer = by_secret();
    issuer.leeway = Duration::ZERO;
    let rule = live(by_token(issuer)).await;
    assert_eq!(bearer(&rule, &hs256(&claims(json!({ "exp": NOW })))), refused("it has expired"));
    assert_eq!(bearer(&rule, &hs256(&claims(json!({ "exp": NOW + 1 })))), alice());
    assert_eq!(bearer(&rule, &hs256(&claims(json!({ "exp": 1_800_000_000.5 })))), alice());
    assert_eq!(bearer(&rule, &hs256(&claims(json!({ "exp": 1e300, "nbf": -5 })))), alice());
}

#[tokio::test]
async fn an_expiry_is_required_by_default() {
    let without = hs256(&claims(json!({ "exp": null })));
    let rule = live(by_token(by_secret())).await;
    assert_eq!(bearer(&rule, &without), refused("it has no valid expiry"));
    let mut lax = by_secret();
    lax.is_expiry_required = false;
    let rule = live(by_token(lax)).await;
    assert_eq!(bearer(&rule, &without), alice());
    assert_eq!(bearer(&rule, &hs256(&claims(json!({ "exp": NOW - 100 })))), refused("it has expired"));
}

#[tokio::test]
async fn one_of_the_audiences_has_to_be_ours() {
    let mut of_two = by_secret();
    of_two.audience = Audience::OneOf(vec!["payments".to_owned(), "refunds".to_owned()]);
    let rule = live(by_token(of_two)).await;
    for ours in [json!("payments"), json!("refunds"), json!(["x", "refunds"])] {
        assert_eq!(bearer(&rule, &hs256(&claims(json!({ "aud": ours })))), alice());
    }
    for others in [json!("Payments"), json!(["x"]), json!([]), json!(null), json!(7), json!([["payments"]])] {
        let token = hs256(&claims(json!({ "aud": others })));
        assert_eq!(bearer(&rule, &token), refused("it is meant for another audience"));
    }
    let mut any = by_secret();
    any.audience = Audience::Any;
    let rule = live(by_token(any)).await;
    assert_eq!(bearer(&rule, &hs256(&claims(json!({ "aud": null })))), alice());
}

#[tokio::test]
async fn the_scheme_ignores_case_and_other_schemes_are_ignored() {
    let rule = live(by_token(by_secret())).await;
    let token = hs256(&claims(json!({})));
    for line in [format!("bEARER {token}"), format!("Bearer   {token}")] {
        assert_eq!(identify(&rule, &[("authorization", &line)]), alice());
    }
    let basic = identify(&rule, &[("authorization", "Basic YTpi")]);
    assert!(basic.is_err_and(|why| why.contains("does not say who is calling")));
}

/// A folder for a key set.
pub(crate) struct Folder(ScratchDir);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        Self(ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), &format!("identity-{name}")))
    }

    /// Replaces a key set atomically, like a careful operator.
    pub(crate) fn write(&self, text: &str) -> std::path::PathBuf {
        let (draft, path) = (self.0.write("draft", text), self.0.join("jwks.json"));
        std::fs::rename(&draft, &path).expect("moved");
        path
    }
}
