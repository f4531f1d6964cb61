//! What is published: the specification, and each caller's own operations.

use super::world::{Bodies, Gate, KEY, Reply, Server, charged, engine, post, request};
use axum::extract::Request;
use axum::response::IntoResponse;
use semel::core::fingerprint::Pointer;
use semel::core::policy::{Class, Policy};
use semel::{Case, Engine, Finding, memory};
use semel_http::{KeySource, Layer, Mode, Reconciler, RouteSettings, RouteSettingsError, Routes};
use std::sync::Arc;

async fn published(prefix: &str) -> Layer {
    let settings = RouteSettings { wait: Some(std::time::Duration::ZERO), ..RouteSettings::default() };
    Layer::new(engine().await, settings).expect("valid").publishing(prefix)
}

fn json(reply: &Reply) -> serde_json::Value {
    serde_json::from_slice(&reply.body).expect("JSON")
}

#[tokio::test]
async fn an_operation_is_shown_to_its_caller_and_to_nobody_else() {
    let server = Server::under(published("").await, charged).await;
    let alice = |builder: http::request::Builder| builder.header("authorization", "Bearer alice");
    let first = server.send(alice(post("/charges")).json("{}")).await;
    let id = first.header("operation-id").expect("an id").to_owned();
    let path = format!("/operations/{id}");
    let shown = server.send(alice(request("GET", &path)).empty()).await;
    assert_eq!((shown.status, shown.header("cache-control")), (200, Some("no-store")));
    let document = json(&shown);
    assert_eq!(
        (&document["operationId"], &document["state"], &document["attempt"]),
        (&id.into(), &"SUCCEEDED".into(), &1.into())
    );
    assert_eq!(
        (&document["result"]["status"], &document["result"]["body"]),
        (&201.into(), &"charge 1".into())
    );
    let location = serde_json::json!(["location", "/charges/7"]);
    assert!(document["result"]["headers"].as_array().expect("a list").contains(&location));
    for name in ["createdAt", "updatedAt", "expiresAt"] {
        assert!(document[name].as_str().expect("a time").ends_with('Z'), "{name}");
    }
    assert!(!shown.text().contains(KEY));
    let others = [request("GET", &path).header("authorization", "Bearer bob"), request("GET", &path)];
    for other in others {
        server.send(other.empty()).await.is_problem(404, "OPERATION_NOT_FOUND", false);
    }
    let no_answer = request("GET", &path).header("cookie", "session=1").empty();
    server.send(no_answer).await.is_problem(400, "CALLER_NOT_IDENTIFIED", false);
    let absent = alice(request("GET", "/operations/00000000-0000-0000-0000-000000000000")).empty();
    server.send(absent).await.is_problem(404, "OPERATION_NOT_FOUND", false);
    assert_eq!(server.calls.count(), 1);
}

#[tokio::test]
async fn an_anonymous_caller_sees_the_result_only_with_the_key() {
    let server =
        Server::under(published("").await, |_, _: Request| async { vec![0xff_u8, 0].into_response() }).await;
    let first = server.charge(5).await;
    let path = format!("/operations/{}", first.header("operation-id").expect("an id"));
    let without = json(&server.send(request("GET", &path).empty()).await);
    assert_eq!((&without["state"], without.get("result")), (&"SUCCEEDED".into(), None));
    let wrong = request("GET", &path).header("idempotency-key", "another-key-than-before-7").empty();
    assert_eq!(json(&server.send(wrong).await).get("result"), None);
    let with = request("GET", &path).header("idempotency-key", format!("\"{KEY}\"")).empty();
    assert_eq!(json(&server.send(with).await)["result"]["body_base64"], "/wA=");
}

