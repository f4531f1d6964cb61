//! What a worker can do with its attempt.

use super::world::{World, claim, token};
use semel::archive::rfc3339;
use semel::core::outcome::Body;
use semel::core::record::State;
use semel_admin::Role;
use serde_json::{Value, json};
use std::time::Duration;

fn succeeded(body: &str) -> Value {
    json!({ "outcome": "succeeded", "response": { "status": 200, "body": body } })
}

#[tokio::test]
async fn renewing_keeps_an_attempt_alive() {
    let world = World::new().await;
    let attempt = world.claimed("order-1", &json!({ "leaseMs": 10_000 })).await;
    for _ in 0..5 {
        world.pass(Duration::from_secs(9));
        let renewed = world.post(&attempt.at("renew"), &attempt.with(&json!({}))).await.json();
        assert_eq!(renewed["leaseExpiresAt"], rfc3339::text(world.now() + Duration::from_secs(10)));
        assert_eq!((&renewed["state"], &renewed["attempt"]), (&json!("PROCESSING"), &json!(1)));
    }
    assert_eq!(world.post("/v1/claims", &claim("order-1", &json!({}))).await.problem().0, 409);
}

#[tokio::test]
async fn a_reserved_attempt_begins_on_its_workers_request() {
    let world = World::new().await;
    let attempt = world.claimed("order-1", &json!({ "mode": "reserved" })).await;
    let renewed = world.post(&attempt.at("renew"), &attempt.with(&json!({}))).await.json();
    assert_eq!(renewed["state"], "CLAIMED");
    for _ in 0..2 {
        let begun = world.post(&attempt.at("renew"), &attempt.with(&json!({ "begin": true }))).await.json();
        assert_eq!(begun["state"], "PROCESSING");
    }
    let begins = (0..20).map(|_| {
        let ask = world.ask("POST", &attempt.at("renew"));
        ask.json(&attempt.with(&json!({ "begin": true }))).send()
    });
    for reply in futures_util::future::join_all(begins).await {
        assert_eq!(reply.json()["state"], "PROCESSING");
    }
}

#[tokio::test]
async fn an_outcome_that_is_sent_again_is_answered_the_same() {
    let world = World::new().await;
    let outcomes = [
        succeeded("done"),
        json!({ "outcome": "succeeded" }),
        json!({ "outcome": "failed", "response": { "status": 402, "body": "declined" } }),
        json!({ "outcome": "not-applied" }),
        json!({ "outcome": "not-applied", "response": { "status": 503 } }),
        json!({ "outcome": "unknown" }),
    ];
    for (number, outcome) in outcomes.iter().enumerate() {
        let attempt = world.claimed(&format!("order-{number}"), &json!({})).await;
        let body = attempt.with(outcome);
        let first = world.post(&attempt.at("outcome"), &body).await;
        assert_eq!(first.status, 200, "{outcome}: {}", first.text());
        let version = world.record(&attempt.id).await.version();
        world.pass(Duration::from_secs(1));
        let second = world.post(&attempt.at("outcome"), &body).await;
        assert_eq!((second.status, second.json()), (200, first.json()), "{outcome}");
        assert_eq!(world.record(&attempt.id).await.version(), version, "nothing was written again");
    }
}

#[tokio::test]
async fn twenty_reports_of_one_outcome_get_the_same_answer() {
    let world = World::new().await;
    let attempt = world.claimed("order-1", &json!({})).await;
    let body = attempt.with(&succeeded("done"));
    let sent = (0..20).map(|_| world.ask("POST", &attempt.at("outcome")).json(&body).send());
    let replies = futures_util::future::join_all(sent).await;
    for reply in &replies {
        assert_eq!((reply.status, reply.json()), (200, replies[0].json()));
    }
}

