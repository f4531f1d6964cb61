//! Every problem that a client can get from a started gateway. (Problems that no flag produces are tested with the
//! layer: see its tests `settings` and `table`.)

use crate::store::{StoreKind, on_every_store};
use crate::world::{KEY, World, charge, until, within};
use semel_test_support::client::TestRequest;
use semel_test_support::upstream::{Act, Gate, charged, response, says};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

async fn a_key_that_is_required_and_missing(kind: StoreKind) {
    let world = World::on(kind, &["--require-key"], charged).await;
    for method in ["POST", "PATCH"] {
        let reply = world.send(TestRequest::new(method, "/charges").json("{}")).await;
        world.is_problem(&reply, 400, "MISSING_IDEMPOTENCY_KEY", false).await;
    }
    assert_eq!(
        world.send(TestRequest::get("/charges")).await.status,
        201,
        "unprotected requests need no key"
    );
    assert_eq!(world.calls(), 1);
}

async fn a_key_that_is_no_key(kind: StoreKind) {
    let world = World::on(kind, &[], charged).await;
    let long = "x1".repeat(200);
    let bad = ["", "short", "a key with spaces in it", "someone@example.com", "aaaaaaaaaaaaaaaaaaaa", &long];
    for bad in bad {
        let reply = world.send(TestRequest::post("/charges").key(bad).json("{}")).await;
        world.is_problem(&reply, 400, "INVALID_IDEMPOTENCY_KEY", false).await;
        assert!(bad.is_empty() || !reply.text().contains(bad), "{}", reply.text());
    }
    let twice = world.send(charge(5).key(KEY)).await;
    world.is_problem(&twice, 400, "INVALID_IDEMPOTENCY_KEY", false).await;
    assert_eq!(world.calls(), 0);
}

async fn a_caller_that_cannot_be_distinguished(kind: StoreKind) {
    let world = World::on(kind, &[], charged).await;
    let callers = [
        charge(5).with("cookie", "session=1"),
        charge(5).with("authorization", "AWS4-HMAC-SHA256 Credential=x"),
        charge(5).with("authorization", "Bearer a").with("authorization", "Bearer b"),
        TestRequest::get("/operations/30313233-3435-3637-3839-616263646566").with("cookie", "session=1"),
    ];
    for caller in callers {
        let reply = world.send(caller).await;
        world.is_problem(&reply, 400, "CALLER_NOT_IDENTIFIED", false).await;
        let detail = reply.json()["detail"].to_string();
        assert!(detail.contains("`identity.sources`"), "the detail names the setting to change: {detail}");
    }
    assert_eq!(world.calls(), 0);
    let world = World::on(kind, &["--anonymous"], charged).await;
    let reply = world.send(charge(5).with("cookie", "session=1")).await;
    assert_eq!((reply.status, world.calls()), (201, 1), "anonymous callers are configured");
    assert!(world.send(charge(5).with("authorization", "Digest x")).await.is_replay());
}

async fn a_body_that_is_not_what_it_says(kind: StoreKind) {
    let world = World::on(kind, &[], charged).await;
    for bad in ["{\"a\":1,\"a\":2}", "{", "{\"a\":\"\\ud800\"}", &"[".repeat(129)] {
        let reply = world.send(TestRequest::post("/charges").key(KEY).json(bad)).await;
        world.is_problem(&reply, 400, "UNFINGERPRINTABLE_REQUEST", false).await;
    }
    let corrupt = world.send(charge(5).with("content-encoding", "gzip")).await;
    world.is_problem(&corrupt, 400, "UNFINGERPRINTABLE_REQUEST", false).await;
    assert_eq!(world.calls(), 0);
}

async fn a_key_of_another_payload(kind: StoreKind) {
    let world = World::on(kind, &[], charged).await;
    let first = world.charge(5).await;
    let other = world.charge(6).await;
    world.is_problem(&other, 422, "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST", false).await;
    assert_eq!(other.header("operation-id"), first.header("operation-id"));
    assert!(!other.text().contains("charge 1"), "the problem contains the stored response");
    assert_eq!(world.calls(), 1);
}

async fn an_original_that_still_runs(kind: StoreKind) {
    let gate = Gate::closed();
    let within = gate.clone();
    let script = move |seen: &_| Act::After(within.clone(), Box::new(charged(seen)));
    let world = World::on(kind, &["--wait", "0s"], script).await;
    let (first, ()) = tokio::join!(world.charge(5), async {
        world.upstream.has_seen(1).await;
        let running = world.charge(5).await;
        world.is_problem(&running, 409, "IDEMPOTENCY_REQUEST_IN_PROGRESS", true).await;
        assert_eq!(running.header("retry-after"), Some("1"));
        assert_eq!(world.linked(&running).await["state"], "PROCESSING");
        gate.open();
    });
    assert_eq!((first.status, world.calls()), (201, 1));
}

