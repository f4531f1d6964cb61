//! Messages that arrive twice.

use crate::world::Keys;
use semel_redis::{MessageClaim, MessageDedup, MessageId};
use semel_test_support::{RedisReply, services};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

const ID: MessageId<'static> = MessageId { group: "billing", topic: "orders", message: b"7-0-42" };
const MINUTE: Duration = Duration::from_mins(1);

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_consumers_gets_the_message() {
    for url in [services::redis_url(), services::redis_cluster_url()].into_iter().flatten() {
        let keys = Keys::at(&url);
        let dedup = Arc::new(MessageDedup::open(&keys.url_with(""), MINUTE).await.expect("it opens"));
        let mut claims = JoinSet::new();
        for _ in 0..30 {
            let dedup = Arc::clone(&dedup);
            claims.spawn(async move { dedup.claim(&ID).await.expect("an answer") });
        }
        let fresh = claims.join_all().await.into_iter().filter(|claim| *claim == MessageClaim::Fresh).count();
        assert_eq!(fresh, 1, "{url}");
        for other in [
            MessageId { group: "mail", ..ID },
            MessageId { topic: "refunds", ..ID },
            MessageId { message: b"7-0-43", ..ID },
        ] {
            assert_eq!(dedup.claim(&other).await.expect("an answer"), MessageClaim::Fresh, "{other:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_new_again_after_failure_or_expiry() {
    let Some(keys) = Keys::new() else { return };
    let dedup = MessageDedup::open(&keys.url_with(""), MINUTE).await.expect("it opens");
    assert_eq!(dedup.claim(&ID).await.expect("an answer"), MessageClaim::Fresh);
    assert_eq!(dedup.claim(&ID).await.expect("an answer"), MessageClaim::Seen);
    dedup.release(&ID).await.expect("an answer");
    assert_eq!(dedup.claim(&ID).await.expect("an answer"), MessageClaim::Fresh);
    let RedisReply::Array(found) = keys.client().ask(&["KEYS", &format!("{}:seen:*", keys.prefix)]) else {
        panic!("keys")
    };
    let key = found[0].clone().text();
    let left = keys.client().ask(&["PTTL", &key]).number();
    assert!((1..=60_000).contains(&left), "{left}");
    // As if the window had passed.
    keys.client().ask(&["PEXPIRE", &key, "0"]);
    assert_eq!(dedup.claim(&ID).await.expect("an answer"), MessageClaim::Fresh);
}
