//! `[admin]`, client certificates, hashing secrets, and what else concerns the process as a whole.

use super::pem::Pem;
use super::{mistakes, nothing, one_mistake, parsed};
use crate::config::Next;
use crate::config::{Overrides, read};
use semel_admin::{Role, TokenHash};
use semel_identity::{CertificateName, Source};
use std::ffi::OsString;
use std::time::Duration;

const HASH: &str = "sha256:f717cc288f8244cd16e83dac18a2583f289edb13c096663087f5436e18bde736";

fn token(name: &str, roles: &str, hash: &str) -> String {
    format!("[[admin.token]]\nname = \"{name}\"\nroles = [{roles}]\nhash = \"{hash}\"\n")
}

#[test]
fn the_admin_address_is_local_unless_off() {
    let admin = parsed("").admin.expect("open");
    assert_eq!(admin.options.address.to_string(), "127.0.0.1:9090");
    assert!(admin.options.tokens.is_empty() && admin.tls.is_none());
    assert!(parsed("[admin]\naddress = \"off\"\n").admin.is_none());
    let flagged = |text: &str, admin: &str| {
        let over = Overrides::default().with("admin", admin);
        read(text, &over, &nothing)
    };
    assert!(flagged("[admin]\naddress = \"127.0.0.1:1\"\n", "off").expect("no mistake").admin.is_none());
    let moved = flagged("[admin]\naddress = \"off\"\n", "127.0.0.1:2").expect("no mistake");
    assert_eq!(moved.admin.map(|admin| admin.options.address.port()), Some(2));
    let found = flagged("[admin]\naddress = \"127.0.0.1:1\"\n", "0.0.0.0:2").expect_err("open to all");
    assert_eq!((found.len(), found[0].at), (1, None), "the mistake is reported for the flag: {found:?}");
    one_mistake("[admin]\naddress = \"9090\"\n", "2:11", &["`9090` is not an address", "\"off\""]);
}

#[test]
fn an_admin_address_that_others_reach_needs_a_token() {
    let open = "[admin]\naddress = \"0.0.0.0:9090\"\n";
    one_mistake(
        open,
        "2:1",
        &["can be reached from other machines", "no token is configured", "semel key token"],
    );
    let guarded = parsed(&format!("{open}{}", token("ops", "\"read\", \"bodies\"", HASH)));
    let admin = guarded.admin.expect("open");
    assert_eq!(admin.options.tokens[0].roles, [Role::Read, Role::Bodies]);
    assert_eq!(format!("sha256:{}", admin.options.tokens[0].hash.digits()), HASH);
}

#[test]
fn a_useless_or_unsafe_token_is_reported_and_never_repeated() {
    let read = "\"read\"";
    one_mistake(&token("ops", "", HASH), "3:1", &["has no role", "name at least one of"]);
    one_mistake(&token("ops", "\"admin\"", HASH), "3:10", &["`admin` is not a role", "\"operate\""]);
    one_mistake(&token("loopback", read, HASH), "2:1", &["cannot be a token's name"]);
    one_mistake(&token("", read, HASH), "2:1", &["cannot be a token's name"]);
    let twice = format!("{}{}", token("a", read, HASH), token("b", read, HASH));
    one_mistake(&twice, "8:1", &["configured twice"]);
    one_mistake("[[admin.token]]\nname = \"a\"\nroles = [\"read\"]\n", "1:1", &["a token has no hash"]);
    for known in ["", "abc"] {
        let known = format!("sha256:{}", TokenHash::of(known).digits());
        one_mistake(&token("ops", read, &known), "4:1", &["everybody knows", "semel key token"]);
    }
    for clear in ["semel_5ecret", &HASH[7..], "sha256:", "sha256:5ecret", "sha512:5ecret"] {
        let found = mistakes(&token("ops", read, clear));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("4:8: `hash` is not the hash of a token"), "{found:?}");
        assert!(!found[0].contains("5ecret"), "{found:?}");
    }
    one_mistake("[admin]\nwrong_tokens_max = \"10\"\n", "2:20", &["`10` is not a rate"]);
    one_mistake("[admin]\ntls_cert = \"Cargo.toml\"\n", "2:1", &["only `tls_cert` is set"]);
    one_mistake("[admin]\ntokens = []\n", "2:1", &["unknown key `tokens` in [admin]", "write `token`"]);
}