async fn an_outcome_that_nobody_knows(kind: StoreKind) {
    let world = World::on(kind, &[], says("500 Internal Server Error")).await;
    let first = world.charge(5).await;
    assert_eq!(
        (first.status, first.text()),
        (500, "answer 1"),
        "the first caller gets the service's response"
    );
    assert!(first.header("operation-id").is_some() && !first.is_acknowledged());
    let retry = world.charge(5).await;
    world.is_problem(&retry, 409, "IDEMPOTENCY_OUTCOME_UNKNOWN", false).await;
    assert_eq!(retry.header("operation-id"), first.header("operation-id"));
    assert_eq!(world.linked(&retry).await["state"], "UNKNOWN");
    assert_eq!(world.calls(), 1);
}

async fn an_outcome_past_its_time(kind: StoreKind) {
    let settled = "[clock]\nsettle = \"0s\"\n";
    let world = World::configured_on(kind, settled, &["--lease", "1s", "--ttl", "1500ms"], charged).await;
    let first = world.charge(5).await;
    assert_eq!(first.status, 201);
    let late = until(async || {
        let reply = world.charge(5).await;
        (!reply.is_replay()).then_some(reply)
    })
    .await;
    world.is_problem(&late, 410, "IDEMPOTENCY_RECORD_EXPIRED", false).await;
    assert_eq!(late.header("operation-id"), first.header("operation-id"));
    let other = world.charge(6).await;
    world.is_problem(&other, 410, "IDEMPOTENCY_RECORD_EXPIRED", false).await;
    assert_eq!(world.calls(), 1);
}

async fn an_outcome_that_looks_past_its_time_right_after_a_start(kind: StoreKind) {
    let world = World::on(kind, &["--lease", "1s", "--ttl", "1500ms"], charged).await;
    let first = world.charge(5).await;
    assert_eq!(first.status, 201);
    let late = until(async || {
        let reply = world.charge(5).await;
        (!reply.is_replay()).then_some(reply)
    })
    .await;
    world.is_problem(&late, 503, "IDEMPOTENCY_CLOCK_NOT_TRUSTED", true).await;
    assert!(late.header("retry-after").is_some(), "{late:?}");
    assert_eq!(late.header("operation-id"), first.header("operation-id"));
    assert_eq!(world.calls(), 1);
}

async fn peer_bug_a_response_over_the_limit_ran_again(kind: StoreKind) {
    let script = |_: &_| Act::Say(response("201 Created", &[("location", "/charges/7")], [b'x'; 3_000]));
    let world = World::on(kind, &["--kept-max", "2KiB"], script).await;
    let first = world.charge(5).await;
    assert_eq!((first.status, first.body.len(), first.is_acknowledged()), (201, 3_000, true));
    let retry = world.charge(5).await;
    world.is_problem(&retry, 409, "IDEMPOTENCY_RESPONSE_NOT_RETAINED", false).await;
    assert_eq!(world.calls(), 1);
}

async fn a_request_over_the_limit(kind: StoreKind) {
    let world = World::on(kind, &["--request-max", "1KiB"], charged).await;
    let long = TestRequest::post("/charges").key(KEY).bytes(vec![0; 1_025]);
    for long in [long.clone(), long.in_pieces(600)] {
        let reply = world.send(long).await;
        world.is_problem(&reply, 413, "IDEMPOTENCY_REQUEST_TOO_LARGE", false).await;
    }
    // Refused by its length or after a thousandth of it: a client that is still sending gets the response, too.
    let endless = TestRequest::post("/charges").key(KEY).bytes(vec![0; 20 << 20]);
    for endless in [endless.clone(), endless.in_pieces(1 << 20)] {
        let reply = world.send(endless).await;
        world.is_problem(&reply, 413, "IDEMPOTENCY_REQUEST_TOO_LARGE", false).await;
    }
    assert_eq!(world.calls(), 0);
    assert_eq!(world.send(TestRequest::post("/charges").key(KEY).bytes(vec![0; 1_024])).await.status, 201);
    let unkeyed = world.send(TestRequest::post("/charges").bytes(vec![0; 100_000])).await;
    assert_eq!(unkeyed.status, 201, "without a key no body is buffered");
}

