//! Operations with their own rules for callers, beside the default.

use super::key_server::{Answer, KeyServer};
use super::world::{
    ISSUER, Signer, by, by_secret, by_token, claims, clock, hs256, issuer, jwks, live, prepared,
    prepared_from,
};
use http::HeaderName;
use http::request::Parts;
use semel::core::scope::{Caller, Identity as Name};
use semel_gateway::caller_rules::CallerRules;
use semel_identity::jwt::{KeySource, Url};
use semel_identity::{Identity, IdentityError, Peer, Source, Tenant};
use serde_json::json;
use std::sync::Arc;

const PROXY: &str = "10.0.0.5";
const STRANGER: &str = "203.0.113.7";

fn header(name: &'static str) -> HeaderName {
    HeaderName::from_static(name)
}

fn by_header(name: &'static str) -> Identity {
    let trusted = vec!["10.0.0.0/24".parse().expect("a network")];
    Identity { trusted, ..by([Source::Header(header(name))]) }
}

fn by_key(name: &'static str) -> Identity {
    by([Source::ApiKey(header(name))])
}

/// A rule like that of an operation with its own `callers`.
fn of_operation(identity: Identity) -> Identity {
    Identity { is_by_place: true, ..identity }
}

async fn started(default: Identity, others: &[Identity]) -> Result<CallerRules, Vec<IdentityError>> {
    let peer = |extensions: &http::Extensions| extensions.get::<Peer>().cloned();
    CallerRules::start_beside(default, others.to_vec(), None, Arc::new(clock()), peer).await
}

fn identify(live: &CallerRules, rule: &Identity, parts: &Parts) -> Result<Caller, String> {
    live.callers_of(rule).expect("it was started").identify(parts).map_err(|why| why.to_string())
}

#[tokio::test]
async fn each_rule_finds_its_own_caller_in_a_request() {
    let (keys, users, anybody) = (
        of_operation(by_key("x-api-key")),
        of_operation(by_header("x-user")),
        of_operation(by([Source::Anonymous])),
    );
    let rules = [keys.clone(), users.clone(), anybody.clone()];
    let live = started(by_token(by_secret()), &rules).await.expect("safe settings");
    let token = format!("Bearer {}", hs256(&claims(json!({}))));
    let all = [("authorization", token.as_str()), ("x-api-key", "k"), ("x-user", "u")];
    let parts = prepared(&live, PROXY, &all);
    assert_eq!(live.callers().identify(&parts), Ok(Name::jwt(ISSUER, "alice").into()));
    assert_eq!(identify(&live, &keys, &parts), Ok(Name::api_key("k").found_in("x-api-key").into()));
    assert_eq!(identify(&live, &users, &parts), Ok(Name::header("u").found_in("x-user").into()));
    assert_eq!(identify(&live, &anybody, &parts), Ok(Caller::Anonymous));
    assert!(live.callers_of(&by_key("x-other")).is_none(), "a rule that was not started");

    let none = prepared(&live, STRANGER, &all[2..]);
    assert!(live.callers().identify(&none).is_err(), "another rule's credentials are not accepted here");
    let why = identify(&live, &keys, &none).expect_err("no caller");
    assert!(why.contains("x-api-key") && why.contains("the operation's `callers`"), "{why}");
    assert!(!why.contains("x-user"), "the message mentions other rules: {why}");
}

#[tokio::test]
async fn the_same_text_from_two_sources_is_two_callers() {
    let cookie = by([Source::Cookie("sid".to_owned())]);
    let rules = [by_key("x-api-key"), by_header("x-user"), cookie].map(of_operation);
    let live = started(by([Source::Authorization]), &rules).await.expect("safe settings");
    let seven = [("authorization", "Bearer 7"), ("x-api-key", "7"), ("x-user", "7"), ("cookie", "sid=7")];
    let parts = prepared(&live, PROXY, &seven);
    let mut callers: Vec<_> =
        rules.iter().map(|rule| identify(&live, rule, &parts).expect("a caller")).collect();
    callers.push(live.callers().identify(&parts).expect("a caller"));
    for (index, caller) in callers.iter().enumerate() {
        assert!(!callers[..index].contains(caller), "{callers:?}");
    }
}

