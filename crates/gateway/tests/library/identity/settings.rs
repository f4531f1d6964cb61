//! Settings that are refused at start.

use super::issuers::Folder;
use super::world::{
    ED25519_PEM, ISSUER, P256_PEM, RSA_PEM, SECRET, by, by_secret, by_token, clock, issuer, jwks,
};
use http::HeaderName;
use semel_gateway::caller_rules::{self, CallerRules};
use semel_identity::jwt::{Algorithm, Audience, Issuer, KeyError, KeySource, Secret, Url};
use semel_identity::{CertificateName, Identity, IdentityError, Source, Tenant};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

fn header(name: &str) -> HeaderName {
    HeaderName::from_bytes(name.as_bytes()).expect("a name")
}

fn found(identity: &Identity) -> Vec<IdentityError> {
    caller_rules::check(identity).err().unwrap_or_default()
}

fn trusting(networks: &[&str], sources: impl Into<Vec<Source>>) -> Identity {
    let trusted = networks.iter().map(|text| text.parse().expect("a network")).collect();
    Identity { trusted, ..by(sources) }
}

#[test]
fn a_believed_header_needs_addresses_that_are_not_everybodys() {
    let user = || [Source::Header(header("x-user"))];
    assert_eq!(found(&by(user())), [IdentityError::HeaderWithoutTrust(header("x-user"))]);
    let tenant = Identity { tenant: Tenant::Header(header("x-tenant")), ..by([Source::Anonymous]) };
    assert_eq!(found(&tenant), [IdentityError::HeaderWithoutTrust(header("x-tenant"))]);
    for network in ["0.0.0.0/0", "::/0", "0.0.0.0/1", "::ffff:0.0.0.0/96", "2000::/3"] {
        let wide = IdentityError::TrustTooWide(network.parse().expect("a network"));
        assert_eq!(found(&trusting(&["10.0.0.0/8", network], user())), [wide], "{network}");
    }
    assert_eq!(found(&trusting(&["10.0.0.0/8", "fc00::/7"], user())), []);
    assert_eq!(
        found(&trusting(&["10.0.0.0/8"], [Source::Mtls(CertificateName::Subject)])),
        [IdentityError::TrustWithoutHeader]
    );
}

#[test]
fn a_standard_header_cannot_identify_a_caller() {
    for name in [
        "idempotency-key",
        "operation-id",
        "idempotency-fence",
        "idempotency-attempt",
        "idempotency-outcome",
        "idempotency-replayed",
        "idempotency-expires",
        "idempotency-stored",
        "idempotency_key",
        "authorization",
        "cookie",
        "host",
        "content-length",
        "transfer-encoding",
        "connection",
        "x-forwarded-for",
        "forwarded",
    ] {
        let reserved = [IdentityError::ReservedHeader(header(name))];
        assert_eq!(found(&by([Source::ApiKey(header(name))])), reserved);
        assert_eq!(found(&trusting(&["10.0.0.1"], [Source::Header(header(name))])), reserved);
        let tenant = Identity {
            tenant: Tenant::Header(header(name)),
            ..trusting(&["10.0.0.1"], [Source::Mtls(CertificateName::Subject)])
        };
        assert_eq!(found(&tenant), reserved);
    }
    for name in ["x-forwarded-user", "x-user", "x-api-key"] {
        assert_eq!(found(&by([Source::ApiKey(header(name))])), [], "{name}");
    }
}

#[test]
fn each_source_has_a_header_of_its_own() {
    for name in ["x-user", "x_user"] {
        let both = trusting(&["10.0.0.1"], [Source::Header(header("x-user")), Source::ApiKey(header(name))]);
        assert_eq!(found(&both), [IdentityError::HeaderTwice(header(name))]);
    }
}

#[test]
fn sources_that_no_request_reaches_are_mistakes() {
    let unreachable = |source, behind| [IdentityError::Unreachable { source, behind }];
    assert_eq!(
        found(&by([Source::Anonymous, Source::Mtls(CertificateName::Subject)])),
        unreachable("mtls", "anonymous")
    );
    let late = by([Source::Authorization, Source::Jwt(vec![by_secret()])]);
    assert_eq!(found(&late), unreachable("jwt", "authorization"));
    assert_eq!(
        found(&by([Source::Mtls(CertificateName::Subject), Source::Mtls(CertificateName::Uri)])),
        [IdentityError::Twice("mtls")],
        "the first source decides whenever there is a certificate"
    );
    for name in ["", "a b", "a=b"] {
        assert_eq!(
            found(&by([Source::Cookie(name.to_owned())])),
            [IdentityError::CookieName(name.to_owned())]
        );
    }
    assert_eq!(found(&by([Source::Cookie("sid".to_owned()), Source::Cookie("old".to_owned())])), []);
}

