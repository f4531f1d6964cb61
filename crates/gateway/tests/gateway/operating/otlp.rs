//! Traces: the client's trace is continued, the upstream's span is its child, and a collector accepts the spans.

use super::{repository, run};
use crate::tools;
use crate::world::{KEY, World, charge, until};
use semel_test_support::client::TestRequest;
use semel_test_support::upstream::{Act, Gate, Seen, Upstream, response};
use serde_json::Value;
use std::process::Command;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CLIENT: &str = "00f067aa0ba902b7";

/// A collector that records what it receives.
async fn collector() -> Upstream {
    Upstream::start(|_| Act::Say(response("200 OK", &[("content-type", "application/json")], "{}"))).await
}

fn settings(collector: &Upstream, token: &str) -> String {
    format!(
        "[otlp]\nendpoint = \"http://{}/base\"\nservice = \"payments\"\n[[otlp.header]]\nname = \"x-token\"\nvalue = 'file:{token}'\n\
         [admin]\naddress = \"127.0.0.1:0\"\n[[operation]]\nname = \"charge\"\npath = \"/charges\"\n\
         wait = \"100ms\"\n",
        collector.address
    )
}

/// Every span so far, of one trace or of all.
fn spans(collector: &Upstream, trace: Option<&str>) -> Vec<Value> {
    let batches = collector.seen();
    let batches = batches.iter().map(|seen| serde_json::from_slice::<Value>(&seen.body).expect("JSON"));
    let spans = batches.flat_map(|batch| {
        batch["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().expect("spans").clone()
    });
    spans.filter(|span| trace.is_none_or(|trace| span["traceId"] == trace)).collect()
}

fn named<'a>(spans: &'a [Value], name: &str) -> &'a Value {
    spans.iter().find(|span| span["name"] == name).unwrap_or_else(|| panic!("no {name} in {spans:?}"))
}

fn attribute<'a>(span: &'a Value, name: &str) -> Option<&'a Value> {
    let attributes = span["attributes"].as_array().expect("attributes");
    attributes.iter().find(|attribute| attribute["key"] == name).map(|attribute| &attribute["value"])
}

