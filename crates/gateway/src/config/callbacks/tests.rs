//! What is asked, as it is written; and every mistake with its place and its words.

use crate::callbacks::{Answer, Source};
use crate::config::tests::{mistakes, one_mistake, parsed};
use crate::config::{Overrides, read};
use http::{Method, StatusCode};
use std::ffi::OsString;
use std::time::Duration;

/// A probe in `[defaults]`; `says` starts on line 3.
fn probe(more: &str) -> String {
    format!("[defaults.probe]\nurl = \"/effects/{{operation_id}}\"\n{more}")
}

#[test]
fn a_probe_of_one_line_has_the_defaults() {
    let config = parsed(&probe(""));
    let settings = config.callbacks.probe.expect("a probe");
    assert_eq!((settings.method, settings.answer, settings.status), (Method::GET, Answer::Probe, None));
    assert_eq!(settings.meaning.applied, [200]);
    assert_eq!(settings.meaning.not_applied, [0_u16; 0], "no status means not applied by default");
    assert_eq!(settings.pace.timeout, Duration::from_secs(10));
    assert_eq!(settings.pace.quiet, Duration::ZERO, "the record's own");
    assert!(config.callbacks.authorize.is_none() && config.callbacks.rebuild.is_none());
}

#[test]
fn everything_that_is_written_is_read() {
    let secret = |name: &str| (name == "TOKEN").then(|| OsString::from("Bearer hunter2"));
    let text = "[[operation]]\nname = \"pay\"\npath = \"/pay\"\nkept = \"minimal\"\n\
        [operation.probe]\nurl = \"https://ledger.internal/x/{operation}/{operation_id}\"\nmethod = \"POST\"\n\
        headers = { Authorization = \"env:TOKEN\", x-a = \"b\" }\napplied = [200, 201]\n\
        applied_if = { \"/a/0\" = [\"x\", 7, true] }\nnot_applied = [404, 410]\nnot_applied_if = { \"/b\" = false }\n\
        answer = \"nothing\"\nstatus = 202\ntimeout = \"2s\"\npause_min = \"3s\"\npause_max = \"4s\"\nquiet = \"5m\"\n\
        give_up_after = \"6h\"\n\
        [operation.authorize]\npath = \"/who\"\nheaders = [\"X-Device\"]\ntimeout = \"1s\"\n\
        [operation.rebuild]\nfrom = \"/of/{operation_id}\"\n";
    let config = read(text, &Overrides::default(), &secret).unwrap_or_else(|found| panic!("{found:#?}"));
    let callbacks = &config.operations[0].callbacks;
    let probe = callbacks.probe.as_ref().expect("a probe");
    assert_eq!(probe.destination.to_string(), "https://ledger.internal/x/{operation}/{operation_id}");
    assert_eq!(
        (&probe.method, probe.answer, probe.status),
        (&Method::POST, Answer::Nothing, Some(StatusCode::ACCEPTED))
    );
    assert_eq!(
        (&probe.headers["authorization"], &probe.headers["x-a"]),
        (&"Bearer hunter2".parse().expect("a value"), &"b".parse().expect("a value"))
    );
    assert!(!format!("{config:?}").contains("hunter2"), "a secret is never shown");
    assert_eq!((probe.meaning.applied.len(), probe.meaning.not_applied.len()), (2, 2));
    assert_eq!(probe.meaning.applied_if[0].values.len(), 3);
    let seconds =
        [probe.pace.timeout, probe.pace.min, probe.pace.max, probe.pace.quiet, probe.pace.give_up_after];
    assert_eq!(seconds.map(|span| span.as_secs()), [2, 3, 4, 300, 21_600]);
    let authorize = callbacks.authorize.as_ref().expect("one to ask");
    assert_eq!((authorize.path.to_string().as_str(), authorize.headers[0].as_str()), ("/who", "x-device"));
    let rebuild = callbacks.rebuild.as_ref().expect("a way");
    assert!(matches!(&rebuild.source, Source::Path(path) if path.to_string() == "/of/{operation_id}"));
    assert!(config.callbacks.probe.is_none());
}