#[tokio::test]
async fn only_published_paths_are_intercepted() {
    let server = Server::under(published("/idem/").await, charged).await;
    let id = "30313233-3435-3637-3839-616263646566";
    let others = [
        ("GET", format!("/operations/{id}")),
        ("GET", "/idem/operations/7".to_owned()),
        ("GET", format!("/idem/operations/{id}/x")),
        ("PUT", format!("/idem/operations/{id}")),
        ("GET", "/.well-known/idempotency".to_owned()),
    ];
    for (call, (method, path)) in (1..).zip(others) {
        let reply = server.send(request(method, &path).empty()).await;
        assert_eq!((reply.status, server.calls.count()), (201, call), "{path}");
    }
    let moved = server.send(request("GET", &format!("/idem/operations/{id}")).empty()).await;
    assert_eq!(
        (moved.status, &json(&moved)["type"]),
        (404, &"/idem/.well-known/idempotency#OPERATION_NOT_FOUND".into())
    );
}

#[tokio::test]
async fn the_specification_is_json_and_an_html_page_for_browsers() {
    let server = Server::under(published("").await, charged).await;
    let document = json(&server.send(request("GET", "/.well-known/idempotency").empty()).await);
    let operation = &document["operations"][0];
    assert_eq!((&operation["class"], &operation["retentionSeconds"]), (&"external".into(), &86_400.into()));
    assert_eq!(
        (&operation["key"]["charactersMin"], &operation["key"]["rule"]),
        (&16.into(), &"optional".into())
    );
    let page =
        server.send(request("GET", "/.well-known/idempotency").header("accept", "text/html").empty()).await;
    for code in semel_http::Code::ALL {
        assert!(page.text().contains(&format!("id=\"{}\"", code.as_str())), "{code:?}");
    }
    assert_eq!(server.calls.count(), 0);
}

#[tokio::test]
async fn a_client_that_prefers_not_to_wait_gets_a_location() {
    let gate = Gate::new();
    let within = gate.clone();
    let server = Server::under(published("").await, move |call, request: Request| {
        let gate = within.clone();
        async move {
            assert_eq!(request.headers().get("prefer").expect("the rest of it"), "return=minimal");
            gate.pass().await;
            charged(call, request).await
        }
    })
    .await;
    let send = || server.send(post("/charges").header("prefer", "respond-async, return=minimal").json("{}"));
    let first = send().await;
    let id = first.header("operation-id").expect("an id").to_owned();
    let path = format!("/operations/{id}");
    gate.started().await;
    for reply in [first, send().await] {
        assert_eq!((reply.status, reply.header("location")), (202, Some(path.as_str())));
        assert_eq!(reply.header("preference-applied"), Some("respond-async"));
        assert_eq!(
            (reply.header("operation-id"), reply.header("idempotency-expires")),
            (Some(id.as_str()), None)
        );
    }
    let plain = server.send(post("/charges").header("prefer", "return=minimal").json("{}")).await;
    plain.is_problem(409, "IDEMPOTENCY_REQUEST_IN_PROGRESS", true);
    assert_eq!(plain.header("link"), Some(format!("<{path}>; rel=\"status\"").as_str()));
    let running = json(&server.send(request("GET", &path).empty()).await);
    assert_eq!((&running["state"], running.get("result")), (&"PROCESSING".into(), None));
    gate.open();
    let replay = loop {
        let reply = send().await;
        if reply.status != 202 {
            break reply;
        }
    };
    assert_eq!((replay.status, replay.text(), replay.is_replay()), (201, "charge 1", true));
    assert_eq!(server.calls.count(), 1);
}

#[tokio::test]
async fn without_publishing_the_handler_gets_the_preference() {
    let server = Server::new(RouteSettings::default(), |_, request: Request| async move {
        request
            .headers()
            .get("prefer")
            .cloned()
            .map_or_else(|| "none".into_response(), |value| value.as_bytes().to_vec().into_response())
    })
    .await;
    let reply = server.send(post("/charges").header("prefer", "respond-async").json("{}")).await;
    assert_eq!((reply.status, reply.text()), (200, "respond-async"));
}

