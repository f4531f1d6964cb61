//! Requests with an unknown outcome: how they are resolved, and what their retries get.

use crate::world::{Gateway, KEY, World, charge, until, within};
use semel::{Clock as _, SystemClock};
use semel_test_support::Reply;
use semel_test_support::client::TestRequest;
use semel_test_support::upstream::{Act, Gate, Seen, Upstream, charged, response, says};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const UNKNOWN: &str = "IDEMPOTENCY_OUTCOME_UNKNOWN";

/// As short as a busy machine permits: "not applied" counts after 4 s, plus one second for the clock.
const SHORT: [&str; 8] =
    ["--lease", "1s", "--wait", "0s", "--connect-timeout", "500ms", "--response-timeout", "1500ms"];

/// A probe with these settings, below the upstream.
fn probe(more: &str) -> String {
    format!(
        "[sweep]\nskew = \"1s\"\n[defaults.probe]\nurl = \"/effects/{{operation_id}}\"\nnot_applied = [404]\ntimeout = \"200ms\"\n\
         pause_min = \"100ms\"\npause_max = \"400ms\"\n{more}"
    )
}

fn is_probe(seen: &Seen) -> bool {
    seen.line.contains("/effects/")
}

/// Leaves the outcome of the first attempt unknown, charges for the others, and answers probes as configured.
fn first_attempt_unknown(
    answer: impl Fn(&Seen) -> Act + Send + Sync + 'static,
) -> impl Fn(&Seen) -> Act + Send + Sync {
    move |seen| match seen.header("idempotency-attempt") {
        _ if is_probe(seen) => answer(seen),
        Some("1") => says("500 Oops")(seen),
        _ => charged(seen),
    }
}

fn charges(world: &World) -> usize {
    world.upstream.seen().iter().filter(|seen| seen.line.starts_with("POST /charges ")).count()
}

fn probes(world: &World) -> Vec<Seen> {
    world.upstream.seen().into_iter().filter(is_probe).collect()
}

/// Charges until the outcome is known.
async fn charge_until_known(world: &World) -> Reply {
    until(async || {
        let reply = world.charge(5).await;
        (reply.code().as_deref() != Some(UNKNOWN)).then_some(reply)
    })
    .await
}

#[tokio::test]
async fn a_probe_resolves_a_doubt_and_its_response_is_replayed() {
    let secret = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("probe-authorization");
    std::fs::write(&secret, "Bearer of-the-gateway\n").expect("a file");
    let more = format!(
        "answer = \"probe\"\nstatus = 201\nheaders = {{ authorization = 'file:{}', x-plain = \"yes\" }}\n",
        secret.display()
    );
    let found = response("200 OK", &[("content-type", "application/json"), ("x-own", "1")], "{\"id\":7}");
    let script = first_attempt_unknown(move |_| Act::Say(found.clone()));
    let world = World::configured_with(&probe(&more), &SHORT, script).await;
    let ask = || charge(5).with("authorization", "Bearer alice").with("cookie", "session=alice");
    let first = world.send(ask()).await;
    assert_eq!(first.status, 500, "the first caller gets the service's response");
    let found = until(async || {
        let reply = world.send(ask()).await;
        if reply.code().as_deref() == Some(UNKNOWN) {
            world.is_problem(&reply, 409, UNKNOWN, true).await;
            return None;
        }
        Some(reply)
    })
    .await;
    assert_eq!((found.status, found.text(), found.header("x-own")), (201, "{\"id\":7}", Some("1")));
    assert_eq!(found.header("idempotency-replayed"), Some("rebuilt"));
    assert_eq!(found.header("operation-id"), first.header("operation-id"));
    assert!(found.is_acknowledged());
    assert_eq!(world.send(ask()).await.kept(), found.kept());
    assert_eq!(charges(&world), 1, "nothing was sent again");

    let probe_request = &probes(&world)[0];
    let id = first.header("operation-id").expect("an id");
    assert_eq!(probe_request.line, format!("GET /effects/{id} HTTP/1.1"));
    assert_eq!(probe_request.header("operation-id"), Some(id));
    assert_eq!(
        probe_request.header("authorization"),
        Some("Bearer of-the-gateway"),
        "the probe's own credentials"
    );
    assert_eq!((probe_request.header("x-plain"), probe_request.header("cookie")), (Some("yes"), None));
    assert!(
        !format!("{probe_request:?}").contains(KEY) && !format!("{probe_request:?}").contains("alice"),
        "{probe_request:?}"
    );
    assert!(!world.log().contains("of-the-gateway"), "a secret in the log");
}