#[test]
fn operations_inherit_questions_and_can_switch_them_off() {
    let text = format!(
        "{}[defaults.authorize]\npath = \"/who\"\n[defaults.rebuild]\n\
         [[operation]]\npath = \"/a\"\n[[operation]]\npath = \"/b\"\nclass = \"downstream\"\nauthorize = \"off\"\n\
         [[operation]]\npath = \"/c\"\nkey = \"off\"\n[[operation]]\npath = \"/d\"\nkept = \"minimal\"\nprobe = \"off\"\n",
        probe("")
    );
    let config = parsed(&text);
    let callbacks: Vec<_> = config
        .operations
        .iter()
        .map(|one| {
            let callbacks = &one.callbacks;
            (callbacks.probe.is_some(), callbacks.authorize.is_some(), callbacks.rebuild.is_some())
        })
        .collect();
    assert_eq!(
        callbacks,
        [(true, true, false), (true, false, false), (false, false, false), (false, true, true)]
    );
    assert!(config.callbacks.probe.is_some() && config.callbacks.rebuild.is_none());
}

#[test]
fn an_address_that_cannot_be_asked_is_reported() {
    let url = |url: &str| format!("[defaults.probe]\nurl = \"{url}\"\n");
    one_mistake(
        &url("/x/{key}/{operation_id}"),
        "2:7",
        &["unknown placeholder {key}", "write {operation_id} or {operation}"],
    );
    one_mistake(&url("/x/{operation_id"), "2:7", &["not closed"]);
    one_mistake(&url("x/{operation_id}"), "2:7", &["is not a path", "slash"]);
    one_mistake(
        &url("/x"),
        "2:7",
        &["the probe would be the same for every operation", "write {operation_id}"],
    );
    one_mistake(&url("ftp://x/{operation_id}"), "2:7", &["cannot be used"]);
    one_mistake("[defaults.probe]\ntimeout = \"1s\"\n", "1:11", &["a probe has no url"]);
    one_mistake(
        &format!(
            "[listen]\naddress = \"127.0.0.1:8080\"\n{}",
            url("http://localhost:8080/{operation_id}\"\nanswer = \"nothing")
        ),
        "4:7",
        &["this gateway itself listens there"],
    );
    one_mistake(
        "[defaults]\nprobe = true\n",
        "2:9",
        &["`probe`: expected a table, [defaults.probe], or \"off\", found `true`"],
    );
    one_mistake(&probe("colour = 1\n"), "3:1", &["unknown key `colour` in [defaults.probe]"]);
    one_mistake("[defaults.authorize]\n", "1:11", &["`authorize` has no path"]);
    one_mistake("[defaults.authorize]\npath = \"https://x/y\"\n", "2:8", &["is not a path"]);
    let rebuild = "[defaults]\nkept = \"minimal\"\n[defaults.rebuild]\n";
    one_mistake(
        &format!("{rebuild}from = \"elsewhere\"\n"),
        "4:8",
        &["responses cannot be rebuilt from", "\"location\""],
    );
    one_mistake(
        &format!("{rebuild}from = \"/last\"\n"),
        "4:8",
        &["the same for every operation", "{operation_id}"],
    );
}