#[tokio::test]
async fn non_utf8_headers_are_shown_byte_by_byte() {
    let server = Server::under(published("").await, |_, _| async {
        let mut response = "x".into_response();
        let value = |bytes: &[u8]| http::HeaderValue::from_bytes(bytes).expect("a value");
        response.headers_mut().insert("x-latin", value(b"caf\xe9"));
        response.headers_mut().insert("x-utf", value("café".as_bytes()));
        response
    })
    .await;
    let alice = |builder: http::request::Builder| builder.header("authorization", "Bearer alice");
    let first = server.send(alice(post("/charges")).json("{}")).await;
    let path = format!("/operations/{}", first.header("operation-id").expect("an id"));
    let document = json(&server.send(alice(request("GET", &path)).empty()).await);
    let headers = document["result"]["headers"].as_array().expect("a list");
    for name in ["x-latin", "x-utf"] {
        assert!(headers.contains(&serde_json::json!([name, "café"])), "{headers:?}");
    }
}

#[tokio::test]
async fn the_specification_names_what_the_guarantee_rests_on() {
    let server = Server::under(published("").await, charged).await;
    let document = json(&server.send(request("GET", "/.well-known/idempotency").empty()).await);
    let operation = &document["operations"][0];
    let assumed = serde_json::json!([401, 403, 408, 425, 429, 503]);
    assert_eq!(operation["notAppliedStatuses"]["http"], assumed);
    assert_eq!(operation["notAppliedStatuses"]["grpc"], serde_json::json!([7, 16]));
    assert_eq!(document["callers"], "per access token");
}

#[tokio::test]
async fn the_specification_gives_the_key_length_of_each_source() {
    let from = |key_source| RouteSettings { key_source, ..RouteSettings::default() };
    let event = KeySource::Pointer(Pointer::parse("/event_id").expect("a pointer"));
    let both = KeySource::Composite(vec![event.clone(), KeySource::Fingerprint]);
    let routes = Routes::new(RouteSettings::default())
        .and_then(|routes| routes.with("/event", from(event)))
        .and_then(|routes| routes.with("/both", from(both)))
        .expect("valid");
    let server = Server::under(Layer::routed(engine().await, routes).expect("valid").publishing(""), charged);
    let document = json(&server.await.send(request("GET", "/.well-known/idempotency").empty()).await);
    let mut seen: Vec<_> = document["operations"]
        .as_array()
        .expect("operations")
        .iter()
        .map(|operation| (operation["route"].as_str(), operation["key"]["charactersMin"].as_u64()))
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, [(None, Some(16)), (Some("/both"), None), (Some("/event"), Some(1))]);
}

#[tokio::test]
async fn grpc_calls_are_never_answered_with_202() {
    let server = Server::under(published("").await, charged).await;
    let call = post("/charges").header("prefer", "respond-async").header("content-type", "application/grpc");
    assert_eq!(server.send(call.empty()).await.status, 201);
}

