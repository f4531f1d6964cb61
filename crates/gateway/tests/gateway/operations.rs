//! Operations with their own rules for callers, from the file to the socket.

#[cfg(target_os = "linux")]
use crate::callers::from;
use crate::tokens::{ISSUER, SECRET, Signer};
use crate::world::{KEY, Scratch, World, until};
use semel_test_support::Reply;
use semel_test_support::client::TestRequest;
use semel_test_support::upstream::{Act, Seen, charged, response};
use std::process::Command;

const ABSENT: &str = "/operations/30313233-3435-3637-3839-616263646566";

fn status_of(reply: &Reply) -> String {
    format!("/operations/{}", reply.header("operation-id").unwrap_or_else(|| panic!("an id in {reply:?}")))
}

fn event(id: &str) -> TestRequest {
    TestRequest::post("/webhooks/payments").json(&format!("{{\"event_id\":\"{id}\"}}"))
}

fn charge() -> TestRequest {
    TestRequest::post("/charges").key(KEY)
}

fn bearer(ask: TestRequest, token: &str) -> TestRequest {
    ask.with("authorization", format!("Bearer {token}"))
}

/// What a client sees of an operation: the status, and the response if it is shown.
async fn seen(world: &World, ask: TestRequest) -> (u16, Option<String>) {
    let reply = world.send(ask).await;
    let shown = (reply.status == 200).then(|| reply.json()["result"]["body"].as_str().map(str::to_owned));
    (reply.status, shown.flatten())
}

fn shown(answer: &str) -> (u16, Option<String>) {
    (200, Some(answer.to_owned()))
}

/// The operation is not found for this client, and the response equals that for an operation that never existed.
async fn is_hidden(
    world: &World,
    path: &str,
    with_credentials: impl Fn(TestRequest) -> TestRequest,
) -> Reply {
    let (hidden, absent) = (
        world.send(with_credentials(TestRequest::get(path))).await,
        world.send(with_credentials(TestRequest::get(ABSENT))).await,
    );
    world.is_problem(&hidden, 404, "OPERATION_NOT_FOUND", false).await;
    assert_eq!(hidden.body, absent.body, "the response reveals whether the operation exists");
    hidden
}

const EVENTS: &str = "[[operation]]\nname = \"events\"\npath = \"/webhooks/payments\"\nkey = \"required\"\n\
    key_from = \"json:/event_id\"\ncallers = [\"anonymous\"]\n";

/// Tokens of one issuer for everything, except webhooks, which are anonymous.
async fn shop() -> World {
    let scratch = Scratch::new();
    let secret = scratch.write("issuer.key", SECRET);
    let terms = format!(
        "{EVENTS}[identity]\nsources = [\"jwt\"]\n[[identity.issuer]]\nname = \"{ISSUER}\"\naudience = \"payments\"\n\
         secret = 'file:{}'\n",
        secret.display()
    );
    World::configured_in(scratch, &terms, charged).await
}

#[tokio::test]
async fn a_webhook_is_anonymous_beside_tokens_everywhere_else() {
    let world = shop().await;
    let (alice, bob) = (Signer::secret().of("alice"), Signer::secret().of("bob"));
    let delivered = world.send(event("evt_1")).await;
    assert_eq!((delivered.status, delivered.text()), (201, "charge 1"));
    for again in [event("evt_1"), bearer(event("evt_1"), &bob), bearer(event("evt_1"), "nonsense")] {
        let again = world.send(again).await;
        assert_eq!((again.text(), again.is_replay()), ("charge 1", true), "for every sender");
    }
    for nobody in [charge(), bearer(charge(), "nonsense"), charge().with("cookie", "a=b")] {
        let refused = world.send(nobody).await;
        world.is_problem(&refused, 400, "CALLER_NOT_IDENTIFIED", false).await;
    }
    // A path that only resembles the webhook's has the default rule.
    let other = TestRequest::post("/webhooks/payments/").key(KEY).json("{\"event_id\":\"evt_1\"}");
    assert_eq!(world.send(other).await.code().as_deref(), Some("CALLER_NOT_IDENTIFIED"));
    let charged = world.send(bearer(charge(), &alice)).await;
    assert_eq!((charged.status, charged.text()), (201, "charge 2"));
    assert!(world.send(bearer(charge(), &alice)).await.is_replay());
    assert_eq!(world.calls(), 2);

    // Each caller sees its own operation.
    let (hook, charge) = (status_of(&delivered), status_of(&charged));
    assert_eq!(seen(&world, TestRequest::get(&hook)).await, (200, None), "the ID alone shows only the state");
    assert_eq!(seen(&world, TestRequest::get(&hook).key("evt_2")).await, (200, None));
    assert_eq!(seen(&world, bearer(TestRequest::get(&hook), &bob)).await, (200, None));
    assert_eq!(
        seen(&world, TestRequest::get(&hook).key("evt_1")).await,
        shown("charge 1"),
        "the key shows the response"
    );
    assert_eq!(seen(&world, bearer(TestRequest::get(&charge), &alice)).await, shown("charge 2"));
    is_hidden(&world, &charge, |ask| bearer(ask, &bob)).await;
    is_hidden(&world, &charge, |ask| bearer(ask, &bob).key(KEY)).await;
    let missed = is_hidden(&world, &charge, |ask| ask.key(KEY)).await;
    assert!(missed.text().contains("does not say who is calling"), "{}", missed.text());
}

