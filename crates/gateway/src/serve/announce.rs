//! What is printed at start: what is protected, with which guarantee, on which store, and what is dangerous.
//!
//! What lives here: the words. What must never: a sentence that is not read from the plan or the store.

use super::Plan;
use crate::cli::{size, span};
use semel::core::policy::{AfterExpiry, Class};
use semel::core::store::{Capabilities, Error, Hazard, Severity};
use semel_http::KeyRule;
use std::fmt::Write as _;
use std::net::SocketAddr;

/// The announcement, line by line.
pub(super) fn text(
    plan: &Plan,
    address: SocketAddr,
    store: Capabilities,
    hazards: Result<Vec<Hazard>, Error>,
) -> String {
    let mut said = String::new();
    let mut say = |what: &str, more: &str| {
        let _ = writeln!(said, "  {what:<10} {more}");
    };
    let scheme = if plan.listen.tls.is_some() { "https" } else { "http" };
    say("listening", &format!("{scheme}://{address}"));
    say("upstream", &upstream(plan));
    say("protects", &protects(plan));
    if plan.terms.key != KeyRule::Off {
        for (at, line) in guarantee(plan).iter().enumerate() {
            say(if at == 0 { "guarantee" } else { "" }, line);
        }
        for (at, line) in assumption(plan).iter().enumerate() {
            say(if at == 0 { "assumes" } else { "" }, line);
        }
        say("callers", callers(plan));
        say("store", &kept(plan, store));
        say("published", "/.well-known/idempotency and /operations/{id}");
    }
    let hazards = hazards.unwrap_or_else(|error| vec![unverified(&error)]);
    for warning in warnings(plan, store, &hazards) {
        let _ = writeln!(said, "\n  {warning}");
    }
    said
}

fn upstream(plan: &Plan) -> String {
    let (connect, response) = (plan.upstream.connect_timeout, plan.upstream.response_timeout);
    let fresh = if plan.upstream.is_fresh_when_protected { ", a fresh connection each" } else { "" };
    format!("{} (connect {}, response {}{fresh})", plan.target, span::text(connect), span::text(response))
}

fn protects(plan: &Plan) -> String {
    let methods: Vec<_> = plan.terms.methods.iter().map(http::Method::as_str).collect();
    let methods = methods.join(" and ");
    let max = size::text(plan.terms.request_bytes_max);
    match plan.terms.key {
        KeyRule::Required => format!("{methods}, every path; Idempotency-Key required; bodies up to {max}"),
        KeyRule::Optional => format!("{methods} that have an Idempotency-Key; bodies up to {max}"),
        KeyRule::Off => "nothing: --key off".to_owned(),
    }
}

fn guarantee(plan: &Plan) -> Vec<String> {
    let policy = &plan.terms.policy;
    let kept = span::text(policy.ttl);
    let after = match policy.after_expiry {
        AfterExpiry::Refuse => format!("then refused as expired for {}", span::text(policy.tombstone)),
        AfterExpiry::RunAsNew => "then run as new".to_owned(),
    };
    match policy.class {
        Class::Downstream => vec![
            format!(
                "downstream: once per key, as long as the upstream recognises repeats for {}",
                span::text(policy.dedup_window)
            ),
            format!("outcomes replayed for {kept}, {after}"),
        ],
        Class::External | Class::Local => vec![
            format!("{}: at most once per key; outcomes replayed for {kept}, {after}", policy.class),
            "an attempt that ends in doubt is UNKNOWN and is not repeated".to_owned(),
        ],
    }
}

fn assumption(plan: &Plan) -> Vec<String> {
    match plan.terms.policy.class {
        Class::Downstream => {
            vec!["the upstream gives a repeat of an Operation-Id or key the first one's answer".to_owned()]
        }
        Class::External | Class::Local => vec![
            "the upstream answers 401, 403, 408, 425, 429, 503 with Retry-After, and".to_owned(),
            "gRPC 7 and 16, only when nothing took effect".to_owned(),
        ],
    }
}

fn callers(plan: &Plan) -> &'static str {
    if plan.is_anonymous {
        "all anonymous: one scope for everybody"
    } else {
        "by Authorization (Basic, Bearer): the guarantee is per access token"
    }
}

fn kept(plan: &Plan, store: Capabilities) -> String {
    let durable = if store.durable { "synced to disk before it answers" } else { "not durable" };
    format!("{} ({durable})", plan.store)
}

fn warnings(plan: &Plan, store: Capabilities, hazards: &[Hazard]) -> Vec<String> {
    let mut told = Vec::new();
    if plan.terms.key == KeyRule::Off {
        told.push("warning: nothing is protected; requests are passed on as they come".to_owned());
        return told;
    }
    if !store.durable {
        told.push(
            "danger: records are gone when this process ends; a retry after that runs again".to_owned(),
        );
    }
    if plan.is_anonymous {
        told.push(
            "warning: whoever knows a key gets its outcome, and every caller's keys are the same".to_owned(),
        );
    } else {
        told.push("note: requests without Authorization share one anonymous scope".to_owned());
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

fn unverified(error: &Error) -> Hazard {
    Hazard {
        severity: Severity::Unverified,
        code: "store-unverified",
        what: format!("what is dangerous about the store could not be looked at: {error}"),
        mend: "look at the store; requests with a key are refused for as long as it does not answer"
            .to_owned(),
    }
}