async fn an_upstream_that_cannot_be_reached(kind: StoreKind) {
    let mut world = World::on(kind, &[], charged).await;
    world.upstream.refuse().await;
    for _ in 0..2 {
        let reply = world.charge(5).await;
        world.is_problem(&reply, 502, "UPSTREAM_UNREACHABLE", true).await;
        assert!(reply.header("operation-id").is_some());
    }
    let unkeyed = world.send(TestRequest::post("/charges").json("{}")).await;
    world.is_problem(&unkeyed, 502, "UPSTREAM_UNREACHABLE", true).await;
    world.upstream.listen_again().await;
    let third = world.charge(5).await;
    assert_eq!((third.status, third.text(), third.is_replay()), (201, "charge 1", false));
    assert_eq!(world.upstream.seen()[0].header("idempotency-attempt"), Some("3"));
    assert!(world.charge(5).await.is_replay());
}

/// A socket that accepts no more connections: nothing accepts, and its queue is full.
struct FullSocket {
    address: SocketAddr,
    _listener: socket2::Socket,
    _queued: Vec<TcpStream>,
}

impl FullSocket {
    fn new() -> Self {
        let listener =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
        listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a port");
        listener.listen(0).expect("it listens");
        let address = listener.local_addr().ok().and_then(|address| address.as_socket()).expect("an address");
        let mut queued = Vec::new();
        while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(300)) {
            queued.push(stream);
        }
        Self { address, _listener: listener, _queued: queued }
    }
}

async fn an_upstream_that_does_not_take_the_call(kind: StoreKind) {
    let full = tokio::task::spawn_blocking(FullSocket::new).await.expect("no panic");
    let mut world = World::on(kind, &[], charged).await;
    let scratch = &world.scratch;
    world.gateway = crate::world::Gateway::start(scratch, full.address, &["--connect-timeout", "300ms"]);
    for _ in 0..2 {
        let reply = world.charge(5).await;
        world.is_problem(&reply, 504, "UPSTREAM_UNREACHABLE", true).await;
    }
    let unkeyed = world.send(TestRequest::post("/charges").json("{}")).await;
    world.is_problem(&unkeyed, 504, "UPSTREAM_UNREACHABLE", true).await;
    world.kill_and_restart(&[]);
    assert_eq!(world.charge(5).await.text(), "charge 1", "the first attempt sent nothing, so the retry runs");
}

async fn an_upstream_that_breaks_off(kind: StoreKind) {
    let world = World::on(kind, &[], |_| Act::End).await;
    let first = world.charge(5).await;
    world.is_problem(&first, 502, "UPSTREAM_FAILED", false).await;
    assert_eq!(world.linked(&first).await["state"], "UNKNOWN");
    let retry = world.charge(5).await;
    world.is_problem(&retry, 409, "IDEMPOTENCY_OUTCOME_UNKNOWN", false).await;
    assert_eq!(world.calls(), 1);
    let unkeyed = world.send(TestRequest::post("/charges").json("{}")).await;
    world.is_problem(&unkeyed, 502, "UPSTREAM_FAILED", false).await;
    assert_eq!(world.calls(), 2, "without a key it is not sent again either");
}

async fn an_upstream_that_hangs(kind: StoreKind) {
    let world = World::on(kind, &["--response-timeout", "300ms"], |_| Act::Hang).await;
    let first = world.charge(5).await;
    world.is_problem(&first, 504, "UPSTREAM_TIMEOUT", false).await;
    assert_eq!(world.linked(&first).await["state"], "UNKNOWN");
    let retry = world.charge(5).await;
    world.is_problem(&retry, 409, "IDEMPOTENCY_OUTCOME_UNKNOWN", false).await;
    assert_eq!(world.calls(), 1);
    let unkeyed = world.send(TestRequest::post("/charges").json("{}")).await;
    world.is_problem(&unkeyed, 504, "UPSTREAM_TIMEOUT", false).await;
}

async fn a_doubt_is_retryable_where_the_upstream_recognises_repeats(kind: StoreKind) {
    let flags = ["--class", "downstream", "--response-timeout", "2s"];
    let world = World::on(kind, &flags, |seen| if seen.number == 1 { Act::Hang } else { Act::End }).await;
    let first = world.charge(5).await;
    world.is_problem(&first, 504, "UPSTREAM_TIMEOUT", true).await;
    let second = world.charge(5).await;
    world.is_problem(&second, 502, "UPSTREAM_FAILED", true).await;
    assert_eq!(second.header("operation-id"), first.header("operation-id"));
}