#[tokio::test]
async fn another_word_about_an_attempt_that_has_ended_changes_nothing() {
    let world = World::new().await;
    let attempt = world.claimed("order-1", &json!({})).await;
    assert_eq!(world.post(&attempt.at("outcome"), &attempt.with(&succeeded("one"))).await.status, 200);
    for other in [succeeded("two"), json!({ "outcome": "not-applied" }), json!({ "outcome": "unknown" })] {
        let refused = world.post(&attempt.at("outcome"), &attempt.with(&other)).await;
        assert_eq!(refused.problem(), (409, "RECORD_STATE_CONFLICT".into()), "{other}");
    }
    let renewed = world.post(&attempt.at("renew"), &attempt.with(&json!({}))).await;
    assert_eq!(renewed.problem(), (409, "CLAIM_LOST".into()));
    let replayed = world.post("/v1/claims", &claim("order-1", &json!({}))).await.json();
    assert_eq!(replayed["response"]["body"], "one");
}

#[tokio::test]
async fn a_stale_token_neither_renews_nor_ends_its_successors_attempt() {
    let world = World::new().await;
    let downstream = json!({ "leaseMs": 1_000, "class": "downstream" });
    let stale = world.claimed("order-1", &downstream).await;
    world.pass(Duration::from_secs(1));
    let successor = world.claimed("order-1", &downstream).await;
    assert_eq!(stale.id, successor.id);
    let renewed = world.post(&stale.at("renew"), &stale.with(&json!({}))).await;
    assert_eq!(renewed.problem(), (409, "CLAIM_LOST".into()));
    let ended = world.post(&stale.at("outcome"), &stale.with(&succeeded("stale"))).await;
    assert_eq!(ended.problem(), (409, "CLAIM_LOST".into()));
    assert_eq!(world.state(&successor.id).await, "PROCESSING");
    assert_eq!(world.post(&successor.at("outcome"), &successor.with(&succeeded("own"))).await.status, 200);
    let late = world.post(&stale.at("outcome"), &stale.with(&succeeded("own"))).await;
    assert_eq!(late.problem(), (409, "CLAIM_LOST".into()), "not even with the same outcome");
}

#[tokio::test]
async fn a_late_report_that_contradicts_the_record_is_a_conflict() {
    let world = World::new().await;
    let late = world.claimed("order-1", &json!({ "leaseMs": 1_000 })).await;
    world.pass(Duration::from_mins(10));
    world.engine.sweep().await.expect("swept");
    let verdict = json!({ "outcome": "not-applied", "reason": "not in the ledger" });
    let resolved = world.post(&format!("/v1/records/{}/resolve", late.id), &verdict).await;
    assert_eq!(resolved.status, 200, "{}", resolved.text());
    let successor = world.claimed("order-1", &json!({})).await;
    // It never happened, or it is not known: that contradicts nothing.
    for harmless in ["not-applied", "unknown"] {
        let report = world.post(&late.at("outcome"), &late.with(&json!({ "outcome": harmless }))).await;
        assert_eq!((report.problem(), world.conflicts()), ((409, "CLAIM_LOST".into()), 0));
        assert!(!report.text().contains("twice"), "{}", report.text());
    }
    let report = world.post(&late.at("outcome"), &late.with(&succeeded("done"))).await;
    assert_eq!((report.problem(), world.conflicts()), ((409, "CLAIM_LOST".into()), 1));
    assert!(report.text().contains("the effect may have happened twice"), "{}", report.text());
    assert_eq!(world.post(&successor.at("outcome"), &successor.with(&succeeded("done"))).await.status, 200);
    world.post(&late.at("outcome"), &late.with(&succeeded("done"))).await;
    assert_eq!(world.conflicts(), 1, "the record says the same");
    world.post(&late.at("outcome"), &late.with(&succeeded("other"))).await;
    assert_eq!(world.conflicts(), 2);
}

