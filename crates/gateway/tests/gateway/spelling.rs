//! Other spellings of a request, and settings that match no request: neither leads to a second effect.

use crate::world::{Gateway, KEY, Scratch, World, does_not_start};
use semel_test_support::client::TestRequest;
use semel_test_support::upstream::{Act, Seen, Upstream, charged, response};

fn lines(seen: &[Seen]) -> Vec<String> {
    seen.iter().map(|seen| seen.line.trim_end_matches(" HTTP/1.1").to_owned()).collect()
}

#[tokio::test]
async fn the_methods_case_is_no_way_around_a_key() {
    let world = World::new(&["--require-key"], charged).await;
    for method in ["POST", "post", "Patch"] {
        let refused = world.send(TestRequest::new(method, "/charges").json("{}")).await;
        assert_eq!(refused.code().as_deref(), Some("MISSING_IDEMPOTENCY_KEY"), "{method}");
    }
    for (method, is_replay) in [("post", false), ("POST", true), ("Post", true)] {
        let reply = world.send(TestRequest::new(method, "/charges").key(KEY).json("{}")).await;
        assert_eq!((reply.text(), reply.is_replay()), ("charge 1", is_replay), "{method}");
    }
    assert_eq!(lines(&world.upstream.seen()), ["post /charges"], "one request, forwarded unchanged");
}

const GUARDED: &str = "[defaults]\nkey = \"off\"\n[[operation]]\npath = \"/charges\"\nkey = \"required\"\n";

#[tokio::test]
async fn no_spelling_of_a_path_is_a_way_around_its_operation() {
    let world = World::configured(GUARDED, charged).await;
    let spellings =
        ["//charges", "/charges", "/%63harges", "/./charges", "/x/../charges", "/x/%2e%2e/charges"];
    for path in spellings {
        let refused = world.send(TestRequest::post(path).json("{}")).await;
        assert_eq!(refused.code().as_deref(), Some("MISSING_IDEMPOTENCY_KEY"), "{path}");
    }
    for path in spellings {
        let reply = world.send(TestRequest::post(path).key(KEY).json("{}")).await;
        assert_eq!((reply.text(), reply.is_replay()), ("charge 1", path != "//charges"), "{path}");
    }
    for path in ["/charges/", "/Charges"] {
        let other = world.send(TestRequest::post(path).key(KEY).json("{}")).await;
        assert_eq!((other.status, other.is_replay()), (201, false), "the operator has to name {path}");
    }
    assert_eq!(lines(&world.upstream.seen()), ["POST //charges", "POST /charges/", "POST /Charges"]);
}

#[tokio::test]
async fn no_path_leads_out_of_the_base_of_the_upstreams_url() {
    let (scratch, upstream) = (Scratch::new(), Upstream::start(charged).await);
    scratch.configure(GUARDED);
    let config = scratch.config();
    let base = format!("http://{}/v1", upstream.address);
    let gateway = Gateway::start_before(&base, &scratch, &["--config", config.to_str().expect("text")]);
    for path in ["/../v1/charges", "/%2e%2e/v1/charges", "/x/../../v1/charges"] {
        let refused = TestRequest::post(path).json("{}").send(gateway.address).await.expect("an answer");
        assert_eq!(refused.status, 400, "{path}");
    }
    assert!(upstream.seen().is_empty());
}

#[tokio::test]
async fn an_invalid_retry_after_leaves_a_503_in_doubt() {
    for (value, calls) in
        [("120", 2), ("Wed, 21 Oct 2026 07:28:00 GMT", 2), ("soon", 1), ("1.5", 1), ("-1", 1)]
    {
        let busy = move |_: &Seen| Act::Say(response("503 Busy", &[("retry-after", value)], "later"));
        let world = World::new(&[], busy).await;
        assert_eq!(world.charge(5).await.status, 503);
        let again = world.charge(5).await;
        assert_eq!(world.calls(), calls, "{value}");
        let is_unknown = again.code().as_deref() == Some("IDEMPOTENCY_OUTCOME_UNKNOWN");
        assert_eq!(is_unknown, calls == 1, "{value}: {again:?}");
    }
}

#[tokio::test]
async fn a_method_that_is_not_registered_is_protected_and_warned_about() {
    let world = World::configured("[defaults]\nmethods = [\"frob\"]\n", charged).await;
    for (method, is_replay) in [("FROB", false), ("frob", true)] {
        let reply = world.send(TestRequest::new(method, "/charges").key(KEY)).await;
        assert_eq!((reply.text(), reply.is_replay()), ("charge 1", is_replay), "{method}");
    }
    assert!(world.log().contains("is not a registered HTTP method"), "{}", world.log());
}

#[test]
fn settings_that_protect_nothing_or_run_successes_again_do_not_start() {
    for (text, found, remedy) in [
        (
            "[[operation]]\npath = \"/users/:id\"\n",
            "`/users/:id` is not a route pattern",
            "write `/users/{id}`",
        ),
        ("[defaults]\nmethods = [\"POTS\"]\n", "`POTS` is not a method", "write \"POST\""),
        ("[defaults]\nnot_applied_statuses = [201]\n", "a 201 is a success", "name errors only"),
        ("[defaults]\nstatuses = { 200 = \"not-applied\" }\n", "a 200 is a success", "name errors only"),
    ] {
        let scratch = Scratch::new();
        scratch.configure(text);
        let config = scratch.config();
        let flags = [
            "--config",
            config.to_str().expect("text"),
            "--store",
            "memory:",
            "--upstream",
            "http://127.0.0.1:1",
        ];
        let errors = does_not_start(&flags);
        assert!(errors.contains(found) && errors.contains(remedy), "{errors}");
    }
}
