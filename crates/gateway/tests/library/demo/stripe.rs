//! The endpoints for Stripe's libraries.

use super::world::{World, get, send};
use serde_json::json;

const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

#[tokio::test]
async fn charges_and_intents_look_like_stripes() {
    let world = World::new().await;
    let at = world.gateway;
    let headers = [
        FORM,
        ("authorization", "Bearer sk_demo"),
        ("idempotency-key", "0d8b6d0e-6c2c-4ab1-8a5c-0a3f3a0a6d11"),
    ];
    for (path, kind) in [("/v1/charges", "charge"), ("/v1/payment_intents", "payment_intent")] {
        let form = "amount=2500&currency=eur&customer=cus_7&source=tok_visa";
        let made = send(at, "POST", path, &headers, form).await.expect("an answer");
        let again = send(at, "POST", path, &headers, form).await.expect("an answer");
        assert_eq!((made.status, again.header("idempotency-replayed")), (200, Some("true")));
        assert_eq!(made.body, again.body);
        let object = made.json();
        assert_eq!((&object["object"], &object["status"]), (&json!(kind), &json!("succeeded")));
        let id = object["id"].as_str().expect("an id");
        assert_eq!(get(at, &format!("{path}/{id}")).await.json(), object);
    }
    assert_eq!(world.payments.ledger().charges().len(), 2);
}

#[tokio::test]
async fn errors_have_stripes_form() {
    let world = World::new().await;
    let refused = send(world.gateway, "POST", "/v1/charges", &[FORM], "amount=x&currency=eur").await;
    let refused = refused.expect("an answer");
    assert_eq!(refused.status, 400);
    let error = &refused.json()["error"];
    assert_eq!((&error["type"], &error["param"]), (&json!("invalid_request_error"), &json!("amount")));
    assert!(world.payments.ledger().charges().is_empty());
}

#[tokio::test]
async fn a_payment_method_can_stand_for_trouble() {
    let world = World::new().await;
    let key = ("idempotency-key", "0d8b6d0e-6c2c-4ab1-8a5c-0a3f3a0a6d11");
    let form = "amount=2500&currency=eur&payment_method=pm_hang-up";
    let broken = send(world.gateway, "POST", "/v1/payment_intents", &[FORM, key], form).await;
    assert_eq!(broken.expect("an answer").status, 502);
    assert_eq!(world.payments.ledger().charges().len(), 1);
}
