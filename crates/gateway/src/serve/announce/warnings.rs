//! The start-up warnings: what is open, assumed or dangerous, and what it means.

use crate::config::{Admin, Plan};
use semel::core::store::{Capabilities, Error, Hazard, Severity};
use semel_http::StoreDown;
use semel_net::target::Transport;
use semel_telemetry::trace::{self, Tracer};
use semel_text::duration;
use std::fmt;

/// How much a warning matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::serve) enum WarningLevel {
    /// A guarantee can be broken, or a secret read.
    Danger,
    /// The guarantee is weaker than it seems.
    Warning,
    /// It could not be checked.
    Unverified,
    /// Worth knowing.
    Note,
}

impl WarningLevel {
    /// The weight in one word.
    pub(in crate::serve) const fn name(self) -> &'static str {
        match self {
            Self::Danger => "danger",
            Self::Warning => "warning",
            Self::Unverified => "unverified",
            Self::Note => "note",
        }
    }
}

/// A warning at start-up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::serve) struct Warning {
    pub(in crate::serve) weight: WarningLevel,
    pub(in crate::serve) message: String,
    /// A code to search the documentation for, such as a hazard's.
    pub(in crate::serve) code: Option<&'static str>,
    pub(in crate::serve) fix: Option<String>,
}

impl Warning {
    fn new(weight: WarningLevel, message: impl Into<String>) -> Self {
        Self { weight, message: message.into(), code: None, fix: None }
    }

    fn fixed_by(self, fix: impl Into<String>) -> Self {
        Self { fix: Some(fix.into()), ..self }
    }
}

impl From<&Hazard> for Warning {
    fn from(hazard: &Hazard) -> Self {
        let weight = match hazard.severity {
            Severity::Danger => WarningLevel::Danger,
            Severity::Unverified => WarningLevel::Unverified,
            Severity::Notice => WarningLevel::Note,
        };
        let (message, fix) = (hazard.what.clone(), Some(hazard.fix.clone()));
        Self { weight, message, code: Some(hazard.code), fix }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.weight.name(), self.message)?;
        if let Some(code) = self.code {
            write!(f, " ({code})")?;
        }
        match &self.fix {
            Some(fix) => write!(f, "\n    fix: {fix}"),
            None => Ok(()),
        }
    }
}

/// The fix for a sweeper that is off.
const SWEEP: &str = "remove `every = \"0s\"` under [sweep] of at least one gateway on the store";

pub(super) fn warnings(plan: &Plan, store: Capabilities, hazards: &[Hazard]) -> Vec<Warning> {
    let mut found = Vec::new();
    let danger = |message: String| Warning::new(WarningLevel::Danger, message);
    if let Some(Admin { options, tls: None }) = &plan.admin
        && !options.address.ip().to_canonical().is_loopback()
    {
        let message = format!(
            "tokens and responses cross the network in the clear at the admin address {}",
            options.address
        );
        found.push(danger(message).fixed_by(
            "set tls_cert and tls_key under [admin], or listen on 127.0.0.1 and reach it through a tunnel",
        ));
    }
    if let Some(trace::Options { endpoint, headers, .. }) = plan.tracer.as_ref().map(Tracer::options)
        && !headers.is_empty()
        && endpoint.transport() != Transport::Https
        && !endpoint.is_loopback()
    {
        let message = format!(
            "the values of [[otlp.header]] cross the network in the clear, to the collector {endpoint}"
        );
        found.push(danger(message).fixed_by(
            "send to https:// (with ca, if you run your own certificate authority), or to a collector on this machine",
        ));
    }
    if !plan.is_any_protected() {
        found.push(Warning::new(
            WarningLevel::Warning,
            "nothing is protected; requests are forwarded as they come",
        ));
        return found;
    }
    // Most stores report this by themselves, with a fix.
    if !store.durable && !hazards.iter().any(|hazard| hazard.severity == Severity::Danger) {
        found.push(danger(
            "records are lost when this process ends; a retry after that runs again".to_owned(),
        ));
    }
    if plan.all_route_settings().any(|route_settings| route_settings.store_down == StoreDown::PassUnprotected)
    {
        found.push(danger(
            "while the store cannot be reached, requests are forwarded UNPROTECTED (store_down = \"pass\")"
                .to_owned(),
        ));
    }
    if sends_secrets_openly(plan) {
        let message =
            format!("the secret headers of a probe cross the network in the clear to {}", plan.target);
        found.push(
            danger(message).fixed_by("use an https:// upstream, or give the probe its own https:// url"),
        );
    }
    found.extend(open_scopes(plan));
    let longest = plan
        .all_route_settings()
        .map(|route_settings| route_settings.policy.work_deadline)
        .max()
        .unwrap_or_default();
    if plan.listen.drain < longest {
        let (longest, drain) = (duration::text(longest), duration::text(plan.listen.drain));
        let message = format!(
            "an attempt may take {longest}, and a stopping gateway waits only {drain}: the outcome of slower ones is then unknown \
             (--drain)"
        );
        found.push(Warning::new(WarningLevel::Note, message));
    }
    if let Some(message) = plan.store.unswept(plan.storage.settings.sweep.every) {
        let warning = Warning::new(WarningLevel::Warning, message).fixed_by(SWEEP);
        found.push(Warning { code: Some("sweeper-off"), ..warning });
    }
    found.extend(hazards.iter().map(Warning::from));
    found
}

/// Operations that do not distinguish callers.
fn open_scopes(plan: &Plan) -> Vec<Warning> {
    let mut found = Vec::new();
    if plan.identity.is_anonymous() {
        let message = "all callers share their keys: anybody who knows a key gets its outcome";
        found.push(Warning::new(WarningLevel::Warning, message));
    } else if plan.identity.sources.is_empty() {
        found.push(Warning::new(
            WarningLevel::Note,
            "requests without Authorization share one anonymous scope",
        ));
    }
    for operation in &plan.operations {
        let Some(identity) = operation.identity.as_ref().filter(|identity| identity.is_open()) else {
            continue;
        };
        let title = operation.title();
        let message = if identity.is_anonymous() {
            format!("callers of {title} are not distinguished: anybody who knows a key gets its outcome")
        } else {
            format!(
                "requests to {title} that do not identify their caller share one anonymous scope: anybody \
                    who knows such a key gets its outcome"
            )
        };
        found.push(Warning::new(WarningLevel::Note, message));
    }
    found
}

/// Whether a probe's secrets could be read on the network.
fn sends_secrets_openly(plan: &Plan) -> bool {
    let all = plan.operations.iter().map(|operation| &operation.callbacks).chain([&plan.callbacks]);
    let mut probes = all.filter_map(|callbacks| callbacks.probe.as_ref());
    probes.any(|probe| {
        probe.headers.values().any(http::HeaderValue::is_sensitive)
            && probe.destination.is_open_below(&plan.target)
    })
}

pub(super) fn unverified(error: &Error) -> Hazard {
    Hazard {
        severity: Severity::Unverified,
        code: "store-unverified",
        what: format!("the store's settings could not be checked: {error}"),
        fix: "check the store; requests with a key are refused as long as it does not answer".to_owned(),
    }
}
