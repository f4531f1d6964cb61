//! Keys that change while the gateway runs.

use super::issuers::Folder;
use super::key_server::{Answer, KeyServer};
use super::world::{Signer, alice, bearer, by_token, clock, issuer, jwks, live_at, refused};
use semel::core::scope::Caller;
use semel::core::store::Clock as _;
use semel_gateway::caller_rules::CallerRules;
use semel_identity::Identity;
use semel_identity::jwt::{KeySource, Url};
use semel_testkit::FakeClock;
use serde_json::json;
use std::time::Duration;

const EVERY: Duration = Duration::from_mins(5);
const INTERVAL_MIN: Duration = Duration::from_secs(10);

fn unknown_key() -> Result<Caller, String> {
    refused("its key is not known (if the key is new, try again later)")
}

fn no_keys() -> Result<Caller, String> {
    refused("its issuer's keys are not available now; try again later")
}

fn by_server(server: &KeyServer) -> Identity {
    by_token(issuer(KeySource::Url(Url::new(&*server.address))))
}

fn document(keys: &[(u8, &str)]) -> Answer {
    let keys: Vec<_> = keys.iter().map(|(number, kid)| Signer::numbered(*number).jwk(kid)).collect();
    Answer::Document(jwks(&keys))
}

/// Lets all tasks run until the condition holds; gives up if it never does.
async fn until(mut is_so: impl FnMut() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), waiting).await.expect("the condition never held");
}

/// Lets all tasks run until the refreshing task sleeps for that long.
async fn wait_until_asleep(clock: &FakeClock, span: Duration) {
    until(|| clock.next_wake() == Some(span)).await;
}

/// Advances time without letting tokens expire.
fn advance(clock: &FakeClock, span: Duration) {
    let now = clock.now();
    clock.advance(span);
    clock.set(now);
}

async fn start(server: &KeyServer) -> (CallerRules, FakeClock) {
    let clock = clock();
    let rule = live_at(by_server(server), &clock).await;
    (rule, clock)
}

#[tokio::test]
async fn keys_are_fetched_at_start_and_now_and_then() {
    let server = KeyServer::new(document(&[(1, "a")])).await;
    let (rule, clock) = start(&server).await;
    assert_eq!(server.last_request(), "GET /keys?v=1 HTTP/1.1");
    assert_eq!(bearer(&rule, &Signer::numbered(1).token("a")), alice());
    assert_eq!(bearer(&rule, &Signer::numbered(2).token("a")), refused("its signature is not valid"));

    server.set(document(&[(2, "b")]));
    wait_until_asleep(&clock, EVERY).await;
    assert_eq!(server.fetches(), 1);
    advance(&clock, EVERY);
    until(|| bearer(&rule, &Signer::numbered(2).token("b")) == alice()).await;
    assert_eq!(
        bearer(&rule, &Signer::numbered(1).token("a")),
        unknown_key(),
        "a withdrawn key is no longer accepted"
    );
    assert_eq!(server.fetches(), 2);
}

#[tokio::test]
async fn a_new_key_is_fetched_when_the_first_token_names_it() {
    let server = KeyServer::new(document(&[(1, "a")])).await;
    let (rule, clock) = start(&server).await;
    wait_until_asleep(&clock, EVERY).await;
    advance(&clock, INTERVAL_MIN);
    server.set(document(&[(1, "a"), (2, "b")]));
    assert_eq!(bearer(&rule, &Signer::numbered(2).token("b")), unknown_key());
    until(|| server.fetches() == 2).await;
    wait_until_asleep(&clock, EVERY).await;
    assert_eq!(bearer(&rule, &Signer::numbered(2).token("b")), alice());
    assert_eq!(bearer(&rule, &Signer::numbered(1).token("a")), alice());
}

#[tokio::test]
async fn a_flood_of_unknown_keys_is_one_fetch_in_an_interval() {
    let server = KeyServer::new(document(&[(1, "a")])).await;
    let (rule, clock) = start(&server).await;
    wait_until_asleep(&clock, EVERY).await;
    for interval in 1..=5 {
        for number in 0..200 {
            assert_eq!(bearer(&rule, &Signer::numbered(9).token(&format!("x{number}"))), unknown_key());
            tokio::task::yield_now().await;
        }
        wait_until_asleep(&clock, INTERVAL_MIN).await;
        assert_eq!(server.fetches(), interval);
        advance(&clock, INTERVAL_MIN);
        until(|| server.fetches() == interval + 1).await;
        wait_until_asleep(&clock, EVERY).await;
    }
    assert_eq!(bearer(&rule, &Signer::numbered(1).token("a")), alice());
}

