//! Describes the settings for requests, in one line or a few.

use crate::callbacks::{self, ServiceCallbacks};
use crate::config::Operation;
use semel::core::classify::Rules;
use semel::core::outcome::Status;
use semel::core::policy::{AfterExpiry, Class};
use semel::quota::{Rate, Rates};
use semel::sealing::Seal;
use semel_http::{KeyRule, KeySource, Mode, Retain, RouteSettings};
use semel_text::masked;
use semel_text::{duration, size};

/// An operation's own rates.
fn limited(rates: &Rates) -> Option<String> {
    let rate = |rate: Option<Rate>, whose: &str| {
        rate.map(|Rate { count, per }| format!("{count} in {} {whose}", duration::text(per)))
    };
    let rate = [
        rate(rates.new_per_caller, "per caller"),
        rate(rates.new_per_address, "per address"),
        rate(rates.new_in_total, "in total"),
    ];
    let rate: Vec<_> = rate.into_iter().flatten().collect();
    (!rate.is_empty()).then(|| format!("new keys: at most {}", rate.join(", ")))
}

fn methods(route_settings: &RouteSettings) -> String {
    let methods: Vec<_> = route_settings.methods.iter().map(http::Method::as_str).collect();
    methods.join(" and ")
}

/// Whether a key is required, and where it comes from.
fn key(route_settings: &RouteSettings, rule: &str) -> String {
    match &route_settings.key_source {
        KeySource::Header(name) if *name == semel_http::names::KEY => format!("Idempotency-Key {rule}"),
        source => format!("key {rule}, from {source}"),
    }
}

pub(super) fn protects(route_settings: &RouteSettings) -> String {
    let (methods, max) = (methods(route_settings), size::text(route_settings.request_bytes_max));
    let rule = match (route_settings.key, &route_settings.key_source) {
        (KeyRule::Off, _) => return "nothing: key off".to_owned(),
        (KeyRule::Required, _) => format!("{methods}, every path; {}", key(route_settings, "required")),
        (KeyRule::Optional, KeySource::Header(name)) if *name == semel_http::names::KEY => {
            format!("{methods} that have an Idempotency-Key")
        }
        (KeyRule::Optional, source) => format!("{methods} that have a key in {source}"),
    };
    format!("{rule}; bodies up to {max}{}", shadow(route_settings))
}

/// In shadow mode, instead of a promise: no response is replayed and no request is refused, whatever the settings say.
pub(super) const OBSERVED: &str = "observed only: requests are passed on as they came";

fn shadow(route_settings: &RouteSettings) -> &'static str {
    if route_settings.mode == Mode::Shadow { "; SHADOW, nothing is enforced" } else { "" }
}

/// Describes one operation.
pub(super) fn describe(operation: &Operation) -> Vec<String> {
    let Operation { template, route_settings, callbacks, rates, .. } = operation;
    let name = route_settings.name.as_ref().map(|name| format!("{name}: ")).unwrap_or_default();
    let route = format!("{name}{} {template}", methods(route_settings));
    let rule = match route_settings.key {
        KeyRule::Off => return vec![format!("{route}; not protected")],
        KeyRule::Required => "required",
        KeyRule::Optional => "optional",
    };
    let mut lines = vec![format!("{route}; {}{}", key(route_settings, rule), shadow(route_settings))];
    if route_settings.mode == Mode::Shadow {
        lines.push(OBSERVED.to_owned());
    } else {
        lines.push(promise(route_settings));
        if route_settings.policy.class != Class::Downstream
            && route_settings.rules.not_applied != Rules::default().not_applied
        {
            lines.push(format!("assumes {}", assumption(route_settings)));
        }
        lines.extend(describe_questions(callbacks, route_settings));
        lines.extend(limited(rates));
    }
    lines.extend(operation.callers());
    lines
}