#[tokio::test]
async fn a_lost_claim_says_what_became_of_it() {
    let world = World::new().await;
    let reserved = json!({ "mode": "reserved", "leaseMs": 1_000 });
    let (swept, released) =
        (world.claimed("order-1", &reserved).await, world.claimed("order-2", &reserved).await);
    let running = world.claimed("order-3", &json!({ "leaseMs": 1_000 })).await;
    let done = world.claimed("order-4", &json!({})).await;
    assert_eq!(world.post(&done.at("outcome"), &done.with(&succeeded("one"))).await.status, 200);
    world.pass(Duration::from_secs(2));
    let reason = json!({ "reason": "nobody works on it" });
    assert_eq!(world.post(&format!("/v1/records/{}/release", released.id), &reason).await.status, 200);
    world.engine.sweep().await.expect("swept");
    for (attempt, state, expected) in [
        (
            &swept,
            "FAILED_NOT_REPLAYABLE",
            "The lease ran out before this attempt reported that its effect begins.",
        ),
        (&released, "FAILED_NOT_REPLAYABLE", "An operator released the key"),
        (&running, "UNKNOWN", "whether it took effect is unknown"),
        (&done, "SUCCEEDED", "already has its outcome"),
    ] {
        for step in [json!({}), json!({ "begin": true })] {
            let lost = world.post(&attempt.at("renew"), &attempt.with(&step)).await;
            assert_eq!(lost.problem(), (409, "CLAIM_LOST".into()), "{}", lost.text());
            let problem: Value = serde_json::from_slice(&lost.body).expect("JSON");
            let detail = problem["detail"].as_str().expect("text");
            assert!(detail.contains(expected) && !detail.contains("another token"), "{detail}");
            assert_eq!(problem["state"], state, "{detail}");
        }
    }
    let successor = world.claimed("order-1", &reserved).await;
    assert_eq!(successor.id, swept.id);
    let lost = world.post(&swept.at("renew"), &swept.with(&json!({}))).await;
    assert!(lost.text().contains("current attempt has another token"), "{}", lost.text());
}

#[tokio::test]
async fn a_token_that_is_none_ends_nothing() {
    let world = World::new().await;
    let attempt = world.claimed("order-1", &json!({})).await;
    for token in ["", "00", &"g".repeat(32), &"0".repeat(33)] {
        let body = json!({ "token": token, "outcome": "succeeded" });
        assert_eq!(world.post(&attempt.at("outcome"), &body).await.problem().0, 400, "{token}");
    }
    let guessed = json!({ "token": "0".repeat(32), "outcome": "succeeded" });
    assert_eq!(world.post(&attempt.at("outcome"), &guessed).await.problem(), (409, "CLAIM_LOST".into()));
    let nobody = "/v1/claims/30313233-3435-3637-3839-616263646566/outcome";
    assert_eq!(world.post(nobody, &guessed).await.problem(), (404, "OPERATION_NOT_FOUND".into()));
    assert_eq!(world.state(&attempt.id).await, "PROCESSING");
}

#[tokio::test]
async fn an_outcome_that_contradicts_itself_is_refused() {
    let world = World::new().await;
    let attempt = world.claimed("order-1", &json!({})).await;
    for bad in [
        json!({ "outcome": "failed" }),
        json!({ "outcome": "failed", "response": { "status": 200 } }),
        json!({ "outcome": "unknown", "response": { "status": 200 } }),
        json!({ "outcome": "applied" }),
        json!({ "outcome": "succeeded", "response": { "status": 99 } }),
        json!({ "outcome": "succeeded", "response": { "body": "x" } }),
        json!({ "outcome": "succeeded", "reason": "x" }),
    ] {
        assert_eq!(world.post(&attempt.at("outcome"), &attempt.with(&bad)).await.problem().0, 400, "{bad}");
    }
    assert_eq!(world.state(&attempt.id).await, "PROCESSING");
}

