//! Each token sees its own claims.

use super::client::Reply;
use super::world::{Attempt, World, claim, token};
use semel_admin::{Role, Token};
use serde_json::{Value, json};
use std::time::Duration;

async fn world() -> World {
    World::with(|options| {
        options.tokens = vec![
            token("billing", &[Role::Claim]),
            // A second token with the same name, as during a token rotation.
            Token { name: "billing".into(), ..token("billing-2", &[Role::Claim]) },
            token("mail", &[Role::Claim]),
        ];
    })
    .await
}

async fn post(world: &World, holder: &str, path: &str, body: &Value) -> Reply {
    world.ask("POST", path).token(&format!("{holder}-secret")).json(body).send().await
}

async fn show(world: &World, holder: &str, attempt: &Attempt) -> Reply {
    let path = format!("/v1/claims/{}", attempt.id);
    world.ask("GET", &path).token(&format!("{holder}-secret")).send().await
}

async fn claimed(world: &World, holder: &str, more: &Value) -> Attempt {
    let reply = post(world, holder, "/v1/claims", &claim("order-1", more)).await;
    assert_eq!(reply.status, 201, "{}", reply.text());
    let text = |name: &str| reply.json()[name].as_str().expect("text").to_owned();
    Attempt { id: text("operationId"), token: text("token") }
}

fn not_found() -> (u16, String) {
    (404, "OPERATION_NOT_FOUND".into())
}

#[tokio::test]
async fn another_tokens_claim_is_not_found() {
    let world = world().await;
    let attempt = claimed(&world, "billing", &json!({})).await;
    assert_eq!(show(&world, "mail", &attempt).await.problem(), not_found());
    // Even with the attempt's own token, the claim does not exist for another admin token.
    let stranger = Attempt { token: "00".repeat(16), ..attempt.clone() };
    for attempt in [&attempt, &stranger] {
        let renewed = post(&world, "mail", &attempt.at("renew"), &attempt.with(&json!({}))).await;
        assert_eq!(renewed.problem(), not_found());
        let outcome = attempt.with(&json!({ "outcome": "succeeded" }));
        let ended = post(&world, "mail", &attempt.at("outcome"), &outcome).await;
        assert_eq!(ended.problem(), not_found());
    }
    assert_eq!(world.state(&attempt.id).await, "PROCESSING");
    let nobody = Attempt { id: "30313233-3435-8637-8839-616263646566".into(), ..attempt.clone() };
    assert_eq!(
        show(&world, "mail", &attempt).await.text(),
        show(&world, "mail", &nobody).await.text(),
        "existing and missing claims get the same response"
    );
}

#[tokio::test]
async fn every_token_of_the_same_name_goes_on_with_a_claim() {
    let world = world().await;
    let attempt = claimed(&world, "billing", &json!({})).await;
    assert_eq!(show(&world, "billing-2", &attempt).await.status, 200);
    let renewed = post(&world, "billing-2", &attempt.at("renew"), &attempt.with(&json!({}))).await;
    assert_eq!(renewed.status, 200, "{}", renewed.text());
    let outcome = attempt.with(&json!({ "outcome": "succeeded" }));
    assert_eq!(post(&world, "billing-2", &attempt.at("outcome"), &outcome).await.status, 200);
    assert_eq!(show(&world, "billing", &attempt).await.json()["state"], "SUCCEEDED");
}

#[tokio::test]
async fn all_tokens_share_their_keys() {
    let world = world().await;
    let attempt = claimed(&world, "billing", &json!({})).await;
    let running = post(&world, "mail", "/v1/claims", &claim("order-1", &json!({}))).await;
    assert_eq!(running.problem(), (409, "IDEMPOTENCY_REQUEST_IN_PROGRESS".into()));
    let outcome = attempt.with(&json!({ "outcome": "succeeded" }));
    assert_eq!(post(&world, "billing", &attempt.at("outcome"), &outcome).await.status, 200);
    let again = post(&world, "mail", "/v1/claims", &claim("order-1", &json!({}))).await;
    assert_eq!((again.status, &again.json()["result"]), (200, &json!("replayed")));
}

#[tokio::test]
async fn a_successor_of_an_attempt_sees_the_claim() {
    let world = world().await;
    let more = json!({ "class": "downstream", "leaseMs": 1_000 });
    let first = claimed(&world, "billing", &more).await;
    world.pass(Duration::from_secs(1));
    let second = claimed(&world, "mail", &more).await;
    for holder in ["billing", "mail"] {
        assert_eq!(show(&world, holder, &second).await.json()["attempt"], 2, "{holder}");
    }
    // The first worker learns the outcome of its own attempt, and cannot change the other worker's.
    let late = post(&world, "billing", &first.at("renew"), &first.with(&json!({}))).await;
    assert_eq!(late.problem(), (409, "CLAIM_LOST".into()));
    let others = post(&world, "billing", &second.at("renew"), &second.with(&json!({}))).await;
    assert_eq!(others.problem(), not_found());
    let renewed = post(&world, "mail", &second.at("renew"), &second.with(&json!({}))).await;
    assert_eq!(renewed.status, 200, "{}", renewed.text());
}

#[tokio::test]
async fn a_reserved_claim_is_still_its_tokens_after_it_began() {
    let world = world().await;
    let attempt = claimed(&world, "billing", &json!({ "mode": "reserved" })).await;
    let begun = post(&world, "billing", &attempt.at("renew"), &attempt.with(&json!({ "begin": true }))).await;
    assert_eq!(begun.json()["state"], "PROCESSING");
    assert_eq!(show(&world, "billing", &attempt).await.status, 200);
    assert_eq!(show(&world, "mail", &attempt).await.problem(), not_found());
}

#[tokio::test]
async fn an_attempt_begun_before_there_were_tokens_can_be_ended() {
    let world = World::new().await;
    let attempt = world.claimed("order-1", &json!({})).await;
    let world = world.restarted_with(|options| options.tokens = vec![token("mail", &[Role::Claim])]).await;
    assert_eq!(show(&world, "mail", &attempt).await.problem(), not_found());
    let outcome = attempt.with(&json!({ "outcome": "succeeded" }));
    let ended = post(&world, "mail", &attempt.at("outcome"), &outcome).await;
    assert_eq!(ended.status, 200, "{}", ended.text());
}

#[tokio::test]
async fn the_history_names_the_token_that_claimed() {
    let world = world().await;
    let attempt = claimed(&world, "billing", &json!({})).await;
    let record = world.record(&attempt.id).await;
    assert_eq!(&*record.history().entries()[0].who, "billing");
}