#[tokio::test]
async fn a_refused_token_is_refused_at_operations_too() {
    let world = shop().await;
    let signer = Signer::secret();
    let charged = status_of(&world.send(bearer(charge(), &signer.of("alice"))).await);
    let hook = status_of(&world.send(event("evt_1")).await);
    let twice = |ask: TestRequest| bearer(bearer(ask, &signer.of("alice")), &signer.of("bob"));
    let expired = signer.expired("alice");
    let shown: [&dyn Fn(TestRequest) -> TestRequest; 3] =
        [&|ask| bearer(ask, &expired), &|ask| bearer(ask, "nonsense"), &twice];
    for shown in shown {
        let (existing, absent) = (
            world.send(shown(TestRequest::get(&charged))).await,
            world.send(shown(TestRequest::get(ABSENT))).await,
        );
        world.is_problem(&existing, 400, "CALLER_NOT_IDENTIFIED", false).await;
        assert_eq!(existing.body, absent.body, "the response reveals whether the operation exists");
        // The webhook's own rule ignores tokens.
        assert_eq!(seen(&world, shown(TestRequest::get(&hook)).key("evt_1")).await.0, 200);
    }
    is_hidden(&world, &charged, |ask| ask).await;
    is_hidden(&world, &charged, |ask| bearer(ask, &signer.of("bob"))).await;
    is_hidden(&world, &charged, |ask| ask.with("authorization", "Basic YTpi")).await;
}

const PARTNERS: &str = "[[operation]]\npath = \"/partners/{*rest}\"\ncallers = [\"api-key:x-api-key\"]\n";

fn sale() -> TestRequest {
    TestRequest::post("/partners/sales").key(KEY)
}

