//! Finding and showing records.

use super::world::{World, merged};
use semel::archive::rfc3339;
use serde_json::{Value, json};
use std::time::Duration;

const NONE: [&str; 0] = [];

fn ids(page: &Value) -> Vec<String> {
    let records = page["records"].as_array().expect("records");
    records.iter().map(|record| record["operationId"].as_str().expect("an id").to_owned()).collect()
}

async fn found(world: &World, query: &str) -> Vec<String> {
    let reply = world.get(&format!("/v1/records?{query}")).await;
    assert_eq!(reply.status, 200, "{query}: {}", reply.text());
    ids(&reply.json())
}

#[tokio::test]
async fn records_are_found_by_every_filter() {
    let world = World::new().await;
    let a = world.claimed("order-a", &json!({ "caller": "alice" })).await.id;
    let between = rfc3339::text(world.now() + Duration::from_secs(1)).replace('+', "%2B");
    world.pass(Duration::from_secs(2));
    let b = world.claimed("order-b", &json!({ "caller": "bob", "operation": "refund" })).await;
    let unknown = b.with(&json!({ "outcome": "unknown" }));
    assert_eq!(world.post(&b.at("outcome"), &unknown).await.status, 200);
    let (a, b) = (a.as_str(), b.id.as_str());
    assert_eq!(found(&world, "").await, [a, b]);
    assert_eq!(found(&world, "newestFirst=true").await, [b, a]);
    assert_eq!(found(&world, &format!("id={}", &a[..8])).await, [a]);
    assert_eq!(found(&world, &format!("id={}", b.replace('-', ""))).await, [b]);
    assert_eq!(found(&world, &format!("id={b}&state=PROCESSING")).await, NONE);
    assert_eq!(found(&world, "state=UNKNOWN").await, [b]);
    assert_eq!(found(&world, "state=PROCESSING").await, [a]);
    assert_eq!(found(&world, "operation=(claim)%20refund").await, [b]);
    assert_eq!(found(&world, "operation=refund").await, NONE, "a claim's operation has its own prefix");
    assert_eq!(found(&world, "key=order-a").await, [a]);
    assert_eq!(found(&world, "key=order-c").await, NONE);
    assert_eq!(found(&world, &format!("updatedFrom={between}")).await, [b]);
    assert_eq!(found(&world, &format!("updatedBefore={between}")).await, [a]);
    let shown = world.get(&format!("/v1/records/{a}")).await.json();
    let hash = |name: &str| shown[name].as_str().expect("a hash").to_owned();
    assert_eq!(found(&world, &format!("callerHash={}", hash("callerHash"))).await, [a]);
    assert_eq!(found(&world, &format!("callerHash={}", &hash("callerHash")[..8])).await, [a]);
    assert_eq!(
        world.get("/v1/records?callerHash=a81b22d").await.status,
        400,
        "too few digits to distinguish callers"
    );
    assert_eq!(found(&world, &format!("keyHash={}", hash("keyHash").to_uppercase())).await, [a]);
    assert_eq!(found(&world, &format!("key=order-a&keyHash={}", hash("keyHash"))).await, [a]);
    assert_eq!(found(&world, &format!("key=order-b&keyHash={}", hash("keyHash"))).await, NONE);
    assert_eq!(found(&world, "state=UNKNOWN&operation=(claim)%20charge").await, NONE);
}

#[tokio::test]
async fn a_refusal_names_the_parameter_its_value_and_what_is_allowed() {
    let world = World::new().await;
    let (twice, long) = ("state=UNKNOWN&state=CLAIMED", format!("after={}", "9".repeat(500)));
    for (query, expected) in [
        ("state=unknown", "`state` is `unknown`; expected one of `CLAIMED`, `PROCESSING`, "),
        ("limit=many", "`limit` is `many`; expected a whole number"),
        ("limit=-1", "`limit` is `-1`; expected a whole number"),
        ("limit=0", "`limit` is `0`; expected 1 to 500"),
        ("limit=501", "`limit` is `501`; expected 1 to 500"),
        ("limit=", "`limit` is empty; expected a whole number"),
        ("newestFirst=maybe", "`newestFirst` is `maybe`; expected `true` or `false`"),
        ("colour=red", "`colour` is unknown; allowed are `state`, `operation`, "),
        ("colour=red", ", `after`, `limit`."),
        (twice, "`state` is given twice; give it once"),
        ("id=----", "`id` is `----`; expected an operation ID"),
        ("id=12%0a4", "`id` is `12\u{fffd}4`; expected an operation ID"),
        ("callerHash=a81b22d", "`callerHash` is `a81b22d`; expected 8 to 64 hexadecimal digits"),
        ("keyHash=00", "`keyHash` is `00`; expected 64 hexadecimal digits"),
        ("updatedFrom=yesterday", "`updatedFrom` is `yesterday`; expected a time such as "),
        ("after=here", "`after` is `here`; expected the `next` of an earlier page"),
        ("after=", "`after` is empty; expected the `next` of an earlier page"),
        ("key=a%20b%01", "`key` is not valid: "),
        (&*long, "…` (460 more characters); expected the `next`"),
    ] {
        let refused = world.get(&format!("/v1/records?{query}")).await;
        assert_eq!(refused.problem(), (400, "INVALID_REQUEST".into()), "{query}");
        let problem: Value = serde_json::from_slice(&refused.body).expect("JSON");
        let detail = problem["detail"].as_str().expect("text");
        assert!(
            detail.contains(expected) && detail.ends_with('.') && !detail.ends_with(".."),
            "{query}: {detail}"
        );
    }
    let claim = json!({ "operation": "charge", "key": 4711, "payload": 1 });
    let class = json!({ "operation": "charge", "key": "k", "payload": 1, "class": "global" });
    let lease = json!({ "operation": "charge", "key": "k", "payload": 1, "leaseMs": "1s" });
    let mode = json!({ "operation": "charge", "key": "k", "payload": 1, "mode": "later" });
    for (body, expected) in [
        (claim, "`key` is of another type: expected a string, found integer"),
        (class, "`class` is `global`; expected `downstream` or `external`"),
        (lease, "`leaseMs`"),
        (mode, "`mode` has a value that is not allowed: expected `processing` or `reserved`"),
    ] {
        let refused = world.post("/v1/claims", &body).await;
        assert_eq!(refused.problem(), (400, "INVALID_REQUEST".into()), "{body}");
        let problem: Value = serde_json::from_slice(&refused.body).expect("JSON");
        let detail = problem["detail"].as_str().expect("text");
        assert!(detail.contains(expected) && !detail.contains("4711"), "{body}: {detail}");
    }
}

