//! Shutdown, and what remains afterwards.

use crate::world::{KEY, World, charge, within};
use semel_test_support::client::TestRequest;
use semel_test_support::upstream::{Act, Gate, Seen, charged};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::test]
async fn a_drain_ends_running_requests_and_refuses_new_ones() {
    let gate = Gate::closed();
    let passing = gate.clone();
    let script = move |seen: &_| Act::After(passing.clone(), Box::new(charged(seen)));
    let mut world = World::new(&[], script).await;
    let mut idle = TcpStream::connect(world.gateway.address).await.expect("a connection");
    idle.write_all(&TestRequest::get("/.well-known/idempotency").raw()).await.expect("sent");
    let mut some = [0; 64];
    within(idle.read_exact(&mut some)).await.expect("an answer, and a connection that is kept");
    let running = tokio::spawn(charge(5).send(world.gateway.address));
    let unkeyed = tokio::spawn(TestRequest::post("/charges").json("{}").send(world.gateway.address));
    world.upstream.has_seen(2).await;
    world.gateway.terminate();
    world.gateway.refuses().await;
    within(idle.read_to_end(&mut Vec::new())).await.expect("idle connections are closed");
    assert!(
        !running.is_finished() && !unkeyed.is_finished(),
        "requests that wait for a response are not cut off"
    );
    gate.open();
    let first = within(running).await.expect("no panic").expect("an answer");
    assert_eq!((first.status, first.is_acknowledged()), (201, true));
    assert_eq!(within(unkeyed).await.expect("no panic").expect("an answer").status, 201);
    assert_eq!(world.gateway.ended().await.code(), Some(0));
    assert!(world.log().contains("every request has ended"), "{}", world.log());
    world.kill_and_restart(&[]);
    let retry = world.charge(5).await;
    assert!(retry.is_replay() && retry.kept() == first.kept(), "{retry:?}");
    assert_eq!(world.calls(), 2);
}

#[tokio::test]
async fn a_request_whose_client_has_left_is_waited_for_too() {
    let gate = Gate::closed();
    let passing = gate.clone();
    let script = move |seen: &_| Act::After(passing.clone(), Box::new(charged(seen)));
    let mut world = World::new(&[], script).await;
    let mut client = TcpStream::connect(world.gateway.address).await.expect("a connection");
    client.write_all(&charge(5).raw()).await.expect("sent");
    world.upstream.has_seen(1).await;
    drop(client);
    world.gateway.terminate();
    world.gateway.refuses().await;
    gate.open();
    assert_eq!(world.gateway.ended().await.code(), Some(0));
    world.kill_and_restart(&[]);
    let retry = world.charge(5).await;
    assert_eq!((retry.text(), retry.is_replay(), world.calls()), ("charge 1", true, 1));
}

#[tokio::test]
async fn a_second_signal_ends_it_and_completes_nothing() {
    let flags = ["--lease", "1s", "--wait", "0s"];
    let script = |seen: &Seen| if seen.line.contains("/hung") { Act::Hang } else { charged(seen) };
    let mut world = World::new(&flags, script).await;
    let first = world.charge(5).await;
    let hung = || TestRequest::post("/hung").key(KEY).json("{}");
    let running = tokio::spawn(hung().send(world.gateway.address));
    world.upstream.has_seen(2).await;
    world.gateway.terminate();
    world.gateway.refuses().await;
    world.gateway.terminate();
    assert_eq!(world.gateway.ended().await.code(), Some(1), "the exit code reports the interrupted requests");
    assert!(within(running).await.expect("no panic").is_err(), "no gateway was left to answer");
    world.kill_and_restart(&flags);
    let retry = world.charge(5).await;
    assert!(retry.is_replay() && retry.kept() == first.kept());
    let unsure = crate::world::until(async || {
        let reply = world.send(hung()).await;
        (reply.code().as_deref() != Some("IDEMPOTENCY_REQUEST_IN_PROGRESS")).then_some(reply)
    })
    .await;
    assert_eq!(unsure.code().as_deref(), Some("IDEMPOTENCY_OUTCOME_UNKNOWN"));
    assert_eq!(world.calls(), 2);
}

#[tokio::test]
async fn requests_cut_off_after_the_drain_time_are_unknown() {
    let flags = ["--drain", "500ms", "--lease", "1s", "--wait", "0s"];
    let mut world = World::new(&flags, |_: &Seen| Act::Hang).await;
    let running = tokio::spawn(charge(5).send(world.gateway.address));
    world.upstream.has_seen(1).await;
    world.gateway.terminate();
    assert_eq!(world.gateway.ended().await.code(), Some(0));
    let result = within(running).await.expect("no panic");
    if let Ok(reply) = result {
        assert!(!reply.is_acknowledged(), "{reply:?}");
    }
    assert!(world.log().contains("the outcome of those that were cut off is unknown"), "{}", world.log());
    world.kill_and_restart(&flags);
    let retry = world.charge_settled(5).await;
    assert_eq!(retry.code().as_deref(), Some("IDEMPOTENCY_OUTCOME_UNKNOWN"));
    assert_eq!(world.calls(), 1);
}
