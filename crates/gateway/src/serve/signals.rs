//! When to stop.
//!
//! What lives here: the signals that a process manager sends. What must never: what is done about them.

use tokio::signal;

/// Resolves when the process is asked to end: SIGTERM or SIGINT (Ctrl-C).
pub(super) async fn asked_to_end() {
    #[cfg(unix)]
    {
        use signal::unix::{SignalKind, signal};
        let (Ok(mut term), Ok(mut interrupt)) =
            (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
        else {
            return std::future::pending().await;
        };
        tokio::select! {
            _ = term.recv() => {}
            _ = interrupt.recv() => {}
        }
    }
    #[cfg(not(unix))]
    if signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}
