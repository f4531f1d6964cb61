//! Waiting for what a test expects, and failing if it does not come.

use std::time::Duration;

/// Long beyond anything that happens in a test; one that waits for so long has failed.
const NEVER: Duration = Duration::from_mins(1);
/// Between two looks at something that tells nobody when it changes.
const GLANCE: Duration = Duration::from_millis(20);

/// Waits for `event`. Panics if it does not come.
pub async fn within<F: Future>(event: F) -> F::Output {
    tokio::time::timeout(NEVER, event).await.expect("it never came")
}

/// Looks again and again until there is something to see. Panics if nothing comes.
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
