//! Waiting for expected events, with a timeout.

use std::time::Duration;

/// Much longer than any test needs, and longer than what the program does once a minute or, because its last turn took
/// long on a busy machine, even less often.
const NEVER: Duration = Duration::from_mins(5);
/// The polling interval.
const GLANCE: Duration = Duration::from_millis(20);

/// Waits for `event`. Panics after the timeout.
pub async fn within<F: Future>(event: F) -> F::Output {
    tokio::time::timeout(NEVER, event).await.expect("it never happened")
}

/// Polls until there is a value. Panics after the timeout.
pub async fn until<T>(mut look: impl AsyncFnMut() -> Option<T>) -> T {
    within(async {
        loop {
            if let Some(seen) = look().await {
                return seen;
            }
            tokio::time::sleep(GLANCE).await;
        }
    })
    .await
}
