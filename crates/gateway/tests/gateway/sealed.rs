//! Sealed responses, and replaced keys.

use crate::world::{Gateway, Scratch};
use semel_test_support::Reply;
use semel_test_support::client::TestRequest;
use semel_test_support::upstream::{Act, Upstream, response};

struct World {
    scratch: Scratch,
    upstream: Upstream,
}

impl World {
    async fn new() -> Self {
        let answer = |_: &_| Act::Say(response("201 Created", &[], "card 4000-0012-3456"));
        let (scratch, upstream) = (Scratch::new(), Upstream::start(answer).await);
        for (name, digits) in [("first", "5a"), ("second", "c3")] {
            scratch.write(name, digits.repeat(32));
        }
        Self { scratch, upstream }
    }

    /// Starts it with these keys (the first one seals), requests each order, and stops it.
    async fn ask(&self, keys: &[&str], orders: &[&str]) -> Vec<Reply> {
        let lines = keys.iter().map(|key| {
            let file = self.scratch.config().with_file_name(key);
            format!("[[sealing.key]]\nname = \"{key}\"\nsecret = 'file:{}'\n", file.display())
        });
        self.scratch.configure(&lines.collect::<Vec<_>>().concat());
        let config = self.scratch.config();
        let config = ["--config", config.to_str().expect("text")];
        let mut gateway = Gateway::start(&self.scratch, self.upstream.address, &config);
        let mut replies = Vec::new();
        for order in orders {
            replies.push(
                TestRequest::post("/charges").key(order).send(gateway.address).await.expect("an answer"),
            );
        }
        gateway.terminate();
        assert!(gateway.ended().await.success());
        replies
    }
}

const OLD: &str = "an-order-of-yesterday";
const NEW: &str = "an-order-of-this-day";

#[tokio::test]
async fn without_its_key_a_sealed_response_is_withheld_and_alarmed() {
    let world = World::new().await;
    assert_eq!(world.ask(&["first"], &[OLD]).await[0].status, 201);
    for keys in [&["second"][..], &[]] {
        let before = world.scratch.logged().len();
        let reply = &world.ask(keys, &[OLD]).await[0];
        assert_eq!((reply.status, reply.code().as_deref()), (409, Some("IDEMPOTENCY_RESPONSE_NOT_RETAINED")));
        assert!(!reply.text().contains("4000-0012"), "{reply:?}");
        let log = &world.scratch.logged()[before..];
        assert!(log.contains("a sealed response cannot be opened"), "{log}");
    }
    assert_eq!(world.upstream.seen_count(), 1, "it never ran again");
    let again = &world.ask(&["first"], &[OLD]).await[0];
    assert!(again.is_replay() && again.text() == "card 4000-0012-3456", "with its key it is replayed again");
}

#[tokio::test]
async fn a_listed_key_opens_what_it_sealed_before() {
    let world = World::new().await;
    world.ask(&["first"], &[OLD]).await;
    // The new key is added last, then moved to the front.
    assert!(world.ask(&["first", "second"], &[OLD]).await[0].is_replay());
    let rotated = world.ask(&["second", "first"], &[OLD, NEW]).await;
    assert!(rotated[0].is_replay() && rotated[0].text() == "card 4000-0012-3456");
    assert_eq!((rotated[1].status, rotated[1].is_replay()), (201, false));
    let left = world.ask(&["second"], &[OLD, NEW]).await;
    assert_eq!(
        left[0].code().as_deref(),
        Some("IDEMPOTENCY_RESPONSE_NOT_RETAINED"),
        "sealed with the old one"
    );
    assert!(left[1].is_replay(), "sealed with the new one");
    assert_eq!(world.upstream.seen_count(), 2);
    let held = std::fs::read(world.scratch.file()).expect("the store's file");
    assert!(!held.windows(9).any(|window| window == b"4000-0012"), "none of it can be read in the store");
}
