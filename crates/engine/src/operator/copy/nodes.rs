//! Detects nodes that still use the source.

use super::settings::Settings;
use super::{Error, Progress};
use crate::runtime::clock::Clock;
use semel_core::store::Store;
use std::time::Duration;

/// How often the registrations are read.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The longest time to watch.
const WATCH_MAX: Duration = Duration::from_mins(10);

/// Watches the nodes that have not left for the silence that they declared themselves, or for `watch_max` if that is
/// shorter. A killed node stays silent; a running node changes its registration or its time every few seconds.
pub(super) async fn watch(
    source: &dyn Store,
    clock: &dyn Clock,
    before: &Settings,
    watch_max: Option<Duration>,
    progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<(), Error> {
    let nodes = before.nodes();
    if nodes.is_empty() {
        return Ok(());
    }
    let declared = nodes.iter().map(|node| node.lapse.unwrap_or(Duration::MAX)).max().unwrap_or_default();
    let lapse = declared.min(watch_max.unwrap_or(Duration::MAX));
    if lapse > WATCH_MAX {
        return Err(Error::MayBeInUse(nodes.into_iter().map(|node| node.name).collect()));
    }
    let started_at = clock.uptime();
    loop {
        let passed = clock.uptime().saturating_sub(started_at);
        if passed >= lapse {
            return Ok(());
        }
        progress(Progress::Watching { nodes: nodes.len(), left: lapse.saturating_sub(passed) });
        clock.sleep(LOOK_EVERY.min(lapse.saturating_sub(passed))).await;
        let now = Settings::read(source).await.map_err(Error::Source)?;
        if now != *before {
            return Err(Error::InUse(now.names_changed_since(before)));
        }
    }
}