#[test]
fn an_issuer_needs_a_name_an_audience_and_a_clock() {
    let name = || ISSUER.to_owned();
    assert_eq!(found(&by([Source::Jwt(vec![])])), [IdentityError::NoIssuers]);
    let twice = by([Source::Jwt(vec![by_secret(), by_secret()])]);
    assert_eq!(found(&twice), [IdentityError::IssuerTwice(name())]);
    let nameless = Issuer { name: String::new(), ..by_secret() };
    assert_eq!(found(&by_token(nameless)), [IdentityError::NoIssuer]);
    for audience in [vec![], vec![String::new()]] {
        let anybodys = Issuer { audience: Audience::OneOf(audience), ..by_secret() };
        assert_eq!(found(&by_token(anybodys)), [IdentityError::NoAudience(name())]);
    }
    let late = Issuer { leeway: Duration::from_secs(301), ..by_secret() };
    assert_eq!(found(&by_token(late)), [IdentityError::Leeway(name())]);
    assert_eq!(found(&by_token(by_secret().by([]))), [IdentityError::NoAlgorithm(name())]);
}

#[test]
fn a_secret_is_as_long_as_the_hash() {
    for (algorithm, bytes_min) in [(Algorithm::HS256, 32), (Algorithm::HS384, 48), (Algorithm::HS512, 64)] {
        let of = |bytes| issuer(KeySource::Secret(Secret::new(vec![7; bytes]))).by([algorithm]);
        let short = IdentityError::ShortSecret { issuer: ISSUER.to_owned(), algorithm, bytes_min };
        assert_eq!(found(&by_token(of(bytes_min - 1))), [short]);
        assert_eq!(found(&by_token(of(bytes_min))), []);
    }
    assert!(!format!("{:?}", by_token(by_secret())).contains("test secret"), "secrets are not shown");
    assert_eq!(SECRET.len(), 64);
}

#[test]
fn algorithms_fit_the_kind_of_key() {
    let other = |algorithm| IdentityError::AlgorithmOfOtherKey { issuer: ISSUER.to_owned(), algorithm };
    let (hs, rs, es) = (Algorithm::HS256, Algorithm::RS256, Algorithm::ES256);
    assert_eq!(found(&by_token(by_secret().by([hs, rs]))), [other(rs)]);
    let rsa = issuer(KeySource::Pem(RSA_PEM.to_vec()));
    assert_eq!(found(&by_token(rsa.clone().by([rs, hs]))), [other(hs)], "HS and RS must not be mixed");
    assert_eq!(found(&by_token(rsa.clone())), []);
    assert_eq!(found(&by_token(rsa.by([es]))), [IdentityError::NoAlgorithm(ISSUER.to_owned())]);
    let url = issuer(KeySource::Url(Url::new("https://id.example/keys")));
    assert_eq!(found(&by_token(url.by([rs, hs]))), [other(hs)]);
}

#[test]
fn unusable_keys_are_reported_with_the_reason() {
    let why = |pem: &[u8]| match &found(&by_token(issuer(KeySource::Pem(pem.to_vec()))))[..] {
        [IdentityError::Key { error, .. }] => Some(*error),
        _ => None,
    };
    assert_eq!(why(include_bytes!("fixtures/rsa-short.pub.pem")), Some(KeyError::RsaBits(1024)));
    assert_eq!(why(include_bytes!("fixtures/rsa.test-key.pem")), Some(KeyError::Private));
    assert_eq!(why(include_bytes!("fixtures/p521.pub.pem")), Some(KeyError::Unsupported));
    assert_eq!(why(&[RSA_PEM, P256_PEM].concat()), Some(KeyError::SeveralInPem));
    assert_eq!(why(b"ssh-rsa AAAA"), Some(KeyError::NoPem));
    let cut = String::from_utf8_lossy(ED25519_PEM).replacen("MC", "MD", 1);
    assert_eq!(why(cut.as_bytes()), Some(KeyError::Malformed));
    assert_eq!(why(ED25519_PEM), None);
}

