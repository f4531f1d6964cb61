//! Tenants, through the layer that reads them.

use super::world::{by, by_secret, by_token, claims, hs256, live, prepared};
use bytes::Bytes;
use http::{HeaderName, Request, Response};
use http_body_util::{BodyExt as _, Full};
use semel::{Engine, memory};
use semel_gateway::caller_rules::CallerRules;
use semel_http::{Layer, RouteSettings};
use semel_identity::{Identity, Peer, Source, Tenant};
use serde_json::json;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tower_layer::Layer as _;
use tower_service::Service;

const PROXY: &str = "10.0.0.5";

/// A service behind the layer that counts its calls.
struct Shop {
    live: CallerRules,
    layer: Layer,
    calls: Arc<AtomicU32>,
}

impl Shop {
    async fn new(identity: Identity) -> Self {
        let live = live(identity).await;
        let engine = Engine::builder(Arc::new(memory::Store::new())).build().await.expect("an engine");
        let layer = live.under(Layer::new(engine, RouteSettings::default()).expect("valid settings"));
        Self { live, layer, calls: Arc::default() }
    }

    /// Sends the same charge with the same key from a proxy: which call answered, or why none did.
    async fn charge(&self, headers: &[(&str, &str)]) -> Result<String, String> {
        let mut request = Request::post("/charges").header("idempotency-key", "8e03978e-40d5-43dd-bc93");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut request = request.body(Full::new(Bytes::new())).expect("a request");
        let peer = Peer { address: PROXY.parse().expect("an address"), certificate: None };
        request.extensions_mut().insert(peer);
        let (mut parts, body) = request.into_parts();
        self.live.prepare(&mut parts.headers, &mut parts.extensions);
        let calls = Arc::clone(&self.calls);
        let inner = Inner(calls);
        let response =
            self.layer.layer(inner).call(Request::from_parts(parts, body)).await.expect("infallible");
        let status = response.status();
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        let text = String::from_utf8_lossy(&body).into_owned();
        if status == 200 { Ok(text) } else { Err(text) }
    }
}

#[derive(Clone)]
struct Inner(Arc<AtomicU32>);

impl Service<Request<semel_http::Body>> for Inner {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<semel_http::Body>) -> Self::Future {
        let call = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        std::future::ready(Ok(Response::new(Full::new(Bytes::from(format!("call {call}"))))))
    }
}

fn is_refused(identify: &Result<String, String>) -> bool {
    identify
        .as_ref()
        .is_err_and(|text| text.contains("CALLER_NOT_IDENTIFIED") && text.contains("identity.tenant"))
}

#[tokio::test]
async fn tenants_by_a_trusted_header_share_no_key() {
    let name = HeaderName::from_static("x-tenant");
    let trusted = vec![PROXY.parse().expect("a network")];
    let identity = Identity { tenant: Tenant::Header(name), trusted, ..by([Source::Anonymous]) };
    let shop = Shop::new(identity).await;
    for (tenant, call) in [("a", "call 1"), ("b", "call 2"), ("a", "call 1")] {
        assert_eq!(shop.charge(&[("x-tenant", tenant)]).await.as_deref(), Ok(call));
    }
    assert!(is_refused(&shop.charge(&[]).await));
    assert!(shop.charge(&[("x-tenant", "a"), ("x-tenant", "b")]).await.is_err());
    assert_eq!(shop.calls.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_strangers_tenant_is_not_believed() {
    let name = HeaderName::from_static("x-tenant");
    let trusted = vec!["10.9.0.0/16".parse().expect("a network")];
    let identity = Identity { tenant: Tenant::Header(name), trusted, ..by([Source::Anonymous]) };
    let shop = Shop::new(identity).await;
    assert!(is_refused(&shop.charge(&[("x-tenant", "a")]).await));
    assert!(prepared(&shop.live, PROXY, &[("x-tenant", "a")]).headers.is_empty());
}

#[tokio::test]
async fn tenants_by_a_verified_claim_share_no_key() {
    let mut identity = by_token(by_secret());
    identity.tenant = Tenant::Claim("org".to_owned());
    identity.sources.push(Source::Anonymous);
    let shop = Shop::new(identity).await;
    let of = |org: serde_json::Value| format!("Bearer {}", hs256(&claims(json!({ "org": org }))));
    for (org, call) in [("a", "call 1"), ("b", "call 2"), ("a", "call 1")] {
        assert_eq!(shop.charge(&[("authorization", &of(json!(org)))]).await.as_deref(), Ok(call));
    }
    for org in [json!(null), json!(""), json!(7), json!(["a"])] {
        assert!(is_refused(&shop.charge(&[("authorization", &of(org.clone()))]).await), "{org}");
    }
    assert!(is_refused(&shop.charge(&[]).await), "without a token there is no claim");
}

#[tokio::test]
async fn tenants_by_host_are_the_named_hosts_in_any_spelling() {
    let hosts = vec!["a.example".to_owned(), "b.example".to_owned()];
    let shop = Shop::new(Identity { tenant: Tenant::Host(hosts), ..by([Source::Authorization]) }).await;
    let charge =
        async |host: &'static str| shop.charge(&[("host", host), ("authorization", "Bearer t")]).await;
    for (host, call) in [
        ("a.example", "call 1"),
        ("b.example", "call 2"),
        ("A.example:443", "call 1"),
        ("a.example.", "call 1"),
    ] {
        assert_eq!(charge(host).await.as_deref(), Ok(call), "{host}");
    }
    assert!(is_refused(&charge("c.example").await));
    assert!(is_refused(&charge("a.example.c.example").await));
}
