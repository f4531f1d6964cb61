//! Routes with their own rule for callers.

use super::world::{Bodies, Observed, Reply, Server, charged, engine, post, reads, request};
use http::HeaderName;
use http::request::Parts;
use semel::core::scope::Identity;
use semel_http::{
    Callers, Code, EventKind, Layer, Mode, NotIdentified, RouteSettings, Routes, ShadowOutcome,
};

const ABSENT: &str = "/operations/30313233-3435-3637-3839-616263646566";

fn header<'p>(parts: &'p Parts, name: &str) -> Result<&'p [u8], NotIdentified> {
    parts.headers.get(name).map(http::HeaderValue::as_bytes).ok_or(NotIdentified::ByRule)
}

/// Trusts a header that authentication has set.
fn by_header(name: &'static str) -> Callers {
    Callers::by(move |parts| Ok(Identity::header(header(parts, name)?).into()))
}

fn under(callers: Callers) -> RouteSettings {
    RouteSettings { callers: Some(callers), ..RouteSettings::default() }
}

/// Users everywhere, merchants on one route, anonymous callers on another.
async fn shop() -> Server {
    let hooks = RouteSettings { callers: Some(Callers::all_anonymous()), ..RouteSettings::default() };
    let hooks = hooks.keyed_by(HeaderName::from_static("webhook-id"));
    let routes = Routes::new(RouteSettings::default())
        .and_then(|routes| routes.with("/sales", under(by_header("x-merchant"))))
        .and_then(|routes| routes.with("/hooks", hooks))
        .expect("valid");
    let layer =
        Layer::routed(engine().await, routes).expect("valid").callers(by_header("x-user")).publishing("");
    Server::under(layer, charged).await
}

fn status_of(reply: &Reply) -> String {
    format!("/operations/{}", reply.header("operation-id").expect("an id"))
}

