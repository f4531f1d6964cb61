//! Callers identified by tokens, from the file to the socket.

use crate::world::{KEY, Scratch, World, until};
use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use rcgen::{
    KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, PKCS_RSA_SHA256, PublicKeyData as _, SigningKey as _,
};
use ring::hmac;
use semel_test_support::Reply;
use semel_test_support::client::TestRequest;
use semel_test_support::upstream::charged;
use serde_json::{Value, json};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

pub(crate) const ISSUER: &str = "https://id.example";
pub(crate) const SECRET: &str = "a test secret of at least thirty-two bytes";
/// A key pair for tests only.
const RSA: &str = include_str!("../library/identity/fixtures/rsa.test-key.pem");

/// The signer and its key.
pub(crate) enum Signer {
    Secret(Vec<u8>),
    Pair(&'static str, Box<KeyPair>),
}

impl Signer {
    pub(crate) fn secret() -> Self {
        Self::Secret(SECRET.into())
    }

    fn pair(algorithm: &'static str, pair: Result<KeyPair, rcgen::Error>) -> Self {
        Self::Pair(algorithm, Box::new(pair.expect("a key")))
    }

    fn rsa() -> Self {
        Self::pair("RS256", KeyPair::from_pkcs8_pem_and_sign_algo(RSA, &PKCS_RSA_SHA256))
    }

    fn p256() -> Self {
        Self::pair("ES256", KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256))
    }

    fn ed25519() -> Self {
        Self::pair("EdDSA", KeyPair::generate_for(&PKCS_ED25519))
    }

    /// A token with this header, besides the algorithm, and these claims.
    fn token(&self, header: &Value, claims: &Value) -> String {
        let mut header = header.clone();
        let algorithm = match self {
            Self::Secret(_) => "HS256",
            Self::Pair(name, _) => name,
        };
        if header["alg"].is_null() {
            header["alg"] = json!(algorithm);
        }
        let message = format!("{}.{}", base64url(header.to_string()), base64url(claims.to_string()));
        let signature = match self {
            Self::Secret(secret) => {
                hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), message.as_bytes()).as_ref().to_vec()
            }
            Self::Pair("ES256", pair) => fixed(&pair.sign(message.as_bytes()).expect("signed")),
            Self::Pair(_, pair) => pair.sign(message.as_bytes()).expect("signed"),
        };
        format!("{message}.{}", base64url(signature))
    }

    pub(crate) fn of(&self, who: &str) -> String {
        self.token(&json!({}), &claims(who))
    }

    /// An expired token.
    pub(crate) fn expired(&self, who: &str) -> String {
        let mut claims = claims(who);
        claims["exp"] = json!(1);
        self.token(&json!({}), &claims)
    }

    fn public_pem(&self) -> String {
        match self {
            Self::Secret(_) => panic!("it has none"),
            Self::Pair(_, pair) => pair.public_key_pem(),
        }
    }
}

fn claims(who: &str) -> Value {
    json!({ "iss": ISSUER, "sub": who, "aud": "payments", "exp": 9_999_999_999_u64 })
}

fn base64url(bytes: impl AsRef<[u8]>) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

/// The two numbers of an ECDSA signature concatenated, as in tokens, from DER.
fn fixed(der: &[u8]) -> Vec<u8> {
    let mut rest = &der[2..];
    let mut both = Vec::new();
    for _ in 0..2 {
        let length = usize::from(rest[1]);
        let number = &rest[2..2 + length];
        let number = &number[number.len().saturating_sub(32)..];
        both.extend(std::iter::repeat_n(0, 32 - number.len()));
        both.extend_from_slice(number);
        rest = &rest[2 + length..];
    }
    both
}

/// A gateway that trusts one issuer with the keys in `keys`; `FILE` in it is a file with `text`.
async fn world_trusting(keys: &str, text: &str) -> World {
    let scratch = Scratch::new();
    let file = scratch.write("issuer.key", text);
    let terms = format!(
        "[identity]\nsources = [\"jwt\"]\n[[identity.issuer]]\nname = \"{ISSUER}\"\naudience = \"payments\"\n{}\n",
        keys.replace("FILE", &file.display().to_string())
    );
    World::configured_in(scratch, &terms, charged).await
}

async fn charge(world: &World, token: &str) -> Reply {
    world.send(TestRequest::post("/charges").key(KEY).with("authorization", format!("Bearer {token}"))).await
}

async fn is_refused(world: &World, token: &str, why: &str) {
    let reply = charge(world, token).await;
    assert_eq!(
        (reply.status, reply.code().as_deref()),
        (400, Some("CALLER_NOT_IDENTIFIED")),
        "{why}: {reply:?}"
    );
    assert!(reply.text().contains(why), "{why}: {}", reply.text());
}

