//! Forged and invalid tokens.

use super::issuers::Folder;
use super::world::{
    JWKS, NOW, RSA_PEM, SECRET, Signer, alice, base64url, bearer, by_secret, by_token, claims, fixture,
    hs256, hs256_of, identify, issuer, live, refused,
};
use semel::core::scope::Caller;
use semel_gateway::caller_rules::CallerRules;
use semel_identity::Source;
use semel_identity::jwt::KeySource;
use serde_json::json;

async fn by_keys(folder: &Folder) -> CallerRules {
    live(by_token(issuer(KeySource::File(folder.write(JWKS))))).await
}

const ALGORITHM: &str = "its algorithm is not accepted";
const MALFORMED: &str = "it is malformed";
const SIGNATURE: &str = "its signature is not valid";
const UNKNOWN_KEY: &str = "its key is not known (if the key is new, try again later)";

#[tokio::test]
async fn peer_bug_an_unsigned_token_is_believed() {
    let rule = live(by_token(by_secret())).await;
    assert_eq!(bearer(&rule, &fixture("none")), refused(ALGORITHM));
    for none in ["none", "None", "NONE", "nOnE", ""] {
        let header = base64url(json!({ "alg": none }).to_string());
        let message = format!("{header}.{}", base64url(claims(json!({})).to_string()));
        for token in [format!("{message}."), format!("{message}.AAAA")] {
            assert_eq!(bearer(&rule, &token), refused(ALGORITHM), "{none}");
        }
    }
    for header in [r#"{"typ":"JWT"}"#, r#"{"alg":null}"#, r#"{"alg":["HS256"]}"#, r#"{"alg":256}"#] {
        let token = hs256_of(header, &claims(json!({})).to_string(), SECRET);
        assert_eq!(bearer(&rule, &token), refused(ALGORITHM), "{header}");
    }
}

#[tokio::test]
async fn peer_bug_a_public_key_serves_as_the_secret_of_hs256() {
    let claims = claims(json!({})).to_string();
    let header = r#"{"alg":"HS256","kid":"rsa"}"#;
    let folder = Folder::new("confusion");
    let rules = [by_keys(&folder).await, live(by_token(issuer(KeySource::Pem(RSA_PEM.to_vec())))).await];
    let n = serde_json::from_str::<serde_json::Value>(JWKS).expect("JSON")["keys"][0]["n"].to_string();
    for rule in &rules {
        for secret in [RSA_PEM, RSA_PEM.trim_ascii_end(), n.trim_matches('"').as_bytes(), b""] {
            assert_eq!(bearer(rule, &hs256_of(header, &claims, secret)), refused(ALGORITHM));
        }
    }
}

#[tokio::test]
async fn a_named_key_serves_only_its_own_algorithms() {
    let folder = Folder::new("kind");
    let rule = by_keys(&folder).await;
    // Correctly signed by the Ed25519 key, but with the ID of another or an unknown key.
    for kid in ["rsa", "p256", "rsa-short", "p521"] {
        assert_eq!(bearer(&rule, &Signer::of_fixtures().token(kid)), refused(UNKNOWN_KEY), "{kid}");
    }
    assert_eq!(bearer(&rule, &Signer::of_fixtures().token("ed25519")), alice());
}

#[tokio::test]
async fn a_key_inside_a_token_is_ignored() {
    let folder = Folder::new("own");
    let rule = by_keys(&folder).await;
    let mallory = Signer::numbered(66);
    let attackers_key = mallory.jwk("ed25519");
    for header in [
        json!({ "alg": "EdDSA", "kid": "ed25519", "jwk": attackers_key }),
        json!({ "alg": "EdDSA", "kid": "ed25519", "jku": "http://127.0.0.1:1/keys" }),
        json!({ "alg": "EdDSA", "kid": "ed25519", "x5u": "http://127.0.0.1:1/cert" }),
        json!({ "alg": "EdDSA", "jwk": attackers_key }),
    ] {
        assert_eq!(
            bearer(&rule, &mallory.token_of(&header, &claims(json!({})))),
            refused(SIGNATURE),
            "{header}"
        );
    }
}

