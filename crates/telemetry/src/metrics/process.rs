//! Metrics about the process itself that do not come from requests: its certificates, its configuration, and who was refused at
//! the admin address.

use super::family::{Counters, Gauges};
use super::{gauge, millis};
use semel::core::time::Time;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Requests to the admin address that are not valid HTTP, or too many at once.
const UNREADABLE: &str = "unreadable";

/// The numbers.
#[derive(Debug, Default)]
pub(super) struct Process {
    certificates: Gauges,
    reloads: Reloads,
    refusals: Counters,
}

#[derive(Debug, Default)]
struct Reloads {
    has_last_failed: AtomicBool,
    succeeded_millis: AtomicU64,
}

impl Process {
    /// For a process that read its configuration at this time.
    pub(super) fn new(began: Time, refusals: &[&'static str]) -> Self {
        let process = Self::default();
        process.reloaded(Some(began));
        for reason in refusals.iter().copied().chain([UNREADABLE]) {
            process.refusals.init(&[("reason", reason)]);
        }
        process
    }

    /// A request to the admin address was refused; `None` if it could not even be read.
    pub(super) fn refused(&self, kind: Option<&'static str>) {
        self.refusals.add(&[("reason", kind.unwrap_or(UNREADABLE))]);
    }

    /// The configuration was read again: when, or `None` if it cannot be used.
    pub(super) fn reloaded(&self, at: Option<Time>) {
        self.reloads.has_last_failed.store(at.is_none(), Ordering::Relaxed);
        if let Some(at) = at {
            self.reloads.succeeded_millis.store(at.as_millis(), Ordering::Relaxed);
        }
    }

    /// The certificates in use, and when the first of each chain expires.
    pub(super) fn show_certificates(&self, expiries: &[(&'static str, Time)]) {
        let seconds = |at: &Time| at.as_millis() / 1_000;
        self.certificates.replace(expiries.iter().map(|(used, at)| (vec![("use", *used)], seconds(at))));
    }

    pub(super) fn write(&self, text: &mut String) {
        let help = "When the first certificate of a chain that is in use expires.";
        self.certificates.write("semel_certificate_expiry_timestamp_seconds", help, text);
        let is_successful = u8::from(!self.reloads.has_last_failed.load(Ordering::Relaxed));
        let help = "Whether the configuration could be used when it was last read: 0 while an older one stays in force.";
        gauge("semel_config_last_reload_successful", help, "", &is_successful.to_string(), text);
        let help = "When the configuration that is in force was read.";
        let at = millis(self.reloads.succeeded_millis.load(Ordering::Relaxed));
        gauge("semel_config_last_reload_success_timestamp_seconds", help, "", &at, text);
        let help = "Requests to the admin address that were refused before they did anything, by reason.";
        self.refusals.write("semel_admin_refusals_total", help, text);
    }
}
