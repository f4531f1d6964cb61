//! What whoever starts the gateway should know before anybody relies on it.
//!
//! What lives here: what is open, assumed or dangerous, each with what it means. What must never: a warning about a set-up that
//! should have been refused.

use crate::cli::span;
use crate::serve::{Admin, Plan};
use crate::trace::{self, Tracer};
use crate::upstream::Transport;
use semel::core::store::{Capabilities, Error, Hazard, Severity};
use semel_http::StoreDown;

pub(super) fn warnings(plan: &Plan, store: Capabilities, hazards: &[Hazard]) -> Vec<String> {
    let mut told = Vec::new();
    if let Some(Admin { options, tls: None }) = &plan.admin
        && !options.address.ip().to_canonical().is_loopback()
    {
        told.push(format!(
            "danger: tokens and answers cross the network in the clear at the admin address {}\n    mend: set tls_cert and \
             tls_key under [admin], or listen on 127.0.0.1 and reach it through a tunnel",
            options.address
        ));
    }
    if let Some(trace::Options { endpoint, headers, .. }) = plan.tracer.as_ref().map(Tracer::options)
        && !headers.is_empty()
        && endpoint.transport() != Transport::Https
        && !endpoint.is_loopback()
    {
        told.push(format!(
            "danger: what [[otlp.header]] holds crosses the network in the clear, on its way to the collector {endpoint}\n    \
             mend: send to https:// (with ca, where its authority is your own), or to a collector on this machine"
        ));
    }
    if !plan.is_any_protected() {
        told.push("warning: nothing is protected; requests are passed on as they come".to_owned());
        return told;
    }
    // Most stores tell by themselves, and what mends it.
    if !store.durable && !hazards.iter().any(|hazard| hazard.severity == Severity::Danger) {
        told.push(
            "danger: records are gone when this process ends; a retry after that runs again".to_owned(),
        );
    }
    if plan.all_terms().any(|terms| terms.store_down == StoreDown::PassUnprotected) {
        told.push(
            "danger: while the store cannot be reached, requests are handed on UNPROTECTED (store_down = \"pass\")"
                .to_owned(),
        );
    }
    if sends_secrets_openly(plan) {
        told.push(format!(
            "danger: the secret headers of a probe cross the network in the clear to {}\n    mend: write an https:// upstream, or a \
             probe url of its own that begins with https://",
            plan.target
        ));
    }
    if plan.identity.is_anonymous() {
        told.push(
            "warning: whoever knows a key gets its outcome, and every caller's keys are the same".to_owned(),
        );
    } else if plan.identity.sources.is_empty() {
        told.push("note: requests without Authorization share one anonymous scope".to_owned());
    }
    for operation in &plan.operations {
        let Some(identity) = operation.identity.as_ref().filter(|identity| identity.is_open()) else {
            continue;
        };
        let title = operation.title();
        told.push(if identity.is_anonymous() {
            format!("note: whoever knows a key of {title} gets its outcome; its callers are not told apart")
        } else {
            format!(
                "note: requests to {title} that show nothing of what its callers are known by share one anonymous scope: whoever \
                 knows a key of these gets its outcome"
            )
        });
    }
    let longest = plan.all_terms().map(|terms| terms.policy.work_deadline).max().unwrap_or_default();
    if plan.listen.drain < longest {
        told.push(format!(
            "note: an attempt may take {}, and at a stop only {} are waited for: slower ones are then unknown (--drain)",
            span::text(longest),
            span::text(plan.listen.drain)
        ));
    }
    for hazard in hazards {
        let loud = match hazard.severity {
            Severity::Danger => "danger",
            Severity::Unverified => "unverified",
            Severity::Notice => "note",
        };
        told.push(format!("{loud}: {} ({})\n    mend: {}", hazard.what, hazard.code, hazard.mend));
    }
    told
}

/// Whether anybody on the way to the upstream could read what a probe shows it.
fn sends_secrets_openly(plan: &Plan) -> bool {
    let all = plan.operations.iter().map(|operation| &operation.questions).chain([&plan.questions]);
    let mut probes = all.filter_map(|questions| questions.probe.as_ref());
    probes.any(|probe| {
        probe.headers.values().any(http::HeaderValue::is_sensitive) && probe.place.is_open_below(&plan.target)
    })
}

pub(super) fn unverified(error: &Error) -> Hazard {
    Hazard {
        severity: Severity::Unverified,
        code: "store-unverified",
        what: format!("what is dangerous about the store could not be looked at: {error}"),
        mend: "look at the store; requests with a key are refused for as long as it does not answer"
            .to_owned(),
    }
}