#[tokio::test]
async fn a_caller_is_identified_only_by_the_rule_of_its_route() {
    let shop = shop().await;
    let send = async |path: &str, headers: &[(&'static str, &str)]| {
        let ask = headers.iter().fold(post(path), |ask, (name, value)| ask.header(*name, *value));
        shop.send(ask.header("webhook-id", "evt-1").json("{}")).await
    };
    assert_eq!(send("/charges", &[("x-user", "7")]).await.text(), "charge 1");
    assert_eq!(
        send("/sales", &[("x-merchant", "7")]).await.text(),
        "charge 2",
        "the same name is another caller"
    );
    assert_eq!(send("/hooks", &[]).await.text(), "charge 3");
    // The rule of one route does not apply to another.
    send("/charges", &[("x-merchant", "7")]).await.is_problem(400, "CALLER_NOT_IDENTIFIED", false);
    send("/sales", &[("x-user", "7")]).await.is_problem(400, "CALLER_NOT_IDENTIFIED", false);
    send("/charges", &[]).await.is_problem(400, "CALLER_NOT_IDENTIFIED", false);
    let both = [("x-user", "8"), ("x-merchant", "7")];
    assert_eq!(send("/charges", &both).await.text(), "charge 4", "no merchant there");
    let replay = send("/sales", &both).await;
    assert_eq!((replay.text(), replay.is_replay()), ("charge 2", true), "no user here");
    let replay = send("/hooks", &both).await;
    assert_eq!((replay.text(), replay.is_replay()), ("charge 3", true), "anonymous");
    assert_eq!(shop.calls.count(), 4);
}

#[tokio::test]
async fn an_operation_is_shown_by_the_rule_of_its_replay() {
    let shop = shop().await;
    let user = shop.send(post("/charges").header("x-user", "7").json("{}")).await;
    let merchant = shop.send(post("/sales").header("x-merchant", "7").json("{}")).await;
    let hook = shop.send(request("POST", "/hooks").header("webhook-id", "evt-1").json("{}")).await;
    let look = async |path: &str, headers: &[(&'static str, &str)]| {
        let ask = headers.iter().fold(request("GET", path), |ask, (name, value)| ask.header(*name, *value));
        shop.send(ask.empty()).await
    };
    let result = |reply: &Reply| {
        let document: serde_json::Value = serde_json::from_slice(&reply.body).expect("JSON");
        (reply.status, document["result"]["body"].as_str().map(str::to_owned))
    };
    let shown = |call: &str| (200, Some(call.to_owned()));
    assert_eq!(result(&look(&status_of(&user), &[("x-user", "7")]).await), shown("charge 1"));
    assert_eq!(result(&look(&status_of(&merchant), &[("x-merchant", "7")]).await), shown("charge 2"));
    // The hash is the same, but the rule is not.
    for (whose, headers) in [
        (&user, [("x-merchant", "7")].as_slice()),
        (&user, &[("x-merchant", "7"), ("x-user", "8")]),
        (&merchant, &[("x-user", "7")]),
        (&merchant, &[("x-user", "7"), ("x-merchant", "8")]),
        (&merchant, &[]),
    ] {
        let (foreign, absent) = (look(&status_of(whose), headers).await, look(ABSENT, headers).await);
        foreign.is_problem(404, "OPERATION_NOT_FOUND", false);
        assert_eq!(foreign.body, absent.body, "its existence is not revealed: {headers:?}");
    }
    // There are many anonymous callers.
    let hook = status_of(&hook);
    for headers in [[].as_slice(), &[("x-user", "7")], &[("idempotency-key", "evt-2")]] {
        assert_eq!(result(&look(&hook, headers).await), (200, None), "{headers:?}");
    }
    assert_eq!(result(&look(&hook, &[("idempotency-key", "evt-1")]).await), shown("charge 3"));
}

#[tokio::test]
async fn a_caller_that_no_rule_identifies_is_refused_with_the_reason() {
    let routes = Routes::new(RouteSettings::default())
        .and_then(|routes| routes.with("/sales", under(by_header("x-merchant"))))
        .expect("valid");
    let layer =
        Layer::routed(engine().await, routes).expect("valid").callers(by_header("x-user")).publishing("");
    let server = Server::under(layer, charged).await;
    let sale = server.send(post("/sales").header("x-merchant", "7").json("{}")).await;
    for path in [status_of(&sale).as_str(), ABSENT] {
        server.send(request("GET", path).empty()).await.is_problem(400, "CALLER_NOT_IDENTIFIED", false);
        let missed = server.send(request("GET", path).header("x-user", "7").empty()).await;
        missed.is_problem(404, "OPERATION_NOT_FOUND", false);
        assert!(
            missed.text().contains("It may belong to a caller that cannot be identified"),
            "{}",
            missed.text()
        );
    }
    let both = request("GET", ABSENT).header("x-user", "7").header("x-merchant", "8").empty();
    assert!(server.send(both).await.text().contains("\"You have no such operation.\""));
}

#[tokio::test]
async fn a_routes_tenant_rule_applies_only_to_that_route() {
    let rule = Callers::in_tenants(|parts| {
        let tenant = parts.headers.get("x-org").map(|org| org.as_bytes().to_vec());
        Ok((Identity::api_key(header(parts, "x-api-key")?).into(), tenant))
    });
    let routes = Routes::new(RouteSettings::default())
        .and_then(|routes| routes.with("/own", under(rule)))
        .and_then(|routes| routes.with("/anybody", under(Callers::all_anonymous())))
        .expect("valid");
    let layer = Layer::routed(engine().await, routes);
    let layer =
        layer.expect("valid").tenant(|parts| Some(parts.headers.get("x-tenant")?.as_bytes().to_vec()));
    let server = Server::under(layer, charged).await;
    let send = async |path: &str, tenant: &str, org: &str| {
        let ask = post(path).header("x-tenant", tenant).header("x-org", org).header("x-api-key", "k");
        server.send(ask.json("{}")).await.text().to_owned()
    };
    assert_eq!(send("/own", "a", "1").await, "charge 1");
    assert_eq!(send("/own", "b", "1").await, "charge 1");
    assert_eq!(send("/own", "a", "2").await, "charge 2");
    for path in ["/anybody", "/charges"] {
        let first = send(path, "a", "1").await;
        assert_eq!(send(path, "a", "2").await, first, "{path}");
        assert_ne!(send(path, "b", "1").await, first, "{path}");
    }
}

#[tokio::test]
async fn shadow_mode_uses_each_routes_caller_rule() {
    let shadow = RouteSettings { mode: Mode::Shadow, ..under(by_header("x-merchant")) };
    let routes = Routes::new(RouteSettings::default()).and_then(|routes| routes.with("/sales", shadow));
    let layer =
        Layer::routed(engine().await, routes.expect("valid")).expect("valid").callers(by_header("x-user"));
    let (layer, mut observed) = Observed::over(layer);
    let server = Server::under(layer, reads).await;
    let cases = [
        ("x-merchant", "7", ShadowOutcome::Run),
        ("x-merchant", "7", ShadowOutcome::Replay),
        ("x-merchant", "8", ShadowOutcome::Run),
        ("x-user", "7", ShadowOutcome::Refuse(Code::CallerNotIdentified)),
    ];
    for (name, whose, would) in cases {
        assert_eq!(server.send(post("/sales").header(name, whose).json("{}")).await.status, 201);
        assert_eq!(observed.next().await, EventKind::Shadow(would), "{name} {whose}");
    }
}

#[tokio::test]
async fn the_specification_gives_the_caller_rule_of_each_route() {
    let routes = Routes::new(RouteSettings::default())
        .and_then(|routes| routes.with("/sales", under(by_header("x-merchant").described("per merchant"))))
        .and_then(|routes| routes.with("/hooks", under(Callers::all_anonymous())))
        .expect("valid");
    let server =
        Server::under(Layer::routed(engine().await, routes).expect("valid").publishing(""), charged).await;
    let published = server.send(request("GET", "/.well-known/idempotency").empty()).await;
    let published: serde_json::Value = serde_json::from_slice(&published.body).expect("JSON");
    assert_eq!(published["callers"], "per access token");
    let described: Vec<_> = (0..3).map(|at| published["operations"][at]["callers"].as_str()).collect();
    assert_eq!(described, [Some("per merchant"), Some("not at all (all are anonymous)"), None]);
    let page = request("GET", "/.well-known/idempotency").header("accept", "text/html").empty();
    let page = server.send(page).await;
    assert!(page.text().contains("<tr><th>Callers are distinguished<td>per merchant"), "{}", page.text());
    assert!(page.text().contains("per access token; some operations below differ"));
}