#[tokio::test]
async fn pages_follow_one_another_without_gap_or_repetition() {
    let world = World::new().await;
    let mut all = Vec::new();
    for number in 0..7 {
        all.push(world.claimed(&format!("order-{number}"), &json!({})).await.id);
        world.pass(Duration::from_millis(1));
    }
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let page = world.get(&format!("/v1/records?limit=3{after}")).await.json();
        assert!(ids(&page).len() <= 3);
        seen.extend(ids(&page));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!(seen, all);
}

#[tokio::test]
async fn a_query_that_means_nothing_is_refused_and_not_guessed_at() {
    let world = World::new().await;
    for query in [
        "id=abc",
        "id=xyzw",
        "newestFirst=yes",
        "state=unknown",
        "state=",
        "stat=UNKNOWN",
        "limit=0",
        "limit=501",
        "limit=-1",
        "limit=x",
        "keyHash=00",
        "callerHash=xyz",
        "key=",
        "updatedFrom=yesterday",
        "updatedBefore=2026-11-15",
        "after=zz",
        "after=0-zz",
        "after=0-00",
        "after=1-",
        "state=UNKNOWN&state=CLAIMED",
    ] {
        let reply = world.get(&format!("/v1/records?{query}")).await;
        assert_eq!(reply.problem(), (400, "INVALID_REQUEST".into()), "{query}");
    }
}

#[tokio::test]
async fn a_record_is_shown_whole_but_without_its_token() {
    let world = World::new().await;
    let claim = json!({ "class": "downstream", "leaseMs": 5_000, "ttlMs": 60_000, "workDeadlineMs": 7_000 });
    let attempt = world.claimed("order-1", &claim).await;
    let reply = world.get(&format!("/v1/records/{}", attempt.id)).await;
    assert!(!reply.text().contains(&attempt.token) && !reply.text().contains("order-1"));
    let record = reply.json();
    assert_eq!(record["operationId"], attempt.id.as_str());
    assert_eq!((&record["state"], &record["class"]), (&json!("PROCESSING"), &json!("downstream")));
    assert_eq!((&record["attempt"], &record["operation"]), (&json!(1), &json!("(claim) charge")));
    assert_eq!(record["leaseExpiresAt"], rfc3339::text(world.now() + Duration::from_secs(5)));
    assert_eq!(record["quietUntil"], rfc3339::text(world.now() + Duration::from_secs(12)));
    assert_eq!(record["canResolve"], false);
    let policy = &record["policy"];
    assert_eq!([&policy["leaseMs"], &policy["ttlMs"], &policy["workDeadlineMs"]], [5_000, 60_000, 7_000]);
    assert_eq!(record["history"].as_array().map(Vec::len), Some(1));
    let first = merged(json!({}), &record["history"][0]);
    assert_eq!(
        (&first["state"], &first["who"], &first["attempt"]),
        (&json!("PROCESSING"), &json!("node-1"), &json!(1))
    );
    world.pass(Duration::from_secs(6));
    assert_eq!(world.get(&format!("/v1/records/{}", attempt.id)).await.json()["canResolve"], true);
}

#[tokio::test]
async fn a_missing_store_is_not_an_empty_one() {
    let world = World::new().await;
    for id in ["30313233-3435-3637-3839-616263646566", "x", "%ff", "30313233343536373839616263646566"] {
        let reply = world.get(&format!("/v1/records/{id}")).await;
        assert_eq!(reply.problem(), (404, "OPERATION_NOT_FOUND".into()), "{id}");
    }
    world.lose_store().await;
    for path in ["/v1/records", "/v1/records/30313233-3435-3637-3839-616263646566"] {
        let reply = world.get(path).await;
        assert_eq!(reply.problem(), (503, "IDEMPOTENCY_STORE_UNAVAILABLE".into()), "{path}");
        assert_eq!(reply.retry_after(), Some(1));
    }
}