#[tokio::test]
async fn rules_do_not_trust_each_others_sources() {
    let world = World::configured(PARTNERS, charged).await;
    let partner = world.send(sale().with("x-api-key", "7")).await;
    let alice = world.send(bearer(charge(), "7")).await;
    let anonymous = world.send(charge()).await;
    assert_eq!((partner.text(), alice.text(), anonymous.text()), ("charge 1", "charge 2", "charge 3"));
    let victims = ["charge 1", "charge 2", "charge 3"];
    let tricks = [
        // The same name in the other rule's header.
        bearer(sale(), "7"),
        sale(),
        sale().with("x-api-key", "8"),
        bearer(sale().with("x-api-key", "8"), "7"),
        sale().with("x_api_key", "7"),
        sale().with("x-api-key", "8").with("x_api_key", "7"),
        sale().with("x-api-key", "8").with("x-api-key", "7"),
        sale().with("x-api-key", "8").with("connection", "x-api-key"),
        sale().with("x-api-key", ""),
        sale().with("cookie", "x-api-key=7"),
        // The default rule ignores a partner's key.
        bearer(charge(), "8").with("x-api-key", "7"),
        bearer(charge(), "8").with("x-api-key", "7").with("connection", "authorization"),
        charge().with("x-api-key", "7").with("authorization", "Digest x"),
        TestRequest::post("/partners").key(KEY).with("x-api-key", "7"),
        TestRequest::post("/Partners/sales").key(KEY).with("x-api-key", "7"),
        // Another spelling of the path has the same rule.
        TestRequest::post("/partners//sales").key(KEY).with("x-api-key", "8"),
        bearer(TestRequest::post("/%70artners/sales").key(KEY), "7"),
        bearer(TestRequest::post("/partners/../charges").key(KEY), "8").with("x-api-key", "7"),
    ];
    for trick in tricks {
        let description = format!("{trick:?}");
        let reply = world.send(trick).await;
        assert!(!victims.contains(&reply.text()), "{description}: {reply:?}");
        assert!(reply.status == 201 || reply.status == 400, "{description}: {reply:?}");
    }
    assert_eq!(world.send(charge().with("x-api-key", "7")).await.text(), "charge 3", "the anonymous caller");
    for path in ["/partners/sales", "/partners//sales"] {
        let partners_reply = world.send(TestRequest::post(path).key(KEY).with("x-api-key", "7")).await;
        assert!(partners_reply.is_replay(), "the partner still gets its replay");
    }

    let (partners_path, alices_path) = (status_of(&partner), status_of(&alice));
    assert_eq!(
        seen(&world, TestRequest::get(&partners_path).with("x-api-key", "7")).await,
        shown("charge 1")
    );
    assert_eq!(seen(&world, bearer(TestRequest::get(&alices_path), "7")).await, shown("charge 2"));
    is_hidden(&world, &partners_path, |ask| bearer(ask, "7").key(KEY)).await;
    is_hidden(&world, &partners_path, |ask| ask.with("x-api-key", "8").key(KEY)).await;
    is_hidden(&world, &partners_path, |ask| bearer(ask.with("x-api-key", "8"), "7").key(KEY)).await;
    is_hidden(&world, &partners_path, |ask| ask.key(KEY)).await;
    is_hidden(&world, &alices_path, |ask| ask.with("x-api-key", "7").key(KEY)).await;
    is_hidden(&world, &alices_path, |ask| bearer(ask.with("x-api-key", "7"), "8").key(KEY)).await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_header_that_one_operation_trusts_is_removed_from_untrusted_requests() {
    const PROXY: [u8; 4] = [127, 0, 0, 2];
    const STRANGER: [u8; 4] = [127, 0, 0, 3];
    let terms = "[[operation]]\npath = \"/internal\"\ncallers = [\"header:x-user\"]\n\
        [[operation]]\npath = \"/merchants\"\ncallers = [\"header:x-merchant\"]\n\
        [identity]\nsources = [\"authorization\"]\ntrusted = [\"127.0.0.2\"]\n";
    let world = World::configured(terms, charged).await;
    let to = world.gateway.address;
    let named =
        |ask: TestRequest| bearer(ask, "t").with("x-user", "7").with("x_user", "7").with("X_MERCHANT", "7");
    for ask in [
        TestRequest::get("/page"),
        charge(),
        TestRequest::post("/charges"),
        TestRequest::post("/merchants"),
        TestRequest::post("/internal"),
    ] {
        assert_eq!(from(STRANGER, named(ask), to).await.status, 201);
    }
    for seen in world.upstream.seen() {
        for name in ["x-user", "x_user", "x_merchant"] {
            assert_eq!(seen.header(name), None, "{seen:?}");
        }
    }
    let internal = || TestRequest::post("/internal").key(KEY);
    let refused = from(STRANGER, named(internal()), to).await;
    assert_eq!(
        refused.code().as_deref(),
        Some("CALLER_NOT_IDENTIFIED"),
        "the default rule does not trust a stranger either"
    );
    let first = from(PROXY, named(internal()), to).await;
    assert_eq!((first.status, from(PROXY, named(internal()), to).await.is_replay()), (201, true));
    let calls = world.upstream.seen();
    let last = calls.last().expect("a call");
    assert_eq!(
        (last.header("x-user"), last.header("x_user")),
        (Some("7"), None),
        "the header that the proxy sets"
    );

    // User 7 and merchant 7 have the same name but are two callers.
    let merchant = |ask: TestRequest| ask.with("x-merchant", "7");
    let sold = from(PROXY, merchant(TestRequest::post("/merchants").key(KEY)), to).await;
    let look = async |whose: &Reply, name: &'static str| {
        from(PROXY, TestRequest::get(&status_of(whose)).with(name, "7"), to).await.status
    };
    assert_eq!((look(&first, "x-user").await, look(&sold, "x-merchant").await), (200, 200));
    assert_eq!((look(&first, "x-merchant").await, look(&sold, "x-user").await), (404, 404));
    let stranger =
        from(STRANGER, bearer(TestRequest::get(&status_of(&first)), "t").with("x-user", "7"), to).await;
    assert_eq!(stranger.status, 404);
}