#[test]
fn a_missing_or_exposed_secret_is_a_mistake() {
    let with = |headers: &str| probe(&format!("headers = {{ {headers} }}\nanswer = \"nothing\"\n"));
    one_mistake(
        &with("authorization = \"env:NOWHERE\""),
        "3:29",
        &["NOWHERE, named by `authorization`, is not set"],
    );
    let inline = with("x-api-key = \"hunter2\"");
    one_mistake(&inline, "3:25", &["`x-api-key` contains a credential", "env:NAME or file:PATH"]);
    assert!(!mistakes(&inline)[0].contains("hunter2"));
    one_mistake(&with("host = \"x\""), "3:13", &["`host` cannot be set"]);
    one_mistake(&with("idempotency-key = \"x\""), "3:13", &["`idempotency-key` cannot be set"]);
    one_mistake(&with("x-a = 7"), "3:19", &["found a whole number"]);

    let open = "[defaults.probe]\nurl = \"http://ledger.internal/{operation_id}\"\nheaders = { x-a = \"env:TOKEN\" }\nanswer = \"nothing\"\n";
    let environment = |_: &str| Some(OsString::from("hunter2"));
    let found = read(open, &Overrides::default(), &environment).expect_err("anybody could read it");
    assert!(
        found[0].problem.contains("others on the network can read it") && found[0].fix.contains("https://"),
        "{found:?}"
    );
    let near = open.replace("ledger.internal", "127.0.0.1:9");
    assert!(read(&near, &Overrides::default(), &environment).is_ok(), "a loopback URL needs no TLS");
    let message = "retries would get this probe's response";
    let without_answer = near.replace("answer = \"nothing\"\n", "");
    let found = read(&without_answer, &Overrides::default(), &environment).expect_err("`answer` is required");
    assert!(found[0].problem.contains(message) && found[0].fix.contains("answer = \"nothing\""), "{found:?}");
    let below = probe("headers = { x-a = \"env:TOKEN\" }\n");
    assert!(
        read(&below, &Overrides::default(), &environment).is_err(),
        "with a secret, also of the upstream"
    );
    let elsewhere = "[defaults.probe]\nurl = \"https://ledger.internal/{operation_id}\"\n";
    one_mistake(elsewhere, "2:1", &[message]);
    parsed(&format!("{elsewhere}answer = \"probe\"\n"));
    one_mistake(&probe("ca = \"/nowhere/ca.pem\"\n"), "3:6", &["/nowhere/ca.pem", "cannot be read"]);
    one_mistake(
        &with("x-a = \"b\"")
            .replace("headers", "ca = \"Cargo.toml\"\nheaders")
            .replace("Cargo.toml", "/nowhere"),
        "3:6",
        &["cannot be read"],
    );
}

#[test]
fn an_answer_of_two_meanings_or_of_none_is_reported() {
    one_mistake(
        &probe("not_applied = [404, 200]\n"),
        "3:1",
        &["status 200 would mean both", "applied_if and not_applied_if"],
    );
    one_mistake(&probe("applied = []\n"), "3:1", &["no response would ever mean that it happened"]);
    for status in [401, 403, 408, 429, 500, 503] {
        let text = probe(&format!("not_applied = [{status}]\n"));
        one_mistake(&text, "3:16", &["says nothing about the outcome of an operation", "remove it"]);
    }
    one_mistake(&probe("applied = [\"200\"]\n"), "3:12", &["a probe cannot use this status", "200 to 499"]);
    one_mistake(&probe("applied_if = { status = \"x\" }\n"), "3:16", &["`status` is not a JSON pointer"]);
    one_mistake(
        &probe("applied_if = { \"/a\" = 1.5 }\n"),
        "3:23",
        &["a string, a whole number, true or false"],
    );
    one_mistake(&probe("applied_if = \"/a\"\n"), "3:14", &["found a string", "{ \"/status\" = \"paid\" }"]);
    let both = probe("applied_if = { \"/a\" = 1 }\nnot_applied_if = { \"/a\" = 1 }\n");
    one_mistake(&both, "4:1", &["the same response would mean both"]);
    one_mistake(
        &probe("method = \"HEAD\"\nanswer = \"probe\"\n"),
        "4:1",
        &["a response to HEAD has no body"],
    );
    one_mistake(&probe("method = \"HEAD\"\napplied_if = { \"/a\" = 1 }\n"), "4:1", &["HEAD has no body"]);
    one_mistake(
        &probe("method = \"DELETE\"\n"),
        "3:10",
        &["`method` cannot be \"DELETE\"", "\"GET\" or \"HEAD\" or \"POST\""],
    );
    one_mistake(&probe("status = 404\n"), "3:1", &["status 404 cannot be the response"]);
    let head = parsed(&probe("method = \"HEAD\"\n")).callbacks.probe.expect("a probe");
    assert_eq!(head.answer, Answer::Nothing);
}