#[test]
fn client_certificates_need_tls_and_a_rule_for_them() {
    let pem = Pem::new();
    let (tls, ca) = (pem.tls(), pem.line("client_ca", "cert.pem"));
    let config = parsed(&format!("[listen]\n{tls}{ca}[identity]\nsources = [\"mtls:uri\"]\n"));
    assert!(config.listen.clients.is_some_and(|clients| clients.is_required));
    assert_eq!(config.identity.sources, [Source::Mtls(CertificateName::Uri)]);
    let optional = parsed(&format!("[listen]\n{tls}{ca}client_certs = \"optional\"\n"));
    assert!(optional.listen.clients.is_some_and(|clients| !clients.is_required));
    one_mistake(&format!("[listen]\n{ca}"), "2:1", &["client certificates need TLS", "tls_cert and tls_key"]);
    one_mistake("[listen]\nclient_certs = \"optional\"\n", "2:1", &["which is not set", "client_ca"]);
    one_mistake(
        "[listen]\nclient_ca = \"/nowhere/ca.pem\"\n",
        "2:13",
        &["/nowhere/ca.pem", "cannot be read"],
    );
    for source in ["mtls", "mtls:uri", "mtls:dns", "mtls:email"] {
        one_mistake(
            &format!("[identity]\nsources = [\"{source}\"]\n"),
            "2:1",
            &["the listener asks for none", "client_ca"],
        );
    }
    one_mistake("[identity]\nsources = [\"mtls:fingerprint\"]\n", "2:12", &["unknown source of callers"]);
}

#[test]
fn unusable_certificates_are_reported_before_anything_starts() {
    let pem = Pem::new();
    let (certificate, key) = (pem.line("tls_cert", "cert.pem"), pem.line("tls_key", "key.pem"));
    for table in ["[listen]\n", "[admin]\n"] {
        parsed(&format!("{table}{certificate}{key}"));
        let with_key = |file: &str| format!("{table}{certificate}{}", pem.line("tls_key", file));
        one_mistake(&with_key("text.pem"), "3:1", &["text.pem contains no private key", "PEM"]);
        one_mistake(&with_key("cert.pem"), "3:1", &["cert.pem contains no private key", "PEM"]);
        one_mistake(
            &with_key("other.pem"),
            "3:1",
            &["other.pem: the key does not belong", "belongs to the certificate"],
        );
        for (file, problem) in
            [("text.pem", "text.pem contains no certificate"), ("damaged.pem", "damaged.pem: ")]
        {
            one_mistake(&format!("{table}{}{key}", pem.line("tls_cert", file)), "2:1", &[problem, "PEM"]);
        }
    }
    for (file, problem) in
        [("text.pem", "text.pem contains no certificate"), ("damaged.pem", "damaged.pem: ")]
    {
        let text = format!("[listen]\n{certificate}{key}{}", pem.line("client_ca", file));
        one_mistake(&text, "4:1", &[problem, "authorities' certificates"]);
    }
}

fn secrets(name: &str) -> Option<OsString> {
    let bytes = match name {
        "OLD" => "a1".repeat(32),
        "NEXT" => "b2".repeat(32),
        "SHORT" => "c3".repeat(31),
        "WORDS" => "correct horse battery staple".to_owned(),
        _ => return None,
    };
    Some(bytes.into())
}

#[test]
fn hashing_secrets_are_read_from_elsewhere_and_shown_nowhere() {
    let with = |text: &str| read(text, &Overrides::default(), &secrets);
    let both = "[store]\nhashing_secret = \"env:OLD\"\nhashing_secret_next = \"env:NEXT\"\n";
    let config = with(both).expect("no mistake");
    assert_eq!(config.storage.hashing.secret, Some(vec![0xa1; 32]));
    assert!(config.storage.hashing.next == Next::Secret(vec![0xb2; 32]));
    assert!(format!("{config:?}").contains("Hashing(set, next set)"), "{config:?}");
    assert!(!format!("{config:?}").contains("161, 161"));
    let withdrawn = with("[store]\nhashing_secret = \"env:OLD\"\nhashing_secret_next = \"withdraw\"\n");
    assert!(withdrawn.expect("no mistake").storage.hashing.next == Next::Withdrawn);
    for (text, problem) in [
        ("hashing_secret = \"env:SHORT\"\n", "32"),
        ("hashing_secret = \"env:WORDS\"\n", "not in hexadecimal digits"),
        ("hashing_secret = \"env:NOWHERE\"\n", "NOWHERE, named by `hashing_secret`, is not set"),
        ("hashing_secret = \"a1a1\"\n", "must not contain the secret itself"),
        ("hashing_secret = \"withdraw\"\n", "must not contain the secret itself"),
        (
            "hashing_secret_next = 7\n",
            "`hashing_secret_next`: expected a string in quotation marks, found a whole number",
        ),
        ("hashing_secret = \"env:OLD\"\nhashing_secret_next = \"env:OLD\"\n", "already in use"),
    ] {
        let found = with(&format!("[store]\n{text}")).expect_err("a mistake");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].problem.contains(problem), "{found:?}");
        assert!(
            !format!("{found:?}").contains("horse") && !format!("{found:?}").contains("c3c3"),
            "{found:?}"
        );
    }
}

