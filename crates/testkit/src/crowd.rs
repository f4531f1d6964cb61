//! Runs many tasks at once, for races.

use std::panic::resume_unwind;
use std::sync::Arc;
use tokio::sync::Barrier;
use tokio::task::JoinHandle;

/// Starts `tasks` together on the runtime's threads, and returns their results in order.
pub(crate) async fn at_once<T, F>(tasks: impl IntoIterator<Item = F>) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let tasks: Vec<F> = tasks.into_iter().collect();
    let line = Arc::new(Barrier::new(tasks.len()));
    let start = |task: F| {
        let line = Arc::clone(&line);
        tokio::spawn(async move {
            line.wait().await;
            task.await
        })
    };
    let running: Vec<JoinHandle<T>> = tasks.into_iter().map(start).collect();
    let mut results = Vec::with_capacity(running.len());
    for task in running {
        results.push(task.await.unwrap_or_else(|failed| resume_unwind(failed.into_panic())));
    }
    results
}