#[tokio::test]
async fn keys_outlive_their_issuers_outage_up_to_the_limit() {
    let server = KeyServer::new(document(&[(1, "a")])).await;
    let (rule, clock) = start(&server).await;
    let token = Signer::numbered(1).token("a");
    server.set(Answer::Raw("HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n".to_owned()));
    wait_until_asleep(&clock, EVERY).await;
    advance(&clock, EVERY);
    until(|| server.fetches() == 2).await;
    // The keys are requested again sooner than usual, but not sooner than allowed.
    wait_until_asleep(&clock, INTERVAL_MIN).await;
    assert_eq!(bearer(&rule, &token), alice());

    advance(&clock, Duration::from_mins(24 * 60 - 5));
    assert_eq!(bearer(&rule, &token), alice());
    until(|| server.fetches() == 3).await;
    wait_until_asleep(&clock, INTERVAL_MIN).await;
    advance(&clock, Duration::from_millis(1));
    assert_eq!(bearer(&rule, &token), no_keys(), "keys that are a day old are not trusted");

    server.set(document(&[(1, "a")]));
    advance(&clock, INTERVAL_MIN);
    until(|| bearer(&rule, &token) == alice()).await;
}

#[tokio::test]
async fn an_issuer_may_be_down_at_start() {
    let server = KeyServer::new(Answer::Raw(String::new())).await;
    let (rule, clock) = start(&server).await;
    let token = Signer::numbered(1).token("a");
    assert_eq!(bearer(&rule, &token), no_keys());
    server.set(document(&[(1, "a")]));
    wait_until_asleep(&clock, INTERVAL_MIN).await;
    advance(&clock, INTERVAL_MIN);
    until(|| bearer(&rule, &token) == alice()).await;
}

#[tokio::test]
async fn a_silent_server_delays_nothing() {
    let server = KeyServer::new(Answer::Silence).await;
    let clock = clock();
    let timeout = Duration::from_secs(5);
    let (rule, ()) = tokio::join!(live_at(by_server(&server), &clock), async {
        until(|| server.fetches() == 1 && clock.next_wake() == Some(timeout)).await;
        advance(&clock, timeout);
    });
    assert_eq!(bearer(&rule, &Signer::numbered(1).token("a")), no_keys());
}

#[tokio::test]
async fn an_invalid_key_set_does_not_replace_the_old_one() {
    let server = KeyServer::new(document(&[(1, "a")])).await;
    let (rule, clock) = start(&server).await;
    let key = Signer::numbered(2).jwk("a");
    let good = jwks(std::slice::from_ref(&key));
    let many: Vec<_> = (0..33).map(|number| Signer::numbered(number).jwk("a")).collect();
    let bad = [
        Answer::Document("<html>".to_owned()),
        Answer::Document(String::new()),
        Answer::Document(json!({ "keys": key }).to_string()),
        Answer::Document(json!([key]).to_string()),
        Answer::Document(format!("{{\"keys\":[],{}", &good[1..])),
        Answer::Document(jwks(&many)),
        Answer::Document(format!("{good}{}", " ".repeat(256 * 1024))),
        Answer::Raw(format!("HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n{good}")),
        Answer::Raw(format!("HTTP/1.1 203 Other\r\ncontent-length: {}\r\n\r\n{good}", good.len())),
        Answer::Raw(format!(
            "HTTP/1.1 302 Found\r\nlocation: {}\r\ncontent-length: 0\r\n\r\n",
            server.address
        )),
    ];
    wait_until_asleep(&clock, EVERY).await;
    let mut pause = EVERY;
    for (fetches, answer) in (2..).zip(bad) {
        server.set(answer);
        advance(&clock, pause);
        until(|| server.fetches() == fetches).await;
        pause = INTERVAL_MIN;
        wait_until_asleep(&clock, pause).await;
        assert_eq!(bearer(&rule, &Signer::numbered(1).token("a")), alice(), "answer {fetches}");
        assert_ne!(bearer(&rule, &Signer::numbered(2).token("a")), alice(), "answer {fetches}");
    }
    server.set(Answer::Document(good));
    advance(&clock, pause);
    until(|| bearer(&rule, &Signer::numbered(2).token("a")) == alice()).await;
}