#[test]
fn keys_are_not_fetched_in_the_clear_except_from_this_machine() {
    let of = |address: &str| found(&by_token(issuer(KeySource::Url(Url::new(address)))));
    for address in ["http://id.example/keys", "http://10.0.0.1/keys", "http://127.0.0.1.evil.example/"] {
        assert_eq!(of(address), [IdentityError::KeysInTheClear { issuer: ISSUER.to_owned() }], "{address}");
    }
    for address in ["", "id.example", "ftp://id.example/", "https://a@id.example/", "/keys", "https://"] {
        assert_eq!(of(address), [IdentityError::KeysAddress { issuer: ISSUER.to_owned() }], "{address}");
    }
    for address in
        ["https://id.example/keys", "http://127.0.0.1:9/keys", "http://[::1]/keys", "http://localhost/"]
    {
        assert_eq!(of(address), [], "{address}");
    }
}

#[test]
fn the_times_of_fetching_go_together() {
    let change: [fn(&mut Url); 5] = [
        |url| url.refresh_interval_min = Duration::from_millis(999),
        |url| url.refresh_every = Duration::from_secs(9),
        |url| url.stale_max = Duration::from_secs(299),
        |url| url.timeout = Duration::ZERO,
        |url| url.bytes_max = 0,
    ];
    for change in change {
        let mut url = Url::new("https://id.example/keys");
        change(&mut url);
        let found = found(&by_token(issuer(KeySource::Url(url))));
        assert_eq!(found, [IdentityError::KeysRefresh { issuer: ISSUER.to_owned() }]);
    }
}

#[test]
fn a_tenant_is_not_the_clients_to_choose() {
    let with = |tenant, sources: Vec<Source>| found(&Identity { tenant, ..by(sources) });
    let claim = || Tenant::Claim("org".to_owned());
    assert_eq!(
        with(claim(), vec![Source::Mtls(CertificateName::Subject)]),
        [IdentityError::ClaimWithoutToken]
    );
    let token = || vec![Source::Jwt(vec![by_secret()])];
    assert_eq!(with(Tenant::Claim(String::new()), token()), [IdentityError::ClaimName]);
    assert_eq!(with(claim(), token()), []);
    assert_eq!(with(Tenant::Host(vec![]), token()), [IdentityError::NoHosts]);
    for host in ["A.example", "a.example:80", "a.example.", "", "a b"] {
        let found = with(Tenant::Host(vec![host.to_owned()]), token());
        assert_eq!(found, [IdentityError::HostName(host.to_owned())]);
    }
    let host = || Tenant::Host(vec!["a.example".to_owned()]);
    for sources in [vec![], vec![Source::Mtls(CertificateName::Subject), Source::Anonymous]] {
        assert_eq!(with(host(), sources), [IdentityError::HostWithAnonymous]);
    }
    assert_eq!(with(host(), token()), []);
}

#[test]
fn all_problems_are_reported_at_once_each_with_its_fix() {
    let sources = [Source::Header(header("x-user")), Source::Cookie(String::new()), Source::Jwt(vec![])];
    let found = found(&by(sources));
    assert_eq!(found.len(), 3, "{found:?}");
    for mistake in found {
        let message = mistake.to_string();
        assert!(message.contains(". ") || message.contains(": "), "{message}");
    }
}

#[tokio::test]
async fn a_file_that_holds_no_usable_key_is_refused_at_start() {
    let folder = Folder::new("unusable");
    let why = async |path: std::path::PathBuf| {
        let started =
            CallerRules::start(by_token(issuer(KeySource::File(path))), Arc::new(clock()), |_| None).await;
        match &started.expect_err("refused")[..] {
            [IdentityError::KeysNotLoaded { why, .. }] => why.clone(),
            other => panic!("{other:?}"),
        }
    };
    assert!(why(folder.write("{}")).await.contains("not a JSON Web Key Set"));
    assert!(why(folder.write(&jwks(&[json!({ "kty": "EC" })]))).await.contains("none of its keys"));
    let path = folder.write("");
    std::fs::remove_file(&path).expect("removed");
    assert!(why(path).await.contains("No such file"));
}
