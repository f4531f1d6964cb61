//! Two gateways on one store: a verdict about an attempt that another gateway has replaced is refused.

use crate::store::{StoreKind, on_every_server};
use crate::world::{Gateway, Scratch, charge, until, within};
use semel_test_support::Reply;
use semel_test_support::client::TestRequest;
use semel_test_support::upstream::{Act, Seen, Upstream, says};
use serde_json::{Value, json};
use std::net::SocketAddr;

/// The lease is long enough for what has to be asked about an attempt after its gateway was killed.
const FLAGS: [&str; 8] =
    ["--lease", "6s", "--wait", "0s", "--response-timeout", "30s", "--admin", "127.0.0.1:0"];

/// Two gateways in front of one service, whose first attempt failed with an unknown outcome.
struct Pair {
    upstream: Upstream,
    a: Gateway,
    b: Gateway,
    admin_a: SocketAddr,
    admin_b: SocketAddr,
    id: String,
    /// The fence of the first attempt.
    old: Value,
    _scratch: Scratch,
}

impl Pair {
    /// `later` is the service's behavior from the second attempt on.
    async fn in_doubt(kind: StoreKind, later: impl Fn(&Seen) -> Act + Send + Sync + 'static) -> Self {
        let script = move |seen: &Seen| match seen.header("idempotency-attempt") {
            Some("1") => says("500 Oops")(seen),
            _ => later(seen),
        };
        let (scratch, upstream) = (Scratch::on(kind), Upstream::start(script).await);
        let mut a = Gateway::start(&scratch, upstream.address, &FLAGS);
        let mut b = Gateway::start(&scratch, upstream.address, &FLAGS);
        let (admin_a, admin_b) = (a.admin(), b.admin());
        let first = sent(charge(5), a.address).await;
        assert_eq!(first.status, 500, "{first:?}");
        let id = first.header("operation-id").expect("an id").to_owned();
        let mut pair = Self { upstream, a, b, admin_a, admin_b, id, old: Value::Null, _scratch: scratch };
        let record = pair.record().await;
        assert_eq!(record["state"], "UNKNOWN");
        pair.old = record["fence"].clone();
        pair
    }

    /// The record, as gateway B shows it.
    async fn record(&self) -> Value {
        sent(TestRequest::get(&format!("/v1/records/{}", self.id)), self.admin_b).await.json()
    }

    async fn resolve(&self, admin: SocketAddr, outcome: &str, fence: &Value) -> Reply {
        let body = json!({ "outcome": outcome, "reason": "looked into the ledger", "fence": fence });
        sent(TestRequest::post(&format!("/v1/records/{}/resolve", self.id)).json(&body.to_string()), admin)
            .await
    }

    /// Gateway B refuses each verdict about the first attempt, because there is another attempt by now.
    async fn refuses_old_verdicts(&self) {
        let before = self.record().await;
        assert!(before["fence"].as_u64() > self.old.as_u64(), "{before}");
        for outcome in ["applied", "not-applied"] {
            let refused = self.resolve(self.admin_b, outcome, &self.old).await;
            assert_eq!(refused.status, 409, "{refused:?}");
            assert!(refused.text().contains("Another attempt has begun"), "{}", refused.text());
        }
        let after = self.record().await;
        assert_eq!((&after["state"], &after["fence"]), (&before["state"], &before["fence"]));
    }

    fn attempts(&self) -> Vec<String> {
        let seen = self.upstream.seen();
        seen.iter().filter_map(|seen| seen.header("idempotency-attempt").map(str::to_owned)).collect()
    }
}

async fn sent(request: TestRequest, to: SocketAddr) -> Reply {
    within(request.send(to)).await.expect("an answer")
}

async fn another_gateway_refuses_a_verdict_about_a_replaced_attempt(kind: StoreKind) {
    let pair = Pair::in_doubt(kind, says("500 Oops")).await;
    assert_eq!(pair.resolve(pair.admin_a, "not-applied", &pair.old).await.status, 200);
    assert_eq!(
        sent(charge(5), pair.a.address).await.status,
        500,
        "the second attempt's outcome is unknown, too"
    );
    pair.refuses_old_verdicts().await;

    let current = pair.record().await["fence"].clone();
    let resolved = pair.resolve(pair.admin_b, "applied", &current).await;
    assert_eq!(resolved.status, 200, "{resolved:?}");
    let retry = sent(charge(5), pair.a.address).await;
    assert_eq!(retry.code().as_deref(), Some("IDEMPOTENCY_RESPONSE_NOT_RETAINED"));
    assert_eq!(pair.attempts(), ["1", "2"]);
}

async fn an_old_verdict_stays_refused_after_the_new_owner_is_killed(kind: StoreKind) {
    let mut pair = Pair::in_doubt(kind, |_: &Seen| Act::Hang).await;
    assert_eq!(pair.resolve(pair.admin_a, "not-applied", &pair.old).await.status, 200);
    let second = tokio::spawn(charge(5).send(pair.a.address));
    pair.upstream.has_seen(2).await;
    pair.refuses_old_verdicts().await;
    pair.a.kill();
    assert!(within(second).await.expect("no panic").is_err(), "no gateway was left to answer");
    pair.refuses_old_verdicts().await;

    // As soon as the killed gateway's lease expires, the outcome of its attempt is unknown.
    until(async || (pair.record().await["state"] == "UNKNOWN").then_some(())).await;
    pair.refuses_old_verdicts().await;
    let current = pair.record().await["fence"].clone();
    let resolved = pair.resolve(pair.admin_b, "applied", &current).await;
    assert_eq!(resolved.status, 200, "{resolved:?}");
    let retry = sent(charge(5), pair.b.address).await;
    assert_eq!(retry.code().as_deref(), Some("IDEMPOTENCY_RESPONSE_NOT_RETAINED"));
    assert_eq!(pair.attempts(), ["1", "2"]);
}

on_every_server! {
    another_gateway_refuses_a_verdict_about_a_replaced_attempt,
    an_old_verdict_stays_refused_after_the_new_owner_is_killed,
}