#[tokio::test]
async fn a_kid_is_no_path_and_no_query() {
    let folder = Folder::new("kid");
    let rule = by_keys(&folder).await;
    for kid in ["../../../dev/null", "/dev/null", "jwks.json", "x' OR '1'='1", "", "ED25519", "ed25519\0"] {
        assert_eq!(bearer(&rule, &Signer::of_fixtures().token(kid)), refused(UNKNOWN_KEY), "{kid}");
    }
    for kid in [json!(7), json!(["ed25519"]), json!(null), json!("x".repeat(257))] {
        let token =
            Signer::of_fixtures().token_of(&json!({ "alg": "EdDSA", "kid": kid }), &claims(json!({})));
        assert_eq!(bearer(&rule, &token), refused(MALFORMED), "{kid}");
    }
}

#[tokio::test]
async fn extensions_that_must_be_understood_are_not() {
    let rule = live(by_token(by_secret())).await;
    for header in [
        r#"{"alg":"HS256","crit":["exp"]}"#,
        r#"{"alg":"HS256","crit":[]}"#,
        r#"{"alg":"HS256","b64":false,"crit":["b64"]}"#,
        r#"{"alg":"HS256","b64":false}"#,
    ] {
        let token = hs256_of(header, &claims(json!({})).to_string(), SECRET);
        assert_eq!(bearer(&rule, &token), refused("it needs extensions that are not supported"), "{header}");
    }
}