async fn a_request_for_a_stream(kind: StoreKind) {
    let world = World::on(kind, &[], charged).await;
    let streams = [
        charge(5).with("accept", "text/event-stream"),
        charge(5).with("connection", "upgrade").with("upgrade", "websocket"),
    ];
    for stream in streams {
        let reply = world.send(stream).await;
        world.is_problem(&reply, 501, "STREAMING_NOT_PROTECTED", false).await;
    }
    assert_eq!(world.calls(), 0);
    assert_eq!(world.charge(5).await.status, 201);
}

async fn an_operation_of_nobody_or_of_somebody_else(kind: StoreKind) {
    let world = World::on(kind, &[], charged).await;
    let first = world.send(charge(5).with("authorization", "Bearer alice")).await;
    let path = format!("/operations/{}", first.header("operation-id").expect("an id"));
    let alice = world.send(TestRequest::get(&path).with("authorization", "Bearer alice")).await;
    assert_eq!((alice.status, &alice.json()["result"]["body"]), (200, &"charge 1".into()));
    let absent = "/operations/30313233-3435-3637-3839-616263646566";
    let others = [
        TestRequest::get(&path),
        TestRequest::get(&path).with("authorization", "Bearer bob"),
        TestRequest::get(absent),
    ];
    for other in others {
        let reply = world.send(other).await;
        world.is_problem(&reply, 404, "OPERATION_NOT_FOUND", false).await;
    }
    assert_eq!(world.calls(), 1);
    assert_eq!(
        world.send(TestRequest::get("/operations/7")).await.status,
        201,
        "other paths belong to the service"
    );
}

async fn peer_bug_a_store_that_is_down_failed_open(kind: StoreKind) {
    let mut world = World::on(kind, &[], charged).await;
    let admin = world.gateway.admin();
    let readiness = async |status: u16| {
        let is_so = async || {
            let reply = TestRequest::get("/readyz").send(admin).await.expect("an answer");
            (reply.status == status).then_some(reply)
        };
        within(until(is_so)).await
    };
    readiness(200).await;
    let lock = world.scratch.store().lock().await;
    let refused = world.charge(5).await;
    world.is_problem(&refused, 503, "IDEMPOTENCY_STORE_UNAVAILABLE", true).await;
    assert_eq!((refused.header("retry-after"), world.calls()), (Some("1"), 0));
    assert_eq!(
        world.send(TestRequest::post("/charges").json("{}")).await.status,
        201,
        "without a key no store is needed"
    );
    let not_ready = readiness(503).await;
    assert!(not_ready.text().contains("the store"), "{}", not_ready.text());
    lock.release().await;
    readiness(200).await;
    let served = within(until(async || {
        let reply = world.charge(5).await;
        (reply.status != 503 && reply.code().is_none()).then_some(reply)
    }))
    .await;
    assert_eq!((served.text(), world.calls()), ("charge 2", 2));
}

async fn peer_bug_full_keys_in_logs_and_in_error_bodies(kind: StoreKind) {
    let flags = ["--log-level", "debug", "--response-timeout", "300ms"];
    let world = World::on(kind, &flags, |seen| match seen.number {
        1 => charged(seen),
        2 => Act::End,
        _ => Act::Hang,
    })
    .await;
    for path in ["/charges", "/broken", "/hung"] {
        for _ in 0..2 {
            let ask = TestRequest::post(path)
                .key(KEY)
                .with("authorization", "Bearer s3cret-t0ken")
                .json("{\"card\":\"4242\"}");
            world.send(ask).await;
        }
    }
    let log = world.log();
    assert!(log.contains("upstream"), "the log has no line about the upstream: {log}");
    for secret in [KEY, "s3cret-t0ken", "4242"] {
        assert!(!log.contains(secret), "{secret} in {log}");
    }
}

on_every_store! {
    a_key_that_is_required_and_missing,
    a_key_that_is_no_key,
    a_caller_that_cannot_be_distinguished,
    a_body_that_is_not_what_it_says,
    a_key_of_another_payload,
    an_original_that_still_runs,
    an_outcome_that_nobody_knows,
    an_outcome_past_its_time,
    an_outcome_that_looks_past_its_time_right_after_a_start,
    peer_bug_a_response_over_the_limit_ran_again,
    a_request_over_the_limit,
    an_upstream_that_cannot_be_reached,
    an_upstream_that_does_not_take_the_call,
    an_upstream_that_breaks_off,
    an_upstream_that_hangs,
    a_doubt_is_retryable_where_the_upstream_recognises_repeats,
    a_request_for_a_stream,
    an_operation_of_nobody_or_of_somebody_else,
    peer_bug_a_store_that_is_down_failed_open,
    peer_bug_full_keys_in_logs_and_in_error_bodies,
}
