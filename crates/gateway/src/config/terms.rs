//! `[defaults]`, and the keys that `[[operation]]` shares with it. A mistake in `[defaults]` is reported once, not for
//! every operation that inherits it.

use super::Overrides;
use super::patch::{Keep, Mistake, Patch};
use super::records::Sealing;
use super::table::{Span, Table};
use http::{HeaderName, Method};
use semel::core::classify::{Meaning, is_success};
use semel::core::fingerprint::{Pointer, Selection};
use semel::core::key::Treatment;
use semel::core::outcome::Status;
use semel::core::policy::{AfterExpiry, Class, Policy, PolicyError, PolicySettings};
use semel::sealing::Seal;
use semel_http::{KeyRule, KeySource, MismatchStatus, Mode, StoreDown, Terms, TermsError, check_method};
use std::time::Duration;
use toml::de::DeValue;

/// The terms that a table sets.
pub(super) fn patch(table: &Table<'_, '_>) -> Patch {
    use KeyRule::{Off, Optional, Required};
    Patch {
        methods: methods(table),
        key: table.choice("key", &[("required", Required), ("optional", Optional), ("off", Off)]),
        key_from: key_from(table),
        key_min: table.count("key_min", 1),
        key_max: table.count("key_max", 1),
        weak_keys: table.choice(
            "weak_keys",
            &[("refuse", Treatment::Refuse), ("warn", Treatment::Warn), ("allow", Treatment::Allow)],
        ),
        mode: table.choice("mode", &[("enforce", Mode::Enforce), ("shadow", Mode::Shadow)]),
        class: class(table),
        dedup_window: table.duration("dedup_window"),
        ttl: table.duration("ttl"),
        denied_ttl: table.duration("denied_ttl"),
        tombstone: table.duration("tombstone"),
        after_expiry: table.choice(
            "after_expiry",
            &[("refuse", AfterExpiry::Refuse), ("run-as-new", AfterExpiry::RunAsNew)],
        ),
        retry_horizon: table.duration("retry_horizon"),
        lease: table.duration("lease"),
        wait: table.duration("wait"),
        attempts_max: table.count("attempts_max", 1),
        rerun: table.is("rerun"),
        not_applied_statuses: not_applied_statuses(table),
        statuses: statuses(table),
        kept: table
            .choice("kept", &[("whole", Keep::Whole), ("sealed", Keep::Sealed), ("minimal", Keep::Minimal)]),
        keep_headers: table.parsed_list("keep_headers", header),
        drop_headers: table.parsed_list("drop_headers", header),
        kept_max: table.size("kept_max"),
        request_max: table.size("request_max"),
        fingerprint_include: table.parsed_list("fingerprint_include", |text| {
            let fit = Selection::default().including([text]);
            fit.map(|_| text.to_owned()).map_err(|error| describe_pointer_error(&error))
        }),
        fingerprint_exclude: table.parsed_list("fingerprint_exclude", |text| {
            let fit = Selection::default().excluding([text]);
            fit.map(|_| text.to_owned()).map_err(|error| describe_pointer_error(&error))
        }),
        fingerprint_headers: table.parsed_list("fingerprint_headers", |text| {
            let fit = Selection::default().with_headers([text]);
            fit.map(|_| text.to_owned()).map_err(|error| error.to_string())
        }),
        mismatch_status: mismatch_status(table),
        store_down: table
            .choice("store_down", &[("refuse", StoreDown::Refuse), ("pass", StoreDown::PassUnprotected)]),
    }
}

fn describe_pointer_error(error: &semel::core::fingerprint::SelectionError) -> String {
    format!("{error}. Write a JSON pointer into the body, such as \"/client/sent_at\"")
}

fn methods(table: &Table<'_, '_>) -> Option<Vec<Method>> {
    let mut methods: Vec<Method> = Vec::new();
    for method in table.parsed_list("methods", method)? {
        if !methods.contains(&method) {
            methods.push(method);
        }
    }
    if methods.is_empty() && table.list("methods").is_some_and(|list| list.is_empty()) {
        let at = table.span_of("methods");
        table.document.mistake(
            at.as_ref(),
            "`methods` is empty, so these terms apply to no request",
            "name the methods, or write key = \"off\" to protect nothing",
        );
    }
    Some(methods)
}