#[tokio::test]
async fn a_token_that_was_tampered_with_is_refused_whatever_was_changed() {
    let rule = live(by_token(by_secret())).await;
    let token = hs256(&claims(json!({})));
    assert_eq!(bearer(&rule, &token), alice());
    let parts: Vec<&str> = token.split('.').collect();
    let [header, body, signature] = parts[..] else { panic!("three parts") };
    let bob = base64url(claims(json!({ "sub": "bob" })).to_string());
    for forged in [
        format!("{header}.{bob}.{signature}"),
        format!("{header}.{body}."),
        format!("{header}.{body}.{}", &signature[..40]),
        format!("{header}.{body}.{signature}AAAA"),
        format!("{}.{body}.{signature}", base64url(r#"{"alg":"HS256" }"#)),
    ] {
        assert_eq!(bearer(&rule, &forged), refused(SIGNATURE), "{forged}");
    }
    let other = hs256_of(r#"{"alg":"HS256"}"#, &claims(json!({})).to_string(), &[7; 64]);
    assert_eq!(bearer(&rule, &other), refused(SIGNATURE));
}

#[tokio::test]
async fn a_token_has_one_text() {
    let rule = live(by_token(by_secret())).await;
    let token = hs256(&claims(json!({})));
    // 32 bytes end in a character with four significant bits: lax decoders decode its neighbours in the alphabet to the
    // same bytes.
    let last = token.chars().next_back().expect("a signature");
    let neighbour = char::from_u32(u32::from(last) + 1).expect("a character");
    let stray = format!("{}{neighbour}", &token[..token.len() - 1]);
    for text in
        [format!("{token}="), stray, format!("{token}\t"), format!("{token}.x"), token.replace('.', "..")]
    {
        let identify = identify(&rule, &[("authorization", &format!("Bearer {text}"))]);
        if text.trim_end() == token {
            assert_eq!(identify, alice(), "trailing white space is not part of a header");
        } else {
            assert_eq!(identify, refused(MALFORMED), "{text}");
        }
    }
    for text in ["", ".", "..", "a.b", "a.b.c.d", "a.b.c.d.e", "€", "e30.e30", "null.null.null"] {
        assert_eq!(bearer(&rule, text), refused(MALFORMED), "{text}");
    }
    let inner = format!("{} {}", &token[..10], &token[10..]);
    assert_eq!(bearer(&rule, &inner), refused(MALFORMED));
}

#[tokio::test]
async fn an_ecdsa_signature_has_its_fixed_length() {
    let folder = Folder::new("der");
    let rule = by_keys(&folder).await;
    assert_eq!(bearer(&rule, &fixture("ES256")), alice());
    assert_eq!(bearer(&rule, &fixture("ES256 as DER")), refused(SIGNATURE));
    let token = fixture("ES256");
    let message = &token[..token.rfind('.').expect("a dot")];
    for signature in [vec![0; 64], vec![0xff; 64], vec![], vec![0; 63]] {
        assert_eq!(bearer(&rule, &format!("{message}.{}", base64url(signature))), refused(SIGNATURE));
    }
}

#[tokio::test]
async fn a_member_that_stands_twice_is_refused_signed_or_not() {
    let rule = live(by_token(by_secret())).await;
    let twice = |name: &str, value: &str| {
        let claims = claims(json!({})).to_string();
        format!("{{\"{name}\":{value},{}", &claims[1..])
    };
    let good = r#"{"alg":"HS256"}"#;
    for body in [
        twice("sub", "\"bob\""),
        twice("\\u0073ub", "\"bob\""),
        twice("exp", "9999999999"),
        twice("x", r#"{"a":[{"b":1,"b":1}]}"#),
    ] {
        assert_eq!(bearer(&rule, &hs256_of(good, &body, SECRET)), refused(MALFORMED), "{body}");
    }
    let header = r#"{"alg":"none","alg":"HS256"}"#;
    assert_eq!(bearer(&rule, &hs256_of(header, &claims(json!({})).to_string(), SECRET)), refused(MALFORMED));
}

#[tokio::test]
async fn claims_of_the_wrong_kind_are_refused() {
    let rule = live(by_token(by_secret())).await;
    for (changed, why) in [
        (json!({ "iss": "https://ID.example" }), "its issuer is not known"),
        (json!({ "iss": "https://id.example/" }), "its issuer is not known"),
        (json!({ "iss": null }), "its issuer is not known"),
        (json!({ "iss": ["https://id.example"] }), "its issuer is not known"),
        (json!({ "aud": "others" }), "it is meant for another audience"),
        (json!({ "exp": NOW - 61 }), "it has expired"),
        (json!({ "exp": -1 }), "it has expired"),
        (json!({ "exp": "9999999999" }), "it has no valid expiry"),
        (json!({ "exp": [9_999_999_999_u64] }), "it has no valid expiry"),
        (json!({ "nbf": NOW + 3600 }), "it is not valid yet"),
        (json!({ "nbf": "0" }), "it is not valid yet"),
        (json!({ "sub": null }), "it names no subject"),
        (json!({ "sub": "" }), "it names no subject"),
        (json!({ "sub": 42 }), "it names no subject"),
        (json!({ "sub": ["alice"] }), "it names no subject"),
    ] {
        assert_eq!(bearer(&rule, &hs256(&claims(changed.clone()))), refused(why), "{changed}");
    }
}

#[tokio::test]
async fn a_huge_token_is_refused_before_it_is_read() {
    let rule = live(by_token(by_secret())).await;
    let token = |bytes: usize| hs256(&claims(json!({ "x": "x".repeat(bytes) })));
    assert_eq!(bearer(&rule, &token(11_000)), alice());
    assert_eq!(bearer(&rule, &token(12_500)), refused("it is too long"));
    let deep = format!("{{\"x\":{}{}}}", "[".repeat(5_000), "]".repeat(5_000));
    assert_eq!(bearer(&rule, &hs256_of(r#"{"alg":"HS256"}"#, &deep, SECRET)), refused(MALFORMED));
}

#[tokio::test]
async fn a_refused_token_never_falls_back_and_is_never_quoted() {
    let mut identity = by_token(by_secret());
    identity.sources.extend([Source::Cookie("sid".to_owned()), Source::Authorization, Source::Anonymous]);
    let rule = live(identity).await;
    let token = hs256(&claims(json!({ "exp": 1, "sub": "confidential" })));
    let identified =
        |token: &str| identify(&rule, &[("authorization", &format!("Bearer {token}")), ("cookie", "sid=7")]);
    assert_eq!(identified(&token), refused("it has expired"));
    let why = identified(&format!("{token}x")).expect_err("tampered with");
    assert!(!why.contains("confidential") && !why.contains(&token[..8]), "{why}");
    assert_eq!(identify(&rule, &[]), Ok(Caller::Anonymous));
    let twice = identify(&rule, &[("authorization", "Bearer x"), ("authorization", "Basic YTpi")]);
    assert!(twice.is_err_and(|why| why.contains("several authorization headers")));
}
