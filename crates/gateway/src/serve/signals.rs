//! The signals that stop the gateway or reload its configuration.

use tokio::signal;

/// Resolves when the process is asked to stop: SIGTERM or SIGINT (Ctrl-C). From this call on, no such signal is lost
/// or ends the process by itself.
pub(super) fn shutdown_requested() -> impl Future<Output = ()> {
    #[cfg(unix)]
    let signals = {
        use signal::unix::{SignalKind, signal};
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    };
    async move {
        #[cfg(unix)]
        {
            let (Ok(mut term), Ok(mut interrupt)) = signals else { return std::future::pending().await };
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
}

/// Reload requests: SIGHUP, where that exists. As long as this exists, no such signal ends the process or is lost.
pub(super) struct Reloads {
    #[cfg(unix)]
    hangups: Option<signal::unix::Signal>,
}

impl Reloads {
    pub(super) fn new() -> Self {
        Self {
            #[cfg(unix)]
            hangups: signal::unix::signal(signal::unix::SignalKind::hangup()).ok(),
        }
    }

    /// Resolves at the next request.
    pub(super) async fn next(&mut self) {
        #[cfg(unix)]
        if let Some(hangups) = &mut self.hangups
            && hangups.recv().await.is_some()
        {
            return;
        }
        std::future::pending::<()>().await;
    }
}