#[tokio::test]
async fn the_specification_says_how_each_operations_doubts_end() {
    let no_answer = |_: Case| std::future::ready(Finding::NoAnswer);
    let looked_up = RouteSettings { reconciler: Some(Reconciler::by(no_answer)), ..RouteSettings::default() };
    let named = RouteSettings { name: Some("pay".into()), ..RouteSettings::default() };
    let repeated = RouteSettings { policy: Policy::new(Class::Downstream), ..RouteSettings::default() };
    let both = RouteSettings { policy: Policy::new(Class::Downstream), ..looked_up.clone() };
    let mut routes = Routes::new(RouteSettings::default()).expect("valid");
    for (path, settings) in [
        ("/a/{id}", looked_up),
        ("/b", named),
        ("/c", RouteSettings::default()),
        ("/d", repeated),
        ("/e", both),
    ] {
        routes = routes.with(path, settings).expect("valid");
    }
    let unaware = Engine::builder(Arc::new(memory::Store::new())).reconciler("pay", no_answer).build().await;
    let refused = Layer::routed(unaware.expect("the store answers"), routes.clone()).err();
    assert_eq!(refused, Some(RouteSettingsError::Unasked("/a/{id}".into())), "nothing would ask it");
    let directory = routes.clone();
    let engine = Engine::builder(Arc::new(memory::Store::new()))
        .reconciler("pay", no_answer)
        .reconciler("PATCH /c", no_answer)
        .reconcilers(move |operation| directory.reconciler_of(operation))
        .build()
        .await
        .expect("the store answers");
    let server = Server::under(Layer::routed(engine, routes).expect("valid").publishing(""), charged).await;
    let document = json(&server.send(request("GET", "/.well-known/idempotency").empty()).await);
    let found: Vec<_> =
        document["operations"].as_array().expect("a list").iter().map(|one| &one["unknownOutcome"]).collect();
    let is = |ways: &[&str], seconds: Option<u64>, retryable: bool| serde_json::json!({ "settledBy": ways, "repeatSeconds": seconds, "retryable": retryable });
    let (by_hand, asked) = (is(&["operator"], None, false), is(&["look-up", "operator"], None, true));
    // Without the time that an attempt may take and the skew: later repeats are refused.
    let policy = Policy::new(Class::Downstream);
    let skew = semel::ClockSettings::default().skew.max(policy.skew);
    let seconds = policy.dedup_window.as_secs() - (policy.work_deadline + skew).as_secs();
    assert!(seconds < policy.dedup_window.as_secs());
    let repeated = is(&["repeat", "operator"], Some(seconds), true);
    let both = is(&["repeat", "look-up", "operator"], Some(seconds), true);
    assert_eq!(found, [&asked, &asked, &asked, &repeated, &both, &by_hand]);
    let page =
        server.send(request("GET", "/.well-known/idempotency").header("accept", "text/html").empty()).await;
    let ends = "An unknown outcome is settled by<td>";
    for words in [
        "an operator\n",
        "an automatic lookup in the system that runs it; else an operator\n",
        "the next request with its key; else an operator\n",
    ] {
        assert!(page.text().contains(&format!("{ends}{words}")), "{}", page.text());
    }
    assert!(
        page.text().contains("while the outcome is unknown<td>yes") && page.text().contains("unknown<td>no")
    );
}

#[tokio::test]
async fn a_default_reconciler_that_is_never_asked_is_refused() {
    let no_answer = |_: Case| std::future::ready(Finding::NoAnswer);
    let looked_up = RouteSettings { reconciler: Some(Reconciler::by(no_answer)), ..RouteSettings::default() };
    let routes =
        Routes::new(looked_up).and_then(|routes| routes.with("/a/{id}/{*rest}", RouteSettings::default()));
    let routes = routes.expect("valid");
    let refused = Layer::routed(engine().await, routes.clone()).err();
    assert_eq!(refused, Some(RouteSettingsError::Unasked("other".into())));
    let directory = routes.clone();
    let engine = Engine::builder(Arc::new(memory::Store::new()))
        .reconcilers(move |operation| directory.reconciler_of(operation))
        .build()
        .await
        .expect("the store answers");
    let layer = Layer::routed(engine, routes).expect("valid").publishing("");
    let server = Server::under(layer, charged).await;
    let document = json(&server.send(request("GET", "/.well-known/idempotency").empty()).await);
    let retryable: Vec<_> = document["operations"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| &one["unknownOutcome"]["retryable"])
        .collect();
    assert_eq!(retryable, [&serde_json::json!(false), &serde_json::json!(true)]);
}

/// The names of an object's members and, with dots, of nested objects.
fn members(value: &serde_json::Value, before: &str, found: &mut std::collections::BTreeSet<String>) {
    for (name, value) in value.as_object().into_iter().flatten() {
        let name = format!("{before}{name}");
        // The members of a source depend on the operation; the page describes its forms in words.
        if name != "key.source" {
            members(value, &format!("{name}."), found);
        }
        found.insert(name);
    }
}

