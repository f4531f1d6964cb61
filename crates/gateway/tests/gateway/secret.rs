//! The hashing secret, where it is configured.

use crate::client::Ask;
use crate::upstream::{Upstream, charged};
use crate::world::{Gateway, KEY, Scratch, does_not_start, until};

struct World {
    scratch: Scratch,
    upstream: Upstream,
}

impl World {
    async fn new() -> Self {
        let (scratch, upstream) = (Scratch::new(), Upstream::start(charged).await);
        for (name, digits) in [("first", "5a"), ("second", "c3")] {
            scratch.write(name, format!("{}\n", digits.repeat(32)));
        }
        Self { scratch, upstream }
    }

    /// Writes a configuration with these secrets, and gives the flags to start on it.
    fn configured(&self, secret: Option<&str>, next: Option<&str>) -> [String; 6] {
        let at = |key: &str, name: Option<&str>| match name {
            None => String::new(),
            Some("withdraw") => format!("{key} = \"withdraw\"\n"),
            Some(name) => {
                format!("{key} = 'file:{}'\n", self.scratch.config().with_file_name(name).display())
            }
        };
        let (secret, next) = (at("hashing_secret", secret), at("hashing_secret_next", next));
        self.scratch.configure(&format!("[store]\n{secret}{next}"));
        let store = format!("sqlite:{}", self.scratch.file().display());
        let upstream = format!("http://{}", self.upstream.address);
        let config = self.scratch.config().display().to_string();
        ["--config".to_owned(), config, "--store".to_owned(), store, "--upstream".to_owned(), upstream]
    }

    /// Starts it, charges, waits until it has logged what it `says`, and ends it.
    async fn charge(&self, secret: Option<&str>, next: Option<&str>, says: Option<&str>) -> String {
        // Every start appends to the same log.
        let times = |line: &str| self.scratch.logged().matches(line).count();
        let before = says.map_or(0, times);
        let flags = self.configured(secret, next);
        let mut gateway = Gateway::run(&self.scratch, &flags.each_ref().map(String::as_str));
        let reply = Ask::post("/charges").key(KEY).send(gateway.address).await.expect("an answer");
        if let Some(line) = says {
            until(async || (times(line) > before).then_some(())).await;
        }
        gateway.terminate();
        assert!(gateway.ended().await.success());
        reply.text().to_owned()
    }

    fn refused(&self, secret: Option<&str>, next: Option<&str>) -> String {
        does_not_start(&self.configured(secret, next).each_ref().map(String::as_str))
    }
}

#[tokio::test]
async fn another_secret_than_the_stores_is_refused_and_so_is_none_where_it_keeps_none() {
    let world = World::new().await;
    assert_eq!(world.charge(Some("first"), None, None).await, "charge 1");
    let other = world.refused(Some("second"), None);
    assert!(other.contains("is not this store's") && other.contains("rotate to the other one"), "{other}");
    let none = world.refused(None, None);
    assert!(none.contains("configured elsewhere and not on this node: configure it"), "{none}");
    assert_eq!(world.charge(Some("first"), None, None).await, "charge 1", "replayed");
    assert_eq!(world.upstream.seen_count(), 1);
    let held = std::fs::read(world.scratch.file()).expect("the store's file");
    assert!(
        !held.windows(8).any(|window| window == [0x5a; 8] || window == b"5a5a5a5a"),
        "nor does the store hold it"
    );
}

#[tokio::test]
async fn a_replacement_is_asked_for_by_the_file_and_every_node_needs_the_next_secret_from_then_on() {
    let world = World::new().await;
    assert_eq!(world.charge(Some("first"), None, None).await, "charge 1");
    let announced = "the hashing secret is being replaced: announced";
    assert_eq!(world.charge(Some("first"), Some("second"), Some(announced)).await, "charge 1", "replayed");
    let behind = world.refused(Some("first"), None);
    assert!(behind.contains("configured elsewhere and not on this node: configure it"), "{behind}");
    let too_early = world.refused(Some("second"), None);
    assert!(too_early.contains("configure it"), "{too_early}");
    // Whether or not every node has confirmed it by now.
    let goes_on = "the hashing secret is being replaced: ";
    assert_eq!(world.charge(Some("first"), Some("second"), Some(goes_on)).await, "charge 1", "replayed");
    assert_eq!(world.upstream.seen_count(), 1);
}

#[tokio::test]
async fn a_replacement_that_was_announced_can_be_taken_back_as_the_refusal_says() {
    let world = World::new().await;
    assert_eq!(world.charge(Some("first"), None, None).await, "charge 1");
    let announced = "the hashing secret is being replaced: announced";
    assert_eq!(world.charge(Some("first"), Some("second"), Some(announced)).await, "charge 1", "replayed");
    let behind = world.refused(Some("first"), None);
    assert!(behind.contains("hashing_secret_next = \"withdraw\" under [store]"), "{behind}");
    let taken = "that was announced was taken back";
    assert_eq!(world.charge(Some("first"), Some("withdraw"), Some(taken)).await, "charge 1", "replayed");
    let again = world.charge(Some("first"), Some("withdraw"), None).await;
    assert_eq!(again, "charge 1", "there is nothing left to take back");
    assert_eq!(world.scratch.logged().matches(taken).count(), 1);
    assert_eq!(world.charge(Some("first"), None, None).await, "charge 1", "nor anything to say of it");
    assert_eq!(world.upstream.seen_count(), 1);
}

#[tokio::test]
async fn a_secret_that_the_store_made_up_can_be_replaced_by_one_of_ones_own() {
    let world = World::new().await;
    assert_eq!(world.charge(None, None, None).await, "charge 1");
    let announced = "the hashing secret is being replaced: announced";
    assert_eq!(world.charge(None, Some("second"), Some(announced)).await, "charge 1", "replayed");
}
