//! The payment service's own API.

use super::world::{World, get, send};
use semel_gateway::demo::payments;
use serde_json::json;

const ORDER: &str = r#"{"amount": 2500, "currency": "eur", "customer": "you"}"#;
const JSON: (&str, &str) = ("content-type", "application/json");

#[tokio::test]
async fn a_charges_location_leads_to_its_receipt() {
    let payments = payments::start().await.expect("a port");
    let at = payments.address();
    let reply = send(at, "POST", "/charges", &[JSON], ORDER).await.expect("an answer");
    assert_eq!(reply.status, 201);
    let receipt = reply.json();
    assert_eq!((&receipt["amount"], &receipt["customer"]), (&json!(2500), &json!("you")));
    let location = reply.header("location").expect("a location");
    assert_eq!(get(at, location).await.json(), receipt);
    assert_eq!(get(at, "/charges").await.json(), json!([receipt]));
    assert_eq!(get(at, "/charges?operation_id=nobody").await.json(), json!([]));
    assert_eq!(get(at, "/ledger").await.json(), json!({ "count": 1, "charges": [receipt] }));
}

#[tokio::test]
async fn without_semel_a_key_is_charged_every_time() {
    let payments = payments::start().await.expect("a port");
    for _ in 0..2 {
        let headers = [JSON, ("idempotency-key", "my-first-umbrella")];
        send(payments.address(), "POST", "/charges", &headers, ORDER).await.expect("an answer");
    }
    assert_eq!(payments.ledger().charges().len(), 2);
}

#[tokio::test]
async fn an_invalid_order_is_not_charged() {
    let payments = payments::start().await.expect("a port");
    let at = payments.address();
    for order in ["", "{}", r#"{"amount": -1, "currency": "eur"}"#, r#"{"amount": 1}"#] {
        assert_eq!(send(at, "POST", "/charges", &[JSON], order).await.expect("an answer").status, 400);
    }
    assert_eq!(send(at, "DELETE", "/charges", &[], "").await.expect("an answer").status, 405);
    assert_eq!(send(at, "POST", "/", &[JSON], ORDER).await.expect("an answer").status, 404);
    assert_eq!(get(at, "/charges/ch_0001").await.status, 404);
    assert!(payments.ledger().charges().is_empty());
}

#[tokio::test]
async fn a_request_gets_the_trouble_it_asked_for() {
    let payments = payments::start().await.expect("a port");
    let troubled = async |trouble: &'static str| {
        send(payments.address(), "POST", "/charges", &[JSON, ("demo-trouble", trouble)], ORDER).await
    };
    assert!(troubled("crash").await.is_none());
    assert_eq!(payments.ledger().charges().len(), 0);
    let busy = troubled("busy").await.expect("an answer");
    assert_eq!((busy.status, busy.header("retry-after")), (503, Some("1")));
    assert_eq!(payments.ledger().charges().len(), 0);
    assert!(troubled("hang-up").await.is_none());
    assert_eq!(payments.ledger().charges().len(), 1);
    assert_eq!(troubled("slow").await.expect("an answer").status, 201);
    assert_eq!(payments.ledger().charges().len(), 2);
}

/// The commands that the reader is invited to try.
#[tokio::test]
async fn the_printed_commands_work() {
    let world = World::new().await;
    let at = world.gateway;
    // The headers that curl sends.
    let form = ("content-type", "application/x-www-form-urlencoded");
    let order = "amount=2500&currency=eur";
    let first = [form, ("idempotency-key", "my-first-umbrella")];
    let charged = send(at, "POST", "/charges", &first, order).await.expect("an answer");
    let again = send(at, "POST", "/charges", &first, order).await.expect("an answer");
    assert_eq!(
        (charged.status, again.status, again.header("idempotency-replayed")),
        (201, 201, Some("true"))
    );
    assert_eq!(charged.body, again.body);
    let more = "amount=9900&currency=eur";
    assert_eq!(send(at, "POST", "/charges", &first, more).await.expect("an answer").status, 422);
    let doubtful = [form, ("idempotency-key", "my-second-umbrella"), ("demo-trouble", "hang-up")];
    assert_eq!(send(at, "POST", "/charges", &doubtful, order).await.expect("an answer").status, 502);
    let unknown = send(at, "POST", "/charges", &doubtful, order).await.expect("an answer");
    assert_eq!((unknown.status, &unknown.json()["code"]), (409, &json!("IDEMPOTENCY_OUTCOME_UNKNOWN")));
    let path = format!("/operations/{}", charged.header("operation-id").expect("an id"));
    let operation = send(at, "GET", &path, &first[1..], "").await.expect("an answer").json();
    assert_eq!((&operation["state"], &operation["result"]["status"]), (&json!("SUCCEEDED"), &json!(201)));
    assert_eq!(get(at, "/.well-known/idempotency").await.status, 200);
    assert_eq!(world.payments.ledger().charges().len(), 2);
}