#[tokio::test]
async fn an_operations_rule_does_not_change_default_callers() {
    let cookie = |name: &str| by([Source::Cookie(name.to_owned())]);
    let all = [("x-user", "7"), ("x-merchant", "7"), ("x-key", "7"), ("y-key", "7"), ("cookie", "a=7; A=7")];
    for (one, other, plain) in [
        (by_header("x-user"), by_header("x-merchant"), Name::header("7")),
        (by_key("x-key"), by_key("y-key"), Name::api_key("7")),
        (cookie("a"), cookie("A"), Name::cookie("7")),
    ] {
        let (default, one, other) = (one.clone(), of_operation(one), of_operation(other));
        let as_default = started(default.clone(), &[one.clone(), other.clone()]).await;
        let as_default = as_default.expect("safe settings");
        let as_own = started(by([Source::Anonymous]), &[one.clone(), other.clone()]).await;
        let as_own = as_own.expect("safe settings");
        let parts = prepared(&as_default, PROXY, &all);
        assert_eq!(as_default.callers().identify(&parts), Ok(plain.clone().into()));
        let pinned = identify(&as_default, &one, &parts);
        let tenanted = Identity { tenant: Tenant::Host(vec!["shop.example".to_owned()]), ..default.clone() };
        let leaving = started(tenanted, std::slice::from_ref(&default)).await.expect("safe settings");
        let parts_of_it = prepared(&leaving, PROXY, &all);
        assert_eq!(
            identify(&leaving, &default, &parts_of_it),
            Ok(plain.clone().into()),
            "its own tenant does not change the caller"
        );
        let (theirs, parts) = (identify(&as_default, &other, &parts), prepared(&as_own, PROXY, &all));
        assert_eq!(
            theirs,
            identify(&as_own, &other, &parts),
            "the caller is the same under every default rule"
        );
        assert_eq!(pinned, identify(&as_own, &one, &parts), "even if the default rule is the same");
        let callers = [Ok(plain.into()), theirs, identify(&as_own, &one, &parts)];
        for (index, caller) in callers.iter().enumerate() {
            assert!(caller.is_ok() && !callers[..index].contains(caller), "{callers:?}");
        }
    }
    // A token names the same caller in every rule that trusts it.
    let token = format!("Bearer {}", hs256(&claims(json!({}))));
    let theirs = of_operation(by([Source::Jwt(vec![by_secret()]), Source::Anonymous]));
    let live = started(by_token(by_secret()), std::slice::from_ref(&theirs)).await.expect("safe settings");
    let parts = prepared(&live, STRANGER, &[("authorization", &token)]);
    assert_eq!(Ok(live.callers().identify(&parts).expect("alice")), identify(&live, &theirs, &parts));
}

#[tokio::test]
async fn trusted_headers_are_removed_from_untrusted_requests_in_every_spelling() {
    let tenants = Identity { tenant: Tenant::Header(header("x-org")), ..by_header("x-user") };
    let live =
        started(by_key("x-api-key"), &[tenants, by_header("x-merchant")]).await.expect("safe settings");
    let headers = [
        ("x-user", "a"),
        ("x_user", "b"),
        ("x-org", "c"),
        ("x_org", "d"),
        ("x-merchant", "e"),
        ("X_Merchant", "f"),
        ("x-api-key", "g"),
        ("x-other", "h"),
    ];
    let left = |from: &str| {
        let parts = prepared(&live, from, &headers);
        let mut names: Vec<_> = parts.headers.keys().map(ToString::to_string).collect();
        names.sort();
        names
    };
    assert_eq!(left(STRANGER), ["x-api-key", "x-other"]);
    assert_eq!(left(PROXY), ["x-api-key", "x-merchant", "x-org", "x-other", "x-user"]);
    let nowhere = prepared_from(&live, None, &headers);
    assert!(!nowhere.headers.contains_key("x-user"), "the peer address is unknown");
}

#[tokio::test]
async fn a_rules_trust_is_not_widened_by_another_rule() {
    let elsewhere = vec!["10.9.0.0/16".parse().expect("a network")];
    let narrow = Identity { trusted: elsewhere, ..by_header("x-user") };
    let live = started(by_header("x-user"), std::slice::from_ref(&narrow)).await.expect("safe settings");
    let parts = prepared(&live, PROXY, &[("x-user", "alice")]);
    assert_eq!(live.callers().identify(&parts), Ok(Name::header("alice").into()));
    assert!(identify(&live, &narrow, &parts).is_err());
}