#[test]
fn when_the_clock_is_believed_is_set_under_clock() {
    let config = parsed(
        "[sweep]\nskew = \"1s\"\nsteady_for = \"2m\"\n\
         [clock]\nskew = \"3s\"\nsettle = \"0s\"\ndowntime_max = \"30d\"\nheartbeat = \"1s\"\nsteady_for = \"4m\"\n",
    );
    let clock = &config.storage.settings.clock;
    let seconds = Duration::from_secs;
    assert_eq!((clock.skew, clock.settle, clock.heartbeat), (seconds(3), Duration::ZERO, seconds(1)));
    assert_eq!((clock.downtime_max, clock.steady_for), (seconds(30 * 86_400), seconds(240)));
}

#[test]
fn the_settings_of_engine_and_layer_are_those_of_the_file() {
    let config = parsed(
        "[store]\ntimeout = \"3s\"\nrequest_timeout = \"2s\"\nfinish_wait = \"1s\"\nretry_after = \"4s\"\ncache_max = \"0B\"\n\
         [sweep]\nevery = \"0s\"\nchunk = 7\nrecords_per_second_max = 9\nskew = \"1s\"\nsteady_for = \"2m\"\narchive = \"a.jsonl\"\n\
         [limits]\nbodies_max = \"1GiB\"\nresponses_max = \"8MiB\"\nbody_time_max = \"10s\"\n[published]\nprefix = \"/pay\"\n\
         [upstream]\nforwarded_by = [\"10.1.0.0/16\"]\n",
    );
    let settings = &config.storage.settings;
    let seconds = Duration::from_secs;
    assert_eq!(
        (settings.store_timeout, settings.request_timeout, settings.finish_wait, settings.retry_after),
        (seconds(3), seconds(2), seconds(1), seconds(4))
    );
    assert_eq!((settings.cache_bytes_max, settings.sweep.every), (0, Duration::ZERO));
    assert_eq!((settings.sweep.chunk, settings.sweep.records_per_second_max), (7, 9));
    assert_eq!((settings.clock.skew, settings.clock.steady_for), (seconds(1), seconds(120)), "under [sweep]");
    assert_eq!(config.storage.archive.as_deref(), Some("a.jsonl".as_ref()));
    assert_eq!((config.limits.bodies_bytes_max, config.limits.body_time_max), (1 << 30, seconds(10)));
    assert_eq!(config.limits.responses_bytes_max, 8 << 20);
    assert_eq!(config.prefix, "/pay");
    assert!(config.forwarded_by[0].holds([10, 1, 2, 3].into()));
}

#[test]
fn the_file_limits_connections_and_requests() {
    let listen = parsed("[listen]\nconnections_max = 3\nrequests_max = 5\nstreams_max = 7\n").listen;
    assert_eq!((listen.connections_max, listen.requests_max, listen.streams_max), (3, 5, 7));
    one_mistake("[listen]\nrequests_max = 0\n", "2:16", &["out of range", "of 1 or more"]);
}

#[test]
fn memory_is_divided_among_unset_limits() {
    let shares = |file: &str| {
        let config = parsed(file);
        let (limits, cache) = (config.limits, config.storage.settings.cache_bytes_max);
        [limits.bodies_bytes_max, limits.responses_bytes_max, cache].map(|bytes| bytes >> 20)
    };
    assert_eq!(shares(""), [64, 48, 16]);
    assert_eq!(shares("[limits]\nmemory = \"64MiB\"\n"), [32, 24, 8]);
    let explicit = "[store]\ncache_max = \"5MiB\"\n[limits]\nmemory = \"64MiB\"\nbodies_max = \"20MiB\"\n";
    assert_eq!(shares(explicit), [20, 24, 5]);
}

#[test]
fn impossible_settings_are_mistakes() {
    one_mistake("[store]\ntimeout = \"60s\"\n", "2:1", &["longer than the longest write may take"]);
    one_mistake("[sweep]\nchunk = 0\n", "2:9", &["out of range"]);
    one_mistake("[sweep]\narchive = \"\"\n", "2:1", &["`archive` is empty"]);
    one_mistake(
        "[limits]\nbodies_max = \"1MiB\"\n",
        "2:1",
        &["does not fit into `bodies_max`", "make bodies_max larger"],
    );
    one_mistake(
        "[limits]\nmemory = \"16MiB\"\n",
        "2:1",
        &["does not fit into `bodies_max`", "half of `memory`"],
    );
    one_mistake(
        "[published]\nprefix = \"payments/\"\n",
        "2:10",
        &["cannot be a path prefix", "\"/payments\""],
    );
    one_mistake("[upstream]\nforwarded_by = [\"0.0.0.0/0\"]\n", "2:17", &["wider than any private network"]);
}
