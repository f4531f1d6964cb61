//! One effect: with any number of requests, in any spelling, beside similar requests of others.

use crate::store::{StoreKind, on_every_store};
use crate::world::{Gateway, KEY, World, charge, until, within};
use semel_test_support::client::TestRequest;
use semel_test_support::upstream::{Act, Gate, Seen, charged};
use tokio::task::JoinSet;

async fn two_hundred_requests_are_one_call_with_equal_answers(kind: StoreKind) {
    let gate = Gate::closed();
    let passing = gate.clone();
    let script = move |seen: &_| Act::After(passing.clone(), Box::new(charged(seen)));
    let world = World::on(kind, &["--wait", "50s"], script).await;
    let to = world.gateway.address;
    let mut sent: JoinSet<_> = (0..200).map(|_| charge(5).send(to)).collect();
    world.upstream.has_seen(1).await;
    gate.open();
    let (mut replays, mut answers) = (0, Vec::new());
    while let Some(reply) = within(sent.join_next()).await {
        let reply = reply.expect("no panic").expect("an answer");
        replays += u32::from(reply.is_replay());
        answers.push(reply.kept());
    }
    assert_eq!((replays, world.calls(), answers.len()), (199, 1, 200));
    assert_eq!((answers[0].0, &answers[0].2[..]), (201, &b"charge 1"[..]));
    answers.dedup();
    assert_eq!(answers.len(), 1, "all are the same: {answers:?}");
}

async fn two_gateways_on_one_store_are_one(kind: StoreKind) {
    let gate = Gate::closed();
    let passing = gate.clone();
    let script = move |seen: &_| Act::After(passing.clone(), Box::new(charged(seen)));
    let flags = ["--wait", "50s"];
    let mut world = World::on(kind, &flags, script).await;
    let other = Gateway::start(&world.scratch, world.upstream.address, &flags);
    let addresses = [world.gateway.address, other.address];
    let mut sent: JoinSet<_> = (0..40).map(|number| charge(5).send(addresses[number % 2])).collect();
    world.upstream.has_seen(1).await;
    gate.open();
    let mut replays = 0;
    while let Some(reply) = within(sent.join_next()).await {
        let reply = reply.expect("no panic").expect("an answer");
        assert_eq!(reply.text(), "charge 1");
        replays += u32::from(reply.is_replay());
    }
    assert_eq!((replays, world.calls()), (39, 1));
    world.gateway.kill();
    let left = charge(5).send(other.address).await.expect("an answer");
    assert!(left.is_replay(), "the other gateway replays, too: {left:?}");
}

async fn peer_bug_quoted_and_bare_keys_are_two(kind: StoreKind) {
    let world = World::on(kind, &[], charged).await;
    world.charge(5).await;
    let quoted = TestRequest::post("/charges").key(&format!("\"{KEY}\"")).json("{\"amount\":5}");
    assert!(world.send(quoted).await.is_replay());
    assert_eq!(world.calls(), 1);
}

async fn peer_bug_a_key_was_shared_between_callers_and_paths(kind: StoreKind) {
    let world = World::on(kind, &[], charged).await;
    let ask = |method, path: &str, token: &str| {
        TestRequest::new(method, path).key(KEY).with("authorization", format!("Bearer {token}")).json("{}")
    };
    let all = [
        ask("POST", "/charges", "alice"),
        ask("POST", "/charges", "bob"),
        ask("PATCH", "/charges", "alice"),
        ask("POST", "/refunds", "alice"),
        TestRequest::post("/charges").key(KEY).json("{}"),
    ];
    for (calls, ask) in (1..).zip(&all) {
        let reply = world.send(ask.clone()).await;
        assert_eq!((reply.is_replay(), reply.text()), (false, format!("charge {calls}").as_str()));
    }
    for ask in all {
        assert!(world.send(ask).await.is_replay());
    }
}

