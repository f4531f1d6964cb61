//! Erasing, and the page for it.

use super::world::{World, token};
use semel_admin::Role;
use serde_json::{Value, json};

/// A record with a stored response.
async fn stored(world: &World, key: &str, holder: &str) -> String {
    let claim = super::world::claim(key, &json!({}));
    let ask = |path: &str| world.ask("POST", path).token(holder);
    let claimed = ask("/v1/claims").json(&claim).send().await.json();
    let text = |name: &str| claimed[name].as_str().expect("text").to_owned();
    let outcome = json!({ "token": text("token"), "outcome": "succeeded", "response": { "status": 201, "body": "s3cret" } });
    let path = format!("/v1/claims/{}/outcome", text("operationId"));
    assert_eq!(ask(&path).json(&outcome).send().await.status, 200);
    text("operationId")
}

fn erase(extent: &str) -> Value {
    json!({ "what": extent, "reason": "asked to" })
}

#[tokio::test]
async fn erasing_needs_a_role_a_reason_and_an_outcome() {
    let world =
        World::with(|options| options.tokens = Role::ALL.map(|role| token(role.name(), &[role])).to_vec())
            .await;
    let id = stored(&world, "order-1", "claim-secret").await;
    let path = format!("/v1/records/{id}/erase");
    let ask = |holder: &str, body: Value| {
        let holder = holder.to_owned();
        let ask = world.ask("POST", &path).token(&format!("{holder}-secret"));
        async move { ask.json(&body).send().await }
    };
    for role in ["read", "claim", "bodies"] {
        assert_eq!(ask(role, erase("response")).await.status, 403, "{role}");
    }
    for bad in [
        json!({ "what": "response" }),
        json!({ "reason": "x" }),
        json!({ "what": "all", "reason": "x" }),
        json!({ "what": "record", "reason": " " }),
    ] {
        assert_eq!(ask("operate", bad.clone()).await.status, 400, "{bad}");
    }
    assert!(world.record(&id).await.state_name().as_str() == "SUCCEEDED");
    let erased = ask("operate", erase("response")).await;
    assert_eq!(erased.status, 200, "{}", erased.text());
    let record = erased.json();
    assert_eq!((&record["state"], &record["response"]["retained"]), (&json!("SUCCEEDED"), &json!(false)));
    let last = record["history"].as_array().and_then(|history| history.last()).expect("a history").clone();
    assert_eq!((&last["who"], &last["why"]), (&json!("operate"), &json!("erased the response: asked to")));
    assert_eq!(record.get("mayRemain"), None, "an SQLite file keeps no remains");
    assert_eq!(ask("operate", erase("record")).await.json()["state"], "EXPIRED");
    assert_eq!(ask("operate", erase("record")).await.problem(), (409, "RECORD_STATE_CONFLICT".into()));
    let bytes = std::fs::read(world.folder.join("store.db")).expect("the file");
    assert!(!bytes.windows(6).any(|part| part == b"s3cret"));
}

#[tokio::test]
async fn what_runs_is_not_erased() {
    let world = World::new().await;
    let attempt = world.claimed("order-1", &json!({})).await;
    let refused = world.post(&format!("/v1/records/{}/erase", attempt.id), &erase("record")).await;
    assert_eq!(refused.problem(), (409, "RECORD_STATE_CONFLICT".into()));
    assert!(refused.text().contains("PROCESSING"), "{}", refused.text());
}

#[tokio::test]
async fn the_page_is_open_and_contains_no_record() {
    let world = World::with(|options| options.tokens = vec![token("ops", &Role::ALL)]).await;
    let id = stored(&world, "order-1", "ops-secret").await;
    let page = world.get("/").await;
    assert_eq!(page.status, 200);
    assert!(page.text().contains("<title>Semel") && !page.text().contains(&id));
    let policy = page.header("content-security-policy").expect("a policy").to_owned();
    assert!(policy.contains("script-src 'sha256-") && policy.contains("connect-src 'self'"), "{policy}");
    assert_eq!(world.ask("POST", "/").send().await.status, 401);
    assert_eq!(world.get("/v1/records").await.status, 401, "records need a token");
}