#[tokio::test]
async fn a_question_before_a_replay_has_the_operations_credentials() {
    let terms = "[defaults.authorize]\npath = \"/session\"\n\
        [[operation]]\npath = \"/partners/{*rest}\"\ncallers = [\"api-key:x-partner\"]\n\
        [identity]\nsources = [\"api-key:x-customer\"]\n";
    let script = |seen: &Seen| {
        let is_question = seen.line.starts_with("GET /session");
        if is_question { Act::Say(response("204 Yes", &[], "")) } else { charged(seen) }
    };
    let world = World::configured(terms, script).await;
    for path in ["/partners/sales", "/charges"] {
        for is_replay in [false, true] {
            let ask = TestRequest::post(path).key(KEY).with("x-partner", "p").with("x-customer", "c");
            assert_eq!(world.send(ask).await.is_replay(), is_replay, "{path}");
        }
    }
    let seen = world.upstream.seen();
    let credentials: Vec<_> = seen
        .iter()
        .filter(|seen| seen.line.starts_with("GET /session"))
        .map(|seen| (seen.header("x-partner"), seen.header("x-customer")))
        .collect();
    assert_eq!(credentials, [(Some("p"), None), (None, Some("c"))]);
}

#[tokio::test]
async fn an_operation_can_be_of_no_tenant_beside_others_that_are() {
    let terms = "[[operation]]\npath = \"/hook\"\ncallers = [\"anonymous\"]\ntenant = \"none\"\n\
        [identity]\nsources = [\"authorization\"]\ntrusted = [\"127.0.0.1\"]\ntenant = \"header:x-org\"\n";
    let world = World::configured(terms, charged).await;
    let in_org = |ask: TestRequest, org: &str| bearer(ask, "alice").with("x-org", org);
    let first = world.send(in_org(charge(), "a")).await;
    assert_eq!((first.text(), world.send(in_org(charge(), "b")).await.text()), ("charge 1", "charge 2"));
    let stray = world.send(bearer(charge(), "alice")).await;
    world.is_problem(&stray, 400, "CALLER_NOT_IDENTIFIED", false).await;
    let hook = || TestRequest::post("/hook").key(KEY);
    assert_eq!(world.send(hook()).await.text(), "charge 3");
    assert!(world.send(in_org(hook(), "a")).await.is_replay(), "without a tenant, whatever the header");

    let path = status_of(&first);
    assert_eq!(seen(&world, in_org(TestRequest::get(&path), "a")).await, shown("charge 1"));
    is_hidden(&world, &path, |ask| in_org(ask, "b").key(KEY)).await;
    let missed = is_hidden(&world, &path, |ask| bearer(ask, "alice").key(KEY)).await;
    assert!(missed.text().contains("does not belong to a known tenant"), "{}", missed.text());
}

#[tokio::test]
async fn quotas_are_counted_by_the_callers_of_the_operation() {
    let world = World::configured(&format!("{PARTNERS}[quotas]\nnew_per_caller = \"1/1h\"\n"), charged).await;
    let sale = |partner: &str, order: &str| {
        world.send(
            TestRequest::post("/partners/sales")
                .key(&format!("an-order-of-theirs-{order}"))
                .with("x-api-key", partner),
        )
    };
    for partner in ["a", "b", "c"] {
        assert_eq!(sale(partner, "1").await.status, 201, "{partner}");
        let second = sale(partner, "2").await;
        assert_eq!(second.code().as_deref(), Some("IDEMPOTENCY_KEY_QUOTA_EXCEEDED"), "{partner}");
        assert!(sale(partner, "1").await.is_replay(), "{partner}");
    }
}