/// A method, in the form in which it is compared.
fn method(text: &str) -> Result<Method, String> {
    let other =
        || format!("`{text}` is not a method that can be protected: write one like \"POST\" or \"DELETE\"");
    let method = Method::from_bytes(text.as_bytes()).map_err(|_| other())?;
    match check_method(&method) {
        Ok(method) if method != Method::CONNECT => Ok(method),
        Err(TermsError::Method { meant, .. }) => Err(format!("`{text}` is not a method: write \"{meant}\"")),
        _ => Err(other()),
    }
}

fn class(table: &Table<'_, '_>) -> Option<Class> {
    table.parsed("class", |text| match text {
        "external" => Ok(Class::External),
        "downstream" => Ok(Class::Downstream),
        "local" => {
            Err("class local is for effects that commit in the same transaction as their record, which a \
                gateway cannot join: write \"external\", or \"downstream\" if the service itself recognises repeats"
                .to_owned())
        }
        other => Err(format!("`class` cannot be \"{other}\": write \"external\" or \"downstream\"")),
    })
}

fn header(text: &str) -> Result<HeaderName, String> {
    let lower = text.to_ascii_lowercase();
    lower.parse().map_err(|_| format!("`{text}` is not a header name: write one such as \"x-user\""))
}

/// One source of keys.
fn source(text: &str) -> Result<KeySource, String> {
    match text.split_once(':') {
        Some(("header", name)) => header(name).map(KeySource::Header),
        Some(("json", pointer)) => match Pointer::parse(pointer) {
            Ok(found) => Ok(KeySource::Pointer(found)),
            Err(error) => Err(format!(
                "`{pointer}` is not a JSON pointer: {error}. Write a JSON pointer into the body, such as \
                    \"json:/event_id\""
            )),
        },
        None if text == "fingerprint" => Ok(KeySource::Fingerprint),
        _ => Err(format!(
            "unknown source of keys `{text}`: write \"header:NAME\", \"json:/POINTER\" or \"fingerprint\", \
                or a list of these"
        )),
    }
}

fn key_from(table: &Table<'_, '_>) -> Option<KeySource> {
    let value = table.value("key_from")?;
    if matches!(value.get_ref(), DeValue::Array(_)) {
        return table.parsed_list("key_from", source).map(KeySource::Composite);
    }
    table.parsed("key_from", source)
}

fn mismatch_status(table: &Table<'_, '_>) -> Option<MismatchStatus> {
    let status: u16 = table.count("mismatch_status", 0)?;
    match status {
        422 => Some(MismatchStatus::UnprocessableContent),
        409 => Some(MismatchStatus::Conflict),
        _ => {
            let at = table.span_of("mismatch_status");
            let problem = format!("`{status}` is not a status for a key that was used for another payload");
            table.document.mistake(at.as_ref(), problem, "write 422 or 409");
            None
        }
    }
}

/// `409`, or `grpc:7`.
fn status(text: &str) -> Option<Status> {
    if let Some(code) = text.strip_prefix("grpc:") {
        return code.parse().ok().filter(|code| *code <= 16).map(Status::Grpc);
    }
    text.parse().ok().filter(|code| (200..=599).contains(code)).map(Status::Http)
}

fn not_applied_statuses(table: &Table<'_, '_>) -> Option<Vec<Status>> {
    let mut found = Vec::new();
    for value in table.list("not_applied_statuses")? {
        let read = match value.get_ref() {
            DeValue::Integer(code) if code.radix() == 10 => status(code.as_str()),
            DeValue::String(text) if text.starts_with("grpc:") => status(text),
            _ => None,
        };
        match read {
            Some(status) if is_success(status) => not_a_failure(table, &value.span(), status),
            Some(status) => found.push(status),
            None => table.document.mistake(
                Some(&value.span()),
                "this status cannot be set here",
                "write a number from 400 to 599, or \"grpc:7\" for a gRPC status",
            ),
        }
    }
    Some(found)
}