#[tokio::test]
async fn the_guide_describes_every_member_of_the_specification_and_no_other() {
    let server = Server::under(published("").await, charged).await;
    let document = json(&server.send(request("GET", "/.well-known/idempotency").empty()).await);
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/src/specification.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let sections: Vec<&str> = page.split("\n## ").collect();
    for (section, part) in
        sections.iter().zip([&document, &document["operations"][0], &document["errors"][0]])
    {
        let rows = section.lines().filter(|line| line.starts_with("| `"));
        let cells = rows.filter_map(|line| line.split('|').nth(1));
        let described =
            cells.flat_map(|cell| cell.split(", ")).map(|name| name.trim().trim_matches('`').to_owned());
        let mut sent = std::collections::BTreeSet::new();
        members(part, "", &mut sent);
        assert_eq!(described.collect::<std::collections::BTreeSet<_>>(), sent);
    }
}

#[tokio::test]
async fn the_specification_gives_real_waits_and_every_status() {
    let layer = Layer::new(engine().await, RouteSettings::default()).expect("valid").publishing("");
    let server = Server::under(layer, charged).await;
    let document = json(&server.send(request("GET", "/.well-known/idempotency").empty()).await);
    assert_eq!(
        document["operations"][0]["waitMilliseconds"], 2_000,
        "the engine's own, unless the settings differ"
    );
    let errors = document["errors"].as_array().expect("a list");
    let unreachable = errors.iter().find(|error| error["code"] == "UPSTREAM_UNREACHABLE").expect("it");
    assert_eq!(unreachable["statuses"], serde_json::json!([502, 503, 504]));
}

#[tokio::test]
async fn an_operation_in_shadow_mode_promises_nothing() {
    let settings = RouteSettings { mode: Mode::Shadow, ..RouteSettings::default() };
    let enforced = RouteSettings { name: Some("enforced".to_owned()), ..RouteSettings::default() };
    let routes = Routes::new(settings).and_then(|routes| routes.with("/enforced", enforced)).expect("valid");
    let layer = Layer::routed(engine().await, routes).expect("valid").publishing("");
    let server = Server::under(layer, charged).await;
    let document = json(&server.send(request("GET", "/.well-known/idempotency").empty()).await);
    let operation = |mode: &str| {
        let operations = document["operations"].as_array().expect("a list");
        operations.iter().find(|operation| operation["mode"] == mode).expect("one of each").clone()
    };
    let (observed, enforced) = (operation("shadow"), operation("enforce"));
    assert_eq!(
        (&observed["class"], &observed["whileStoreIsDown"]),
        (&"observed only".into(), &"observed only".into())
    );
    assert_eq!((&enforced["class"], &enforced["whileStoreIsDown"]), (&"external".into(), &"refused".into()));
    for promise in [
        "notAppliedStatuses",
        "retained",
        "retentionSeconds",
        "tombstoneSeconds",
        "requestBytesMax",
        "keptResponseBytesMax",
        "mismatchStatus",
        "waitMilliseconds",
        "unknownOutcome",
    ] {
        assert!(observed[promise].is_null(), "{promise}: {observed}");
        assert!(!enforced[promise].is_null(), "{promise}: {enforced}");
    }
    assert_eq!(observed["key"]["rule"], "optional", "what is observed is still published");

    let html = request("GET", "/.well-known/idempotency").header("accept", "text/html").empty();
    let page = server.send(html).await.text().to_owned();
    let section = page.split("<section").find(|part| part.contains("All other requests")).expect("a section");
    assert!(section.contains("none: requests are observed only"), "{section}");
    for promise in ["at most once", "replayed for", "refused"] {
        assert!(!section.contains(promise), "{promise} is in {section}");
    }
    assert!(page.contains("Operations in mode <code>shadow</code> are observed only"), "{page}");
}