#[tokio::test]
async fn a_reload_changes_rules_and_a_bad_one_nothing() {
    let world = World::configured("", charged).await;
    let hook = || TestRequest::post("/hook").key(KEY).with("authorization", "Digest x");
    let is_let_in = async || world.send(hook()).await.code().is_none();
    assert!(!is_let_in().await);
    world.reconfigure("[[operation]]\npath = \"/hook\"\ncallers = [\"anonymous\"]\n");
    until(async || is_let_in().await.then_some(())).await;
    assert!(world.send(hook()).await.is_replay());
    let elsewhere = world.send(charge().with("authorization", "Digest x")).await;
    assert_eq!(
        elsewhere.code().as_deref(),
        Some("CALLER_NOT_IDENTIFIED"),
        "other operations still need a caller"
    );
    until(async || world.log().contains("callers all anonymous: one scope for everybody").then_some(()))
        .await;

    world.reconfigure("[[operation]]\npath = \"/hook\"\ncallers = [\"header:x-user\"]\n");
    until(async || world.log().contains("the configuration has mistakes").then_some(())).await;
    assert!(
        world.log().contains("`x-user` identifies callers, but no address is trusted"),
        "{}",
        world.log()
    );
    assert!(is_let_in().await, "the old configuration stays in force");

    world.reconfigure("[[operation]]\npath = \"/hook\"\ncallers = [\"api-key:x-api-key\"]\n");
    until(async || (!is_let_in().await).then_some(())).await;
    let keyed = world.send(hook().with("x-api-key", "k")).await;
    assert_eq!((keyed.status, keyed.is_replay()), (201, false), "the key now identifies another caller");
}

const USERS: &str = "[identity]\nsources = [\"header:x-user\"]\ntrusted = [\"127.0.0.1\"]\n";

#[tokio::test]
async fn operations_that_admit_anybody_are_printed_at_start() {
    let terms = "[[operation]]\npath = \"/partners\"\ncallers = [\"api-key:x-api-key\", \"anonymous\"]\n\
        [[operation]]\npath = \"/sales\"\ncallers = [\"api-key:x-api-key\"]\n";
    let mut world = World::configured(terms, charged).await;
    world.gateway.kill();
    let output = world.gateway.rest_of_output();
    let is_noted =
        |path: &str| output.contains(&format!("note: requests to {path} that do not identify their caller"));
    assert!(is_noted("/partners") && !is_noted("/sales"), "{output}");
}

#[tokio::test]
async fn changing_an_operations_rule_never_mixes_up_callers() {
    let sold_by =
        |header: &str| format!("[[operation]]\npath = \"/sales\"\ncallers = [\"header:{header}\"]\n{USERS}");
    let world = World::configured(&sold_by("x-merchant"), charged).await;
    let sale = |who: &'static str| TestRequest::post("/sales").key(KEY).with(who, "7");
    let is_let_in = async |who: &'static str| {
        let ask = TestRequest::post("/sales").key("a-key-to-try-the-door-by").with(who, "13");
        world.send(ask).await.code().is_none()
    };
    let sold = world.send(sale("x-merchant")).await;
    let path = status_of(&sold);
    assert_eq!(seen(&world, TestRequest::get(&path).with("x-merchant", "7")).await, shown("charge 1"));

    world.reconfigure(&sold_by("x-shop"));
    until(async || is_let_in("x-shop").await.then_some(())).await;
    let shop = world.send(sale("x-shop")).await;
    assert_eq!((shop.status, shop.is_replay()), (201, false), "shop 7 is not merchant 7");
    is_hidden(&world, &path, |ask| ask.with("x-shop", "7").with("x-user", "7").key(KEY)).await;

    world.reconfigure(USERS);
    until(async || is_let_in("x-user").await.then_some(())).await;
    let user = world.send(sale("x-user")).await;
    assert_eq!((user.status, user.is_replay()), (201, false), "nor is user 7");
    is_hidden(&world, &path, |ask| ask.with("x-user", "7").key(KEY)).await;

    world.reconfigure(&sold_by("x-merchant"));
    until(async || is_let_in("x-merchant").await.then_some(())).await;
    assert_eq!(
        world.send(sale("x-merchant")).await.text(),
        "charge 1",
        "the restored rule finds its old records"
    );
}