/// What a key guarantees, and for how long its response is replayed.
fn promise(route_settings: &RouteSettings) -> String {
    let policy = &route_settings.policy;
    let promise = match policy.class {
        Class::Downstream => {
            format!("downstream, which recognises repeats for {}", duration::text(policy.dedup_window))
        }
        Class::External | Class::Local => format!("{}, at most once per key", policy.class),
    };
    let least = match (&route_settings.retain, route_settings.seal) {
        (Retain::Minimal(_), _) => " (stored in part)",
        (Retain::Whole, Seal::Required) => " (sealed)",
        (Retain::Whole, Seal::WithKeys | Seal::Off) => "",
    };
    format!("{promise}; replayed for {}{least}, {}", duration::text(policy.ttl), after(route_settings))
}

/// What the gateway asks the service about it.
pub(super) fn describe_questions(
    callbacks: &ServiceCallbacks,
    route_settings: &RouteSettings,
) -> Vec<String> {
    let ServiceCallbacks { probe, authorize, rebuild } = callbacks;
    let mut lines = Vec::new();
    if let Some(probe) = probe {
        let (method, pace) = (&probe.method, &probe.pace);
        let destination = masked::url(&probe.destination.to_string());
        let until = duration::text(pace.give_up_after);
        let when = match route_settings.policy.class {
            Class::Downstream => {
                format!(
                    "an outcome still in doubt after {}",
                    duration::text(route_settings.policy.dedup_window)
                )
            }
            Class::External | Class::Local => "an outcome in doubt".to_owned(),
        };
        lines.push(format!("{when} is looked up by {method} {destination}, for {until}"));
    }
    if let Some(authorize) = authorize {
        let path = masked::url(&authorize.path.to_string());
        lines.push(format!("replayed only if the service allows it at {path}"));
    }
    match rebuild.as_ref().map(|rebuild| &rebuild.source) {
        Some(callbacks::Source::Location) => {
            lines.push("replays are rebuilt from the response's Location".to_owned());
        }
        Some(callbacks::Source::Path(path)) => {
            lines.push(format!("replays are rebuilt from {}", masked::url(&path.to_string())));
        }
        None => {}
    }
    lines
}

fn after(route_settings: &RouteSettings) -> String {
    match route_settings.policy.after_expiry {
        AfterExpiry::Refuse => {
            format!("then refused as expired for {}", duration::text(route_settings.policy.tombstone))
        }
        AfterExpiry::RunAsNew => "then run as new".to_owned(),
    }
}

pub(super) fn guarantee(route_settings: &RouteSettings) -> Vec<String> {
    let policy = &route_settings.policy;
    let (kept, after) = (duration::text(policy.ttl), after(route_settings));
    match policy.class {
        Class::Downstream => vec![
            format!(
                "downstream: once per key, as long as the upstream recognises repeats for {}",
                duration::text(policy.dedup_window)
            ),
            format!("outcomes replayed for {kept}, {after}"),
        ],
        Class::External | Class::Local => vec![
            format!("{}: at most once per key; outcomes replayed for {kept}, {after}", policy.class),
            "an attempt that ends in doubt is UNKNOWN and is not repeated".to_owned(),
        ],
    }
}

pub(super) fn assumption(route_settings: &RouteSettings) -> String {
    if route_settings.policy.class == Class::Downstream {
        return "the upstream answers a repeated Operation-Id or key with the first response".to_owned();
    }
    let (mut http, mut grpc) = (Vec::new(), Vec::new());
    for status in &route_settings.rules.not_applied {
        match status {
            Status::Http(503) => http.push("503 with Retry-After".to_owned()),
            Status::Http(code) => http.push(code.to_string()),
            Status::Grpc(code) => grpc.push(code.to_string()),
            Status::Value => {}
        }
    }
    let (http, grpc) = (http.join(", "), grpc.join(" and "));
    match (http.is_empty(), grpc.is_empty()) {
        (true, true) => "of no status that nothing took effect".to_owned(),
        (false, true) => format!("the upstream answers {http} only when nothing took effect"),
        (true, false) => format!("the upstream answers gRPC {grpc} only when nothing took effect"),
        (false, false) => {
            format!("the upstream answers {http}, and gRPC {grpc}, only when nothing took effect")
        }
    }
}
