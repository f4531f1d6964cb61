//! Which of the named servers take writes, and whether they are the same server.
//!
//! Two servers that both take writes are two stores: every key could run once on each. The store refuses to
//! open with them, and sends no write while both exist.

use crate::address::{Address, Host};
use crate::fence::Fence;
use crate::link::Link;
use crate::server_info::{ServerInfo, read_info, rivals};
use futures_util::future::join_all;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::sleep;

/// How often the servers are checked.
const PERIOD: Duration = Duration::from_secs(3);

/// Every server that answers.
async fn read_all(links: &[(Host, Link)]) -> Vec<ServerInfo> {
    let each = links.iter().map(|(host, link)| async move {
        let connection = link.connection().await.ok()?;
        let seen = read_info(host, &connection).await;
        if seen.is_err() {
            link.discard(&connection).await;
        }
        seen.ok()
    });
    join_all(each).await.into_iter().flatten().collect()
}

fn links(address: &Address) -> Vec<(Host, Link)> {
    let any = Arc::new(address.clone().for_reading());
    any.hosts.iter().map(|host| (host.clone(), Link::new(&any, vec![host.clone()], false))).collect()
}

/// Every server that the address names and that answers, on its own connections.
pub(crate) async fn read_all_once(address: &Address) -> Vec<ServerInfo> {
    let links = links(address);
    let seen = read_all(&links).await;
    for (_, link) in &links {
        link.close().await;
    }
    seen
}

/// Checks all servers regularly as long as the store exists. While two take writes, the fence refuses writes.
pub(crate) async fn watch(address: Arc<Address>, fence: Weak<Fence>) {
    let links = links(&address);
    loop {
        sleep(PERIOD).await;
        let seen = read_all(&links).await;
        let Some(fence) = fence.upgrade() else { return };
        fence.set_rivals(rivals(&seen));
    }
}