#[tokio::test]
async fn the_owner_of_a_dead_attempt_still_knows_best() {
    let world = World::new().await;
    let attempt = world.claimed("order-1", &json!({ "leaseMs": 1_000 })).await;
    world.pass(Duration::from_secs(2));
    assert_eq!(world.post("/v1/claims", &claim("order-1", &json!({}))).await.problem().0, 409);
    assert_eq!(world.state(&attempt.id).await, "UNKNOWN");
    let renewed = world.post(&attempt.at("renew"), &attempt.with(&json!({}))).await;
    assert_eq!(renewed.problem(), (409, "CLAIM_LOST".into()));
    let late = world.post(&attempt.at("outcome"), &attempt.with(&succeeded("late"))).await;
    assert_eq!(late.json()["state"], "SUCCEEDED");
    let replayed = world.post("/v1/claims", &claim("order-1", &json!({}))).await.json();
    assert_eq!(replayed["response"]["body"], "late");
}

#[tokio::test]
async fn an_outcome_without_a_reported_begin_is_stored() {
    let world = World::new().await;
    let attempt = world.claimed("order-1", &json!({ "mode": "reserved" })).await;
    let ended = world.post(&attempt.at("outcome"), &attempt.with(&succeeded("done"))).await;
    assert_eq!(ended.json()["state"], "SUCCEEDED");
}

#[tokio::test]
async fn a_process_that_was_started_since_takes_the_next_step() {
    let world = World::new().await;
    let attempt = world.claimed("order-1", &json!({})).await;
    let world = world.restarted().await;
    assert_eq!(world.post(&attempt.at("renew"), &attempt.with(&json!({}))).await.status, 200);
    let world = world.restarted().await;
    assert_eq!(world.post(&attempt.at("outcome"), &attempt.with(&succeeded("done"))).await.status, 200);
    let world = world.restarted().await;
    let replayed = world.post("/v1/claims", &claim("order-1", &json!({}))).await.json();
    assert_eq!(
        (&replayed["operationId"], &replayed["response"]["body"]),
        (&json!(attempt.id), &json!("done"))
    );
}

#[tokio::test]
async fn anybody_with_the_role_can_look_how_a_command_stands() {
    let world = World::new().await;
    let attempt = world.claimed("order-1", &json!({})).await;
    let path = format!("/v1/claims/{}", attempt.id);
    let attempt_view = world.get(&path).await;
    assert!(!attempt_view.text().contains(&attempt.token));
    assert_eq!(
        (&attempt_view.json()["state"], &attempt_view.json()["operation"]),
        (&json!("PROCESSING"), &json!("charge"))
    );
    assert_eq!(world.post(&attempt.at("outcome"), &attempt.with(&succeeded("done"))).await.status, 200);
    let attempt_view = world.get(&path).await.json();
    assert_eq!((&attempt_view["state"], attempt_view.get("leaseExpiresAt")), (&json!("SUCCEEDED"), None));
    assert_eq!(attempt_view["expiresAt"], rfc3339::text(world.now() + Duration::from_hours(24)));
}

#[tokio::test]
async fn a_sealed_outcome_is_recognised_and_shown_opened() {
    let roles = [Role::Claim, Role::Read, Role::Bodies];
    let world = World::sealed(|options| options.tokens = vec![token("ops", &roles)]).await;
    let send = async |method: &str, path: &str, body: Option<&Value>| {
        let ask = world.ask(method, path).token("ops-secret");
        if let Some(body) = body { ask.json(body).send().await } else { ask.send().await }
    };
    let claimed = send("POST", "/v1/claims", Some(&claim("order-1", &json!({})))).await.json();
    let id = claimed["operationId"].as_str().expect("an id");
    let path = format!("/v1/claims/{id}/outcome");
    let body = |text| json!({ "token": claimed["token"], "outcome": "succeeded", "response": { "status": 200, "body": text } });
    let first = send("POST", &path, Some(&body("done"))).await.json();
    assert!(
        matches!(world.record(id).await.state(), State::Succeeded { outcome, .. } if matches!(outcome.body, Body::Sealed(_)))
    );
    assert_eq!(send("POST", &path, Some(&body("done"))).await.json(), first);
    assert_eq!(send("POST", &path, Some(&body("other"))).await.problem().0, 409);
    let shown = send("GET", &format!("/v1/records/{id}"), None).await.json();
    assert_eq!(shown["response"]["body"], "done");
}
