//! A gateway that was suspended for longer than its timeouts, like a paused virtual machine.

use crate::world::{Gateway, KEY, Scratch, World, until, within};
use semel_test_support::client::TestRequest;
use semel_test_support::upstream::{Act, Gate, Seen, charged, response};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::sleep;

const REQUESTS: usize = 6;

fn order(number: usize) -> TestRequest {
    TestRequest::post("/charges").key(&format!("{KEY}-{number}")).json(&format!("{{\"order\":{number}}}"))
}

/// Suspends a gateway that waits for responses, which arrive meanwhile. Every second one does not fit into a read.
async fn answered_while_suspended(flags: &[&str], pause: Duration) {
    let gate = Gate::closed();
    let held = gate.clone();
    let script = move |seen: &Seen| {
        // Longer than what the system holds for a reader, and short enough to be read in a second on a busy machine: the
        // gateway reads no longer than that after its deadline.
        let long = response("201 Created", &[], "x".repeat(200 << 10));
        let act = if seen.number.is_multiple_of(2) { Act::Say(long) } else { charged(seen) };
        Act::After(held.clone(), Box::new(act))
    };
    let world = World::new(flags, script).await;
    let to = world.gateway.address;
    let calls: Vec<_> =
        (0..REQUESTS).map(|number| tokio::spawn(async move { order(number).send(to).await })).collect();
    world.upstream.has_seen(REQUESTS).await;
    world.gateway.freeze();
    gate.open();
    sleep(pause).await;
    world.gateway.thaw();
    for (number, call) in calls.into_iter().enumerate() {
        let reply = within(call).await.expect("no panic").expect("an answer");
        assert!(reply.status == 201 && reply.is_acknowledged(), "after {pause:?}: {:?}", reply.code());
        let retry = world.send(order(number)).await;
        assert!(retry.is_replay() && retry.kept() == reply.kept(), "after {pause:?}: {:?}", retry.code());
    }
    assert_eq!(world.calls(), REQUESTS);
}

#[tokio::test]
async fn a_response_that_arrived_while_the_gateway_was_suspended_is_used() {
    // The deadline of the work is the sum of both timeouts and a second.
    let flags = ["--connect-timeout", "5s", "--response-timeout", "6s"];
    tokio::join!(
        answered_while_suspended(&flags, Duration::from_millis(6_500)),
        answered_while_suspended(&flags, Duration::from_millis(12_500)),
    );
}

/// The service accepts the connection, and says nothing in the TLS handshake.
#[tokio::test]
async fn a_key_is_released_if_the_gateway_was_suspended_before_it_sent_anything() {
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("https://{}", silent.local_addr().expect("an address"));
    let scratch = Scratch::new();
    let timeouts = ["--connect-timeout", "6s", "--response-timeout", "100ms"];
    let gateway = Gateway::start_before(&url, &scratch, &timeouts);
    let to = gateway.address;
    let call = tokio::spawn(async move { order(1).send(to).await });
    let _connection = within(silent.accept()).await.expect("a connection");
    gateway.freeze();
    sleep(Duration::from_millis(8_500)).await;
    gateway.thaw();
    let reply = within(call).await.expect("no panic").expect("an answer");
    assert_eq!(reply.status, 503, "{:?}", reply.code());
    // The next attempt runs, and cannot connect either.
    let retry = until(async || {
        let reply = order(1).send(gateway.address).await.expect("an answer");
        (reply.code().as_deref() != Some("IDEMPOTENCY_REQUEST_IN_PROGRESS")).then_some(reply)
    });
    assert_eq!(retry.await.code().as_deref(), Some("UPSTREAM_UNREACHABLE"));
}
