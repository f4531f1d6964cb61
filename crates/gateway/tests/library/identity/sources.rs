//! Callers by headers, keys, cookies and certificates.

use super::world::{by, by_secret, claims, hs256, identify, identify_from, live, prepared, prepared_from};
use http::HeaderName;
use semel::core::scope::{Caller, Identity as Name};
use semel_gateway::caller_rules::CallerRules;
use semel_identity::{CertificateName, Identity, Peer, Source};
use serde_json::json;

const PROXY: &str = "10.0.0.5";
const STRANGER: &str = "203.0.113.7";

fn by_header() -> Identity {
    let source = Source::Header(HeaderName::from_static("x-user"));
    Identity { trusted: vec!["10.0.0.0/24".parse().expect("a network")], ..by([source]) }
}

fn is_not_identified(identify: Result<Caller, String>) -> bool {
    identify.is_err_and(|why| why.contains("does not say who is calling"))
}

#[tokio::test]
async fn a_header_is_trusted_only_from_its_proxy() {
    let rule = live(by_header()).await;
    let headers = [("x-user", "alice")];
    assert_eq!(identify_from(&rule, PROXY, &headers), Ok(Name::header("alice").into()));
    assert_eq!(identify_from(&rule, "::ffff:10.0.0.5", &headers), Ok(Name::header("alice").into()));
    for address in [STRANGER, "10.0.1.5", "127.0.0.1", "::1"] {
        assert!(is_not_identified(identify_from(&rule, address, &headers)), "{address}");
    }
    let unknown = prepared_from(&rule, None, &headers);
    assert!(rule.callers().identify(&unknown).is_err(), "the peer address is unknown");
}

