//! Clients that say how long they wait.

use crate::world::{Gateway, Scratch, World, charge, within};
use semel_test_support::Reply;
use semel_test_support::client::TestRequest;
use semel_test_support::upstream::{Act, Gate, Upstream, charged};

const LEFT: &str = "x-request-timeout-ms";

fn waiting(request: TestRequest, left: &str) -> TestRequest {
    request.with(LEFT, left)
}

fn code(reply: &Reply) -> (u16, Option<String>) {
    (reply.status, reply.code())
}

#[tokio::test]
async fn a_request_that_gets_no_connection_in_time_is_given_back_and_never_sent() {
    let gate = Gate::closed();
    let passing = gate.clone();
    let script = move |seen: &_| Act::After(passing.clone(), Box::new(charged(seen)));
    let (scratch, upstream) = (Scratch::new(), Upstream::start(script).await);
    scratch.configure(&format!(
        "[upstream]\nurl = \"http://{}\"\nconnections_max = 1\nconnect_timeout = \"1m\"\n[store]\nurl = 'sqlite:{}'\n",
        upstream.address,
        scratch.file().display()
    ));
    let world = World { gateway: Gateway::configured(&scratch, &[]), upstream, scratch };
    let running = tokio::spawn(
        TestRequest::post("/charges")
            .key("5f1d9f2e-0c3b-4a35-9a1e-0f5a3c6b7d81")
            .json("{}")
            .send(world.gateway.address),
    );
    world.upstream.has_seen(1).await;
    let late = world.send(waiting(charge(5), "1500")).await;
    assert_eq!(code(&late), (504, Some("DEADLINE_EXCEEDED".to_owned())), "{late:?}");
    assert!(late.is_retryable());
    gate.open();
    assert_eq!(within(running).await.expect("no panic").expect("an answer").status, 201);
    let ran = world.send(waiting(charge(5), "600000")).await;
    assert_eq!((ran.status, world.calls()), (201, 2), "{ran:?}");
    let seen = world.upstream.seen();
    let header = |name: &str| seen[1].header(name).unwrap_or_default().to_owned();
    assert_eq!(header("idempotency-attempt"), "2", "the first attempt was given back");
    assert!(header(LEFT).parse::<u64>().is_ok_and(|left| (1..=600_000).contains(&left)), "{:?}", seen[1]);
}

#[tokio::test]
async fn what_was_sent_goes_on_after_the_deadline() {
    let gate = Gate::closed();
    let passing = gate.clone();
    let script = move |seen: &_| Act::After(passing.clone(), Box::new(charged(seen)));
    let world = World::new(&[], script).await;
    let first = world.send(waiting(charge(5), "1500")).await;
    assert_eq!(code(&first), (409, Some("IDEMPOTENCY_REQUEST_IN_PROGRESS".to_owned())), "{first:?}");
    gate.open();
    let outcome = world.send(waiting(charge(5), "600000")).await;
    assert_eq!((outcome.status, world.calls()), (201, 1), "{outcome:?}");
}
