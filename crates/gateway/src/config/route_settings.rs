//! The settings of a route, from its options. A mistake in `[defaults]` is reported once, not for every operation that inherits
//! it.

use super::records::Sealing;
use super::route_options::{Draft, OptionError, RouteOptions};
use super::table::Table;
use semel::core::policy::{Policy, PolicyError, PolicySettings};
use semel::sealing::Seal;
use semel_http::{RouteSettings, RouteSettingsError};
use std::time::Duration;

/// Reports keys that do not fit together.
pub(super) struct RouteErrors<'t, 'p, 'i> {
    pub(super) table: &'t Table<'p, 'i>,
    /// Whether nothing is inherited: then a mistake is reported even if no key of this table is its cause.
    pub(super) is_whole: bool,
    /// The sealing keys.
    pub(super) sealing: &'t Sealing,
    /// How far clocks may differ.
    pub(super) skew: Duration,
}

impl RouteErrors<'_, '_, '_> {
    /// Reports a mistake, if it can be fixed in this table.
    fn report(&self, keys: &[&str], problem: &str, fix: &str) {
        let at = self.table.span_of_any(keys);
        if at.is_some() || self.is_whole {
            self.table.document.mistake(at.as_ref(), problem, fix);
        }
    }

    /// The settings of `options`. Reports everything that is wrong with them.
    pub(super) fn route_settings(
        &self,
        options: &RouteOptions,
        name: Option<String>,
        deadline: Duration,
    ) -> Option<RouteSettings> {
        let report_mistake = |(keys, report): OptionError| self.report(keys, &report, "change one of them");
        let draft = Draft::of(options, deadline);
        let mut policy = draft.policy().map_err(report_mistake).ok()?;
        // The engine adds the skew to every record's policy, so the check includes it.
        policy.skew = self.skew;
        self.check_horizon(options, policy.ttl);
        let mut route_settings =
            draft.route_settings(name, self.check_policy(policy)).map_err(report_mistake).ok()?;
        self.seal(&mut route_settings);
        match route_settings.check() {
            Err(error @ RouteSettingsError::KeyHeader) => {
                self.report(&["key_from"], &error.to_string(), "name the header that clients send");
            }
            Err(error @ RouteSettingsError::Composite) => {
                self.report(
                    &["key_from"],
                    &error.to_string(),
                    "name 2 to 16 sources, or one without brackets",
                );
            }
            _ => {}
        }
        Some(route_settings)
    }

    /// Seals the outcomes of this route, or not, as `[sealing]` says. Reports settings that cannot be sealed.
    fn seal(&self, route_settings: &mut RouteSettings) {
        if route_settings.seal == Seal::Required {
            if !self.sealing.has_keys {
                let problem = "kept = \"sealed\" needs a key, but [sealing] has none";
                self.report(&["kept"], problem, "write a [[sealing.key]], or kept = \"whole\"");
            }
        } else if self.sealing.is_by_choice {
            route_settings.seal = Seal::Off;
        }
    }

    fn check_horizon(&self, options: &RouteOptions, ttl: Duration) {
        let Some(horizon) = options.retry_horizon else { return };
        if ttl < horizon {
            let (kept, retried) = (semel_text::duration::text(ttl), semel_text::duration::text(horizon));
            let problem = format!(
                "the ttl of {kept} is shorter than the retry_horizon: a client that retries after {kept} \
                    would not get its outcome"
            );
            self.report(&["ttl", "retry_horizon"], &problem, &format!("make ttl {retried} or longer"));
        }
    }

    /// The policy of these settings. A check returns only its first error; each is reported and corrected, to find the
    /// next one.
    fn check_policy(&self, mut policy: PolicySettings) -> Policy {
        loop {
            let error = match Policy::try_from(policy.clone()) {
                Ok(policy) => return policy,
                Err(error) => error,
            };
            let long = policy.lease.saturating_add(policy.work_deadline).saturating_mul(2);
            let (keys, fix): (&[&str], _) = match error {
                PolicyError::NoLease => {
                    policy.lease = Duration::from_secs(1);
                    (&["lease"], "write a lease such as \"30s\"")
                }
                PolicyError::TtlWithinLease => {
                    policy.ttl = long;
                    (&["ttl", "lease"], "make ttl longer than lease")
                }
                PolicyError::DeniedTtlWithinLease => {
                    policy.denied_ttl = long;
                    (&["denied_ttl", "lease"], "make denied_ttl longer than lease")
                }
                PolicyError::WindowWithinAttempt => {
                    policy.dedup_window = long;
                    (
                        &["dedup_window", "class"],
                        "write how long the service really remembers an ID; if that is shorter than an \
                            attempt may take, use class external",
                    )
                }
                PolicyError::NoAttempts
                | PolicyError::NoWorkDeadline
                | PolicyError::FinerThanMilliseconds => {
                    self.report(
                        &["attempts_max"],
                        &error.to_string(),
                        "write a longer duration, or a higher number",
                    );
                    return Policy::new(policy.class);
                }
            };
            self.report(keys, &error.to_string(), fix);
        }
    }
}