#[tokio::test]
async fn an_operations_rule_is_refused_for_whatever_the_default_would_be() {
    let default = || by([Source::Authorization]);
    let found = async |other: Identity| started(default(), &[other]).await.err().unwrap_or_default();
    let untrusted = Identity { trusted: Vec::new(), ..by_header("x-user") };
    assert_eq!(found(untrusted).await, [IdentityError::HeaderWithoutTrust(header("x-user"))]);
    assert_eq!(found(by([Source::Jwt(Vec::new())])).await, [IdentityError::NoIssuers]);
    let last = IdentityError::Unreachable { source: "authorization", behind: "anonymous" };
    assert_eq!(found(by([Source::Anonymous, Source::Authorization])).await, [last]);
    let claim = Identity { tenant: Tenant::Claim("org".to_owned()), ..by([Source::Anonymous]) };
    assert_eq!(found(claim).await, [IdentityError::ClaimWithoutToken]);
    let hosts = Tenant::Host(vec!["a.example".to_owned()]);
    let host = Identity { tenant: hosts, ..by([Source::Anonymous]) };
    assert_eq!(found(host).await, [IdentityError::HostWithAnonymous]);
}

#[tokio::test]
async fn a_removed_header_is_no_key_in_any_spelling() {
    let taken = |name| vec![IdentityError::HeaderTakenOff(header(name))];
    for (one, other, name) in [
        (by_header("x-user"), by_key("x-user"), "x-user"),
        (by_key("x-user"), by_header("x-user"), "x-user"),
        (by_header("x-user"), by_key("x_user"), "x_user"),
    ] {
        assert_eq!(started(one, &[other]).await.err(), Some(taken(name)));
    }
    let spelt = started(by_header("x-user"), &[by_header("x_user")]).await.expect_err("two spellings");
    assert!(spelt.contains(&IdentityError::HeaderTakenOff(header("x_user"))), "{spelt:?}");
    let between = started(by([Source::Anonymous]), &[by_header("x-user"), by_key("x-user")]).await.err();
    assert_eq!(between, Some(taken("x-user")), "a conflict between two operations");
    let same = Identity { tenant: Tenant::Header(header("x-user")), ..by_header("x-org") };
    assert!(
        started(by_header("x-user"), &[by_header("x-user"), same]).await.is_ok(),
        "both rules trust the header"
    );
}

#[tokio::test]
async fn rules_of_one_issuer_fetch_its_keys_once() {
    let signer = Signer::numbered(1);
    let server = KeyServer::new(Answer::Document(jwks(&[signer.jwk("a")]))).await;
    let token = || Source::Jwt(vec![issuer(KeySource::Url(Url::new(&*server.address)))]);
    let (other, third) = (by([token(), Source::Anonymous]), by([Source::Cookie("sid".to_owned()), token()]));
    let live = started(by([token()]), &[other.clone(), third.clone(), other.clone()]).await.expect("safe");
    assert_eq!(server.fetches(), 1);
    let bearer = format!("Bearer {}", signer.token("a"));
    let parts = prepared(&live, STRANGER, &[("authorization", &bearer)]);
    let alice: Caller = Name::jwt(ISSUER, "alice").into();
    assert_eq!(live.callers().identify(&parts), Ok(alice.clone()));
    for rule in [&other, &third] {
        assert_eq!(identify(&live, rule, &parts), Ok(alice.clone()));
    }
    // The remaining callers keep the keys and the refreshing task alive.
    let callers = live.callers_of(&other).expect("it was started");
    drop(live);
    assert_eq!(callers.identify(&parts), Ok(alice));
}

#[tokio::test]
async fn the_default_alone_is_as_it_was() {
    let rule = live(by_header("x-user")).await;
    assert!(rule.callers_of(&by_header("x-user")).is_some());
    assert_eq!(rule.callers().description(), "per identity, as the service determines it");
    for (identity, words) in [
        (Identity::default(), "per access token"),
        (by([Source::Anonymous]), "not at all (all are anonymous)"),
        (by_key("x-api-key"), "per API key in x-api-key"),
    ] {
        assert_eq!(live(identity).await.callers().description(), words);
    }
}
