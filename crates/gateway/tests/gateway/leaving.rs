//! Clients that leave: before the request is complete, while it runs, and during the response.

use crate::world::{KEY, World, charge, within};
use semel_test_support::client::TestRequest;
use semel_test_support::upstream::{Act, Gate, charged, response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn connected(world: &World) -> TcpStream {
    TcpStream::connect(world.gateway.address).await.expect("a connection")
}

#[tokio::test]
async fn before_the_request_is_whole_nothing_happens() {
    let world = World::new(&[], charged).await;
    let raw = charge(5).raw();
    for cut in [1, raw.len() / 2, raw.len() - 1] {
        let mut client = connected(&world).await;
        client.write_all(&raw[..cut]).await.expect("sent");
        client.shutdown().await.expect("an end");
        // The response has arrived by now.
        let _ = within(client.read_to_end(&mut Vec::new())).await;
    }
    assert_eq!(world.calls(), 0);
    let complete = world.charge(5).await;
    assert_eq!(
        (complete.status, complete.text(), complete.is_replay()),
        (201, "charge 1", false),
        "the key is free"
    );
}

#[tokio::test]
async fn peer_bug_a_client_that_hung_up_cancelled_the_request() {
    let gate = Gate::closed();
    let passing = gate.clone();
    let script = move |seen: &_| Act::After(passing.clone(), Box::new(charged(seen)));
    let world = World::new(&["--wait", "30s"], script).await;
    let mut client = connected(&world).await;
    client.write_all(&charge(5).raw()).await.expect("sent");
    world.upstream.has_seen(1).await;
    // A reset: the rest is not read.
    socket2::SockRef::from(&client).set_linger(Some(std::time::Duration::ZERO)).expect("a setting");
    drop(client);
    let (retry, ()) = tokio::join!(world.charge(5), async { gate.open() });
    assert_eq!((retry.status, retry.text(), retry.is_replay()), (201, "charge 1", true));
    assert_eq!(world.calls(), 1);
}

#[tokio::test]
async fn while_the_answer_is_on_its_way_it_is_stored_already() {
    let body = vec![b'x'; 8 << 20];
    let large = response("201 Created", &[("etag", "\"7\"")], &body);
    let world = World::new(&[], move |_| Act::Say(large.clone())).await;
    let mut client = connected(&world).await;
    client.write_all(&charge(5).raw()).await.expect("sent");
    let mut first = [0; 4096];
    within(client.read_exact(&mut first)).await.expect("the beginning of the answer");
    assert!(first.starts_with(b"HTTP/1.1 201 Created"));
    drop(client);
    let retry = world.charge(5).await;
    assert_eq!((retry.status, retry.is_replay(), retry.header("etag")), (201, true, Some("\"7\"")));
    assert!(retry.body == body, "the replay is complete");
    assert_eq!(world.calls(), 1);
}

#[tokio::test]
async fn a_client_that_leaves_at_any_moment_gets_one_effect() {
    // A client that leaves before the claim has no effect; after it, one effect.
    let world = World::new(&["--wait", "30s"], charged).await;
    let keys: Vec<_> = (0..50).map(|number| format!("{KEY}-{number}")).collect();
    let ask = |key: &str| TestRequest::post("/charges").key(key).json("{}");
    for (number, key) in keys.iter().enumerate() {
        let mut client = connected(&world).await;
        client.write_all(&ask(key).raw()).await.expect("sent");
        match number % 3 {
            0 => drop(client),
            1 => client.shutdown().await.expect("an end"),
            _ => drop(within(client.read_exact(&mut [0; 9])).await.expect("the first bytes of an answer")),
        }
    }
    for (number, key) in keys.iter().enumerate() {
        let retry = world.send(ask(key)).await;
        assert_eq!(retry.status, 201, "{retry:?}");
        assert!(
            retry.is_replay() || number % 3 != 2,
            "a client with a response must get a replay: {retry:?}"
        );
    }
    let mut seen: Vec<_> =
        world.upstream.seen().iter().map(|seen| seen.header("idempotency-key").map(str::to_owned)).collect();
    seen.sort();
    seen.dedup();
    assert_eq!((seen.len(), world.calls()), (keys.len(), keys.len()), "one effect per key");
}