#[tokio::test]
async fn a_new_token_of_any_kind_is_the_same_caller() {
    let (rsa, p256, ed25519) = (Signer::rsa(), Signer::p256(), Signer::ed25519());
    for (keys, text, signer) in [
        ("secret = 'file:FILE'", SECRET.to_owned(), Signer::secret()),
        ("pem = 'FILE'", rsa.public_pem(), rsa),
        ("pem = 'FILE'", p256.public_pem(), p256),
        ("pem = 'FILE'", ed25519.public_pem(), ed25519),
    ] {
        let world = world_trusting(keys, &text).await;
        let first = charge(&world, &signer.of("alice")).await;
        assert_eq!((first.status, first.text()), (201, "charge 1"), "{first:?}");
        let mut later = claims("alice");
        later["jti"] = json!("another token");
        let again = charge(&world, &signer.token(&json!({}), &later)).await;
        assert_eq!(
            (again.text(), again.is_replay()),
            ("charge 1", true),
            "a renewed token is the same caller"
        );
        let bob = charge(&world, &signer.of("bob")).await;
        assert_eq!((bob.text(), bob.is_replay()), ("charge 2", false));
        assert_eq!(world.calls(), 2);
    }
}

#[tokio::test]
async fn tokens_that_prove_nothing_reach_no_service() {
    let rsa = Signer::rsa();
    let world = world_trusting("pem = 'FILE'", &rsa.public_pem()).await;
    let good = rsa.of("alice");
    let parts: Vec<_> = good.split('.').collect();
    let [header, body, signature] = parts[..] else { panic!("{good}") };

    let none = base64url(json!({ "alg": "none" }).to_string());
    is_refused(&world, &format!("{none}.{body}."), "its algorithm is not accepted").await;
    // The public key, which everybody knows, used as the HS256 secret.
    for secret in [rsa.public_pem(), rsa.public_pem().trim_end().to_owned()] {
        let confused = Signer::Secret(secret.into_bytes()).of("alice");
        is_refused(&world, &confused, "its algorithm is not accepted").await;
    }
    let forged = base64url(claims("mallory").to_string());
    is_refused(&world, &format!("{header}.{forged}.{signature}"), "its signature is not valid").await;
    let other = Signer::p256().token(&json!({ "alg": "RS256" }), &claims("alice"));
    is_refused(&world, &other, "its signature is not valid").await;

    let altered = |name: &str, value: Value| {
        let mut claims = claims("alice");
        claims[name] = value;
        rsa.token(&json!({}), &claims)
    };
    is_refused(&world, &altered("exp", json!(1)), "it has expired").await;
    is_refused(&world, &altered("exp", Value::Null), "it has no valid expiry").await;
    is_refused(&world, &altered("iss", json!("https://evil.example")), "its issuer is not known").await;
    is_refused(&world, &altered("aud", json!("others")), "another audience").await;
    is_refused(&world, &altered("nbf", json!(9_999_999_990_u64)), "not valid yet").await;
    assert_eq!(world.calls(), 0, "no forged token may reach the service");
    assert_eq!(charge(&world, &good).await.status, 201);
}

/// Publishes a key set until the task is stopped.
async fn publish(set: String) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let serving = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let Ok(byte) = stream.read_u8().await else { break };
                head.push(byte);
            }
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{set}", set.len());
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    (address, serving)
}

/// The test blocks until the gateway has started, and the gateway requests the keys meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_without_the_key_server_keeps_known_keys() {
    let signer = Signer::ed25519();
    let Signer::Pair(_, pair) = &signer else { panic!("a pair") };
    let x = base64url(pair.der_bytes());
    let set = json!({ "keys": [{ "kty": "OKP", "crv": "Ed25519", "kid": "2026", "x": x }] });
    let (address, serving) = publish(set.to_string()).await;
    let identity = format!(
        "[identity]\nsources = [\"jwt\"]\n[[identity.issuer]]\nname = \"{ISSUER}\"\naudience = \"payments\"\n\
         jwks_url = \"http://{address}/keys\"\n"
    );
    let world = World::configured(&identity, charged).await;
    let token = |who: &str| signer.token(&json!({ "kid": "2026" }), &claims(who));
    assert_eq!(charge(&world, &token("alice")).await.status, 201);
    serving.abort();
    let _ = serving.await;
    // Twice: inherited keys can be inherited again.
    for path in ["/hook", "/other"] {
        let hook = format!("[[operation]]\npath = \"{path}\"\ncallers = [\"anonymous\"]\n");
        world.reconfigure(&format!("{hook}{identity}"));
        let hook = || TestRequest::post(path).key(KEY);
        until(async || world.send(hook()).await.code().is_none().then_some(())).await;
        assert!(charge(&world, &token("alice")).await.is_replay(), "{path}");
        assert_eq!(charge(&world, &token(path)).await.status, 201);
    }
}

#[tokio::test]
async fn a_key_that_the_issuer_does_not_publish_is_unknown() {
    let (known, stranger) = (Signer::ed25519(), Signer::ed25519());
    let Signer::Pair(_, pair) = &known else { panic!("a pair") };
    let x = base64url(pair.der_bytes());
    let set = json!({ "keys": [{ "kty": "OKP", "crv": "Ed25519", "kid": "2026", "x": x }] });
    let world = world_trusting("jwks_file = 'FILE'", &set.to_string()).await;
    let named = |kid: &str| json!({ "kid": kid });
    is_refused(&world, &known.token(&named("2027"), &claims("alice")), "its key is not known").await;
    is_refused(&world, &stranger.token(&named("2026"), &claims("alice")), "its signature is not valid").await;
    assert_eq!(world.calls(), 0);
    assert_eq!(charge(&world, &known.token(&named("2026"), &claims("alice"))).await.status, 201);
}