#[test]
fn unsafe_durations_are_mistakes() {
    // Lease 30 s, connect 5 s, response 60 s, one second, and 5 s for the clocks.
    one_mistake(
        &probe("quiet = \"101s\"\n"),
        "3:1",
        &["a quiet period of 101s is too short", "[clock] skew", "longer than 101s"],
    );
    parsed(&probe("quiet = \"102s\"\n"));
    one_mistake(
        &probe("give_up_after = \"1m\"\n"),
        "3:1",
        &["the probe ends after 1m, before", "longer than 101s"],
    );
    one_mistake(
        &probe("quiet = \"2h\"\ngive_up_after = \"1h\"\n"),
        "4:1",
        &["the probe ends after 1h", "longer than 2h"],
    );
    one_mistake(
        &probe("pause_min = \"1h\"\n"),
        "3:1",
        &["the shortest pause (1h) is longer than the longest (10m)"],
    );
    one_mistake(&probe("timeout = \"0s\"\n"), "3:1", &["must not be zero"]);
    // A mistake in an inherited question is reported at the lease that causes it.
    let longer = format!(
        "{}[[operation]]\npath = \"/a\"\n[[operation]]\npath = \"/b\"\nlease = \"2m\"\n",
        probe("quiet = \"2m\"\n")
    );
    one_mistake(&longer, "8:1", &["a quiet period of 2m is too short"]);
}

#[test]
fn a_probe_without_a_sweeper_is_a_mistake() {
    let unswept = "[sweep]\nevery = \"0s\"\n";
    one_mistake(&format!("{unswept}{}", probe("")), "2:1", &["no probe would ever be sent", "set every"]);
    let operation = "[[operation]]\npath = \"/a\"\n[operation.probe]\nurl = \"/x/{operation_id}\"\n";
    one_mistake(&format!("{unswept}{operation}"), "2:1", &["no probe would ever be sent"]);
    parsed(unswept);
}

#[test]
fn no_operation_is_called_as_claims_are() {
    one_mistake(
        "[[operation]]\nname = \"(claim) pay\"\npath = \"/a\"\n",
        "2:8",
        &["starts like the names of workers' claims"],
    );
}

#[test]
fn no_operation_is_called_as_programs_that_run_once_are() {
    one_mistake(
        "[[operation]]\nname = \"(once)\"\npath = \"/a\"\n",
        "2:8",
        &["starts like the name of what `semel once` runs"],
    );
}

/// A doubt that lasts beyond `dedup_window` is treated as in class external.
#[test]
fn a_probe_in_class_downstream_is_one_like_any_other() {
    let downstream = "[[operation]]\npath = \"/a\"\nclass = \"downstream\"\n[operation.probe]\nurl = \"/x/{operation_id}\"\n";
    assert!(parsed(downstream).operations[0].callbacks.probe.is_some());
    one_mistake(&format!("{downstream}quiet = \"1m\"\n"), "6:1", &["a quiet period of 1m is too short"]);
    parsed(&format!("[defaults]\nclass = \"downstream\"\n{}", probe("")));
}

#[test]
fn a_question_that_is_never_asked_is_a_mistake() {
    let operation = |more: &str| format!("[[operation]]\npath = \"/a\"\n{more}");
    let probe_table = "[operation.probe]\nurl = \"/x/{operation_id}\"\n";
    one_mistake(
        &operation(&format!("key = \"off\"\n{probe_table}")),
        "4:12",
        &["nothing of this operation is protected"],
    );
    one_mistake(
        &operation("[operation.rebuild]\n"),
        "3:12",
        &["every response is stored in full", "kept = \"minimal\""],
    );
    let defaults = "[defaults]\nkey = \"off\"\n";
    one_mistake(&format!("{defaults}{}", probe("")), "3:11", &["this probe is never used"]);
    one_mistake("[defaults.rebuild]\n", "1:11", &["this rebuild is never used"]);
    let protected = "[[operation]]\npath = \"/a\"\nkey = \"required\"\n";
    parsed(&format!("{defaults}{}{protected}", probe("")));
}