/// The trace context that reached the upstream.
fn parent(seen: &Seen) -> (String, String, String) {
    let header = seen.header("traceparent").expect("a traceparent");
    let parts: Vec<_> = header.split('-').map(str::to_owned).collect();
    (parts[1].clone(), parts[2].clone(), parts[3].clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_join_the_clients_trace_and_reach_a_collector() {
    let collector = collector().await;
    let gate = Gate::closed();
    let opened = gate.clone();
    let secrets = crate::world::Scratch::new();
    let token = secrets.write("token", "s3cret\n");
    let terms = settings(&collector, token.to_str().expect("text"));
    let world = World::configured(&terms, move |_| {
        let answer = response("201 Created", &[("traceparent", "00-1")], "charged");
        Act::After(gate.clone(), Box::new(Act::Say(answer)))
    })
    .await;
    let traced = |trace: &str| charge(5).with("traceparent", format!("00-{trace}-{CLIENT}-01"));
    // A duplicate arrives while the first request runs, in another trace. It still is the same request, and waits for
    // the first one as long as allowed.
    let other = "11111111111111111111111111111111";
    let (first, twin) = tokio::join!(world.send(traced(TRACE).with("tracestate", "a=b")), async {
        world.upstream.has_seen(1).await;
        let twin = world.send(traced(other)).await;
        opened.open();
        twin
    });
    assert_eq!((first.status, first.is_replay()), (201, false));
    assert_eq!(twin.code().as_deref(), Some("IDEMPOTENCY_REQUEST_IN_PROGRESS"));
    let late = world.send(traced("33333333333333333333333333333333")).await;
    assert_eq!((late.status, late.is_replay()), (201, true));
    assert!(late.header("traceparent").is_none(), "a replay must not carry the first request's trace");

    until(async || (!spans(&collector, Some(other)).is_empty()).then_some(())).await;
    let received =
        until(async || Some(spans(&collector, Some(TRACE))).filter(|received| received.len() >= 4)).await;
    let request = named(&received, "request");
    assert_eq!((&request["parentSpanId"], &request["kind"]), (&CLIENT.into(), &2.into()));
    assert_eq!(
        attribute(request, "http.response.status_code"),
        Some(&serde_json::json!({"intValue": "201"}))
    );
    assert_eq!(attribute(request, "semel.operation"), Some(&serde_json::json!({"stringValue": "charge"})));
    assert_eq!(attribute(request, "semel.outcome"), Some(&serde_json::json!({"stringValue": "ran"})));
    let id = first.header("operation-id").expect("an id");
    assert_eq!(attribute(request, "semel.operation_id"), Some(&serde_json::json!({"stringValue": id})));
    for name in ["claim", "upstream", "finish"] {
        assert_eq!(named(&received, name)["parentSpanId"], request["spanId"], "{name}");
        let span = named(&received, name);
        let moment = |name: &str| span[name].as_str().expect("a text").parse::<u64>().expect("a number");
        assert!(moment("startTimeUnixNano") <= moment("endTimeUnixNano"));
    }
    let seen = world.upstream.seen();
    let (trace, span, flags) = parent(&seen[0]);
    assert_eq!((trace.as_str(), flags.as_str(), seen[0].header("tracestate")), (TRACE, "01", Some("a=b")));
    assert_eq!(span, named(&received, "upstream")["spanId"].as_str().expect("an id"));
    let twins =
        until(async || Some(spans(&collector, Some(other))).filter(|received| received.len() >= 2)).await;
    assert_eq!(named(&twins, "wait")["parentSpanId"], named(&twins, "request")["spanId"]);
    assert!(!twins.iter().any(|span| span["name"] == "upstream"), "{twins:?}");

    // Unsampled traces are continued, but not exported.
    let quiet = "22222222222222222222222222222222";
    let unsampled = TestRequest::post("/charges")
        .key("another-key-of-its-own")
        .with("traceparent", format!("00-{quiet}-{CLIENT}-00"));
    world.send(unsampled).await;
    world.send(TestRequest::post("/charges").key("a-third-key-of-its-own")).await;
    world.upstream.has_seen(3).await;
    let seen = world.upstream.seen();
    let (trace, span, flags) = parent(&seen[1]);
    assert_eq!((trace.as_str(), flags.as_str()), (quiet, "00"));
    assert_ne!(span, CLIENT);
    let (begun, ..) = parent(&seen[2]);
    until(async || Some(spans(&collector, Some(&begun))).filter(|received| received.len() >= 4)).await;
    assert_eq!(spans(&collector, Some(quiet)).len(), 0);

    let sent = collector.seen();
    assert!(sent.iter().all(
        |seen| seen.line.starts_with("POST /base/v1/traces ") && seen.header("x-token") == Some("s3cret")
    ));
    let bodies: Vec<_> = sent.iter().map(|seen| String::from_utf8_lossy(&seen.body).into_owned()).collect();
    assert!(bodies.iter().all(|body| !body.contains(KEY) && !body.contains("amount")), "{bodies:?}");
    let Some(python) = tools::python() else { return };
    let scratch = crate::world::Scratch::new();
    let script = repository("crates/gateway/tests/gateway/operating/scripts/otlp.py");
    let files: Vec<_> =
        bodies.iter().enumerate().map(|(at, body)| scratch.write(&format!("{at}.json"), body)).collect();
    let output = run(Command::new(python).arg(script).args(files));
    assert!(output.ends_with("done\n"), "{output}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_is_down_is_counted_and_logged_once() {
    let mut collector = collector().await;
    let secrets = crate::world::Scratch::new();
    let terms = settings(&collector, secrets.write("token", "s3cret").to_str().expect("text"));
    let address = collector.address.to_string();
    collector.refuse().await;
    let mut world = World::configured(&terms, |_| Act::Say(response("201 Created", &[], "charged"))).await;
    let admin = world.gateway.admin();
    let failed_beyond = async |before: u64| {
        until(async || {
            let shown = TestRequest::get("/metrics").send(admin).await.expect("an answer");
            let mut lines = shown.text().lines();
            let failed = lines.find_map(|line| line.strip_prefix("semel_spans_total{what=\"failed\"} "));
            failed.and_then(|failed| failed.parse::<u64>().ok()).filter(|failed| *failed > before)
        })
        .await
    };
    assert_eq!(world.charge(5).await.status, 201);
    let failed = failed_beyond(0).await;
    assert!(world.charge(5).await.is_replay());
    failed_beyond(failed).await;
    let log = world.log();
    let warnings = log.lines().filter(|line| line.contains(&address) || line.contains("spans")).count();
    assert_eq!(warnings, 1, "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_with_broken_responses_is_logged_once() {
    let broken = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{".to_vec();
    let collector = Upstream::start(move |_| Act::SayAndEnd(broken.clone())).await;
    let secrets = crate::world::Scratch::new();
    let terms = settings(&collector, secrets.write("token", "s3cret").to_str().expect("text"));
    let world = World::configured(&terms, |_| Act::Say(response("201 Created", &[], "charged"))).await;
    // One after the other: when the fourth arrives, the responses to three were read.
    for batch in 1..=4 {
        assert_eq!(world.charge(5).await.status, 201);
        collector.has_seen(batch).await;
    }
    let log = world.log();
    let warnings = |words: &str| log.lines().filter(|line| line.contains(words)).count();
    assert_eq!(
        (warnings("its response was cut off"), warnings("the upstream's response was cut off")),
        (1, 0),
        "{log}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_collector_a_trace_passes_and_is_logged() {
    let world = World::new(&[], |seen| match seen.number {
        1 => Act::End,
        _ => Act::Say(response("201 Created", &[], "charged")),
    })
    .await;
    let traceparent = format!("00-{TRACE}-{CLIENT}-01");
    assert_eq!(world.send(charge(5).with("traceparent", &traceparent)).await.status, 502);
    assert_eq!(world.upstream.seen()[0].header("traceparent"), Some(traceparent.as_str()));
    // With the same key and without a trace: refused, and not run.
    assert_eq!(world.charge(5).await.code().as_deref(), Some("IDEMPOTENCY_OUTCOME_UNKNOWN"));
    assert_eq!(world.charge(6).await.status, 422);
    let log = until(async || Some(world.log()).filter(|log| log.contains("DIFFERENT_REQUEST"))).await;
    let line_with = |text: &str| {
        let is_it = |line: &&str| line.contains(" request operation=") && line.contains(text);
        log.lines().find(is_it).unwrap_or_else(|| panic!("no {text} in {log}"))
    };
    let field = |line: &str, name: &str| {
        let (_, rest) = line.split_once(&format!(" {name}=\""))?;
        Some(rest.split('"').next().unwrap_or_default().to_owned())
    };
    let traced = line_with(TRACE);
    assert_eq!(field(traced, "operation").as_deref(), Some("other"));
    assert_eq!(field(traced, "trace_id").as_deref(), Some(TRACE));
    let refused = line_with("IDEMPOTENCY_OUTCOME_UNKNOWN");
    assert_eq!(field(refused, "key"), field(traced, "key"));
    assert_eq!(field(refused, "operation_id"), field(traced, "operation_id"));
    assert_eq!(field(refused, "key").map(|key| key.len()), Some(8));
    assert_eq!(field(refused, "trace_id"), None);
    assert!(field(line_with("DIFFERENT_REQUEST"), "caller").is_some(), "{log}");
    assert!(!log.contains(KEY) && !log.contains("amount") && !log.contains("/charges"), "{log}");
}