async fn peer_bug_proxies_send_again_what_has_no_body(kind: StoreKind) {
    // Over a reused connection: a proxy may mistake its end for an idle connection's and resend.
    let script = |seen: &Seen| if seen.line.starts_with("GET") { charged(seen) } else { Act::End };
    for method in ["POST", "PATCH"] {
        let (world, mut tries) = (World::on(kind, &[], script).await, 0);
        // A connection becomes idle a moment after its response has arrived.
        until(async || {
            tries += 1;
            let ask = || TestRequest::new(method, "/charges").key(&format!("{KEY}-{tries}"));
            assert_eq!(world.send(TestRequest::get("/warm")).await.status, 201);
            let reply = world.send(ask()).await;
            world.is_problem(&reply, 502, "UPSTREAM_FAILED", false).await;
            assert_eq!(world.send(ask()).await.code().as_deref(), Some("IDEMPOTENCY_OUTCOME_UNKNOWN"));
            let seen = world.upstream.seen();
            assert_eq!(seen.len(), 2 * tries, "each request was sent once");
            let [.., warm, last] = &seen[..] else { panic!("two requests") };
            (warm.connection == last.connection).then_some(())
        })
        .await;
    }
}

async fn requests_without_a_key_are_forwarded_unmarked(kind: StoreKind) {
    let world = World::on(kind, &[], charged).await;
    for call in 1..=2 {
        let reply = world.send(TestRequest::post("/charges").json("{}")).await;
        assert_eq!(reply.text(), format!("charge {call}"));
        for name in ["operation-id", "idempotency-expires", "idempotency-stored", "idempotency-replayed"] {
            assert_eq!(reply.header(name), None, "{name}");
        }
    }
    for method in ["GET", "PUT", "DELETE", "OPTIONS"] {
        for _ in 0..2 {
            let reply = world.send(TestRequest::new(method, "/charges").key(KEY)).await;
            assert_eq!((reply.status, reply.is_replay()), (201, false), "{method}");
        }
    }
    assert_eq!(world.calls(), 10);
}

async fn where_protection_is_off_nothing_is_protected(kind: StoreKind) {
    let world = World::on(kind, &["--key", "off"], charged).await;
    for call in 1..=2 {
        let reply = world.charge(5).await;
        assert_eq!((reply.text(), reply.header("operation-id")), (format!("charge {call}").as_str(), None));
    }
}

async fn respond_async_gets_202_with_a_location(kind: StoreKind) {
    let gate = Gate::closed();
    let passing = gate.clone();
    let script = move |seen: &_| Act::After(passing.clone(), Box::new(charged(seen)));
    let world = World::on(kind, &[], script).await;
    let async_charge = || charge(5).with("prefer", "respond-async");
    let accepted = world.send(async_charge()).await;
    let path = format!("/operations/{}", accepted.header("operation-id").expect("an id"));
    assert_eq!((accepted.status, accepted.header("location")), (202, Some(path.as_str())));
    assert_eq!(accepted.header("preference-applied"), Some("respond-async"));
    world.upstream.has_seen(1).await;
    assert_eq!(world.send(async_charge()).await.status, 202);
    assert_eq!(world.send(TestRequest::get(&path)).await.json()["state"], "PROCESSING");
    gate.open();
    let done = until(async || {
        let record = world.send(TestRequest::get(&path).key(KEY)).await.json();
        (record["state"] == "SUCCEEDED").then_some(record)
    })
    .await;
    assert_eq!(done["result"]["body"], "charge 1");
    let replay = world.send(async_charge()).await;
    assert_eq!((replay.status, replay.is_replay(), world.calls()), (201, true, 1));
    assert_eq!(world.upstream.seen()[0].header("prefer"), None, "the preference is not forwarded");
}

on_every_store! {
    two_hundred_requests_are_one_call_with_equal_answers,
    two_gateways_on_one_store_are_one,
    peer_bug_quoted_and_bare_keys_are_two,
    peer_bug_a_key_was_shared_between_callers_and_paths,
    peer_bug_proxies_send_again_what_has_no_body,
    requests_without_a_key_are_forwarded_unmarked,
    where_protection_is_off_nothing_is_protected,
    respond_async_gets_202_with_a_location,
}