#[tokio::test]
async fn records_of_a_removed_route_belong_to_no_operation() {
    let named = |name: &str, callers: &str| {
        format!("[[operation]]\nname = \"{name}\"\npath = \"/{name}\"\ncallers = [{callers}]\n")
    };
    let merchants = "\"header:x-merchant\"";
    let world = World::configured(&format!("{}{USERS}", named("sales", merchants)), charged).await;
    let sold = world.send(TestRequest::post("/sales").key(KEY).with("x-merchant", "7")).await;
    let path = status_of(&sold);
    assert_eq!(seen(&world, TestRequest::get(&path).with("x-merchant", "7")).await, shown("charge 1"));
    world.reconfigure(&format!("{}{USERS}", named("orders", merchants)));
    until(async || {
        (world.send(TestRequest::get(&path).with("x-merchant", "7")).await.status == 404).then_some(())
    })
    .await;
    for who in ["x-user", "x-merchant"] {
        is_hidden(&world, &path, |ask| ask.with(who, "7").key(KEY)).await;
    }
    world.reconfigure(USERS);
    until(async || {
        let refused = world.send(TestRequest::get(ABSENT).with("x-merchant", "7")).await;
        (refused.status == 400).then_some(())
    })
    .await;
    is_hidden(&world, &path, |ask| ask.with("x-user", "7").key(KEY)).await;
}

#[tokio::test]
async fn user_7_uses_up_nothing_of_merchant_7s_quota() {
    let terms = "[[operation]]\npath = \"/sales\"\ncallers = [\"header:x-merchant\"]\n\
        [[operation]]\npath = \"/orders\"\ncallers = [\"header:x-merchant\"]\n";
    let world =
        World::configured(&format!("{terms}{USERS}[quotas]\nnew_per_caller = \"1/1h\"\n"), charged).await;
    let send = async |path: &str, who: &'static str| {
        world.send(TestRequest::post(path).key(KEY).with(who, "7")).await.code()
    };
    assert_eq!(send("/charges", "x-user").await, None);
    assert_eq!(send("/sales", "x-merchant").await, None);
    let full = Some("IDEMPOTENCY_KEY_QUOTA_EXCEEDED".to_owned());
    assert_eq!(send("/refunds", "x-user").await, full);
    assert_eq!(send("/orders", "x-merchant").await, full, "one merchant, whichever operation it calls");
}

#[tokio::test]
async fn the_rule_for_callers_is_printed_published_and_checked() {
    let mut world = World::configured(&format!("{EVENTS}{PARTNERS}"), charged).await;
    let published = world.send(TestRequest::get("/.well-known/idempotency")).await.json();
    assert_eq!(published["callers"], "per access token");
    let rules: Vec<_> = (0..3).map(|at| published["operations"][at]["callers"].as_str()).collect();
    assert_eq!(rules, [Some("not at all (all are anonymous)"), Some("per API key in x-api-key"), None]);
    world.gateway.kill();
    let output = world.gateway.rest_of_output();
    for line in [
        "callers all anonymous: one scope for everybody",
        "callers by the API key in x-api-key",
        "callers    by Authorization (Basic, Bearer): the guarantee is per access token",
        "note: callers of events are not distinguished",
    ] {
        assert!(output.contains(line), "{line} is not in {output}");
    }
    let config = world.scratch.config();
    let semel = |arguments: &[&str]| {
        let ran = Command::new(env!("CARGO_BIN_EXE_semel")).args(arguments).arg(&config).output();
        String::from_utf8(ran.expect("semel runs").stdout).expect("text")
    };
    let checked = semel(&["config", "check", "--upstream", "http://127.0.0.1:1"]);
    assert!(
        checked.contains("no mistakes; 2 operations") && checked.contains("  events: callers all anonymous"),
        "{checked}"
    );
    assert!(checked.contains("  /partners/{*rest}: callers by the API key in x-api-key"), "{checked}");
    let examined = semel(&["doctor", "--config"]);
    assert!(examined.contains("events has its own rule for callers: callers all anonymous"), "{examined}");
}