#[tokio::test]
async fn keys_for_other_uses_and_published_secrets_are_passed_over() {
    let secret = published_secret();
    let mut for_encryption = Signer::numbered(2).jwk("enc");
    for_encryption["use"] = json!("enc");
    let mut for_signing = Signer::numbered(3).jwk("sign");
    for_signing["key_ops"] = json!(["sign"]);
    let mut for_rsa = Signer::numbered(4).jwk("rs");
    for_rsa["alg"] = json!("RS256");
    let mut good = Signer::numbered(1).jwk("a");
    good["key_ops"] = json!(["verify"]);
    good["alg"] = json!("EdDSA");
    let keys = [secret, for_encryption, for_signing, for_rsa, json!(7), json!({ "kty": "new" }), good];
    let server = KeyServer::new(Answer::Document(jwks(&keys))).await;
    let (rule, _clock) = start(&server).await;
    assert_eq!(bearer(&rule, &Signer::numbered(1).token("a")), alice());
    for (number, kid) in [(2, "enc"), (3, "sign"), (4, "rs")] {
        assert_eq!(bearer(&rule, &Signer::numbered(number).token(kid)), unknown_key(), "{kid}");
    }
}

fn published_secret() -> serde_json::Value {
    json!({ "kty": "oct", "kid": "secret", "k": super::world::base64url(super::world::SECRET) })
}

#[tokio::test]
async fn an_issuer_that_withdraws_every_key_is_obeyed() {
    let server = KeyServer::new(document(&[(1, "a")])).await;
    let (rule, clock) = start(&server).await;
    wait_until_asleep(&clock, EVERY).await;
    server.set(document(&[]));
    advance(&clock, EVERY);
    until(|| bearer(&rule, &Signer::numbered(1).token("a")) == unknown_key()).await;
}

#[tokio::test]
async fn keys_over_tls_are_taken_from_a_certified_server_only() {
    let (server, certificate) = KeyServer::with_tls(document(&[(1, "a")])).await;
    let mut url = Url::new(&*server.address);
    url.roots_pem = Some(certificate);
    let rule = live_at(by_token(issuer(KeySource::Url(url.clone()))), &clock()).await;
    assert_eq!(bearer(&rule, &Signer::numbered(1).token("a")), alice());

    let (_, other) = KeyServer::with_tls(Answer::Silence).await;
    url.roots_pem = Some(other);
    let rule = live_at(by_token(issuer(KeySource::Url(url))), &clock()).await;
    assert_eq!(bearer(&rule, &Signer::numbered(1).token("a")), no_keys());
    assert_eq!(server.fetches(), 1);
}

#[tokio::test]
async fn a_changed_key_file_is_read_and_a_bad_one_ignored() {
    let folder = Folder::new("reload");
    let clock = clock();
    let file = |numbers: &[(u8, &str)]| match document(numbers) {
        Answer::Document(text) => text,
        _ => unreachable!("a document"),
    };
    let path = folder.write(&file(&[(1, "a")]));
    let rule = live_at(by_token(issuer(KeySource::File(path.clone()))), &clock).await;
    let (a, b) = (Signer::numbered(1).token("a"), Signer::numbered(2).token("b"));
    assert_eq!((bearer(&rule, &a), bearer(&rule, &b)), (alice(), unknown_key()));

    folder.write(&file(&[(2, "b")]));
    advance(&clock, Duration::from_secs(5));
    until(|| bearer(&rule, &b) == alice()).await;
    assert_eq!(bearer(&rule, &a), unknown_key());

    folder.write("no key set");
    for _ in 0..3 {
        wait_until_asleep(&clock, Duration::from_secs(1)).await;
        advance(&clock, Duration::from_secs(1));
    }
    std::fs::remove_file(path).expect("removed");
    wait_until_asleep(&clock, Duration::from_secs(1)).await;
    advance(&clock, Duration::from_secs(1));
    wait_until_asleep(&clock, Duration::from_secs(1)).await;
    assert_eq!(bearer(&rule, &b), alice());
}

#[tokio::test]
async fn a_rule_that_is_dropped_stops_asking() {
    let server = KeyServer::new(document(&[(1, "a")])).await;
    let (rule, clock) = start(&server).await;
    wait_until_asleep(&clock, EVERY).await;
    let callers = rule.callers();
    drop(rule);
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(clock.next_wake(), Some(EVERY), "the callers keep the refreshing task alive");
    drop(callers);
    until(|| clock.next_wake().is_none()).await;
}
