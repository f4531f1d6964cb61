//! Opens the store, and waits while its server is still starting: reading its data, or recovering from a crash.

use crate::stores::{OpenError, Url};
use semel::Clock;
use semel::core::store::{OpenOptions, Store};
use semel_text::duration;
use std::sync::Arc;
use std::time::Duration;
use tracing::{info, warn};

/// How long to wait.
const WAIT_MAX: Duration = Duration::from_mins(10);
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(500);
/// How often the log says that the gateway waits.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// `wait_begins` is called once if the server is not ready yet.
pub(super) async fn open(
    url: &Url,
    options: &OpenOptions,
    clock: &dyn Clock,
    wait_begins: impl FnOnce(),
) -> Result<Arc<dyn Store>, OpenError> {
    let begun = clock.uptime();
    let (mut last_line, mut wait_begins) = (None, Some(wait_begins));
    loop {
        let error = match url.open_with(options).await {
            Ok(store) => {
                if last_line.is_some() {
                    info!("the store's server has started");
                }
                return Ok(store);
            }
            Err(error) => error,
        };
        let waited = clock.uptime().saturating_sub(begun);
        if !error.source.is_starting() || waited >= WAIT_MAX {
            return Err(error);
        }
        if let Some(wait_begins) = wait_begins.take() {
            wait_begins();
        }
        if last_line.is_none_or(|at| waited.saturating_sub(at) >= LINE_EVERY) {
            let (so_far, at_most) = (waited.as_secs(), duration::text(WAIT_MAX));
            warn!(
                "the store's server is still starting; waiting for it for {so_far}s of at most {at_most}: {}",
                error.source
            );
            last_line = Some(waited);
        }
        clock.sleep(PAUSE).await;
    }
}
