//! Sealing and rate limits of single routes.

use super::world::{Bodies, KEY, Observed, Scratch, Server, charged, engine, reads, request};
use semel::core::store::{Filter, Store as _};
use semel::quota::{Quotas, Rate, RateKeeper, Rates};
use semel::sealing::{KeyRing, Seal, SealingKey};
use semel::{Engine, memory};
use semel_http::{
    Code, EventKind, KeyRule, Layer, Mode, RouteSettings, RouteSettingsError, Routes, ShadowOutcome,
};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

fn rate(count: u32) -> Rate {
    Rate { count: NonZeroU32::new(count).expect("not zero"), per: Duration::from_hours(1) }
}

/// Settings with a limit on a caller's new keys.
fn limited(count: u32) -> RouteSettings {
    let rates = Rates { new_per_caller: Some(rate(count)), ..Rates::default() };
    RouteSettings { rates: Some(RateKeeper::new(rates).expect("valid")), ..RouteSettings::default() }
}

fn ring() -> KeyRing {
    KeyRing::new(SealingKey::new("2026-11", &[7; 32]).expect("a key"))
}

fn order(path: &str, number: u32) -> http::request::Builder {
    request("POST", path).header("idempotency-key", format!("order-number-{number:08}"))
}

#[tokio::test]
async fn a_routes_own_rate_does_not_limit_other_routes() {
    let scratch = Scratch::new("rates");
    let quotas = Quotas { new_per_caller: Some(rate(4)), ..Quotas::default() };
    let engine = Engine::builder(scratch.store()).quotas(quotas).build().await.expect("it answers");
    let routes = Routes::new(RouteSettings::default()).and_then(|routes| routes.with("/exports", limited(2)));
    let layer = Layer::routed(engine, routes.expect("valid")).expect("valid").publishing("");
    let server = Server::under(layer, charged).await;
    for number in 0..2 {
        assert_eq!(server.send(order("/exports", number).json("{}")).await.status, 201);
    }
    for number in 2..10 {
        let refused = server.send(order("/exports", number).json("{}")).await;
        refused.is_problem(429, "IDEMPOTENCY_KEY_QUOTA_EXCEEDED", true);
        let seconds: u64 = refused.header("retry-after").expect("a time").parse().expect("whole seconds");
        assert!((1..=1_800).contains(&seconds), "one of two per hour is free after half an hour: {seconds}");
        assert!(server.send(order("/exports", 0).json("{}")).await.is_replay(), "its retries are served");
    }
    for number in 0..2 {
        let other = server.send(order("/charges", number).json("{}")).await;
        assert_eq!(other.status, 201, "a refusal uses up nothing of the total");
    }
    server.send(order("/charges", 9).json("{}")).await.is_problem(
        429,
        "IDEMPOTENCY_KEY_QUOTA_EXCEEDED",
        true,
    );
    let bob = order("/exports", 0).header("authorization", "Bearer bob");
    assert_eq!(server.send(bob.json("{}")).await.status, 201, "another caller has its own limit");
}

#[tokio::test]
async fn shadow_mode_reports_rate_refusals_and_uses_up_nothing_without_keys() {
    let settings = RouteSettings { mode: Mode::Shadow, key: KeyRule::Optional, ..limited(1) };
    let (layer, mut observed) = Observed::over(Layer::new(engine().await, settings).expect("valid"));
    let server = Server::under(layer, reads).await;
    for amount in 0..3 {
        let body = format!("{{\"amount\":{amount}}}");
        server.send(request("POST", "/exports").json(&body)).await;
        assert_eq!(observed.next().await, EventKind::Shadow(ShadowOutcome::Run));
    }
    for (number, would) in
        [(0, ShadowOutcome::Run), (1, ShadowOutcome::Refuse(Code::Quota)), (0, ShadowOutcome::Replay)]
    {
        assert_eq!(server.send(order("/exports", number).json("{}")).await.status, 201);
        assert_eq!(observed.next().await, EventKind::Shadow(would));
    }
}

#[tokio::test]
async fn required_sealing_needs_an_engine_with_a_key() {
    let sealed = || RouteSettings { seal: Seal::Required, ..RouteSettings::default() };
    let error = Layer::new(engine().await, sealed()).expect_err("no key");
    assert_eq!(error, RouteSettingsError::NoSealingKey("other".into()));
    let routes = Routes::new(RouteSettings::default()).and_then(|routes| routes.with("/cards", sealed()));
    let routes = routes.expect("valid by themselves");
    assert!(routes.must_seal("POST /cards") && !routes.must_seal("POST /charges"));
    let error = Layer::routed(engine().await, routes.clone()).expect_err("no key");
    assert_eq!(error, RouteSettingsError::NoSealingKey("/cards".into()));
    assert!(error.to_string().contains("`/cards` must be sealed, and the engine has no key"), "{error}");
    let engine = Engine::builder(Arc::new(memory::Store::new())).sealing(ring()).build().await;
    Layer::routed(engine.expect("it answers"), routes).expect("now there is one");
}

#[tokio::test]
async fn each_route_seals_by_its_setting_and_replays() {
    for (seal, readable) in [(Seal::WithKeys, false), (Seal::Required, false), (Seal::Off, true)] {
        let store = Arc::new(memory::Store::new());
        let engine = Engine::builder(store.clone()).sealing(ring()).build().await.expect("it answers");
        let settings = RouteSettings { seal, ..RouteSettings::default() };
        let server = Server::under(Layer::new(engine, settings).expect("valid"), charged).await;
        let charge = || request("POST", "/charges").header("idempotency-key", KEY).json("{}");
        let first = server.send(charge()).await;
        let page = store.page(&Filter::default(), None, 10).await.expect("a page");
        let stored = semel::core::codec::encode_record(page.items[0].record().expect("a record"));
        assert_eq!(stored.windows(8).any(|bytes| bytes == b"charge 1"), readable, "{seal:?}");
        let again = server.send(charge()).await;
        assert!(again.is_replay() && again.body == first.body, "{seal:?}");
    }
}
