//! `callers` and `tenant` of operations, beside `[identity]`.

use super::{mistakes, one_mistake, parsed};
use crate::config::{Overrides, read};
use http::HeaderName;
use semel_identity::{CertificateName, Identity, Source, Tenant};

const ISSUER: &str = "[[identity.issuer]]\nname = \"https://id.example\"\naudience = \"pay\"\njwks_url = \"https://id.example/k\"\n";

/// An operation on `/x` with these keys, which begin on line 3.
fn operation(settings: &str) -> String {
    format!("[[operation]]\npath = \"/x\"\n{settings}\n")
}

fn operation_rule(text: &str) -> Identity {
    parsed(text).operations[0].identity.clone().expect("a rule of its own")
}

fn header(name: &'static str) -> HeaderName {
    HeaderName::from_static(name)
}

#[test]
fn an_operation_inherits_the_callers_that_it_does_not_set() {
    let identity = format!(
        "[identity]\nsources = [\"jwt\"]\ntenant = \"claim:org\"\ntrusted = [\"10.0.0.1\"]\ntenant_hosts = [\"a.example\"]\n{ISSUER}"
    );
    let of = |settings: &str| operation_rule(&format!("{}{identity}", operation(settings)));
    let rest = "[[operation]]\npath = \"/y\"\ncallers = [\"header:X-User\", \"jwt\"]\ntenant = \"host\"";
    let hook = of(&format!("callers = [\"anonymous\"]\ntenant = \"none\"\n{rest}"));
    assert_eq!((hook.sources, hook.tenant), (vec![Source::Anonymous], Tenant::None));
    assert!(hook.trusted.is_empty(), "no header is trusted there");
    let config = parsed(&format!(
        "{}{}{identity}",
        operation("callers = [\"header:X-User\", \"jwt\"]\ntenant = \"host\""),
        "[[operation]]\npath = \"/y\"\ntenant = \"header:x-org\"\n[[operation]]\npath = \"/z\"\n"
    ));
    assert!(config.identity.trusted.is_empty() && config.identity.sources.len() == 1);
    let [first, second, third] = &config.operations[..] else { panic!("{config:?}") };
    let first = first.identity.as_ref().expect("a rule of its own");
    assert_eq!(first.sources[0], Source::Header(header("x-user")));
    assert_eq!(first.sources[1], config.identity.sources[0], "the same issuers");
    assert_eq!(first.tenant, Tenant::Host(vec!["a.example".to_owned()]));
    assert_eq!(first.trusted, ["10.0.0.1".parse().expect("a network")]);
    let second = second.identity.as_ref().expect("a rule of its own");
    assert_eq!(
        (&second.sources, &second.tenant),
        (&config.identity.sources, &Tenant::Header(header("x-org")))
    );
    assert!(third.identity.is_none());
}

#[test]
fn an_operations_callers_replace_those_of_identity() {
    let rule = |operation_says: &str, identity_says: &str| {
        let text = format!("{}[identity]\n{identity_says}\n", operation(operation_says));
        parsed(&text).operations.remove(0).identity
    };
    let operation_rule =
        |settings: &str| rule("callers = [\"api-key:x-key\"]", settings).expect("a rule of its own");
    let (same, other) =
        (operation_rule("sources = [\"api-key:x-key\"]"), operation_rule("sources = [\"authorization\"]"));
    assert_eq!(same, other, "[identity] does not affect it");
    assert!(same.is_by_place);

    let hosts = "tenant = \"host\"\ntenant_hosts = [\"a.example\"]\nsources = [\"api-key:x-key\"]";
    let tenant = rule("tenant = \"none\"", hosts).expect("a rule of its own");
    assert!(!tenant.is_by_place, "the callers are those of [identity], as they were");
    assert!(rule("tenant = \"none\"", "sources = [\"api-key:x-key\"]").is_none());
}

#[test]
fn callers_are_for_operations_and_in_identity_they_are_sources() {
    let text = format!("{}[defaults]\ncallers = [\"anonymous\"]\n", operation("callers = [\"anonymous\"]"));
    one_mistake(&text, "5:1", &["unknown key `callers` in [defaults]", "put it under [[operation]]"]);
}

#[test]
fn an_operations_unsafe_rule_is_reported_with_its_line() {
    let refused =
        |settings: &str, position: &str, words: &[&str]| one_mistake(&operation(settings), position, words);
    refused("callers = [\"magic\"]", "3:12", &["unknown source of callers `magic`", "\"jwt\""]);
    refused("callers = []", "3:1", &["`callers` is empty", "[identity] applies"]);
    refused("callers = \"anonymous\"", "3:11", &["`callers`: expected a list", "found a string"]);
    refused(
        "callers = [\"header:x-user\"]",
        "3:1",
        &["no address is trusted to set it", "Name the addresses of the proxy"],
    );
    refused("callers = [\"jwt\"]", "3:1", &["no issuer is set"]);
    refused("callers = [\"mtls\"]", "3:1", &["the listener asks for none", "client_ca"]);
}

#[test]
fn sources_after_anonymous_are_mistakes() {
    let text = operation("callers = [\"anonymous\", \"authorization\"]");
    one_mistake(&text, "3:1", &["`authorization` comes after `anonymous`"]);
    one_mistake(&operation("callers = [\"api-key:cookie\"]"), "3:1", &["has another meaning in HTTP"]);
    one_mistake(&operation("callers = [\"cookie:a b\"]"), "3:1", &["is not a valid cookie name"]);
}