#[tokio::test]
async fn an_absent_effect_counts_only_after_the_quiet_period() {
    let world =
        World::configured_with(&probe("quiet = \"6s\"\n"), &SHORT, first_attempt_unknown(says("404 None")))
            .await;
    let begun = SystemClock.uptime();
    assert_eq!(world.charge(5).await.status, 500);
    let retry = until(async || {
        let reply = world.charge(5).await;
        (reply.code().as_deref() != Some(UNKNOWN)).then_some(reply)
    })
    .await;
    assert!(
        SystemClock.uptime() >= begun + Duration::from_secs(6),
        "a request may still be running until then"
    );
    assert_eq!((retry.status, retry.is_replay()), (201, false));
    let seen = world.upstream.seen();
    let attempts: Vec<_> = seen.iter().filter_map(|seen| seen.header("idempotency-attempt")).collect();
    assert_eq!(attempts, ["1", "2"]);
    assert!(probes(&world).len() >= 2, "one probe too early, and one that counts");
    assert!(world.charge(5).await.is_replay());
    assert_eq!(charges(&world), 2);
}

/// Even after "not applied" would count: none of these responses means that.
#[tokio::test]
async fn an_undecided_probe_is_sent_again() {
    let (count, begun) = (Arc::new(AtomicUsize::new(0)), SystemClock.uptime());
    let number = Arc::clone(&count);
    let script = first_attempt_unknown(move |_| {
        let json = |body: &str| response("200 OK", &[("content-type", "application/json")], body);
        let number = number.fetch_add(1, Ordering::SeqCst);
        if number >= 13 && SystemClock.uptime() > begun + Duration::from_secs(7) {
            return Act::Say(json("{\"state\":\"paid\"}"));
        }
        match number % 13 {
            0 => Act::Say(response("500 Oops", &[], "")),
            1 => Act::Hang,
            2 => Act::End,
            3 => Act::Say(response("302 Found", &[("location", "/effects/elsewhere")], "")),
            4 => Act::Say(response("401 Who", &[], "")),
            5 => Act::Say(json("<html>")),
            6 => Act::Say(json("{\"state\":\"pending\"}")),
            7 => Act::Say(response("404 None", &[("age", "7")], "")),
            8 => Act::Say(response("404 None", &[("age", "soon")], "")),
            9 => Act::Say(response("200 OK", &[("age", "1")], "{\"state\":\"paid\"}")),
            10 => {
                Act::SayAndEnd(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{\"state\":\"paid\"}".to_vec())
            }
            11 => Act::Say(json("{\"state\":\"pending\",\"state\":\"paid\"}")),
            _ => Act::SayAndEnd(b"nonsense\r\n\r\n".to_vec()),
        }
    });
    let world =
        World::configured_with(&probe("applied_if = { \"/state\" = \"paid\" }\n"), &SHORT, script).await;
    assert_eq!(world.charge(5).await.status, 500);
    let reply = charge_until_known(&world).await;
    assert_eq!((reply.status, reply.text()), (200, "{\"state\":\"paid\"}"));
    assert!(count.load(Ordering::SeqCst) >= 14, "every undecided probe is repeated");
    assert_eq!(charges(&world), 1);
    assert!(world.log().contains("a probe's response says nothing about the effect"), "{}", world.log());
    for probe_request in probes(&world) {
        assert_eq!(
            (probe_request.header("cache-control"), probe_request.header("pragma")),
            (Some("no-cache"), Some("no-cache"))
        );
    }
}

async fn send_to(ask: TestRequest, admin: std::net::SocketAddr) -> Reply {
    within(ask.send(admin)).await.expect("an answer")
}

#[tokio::test]
async fn after_its_deadline_an_operator_resolves_a_doubt() {
    let flags = [&SHORT[..], &["--admin", "127.0.0.1:0"]].concat();
    let script = first_attempt_unknown(says("503 Busy"));
    let mut world = World::configured_with(&probe("give_up_after = \"5500ms\"\n"), &flags, script).await;
    let admin = world.gateway.admin();
    let first = world.charge(5).await;
    assert_eq!(first.status, 500);
    until(async || world.log().contains("an operator has to").then_some(())).await;
    let late = world.charge(5).await;
    assert_eq!(late.code().as_deref(), Some(UNKNOWN), "it is not resolved without an operator");

    let path = format!("/v1/records/{}/resolve", first.header("operation-id").expect("an id"));
    let verdict = "{\"outcome\":\"applied\",\"reason\":\"seen in the ledger\",\
                   \"response\":{\"status\":201,\"body\":\"charge 7\"}}";
    let resolved = send_to(TestRequest::post(&path).json(verdict), admin).await;
    assert_eq!(resolved.status, 200, "{resolved:?}");
    let replay = world.charge(5).await;
    assert_eq!((replay.status, replay.text(), replay.is_replay()), (201, "charge 7", true));
    assert_eq!(charges(&world), 1);
}

/// The owner has the true outcome, whatever other nodes have assumed in the meantime.
#[tokio::test]
async fn an_owner_that_comes_back_late_settles_the_doubt_itself() {
    let gate = Gate::closed();
    let held = gate.clone();
    let script = move |seen: &Seen| {
        if is_probe(seen) {
            says("500 Oops")(seen)
        } else {
            Act::After(held.clone(), Box::new(charged(seen)))
        }
    };
    let flags = ["--lease", "3s", "--wait", "0s"];
    let mut world = World::configured_with(&probe(""), &flags, script).await;
    let owner = world.gateway.address;
    let first = tokio::spawn(charge(5).send(owner));
    world.upstream.has_seen(1).await;
    world.gateway.freeze();
    let frozen = std::mem::replace(&mut world.gateway, Gateway::configured(&world.scratch, &flags));
    until(async || {
        let reply = world.charge(5).await;
        (reply.code().as_deref() == Some(UNKNOWN)).then_some(())
    })
    .await;
    until(async || (!probes(&world).is_empty()).then_some(())).await;

    gate.open();
    frozen.thaw();
    let first = within(first).await.expect("no panic").expect("an answer");
    assert_eq!((first.status, first.text(), first.is_acknowledged()), (201, "charge 1", true));
    let replay = charge_until_known(&world).await;
    assert!(replay.is_replay());
    assert_eq!(replay.kept(), first.kept());
    assert_eq!(charges(&world), 1);
}

#[tokio::test]
async fn a_probe_that_is_configured_later_resolves_older_doubts() {
    let ledger = Upstream::start(says("200 OK")).await;
    let mut world = World::configured_with("", &SHORT, first_attempt_unknown(charged)).await;
    assert_eq!(world.charge(5).await.status, 500);
    let before = world.charge(5).await;
    world.is_problem(&before, 409, UNKNOWN, false).await;

    let configuration = format!(
        "[[operation]]\npath = \"/{{*any}}\"\n[operation.probe]\nurl = \"http://{}/of/{{operation}}?id={{operation_id}}\"\n\
         answer = \"nothing\"\n",
        ledger.address
    );
    world.reconfigure(&configuration);
    let reply = charge_until_known(&world).await;
    assert_eq!(
        reply.code().as_deref(),
        Some("IDEMPOTENCY_RESPONSE_NOT_RETAINED"),
        "it happened, but its response is unknown"
    );
    let id = before.header("operation-id").expect("an id");
    assert_eq!(ledger.seen()[0].line, format!("GET /of/POST%20%2Fcharges?id={id} HTTP/1.1"));
    assert_eq!(ledger.seen()[0].header("host"), Some(ledger.address.to_string().as_str()));

    world.reconfigure("");
    world.gateway.kill();
    assert_eq!((ledger.seen_count(), charges(&world)), (1, 1));
}

/// A worker's effect does not happen at the route with the same name.
#[tokio::test]
async fn a_routes_probe_never_asks_about_a_claim() {
    let route = format!("[[operation]]\nname = \"charge\"\npath = \"/charges\"\n{}", probe(""));
    let config =
        route.replace("[sweep]\nskew = \"1s\"\n", "").replace("[defaults.probe]", "[operation.probe]");
    let config = format!("[sweep]\nskew = \"1s\"\n{config}");
    let flags = [&SHORT[..], &["--admin", "127.0.0.1:0"]].concat();
    let mut world = World::configured_with(&config, &flags, first_attempt_unknown(says("404 None"))).await;
    let admin = world.gateway.admin();
    let claim =
        "{\"operation\":\"charge\",\"key\":\"job-1\",\"payload\":1,\"leaseMs\":500,\"workDeadlineMs\":1}";
    let claim = || TestRequest::post("/v1/claims").json(claim);
    let claimed = send_to(claim(), admin).await;
    assert_eq!(claimed.status, 201, "{claimed:?}");

    // The route's own unknown outcome, which is newer and takes longer, is resolved by the probe.
    assert_eq!(world.charge(5).await.status, 500);
    assert_eq!(charge_until_known(&world).await.status, 201);
    let again = send_to(claim(), admin).await;
    assert_eq!((again.status, again.code().as_deref()), (409, Some(UNKNOWN)));
    assert!(again.text().contains("\"retryable\":false"), "no probe is sent: {}", again.text());
    let id = again.header("operation-id").map(str::to_owned);
    let id = id.unwrap_or_else(|| claimed.text().split('"').nth(7).expect("an id").to_owned());
    assert!(claimed.text().contains(&id), "{claimed:?}");
    assert!(!probes(&world).iter().any(|seen| seen.line.contains(&id)), "a probe was sent for {id}");
}

/// More unknown outcomes than probe slots, for operations whose probes never answer.
#[tokio::test]
async fn probes_that_hang_delay_none_of_another_operation() {
    let hanging = Upstream::start(|_: &Seen| Act::Hang).await;
    let operation = |name: &str, url: &str| {
        format!(
            "[[operation]]\nname = \"{name}\"\npath = \"/{name}\"\n[operation.probe]\nurl = \"{url}\"\nanswer = \"nothing\"\n\
             timeout = \"1h\"\n"
        )
    };
    let slow: Vec<_> = (0..5).map(|which| format!("slow-{which}")).collect();
    let at = format!("http://{}/of/{{operation_id}}", hanging.address);
    let mut config: String = slow.iter().map(|name| operation(name, &at)).collect();
    config.push_str(&operation("quick", "/effects/{operation_id}"));
    let world = World::configured_with(&config, &SHORT, first_attempt_unknown(says("200 OK"))).await;
    for name in &slow {
        for number in 0..20 {
            let key = format!("a-key-of-its-own-{number}");
            let failed = world.send(TestRequest::post(&format!("/{name}")).key(&key).json("{}")).await;
            assert_eq!(failed.status, 500);
        }
    }
    hanging.has_seen(64).await;

    for number in 0..3 {
        let key = format!("a-key-of-its-own-{number}");
        let ask = || TestRequest::post("/quick").key(&key).json("{}");
        assert_eq!(world.send(ask()).await.status, 500);
        let reply = until(async || {
            let reply = world.send(ask()).await;
            (reply.code().as_deref() != Some(UNKNOWN)).then_some(reply)
        })
        .await;
        assert_eq!(reply.code().as_deref(), Some("IDEMPOTENCY_RESPONSE_NOT_RETAINED"));
    }
    let held = hanging.seen_count();
    assert!((64..=68).contains(&held), "at most sixteen probes per operation, at least one: {held}");
}

/// Until the window ends, the next request resolves the outcome; here there is none.
#[tokio::test]
async fn in_class_downstream_a_probe_follows_the_repeat_window() {
    let config =
        format!("[defaults]\nclass = \"downstream\"\ndedup_window = \"7s\"\n{}", probe("status = 201\n"));
    let world = World::configured_with(&config, &SHORT, first_attempt_unknown(says("200 OK"))).await;
    let begun = SystemClock.uptime();
    assert_eq!(world.charge(5).await.status, 500);
    until(async || (!probes(&world).is_empty()).then_some(())).await;
    assert!(
        SystemClock.uptime() >= begun + Duration::from_secs(3),
        "a retry was possible until then: it takes up to 3 s, and clocks differ by 1 s"
    );
    let reply = charge_until_known(&world).await;
    assert_eq!((reply.status, reply.header("idempotency-replayed")), (201, Some("rebuilt")));
    assert_eq!(charges(&world), 1);
}