fn statuses(table: &Table<'_, '_>) -> Option<Vec<(Status, Meaning)>> {
    let value = table.value("statuses")?;
    let DeValue::Table(entries) = value.get_ref() else {
        table.wrong("statuses", value, "a table, such as { 500 = \"not-applied\" }");
        return None;
    };
    let mut found = Vec::new();
    for (code, meaning) in entries {
        let Some(status) = status(code.get_ref()) else {
            let problem = format!("`{}` is not a status of a response", code.get_ref());
            table.document.mistake(
                Some(&code.span()),
                problem,
                "write 200 to 599, or \"grpc:7\" for a gRPC status",
            );
            continue;
        };
        let meant = match meaning.get_ref().as_str() {
            Some("applied") => Meaning::Succeeded,
            Some("failed") => Meaning::FailedReplayable,
            Some("not-applied") => Meaning::NotApplied,
            Some("unknown") => Meaning::InDoubt,
            _ => {
                let problem = format!("status {} cannot mean this", code.get_ref());
                let fix = "write \"applied\", \"failed\", \"not-applied\" or \"unknown\"";
                table.document.mistake(Some(&meaning.span()), problem, fix);
                continue;
            }
        };
        if meant == Meaning::NotApplied && is_success(status) {
            not_a_failure(table, &meaning.span(), status);
            continue;
        }
        found.push((status, meant));
    }
    Some(found)
}

/// Reports a success status that is configured to mean that nothing took effect.
fn not_a_failure(table: &Table<'_, '_>, at: &Span, status: Status) {
    let code = match status {
        Status::Http(code) => format!("a {code}"),
        Status::Grpc(code) => format!("gRPC status {code}"),
        Status::Value => "a value".to_owned(),
    };
    let problem =
        format!("{code} is a success and cannot mean that nothing took effect: every retry would run again");
    let fix = "name errors only; a service that did nothing can say so with Idempotency-Outcome: not-applied";
    table.document.mistake(Some(at), problem, fix);
}

/// Reports keys that do not fit together.
pub(super) struct MistakeReporter<'t, 'p, 'i> {
    pub(super) table: &'t Table<'p, 'i>,
    /// Flags and variables that override this table. Only the defaults have some.
    pub(super) flags: Option<&'t Overrides>,
    /// The sealing keys.
    pub(super) sealing: &'t Sealing,
    /// How far clocks may differ.
    pub(super) skew: Duration,
}

impl MistakeReporter<'_, '_, '_> {
    /// Reports a mistake, if it can be fixed in this table.
    fn report(&self, keys: &[&str], problem: &str, fix: &str) {
        let given = self
            .flags
            .and_then(|over| keys.iter().find(|key| over.terms.has(key)).map(|key| over.given_by(key)));
        if let Some(given_by) = given {
            self.table.document.mistake_in(&given_by, problem, fix);
            return;
        }
        let at: Option<Span> = keys.iter().find_map(|key| self.table.span_of(key));
        if at.is_some() || self.flags.is_some() {
            self.table.document.mistake(at.as_ref(), problem, fix);
        }
    }

    /// The terms of `patch`. Reports everything that is wrong with them.
    pub(super) fn terms(&self, patch: &Patch, name: Option<String>, deadline: Duration) -> Option<Terms> {
        let report_mistake = |(keys, report): Mistake| self.report(keys, &report, "change one of them");
        let mut policy = patch.policy(deadline).map_err(report_mistake).ok()?;
        // The engine adds the skew to every record's terms, so the check includes it.
        policy.skew = self.skew;
        self.check_horizon(patch, policy.ttl);
        let mut terms = patch.terms(name, self.check_policy(policy)).map_err(report_mistake).ok()?;
        self.seal(&mut terms);
        match terms.check() {
            Err(error @ TermsError::KeyHeader) => {
                self.report(&["key_from"], &error.to_string(), "name the header that clients send");
            }
            Err(error @ TermsError::Composite) => {
                self.report(
                    &["key_from"],
                    &error.to_string(),
                    "name 2 to 16 sources, or one without brackets",
                );
            }
            _ => {}
        }
        Some(terms)
    }

    /// Seals the outcomes of these terms, or not, as `[sealing]` says. Reports terms that cannot be sealed.
    fn seal(&self, terms: &mut Terms) {
        if terms.seal == Seal::Required {
            if !self.sealing.has_keys {
                let problem = "kept = \"sealed\" needs a key, but [sealing] has none";
                self.report(&["kept"], problem, "write a [[sealing.key]], or kept = \"whole\"");
            }
        } else if self.sealing.is_by_choice {
            terms.seal = Seal::Off;
        }
    }

    fn check_horizon(&self, patch: &Patch, ttl: Duration) {
        let Some(horizon) = patch.retry_horizon else { return };
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