#[test]
fn an_operations_unusable_tenant_is_reported_with_its_line() {
    let jwt = format!("[identity]\nsources = [\"jwt\"]\ntenant = \"claim:org\"\n{ISSUER}");
    one_mistake(&operation("tenant = \"magic\""), "3:10", &["unknown source of tenants `magic`"]);
    one_mistake(&operation("tenant = \"claim:org\""), "3:1", &["no tokens are verified"]);
    one_mistake(
        &operation("tenant = \"header:x-org\""),
        "3:1",
        &["`x-org` identifies callers, but no address is trusted"],
    );
    one_mistake(
        &format!("{}{jwt}", operation("callers = [\"anonymous\"]")),
        "3:1",
        &["no tokens are verified (the tenant comes from [identity])", "tenant = \"none\""],
    );
    let hosts = "[identity]\nsources = [\"authorization\"]\ntenant_hosts = [\"a.example\"]\n";
    one_mistake(
        &format!("{}{hosts}", operation("callers = [\"anonymous\"]\ntenant = \"host\"")),
        "4:1",
        &["callers may be anonymous"],
    );
    let tenant = parsed(&format!("{}{hosts}", operation("tenant = \"host\"")));
    assert!(tenant.operations[0].identity.is_some(), "an operation alone may go by hosts");
    one_mistake(&format!("{}{hosts}", operation("")), "6:1", &["tenant_hosts is set"]);
}

#[test]
fn settings_used_only_by_an_operation_are_not_unused() {
    let trusted = "[identity]\ntrusted = [\"10.0.0.1\"]\n";
    one_mistake(&format!("{}{trusted}", operation("")), "5:1", &["addresses are trusted, but no header"]);
    parsed(&format!("{}{trusted}", operation("callers = [\"header:x-user\"]")));
    parsed(&format!("{}{trusted}", operation("tenant = \"header:x-org\"")));
    one_mistake(&format!("{}{ISSUER}", operation("")), "5:1", &["`jwt` is not among the sources", "callers"]);
    parsed(&format!("{}{ISSUER}", operation("callers = [\"jwt\"]")));
}

#[test]
fn a_mistake_with_one_fix_is_reported_once() {
    let three = "callers = [\"header:x-user\"]\n[[operation]]\npath = \"/y\"\ncallers = [\"header:x-user\", \"anonymous\"]";
    one_mistake(&operation(three), "3:1", &["no address is trusted to set it"]);
    let wide =
        format!("{}[identity]\nsources = [\"header:x-user\"]\ntrusted = [\"0.0.0.0/0\"]\n", operation(three));
    let wide =
        wide.replace("callers = [\"header:x-user\"]\n", "callers = [\"header:x-user\", \"authorization\"]\n");
    one_mistake(&wide, "9:1", &["wider than any"]);
    let twice = "[identity]\nsources = [\"cookie:a\", \"cookie:a\"]\n";
    let found = mistakes(&format!("{}{twice}", operation("callers = [\"cookie:a\", \"cookie:a\"]")));
    assert_eq!(found.len(), 2, "each has to be fixed: {found:#?}");
    assert_eq!(mistakes(&format!("{}{twice}", operation("tenant = \"none\""))).len(), 1);
    let jwt = format!("[identity]\nsources = [\"jwt\"]\ntenant = \"claim:org\"\n{ISSUER}");
    let two = "callers = [\"anonymous\"]\n[[operation]]\npath = \"/y\"\ncallers = [\"cookie:a\"]";
    let found = mistakes(&format!("{}{jwt}", operation(two)));
    let lines: Vec<_> = found.iter().map(|found| found.split(':').next().unwrap_or_default()).collect();
    assert_eq!(lines, ["3", "6"], "each operation needs a tenant of its own: {found:#?}");
}

#[test]
fn a_header_that_one_rule_removes_cannot_be_anothers_key() {
    let identity = "[identity]\nsources = [\"header:x-user\"]\ntrusted = [\"10.0.0.1\"]\n";
    for key in ["x-user", "x_user"] {
        let text = format!("{}{identity}", operation(&format!("callers = [\"api-key:{key}\"]")));
        one_mistake(&text, "3:1", &["removed from all other requests", "Use another header"]);
    }
    let two = "callers = [\"api-key:x-user\"]\n[[operation]]\npath = \"/y\"\ncallers = [\"header:x-user\"]";
    let text = format!("{}[identity]\ntrusted = [\"10.0.0.1\"]\n", operation(two));
    one_mistake(&text, "6:1", &["removed from all other requests"]);
}

#[test]
fn callers_of_what_is_not_protected_are_of_no_use() {
    one_mistake(
        &operation("key = \"off\"\ncallers = [\"anonymous\"]"),
        "4:1",
        &["callers has no effect", "set key"],
    );
}

#[test]
fn the_anonymous_flag_replaces_identity_but_not_operations() {
    let over = Overrides::default().with("anonymous", "true");
    let text = format!(
        "{}[[operation]]\npath = \"/y\"\n[identity]\nsources = [\"authorization\"]\ntrusted = [\"10.0.0.1\"]\n",
        operation("callers = [\"header:x-user\"]")
    );
    let config = read(&text, &over, &|_| None).expect("no mistake");
    assert_eq!(config.identity.sources, [Source::Anonymous]);
    let operation_rule = config.operations[0].identity.as_ref().expect("a rule of its own");
    assert_eq!(operation_rule.sources, [Source::Header(header("x-user"))]);
    assert_eq!(operation_rule.trusted.len(), 1);
    assert!(config.operations[1].identity.is_none());
}

#[test]
fn certificates_can_be_what_one_operation_goes_by() {
    let pem = super::pem::Pem::new();
    let (tls, ca) = (pem.tls(), pem.line("client_ca", "cert.pem"));
    let text =
        format!("{}[listen]\n{tls}{ca}client_certs = \"optional\"\n", operation("callers = [\"mtls:uri\"]"));
    assert_eq!(operation_rule(&text).sources, [Source::Mtls(CertificateName::Uri)]);
}
