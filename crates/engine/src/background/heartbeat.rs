//! The heartbeat: a [beat](crate::node::beat) at a steady pace, and a check of the store after each.

use crate::node::Node;
use crate::node::beat::beat;
use crate::runtime::tasks::Closing;
use std::sync::Arc;
use std::time::Duration;

/// How soon a failed heartbeat is retried, if that is sooner than the next one, so that the status of the store is
/// current.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Starts the heartbeat with a first beat now, so that even a short process leaves a mark.
pub(crate) async fn begin(node: &Arc<Node>) {
    // A failed call has its own event; the next beat tries again.
    let mut last = beat(&node.store).await.is_ok();
    node.store.check().await;
    let beating = Arc::clone(node);
    node.spawn.spawn(Box::pin(async move {
        let node = beating;
        loop {
            tokio::select! {
                biased;
                () = node.tasks.closed(Closing::Draining) => return,
                () = node.clock.sleep(pause(&node, last)) => {}
            }
            tokio::select! {
                biased;
                () = node.tasks.closed(Closing::Draining) => return,
                beat = beat(&node.store) => last = beat.is_ok(),
            }
            node.store.check().await;
        }
    }));
}

fn pause(node: &Node, is_beaten: bool) -> Duration {
    let heartbeat = node.settings.clock.heartbeat;
    if is_beaten { heartbeat } else { heartbeat.min(AGAIN_AFTER) }
}
