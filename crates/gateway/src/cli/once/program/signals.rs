//! The signals that this process passes on to the program.

use rustix::process::Signal;
use std::io;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::broadcast;

/// Signals that wait for somebody who passes them on.
const WAITING_MAX: usize = 16;

/// From its creation on, SIGTERM, SIGINT and SIGHUP do not end this process.
pub(in crate::cli::once) struct Signals(broadcast::Sender<Signal>);

impl Signals {
    pub(in crate::cli::once) fn listen() -> io::Result<Self> {
        let sender = broadcast::Sender::new(WAITING_MAX);
        // A parent that ignores its children's ends passes that on; then nobody would learn the exit code.
        drop(signal(SignalKind::child())?);
        let passed_on = [
            (SignalKind::terminate(), Signal::TERM),
            (SignalKind::interrupt(), Signal::INT),
            (SignalKind::hangup(), Signal::HUP),
        ];
        for (kind, passed) in passed_on {
            // `nohup` and shells in the background ignore signals for what they start.
            if is_ignored(passed) {
                continue;
            }
            let (mut received, sender) = (signal(kind)?, sender.clone());
            tokio::spawn(async move {
                while received.recv().await.is_some() {
                    // Nobody may be listening at the end.
                    let _ = sender.send(passed);
                }
            });
        }
        Ok(Self(sender))
    }

    /// The signals from now on.
    pub(in crate::cli::once) fn subscribe(&self) -> broadcast::Receiver<Signal> {
        self.0.subscribe()
    }
}

/// The next signal.
pub(in crate::cli::once) async fn next(signals: &mut broadcast::Receiver<Signal>) -> Signal {
    loop {
        match signals.recv().await {
            Ok(signal) => return signal,
            Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// Whether this process was started with the signal ignored.
fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    is_in_set(&status, signal)
}

/// The line `SigIgn:` has a hexadecimal number: its lowest bit is signal 1.
fn is_in_set(status: &str, signal: Signal) -> bool {
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let set = set.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).unwrap_or_default();
    (set >> (signal.as_raw() - 1)) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_status() {
        let status = "Name:\tsemel\nSigBlk:\tffffffffffffffff\nSigIgn:\t0000000000001001\n";
        assert!(is_in_set(status, Signal::HUP) && !is_in_set(status, Signal::TERM));
        assert!(!is_in_set("", Signal::HUP));
    }
}