#[tokio::test]
async fn an_untrusted_header_never_reaches_the_service() {
    let rule = live(by_header()).await;
    let headers = [("x-user", "a"), ("X-User", "b"), ("x_user", "c"), ("x-user-agent", "d")];
    let names = |from: &str| {
        let parts = prepared(&rule, from, &headers);
        parts.headers.keys().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(names(STRANGER), ["x-user-agent"]);
    assert_eq!(
        names(PROXY),
        ["x-user", "x-user-agent"],
        "headers with an underscore are removed even from the proxy"
    );
}

#[tokio::test]
async fn a_repeated_or_empty_caller_header_is_refused() {
    let rule = live(by_header()).await;
    let twice = identify_from(&rule, PROXY, &[("x-user", "alice"), ("x-user", "alice")]);
    assert!(twice.is_err_and(|why| why.contains("several x-user headers")));
    let empty = identify_from(&rule, PROXY, &[("x-user", "")]);
    assert!(empty.is_err_and(|why| why.contains("x-user is empty")));
    assert!(is_not_identified(identify_from(&rule, PROXY, &[])));
}

#[tokio::test]
async fn a_request_that_was_not_prepared_is_refused() {
    for identity in [by_header(), Identity::default(), by([Source::Anonymous])] {
        let rule = live(identity).await;
        let (parts, ()) = http::Request::new(()).into_parts();
        assert!(rule.callers().identify(&parts).is_err_and(|why| why.to_string().contains("this is a bug")));
    }
}

#[tokio::test]
async fn an_api_key_is_one_line_of_its_header() {
    let rule = live(by([Source::ApiKey(HeaderName::from_static("x-api-key"))])).await;
    assert_eq!(identify(&rule, &[("x-api-key", "k1")]), Ok(Name::api_key("k1").into()));
    assert_ne!(identify(&rule, &[("x-api-key", "k1")]), identify(&rule, &[("x-api-key", "K1")]));
    assert!(identify(&rule, &[("x-api-key", "k1"), ("x-api-key", "k2")]).is_err());
    assert!(identify(&rule, &[("x-api-key", "")]).is_err());
    assert!(is_not_identified(identify(&rule, &[("authorization", "Bearer k1")])));
}

#[tokio::test]
async fn a_session_is_one_cookie_of_its_name() {
    let rule = live(by([Source::Cookie("sid".to_owned())])).await;
    assert_eq!(identify(&rule, &[("cookie", "theme=dark; sid=s1")]), Ok(Name::cookie("s1").into()));
    assert_eq!(
        identify(&rule, &[("cookie", "theme=light"), ("cookie", "sid=s1")]),
        Ok(Name::cookie("s1").into())
    );
    assert!(
        identify(&rule, &[("cookie", "sid=s1; sid=s2")])
            .is_err_and(|why| why.contains("several cookies sid"))
    );
    assert!(identify(&rule, &[("cookie", "sid=")]).is_err_and(|why| why.contains("is empty")));
    assert!(is_not_identified(identify(&rule, &[("cookie", "SID=s1")])));
}

fn shown(rule: &CallerRules, certificate: Option<&[u8]>) -> Result<Caller, String> {
    let address = STRANGER.parse().expect("an address");
    let peer = Peer { address, certificate: certificate.map(Into::into) };
    rule.callers().identify(&prepared_from(rule, Some(peer), &[])).map_err(|why| why.to_string())
}

/// A certificate with this common name; without a subject if it is empty.
fn certificate(common: &str) -> Vec<u8> {
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    if !common.is_empty() {
        params.distinguished_name.push(rcgen::DnType::CommonName, common);
    }
    let key = rcgen::KeyPair::generate().expect("a key");
    params.self_signed(&key).expect("a certificate").der().to_vec()
}

#[tokio::test]
async fn a_renewed_certificate_names_the_same_caller() {
    let rule = live(by([Source::Mtls(CertificateName::Subject)])).await;
    let alice = shown(&rule, Some(&certificate("alice"))).expect("a caller");
    assert_eq!(
        shown(&rule, Some(&certificate("alice"))),
        Ok(alice.clone()),
        "a certificate with another key and serial number"
    );
    assert_ne!(shown(&rule, Some(&certificate("bob"))), Ok(alice));
    assert!(is_not_identified(shown(&rule, None)));
}

#[tokio::test]
async fn an_unnamed_certificate_falls_back_to_no_weaker_source() {
    let rule = live(by([Source::Mtls(CertificateName::Subject), Source::Anonymous])).await;
    assert_eq!(shown(&rule, None), Ok(Caller::Anonymous));
    for bad in [certificate(""), b"no certificate".to_vec()] {
        let caller = shown(&rule, Some(&bad));
        assert!(
            caller.as_ref().is_err_and(|why| why.contains("The client certificate names no caller")),
            "{caller:?}"
        );
    }
}

#[tokio::test]
async fn without_sources_authorization_identifies_callers() {
    let rule = live(Identity::default()).await;
    let token = Ok(Name::authorization("bearer", "t0ken").into());
    assert_eq!(identify(&rule, &[("authorization", "Bearer t0ken")]), token);
    assert_eq!(identify(&rule, &[]), Ok(Caller::Anonymous));
    assert!(
        identify(&rule, &[("cookie", "a=b")]).is_err()
            && identify(&rule, &[("authorization", "Digest a")]).is_err()
    );
}

#[tokio::test]
async fn authorization_as_a_source_makes_nobody_anonymous() {
    let rule = live(by([Source::Authorization])).await;
    assert_eq!(
        identify(&rule, &[("authorization", "Basic YTpi")]),
        Ok(Name::authorization("basic", "YTpi").into())
    );
    assert!(identify(&rule, &[("authorization", "Digest a")]).is_err());
    assert!(is_not_identified(identify(&rule, &[])));
}

#[tokio::test]
async fn the_first_source_that_finds_anything_decides() {
    let mut identity = by_header();
    identity.sources.extend([
        Source::Jwt(vec![by_secret()]),
        Source::ApiKey(HeaderName::from_static("x-api-key")),
        Source::Anonymous,
    ]);
    let rule = live(identity).await;
    let token = format!("Bearer {}", hs256(&claims(json!({}))));
    let all = [("x-api-key", "k"), ("authorization", token.as_str()), ("x-user", "alice")];
    let by = |from, headers: &[(&str, &str)]| identify_from(&rule, from, headers);
    assert_eq!(by(PROXY, &all), Ok(Name::header("alice").into()));
    assert_eq!(by(STRANGER, &all), Ok(Name::jwt("https://id.example", "alice").into()));
    assert_eq!(by(STRANGER, &all[..1]), Ok(Name::api_key("k").into()));
    assert_eq!(by(STRANGER, &[]), Ok(Caller::Anonymous));
}

#[tokio::test]
async fn an_unidentified_request_learns_every_source_and_the_setting() {
    let mut identity = by_header();
    identity.sources.push(Source::Cookie("sid".to_owned()));
    let rule = live(identity).await;
    let why = identify(&rule, &[]).expect_err("no caller");
    assert!(
        why.contains("x-user") && why.contains("cookie sid") && why.contains("identity.sources"),
        "{why}"
    );
}
