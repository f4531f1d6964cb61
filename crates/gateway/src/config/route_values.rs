//! Values of route options that are more than a duration, a size or a word.

use super::route_options::DeadlineHeader;
use super::table::{Span, Table};
use crate::invalid_value::InvalidValue;
use http::{HeaderName, Method};
use semel::core::classify::{Meaning, is_success};
use semel::core::fingerprint::{Pointer, Selection, SelectionError};
use semel::core::outcome::Status;
use semel::core::policy::Class;
use semel_http::{KeySource, MismatchStatus, RouteSettingsError, check_method};
use std::time::Duration;
use toml::de::DeValue;

pub(super) fn duration(table: &Table<'_, '_>, key: &'static str) -> Option<Duration> {
    table.duration(key)
}

pub(super) fn size(table: &Table<'_, '_>, key: &'static str) -> Option<usize> {
    table.size(key)
}

pub(super) fn is(table: &Table<'_, '_>, key: &'static str) -> Option<bool> {
    table.is(key)
}

pub(super) fn included(table: &Table<'_, '_>, key: &'static str) -> Option<Vec<String>> {
    table.parsed_list(key, |text| {
        let fit = Selection::default().including([text]);
        fit.map(|_| text.to_owned()).map_err(|error| pointer_error(&error))
    })
}

pub(super) fn excluded(table: &Table<'_, '_>, key: &'static str) -> Option<Vec<String>> {
    table.parsed_list(key, |text| {
        let fit = Selection::default().excluding([text]);
        fit.map(|_| text.to_owned()).map_err(|error| pointer_error(&error))
    })
}

pub(super) fn compared_headers(table: &Table<'_, '_>, key: &'static str) -> Option<Vec<String>> {
    table.parsed_list(key, |text| {
        let fit = Selection::default().with_headers([text]);
        fit.map(|_| text.to_owned()).map_err(InvalidValue::of_sentence)
    })
}

pub(super) fn headers(table: &Table<'_, '_>, key: &'static str) -> Option<Vec<HeaderName>> {
    table.parsed_list(key, header)
}

/// A header, or "off".
pub(super) fn deadline_header(table: &Table<'_, '_>, key: &'static str) -> Option<DeadlineHeader> {
    table.parsed(key, |text| match text {
        "off" => Ok(DeadlineHeader::Off),
        name => header(name).map(DeadlineHeader::Named),
    })
}

fn pointer_error(error: &SelectionError) -> InvalidValue {
    InvalidValue::new(error.to_string(), "Write a JSON pointer into the body, such as \"/client/sent_at\"")
}

pub(super) fn methods(table: &Table<'_, '_>, key: &'static str) -> Option<Vec<Method>> {
    let mut methods: Vec<Method> = Vec::new();
    for method in table.parsed_list(key, method)? {
        if !methods.contains(&method) {
            methods.push(method);
        }
    }
    if methods.is_empty() && table.list(key).is_some_and(|list| list.is_empty()) {
        let at = table.span_of(key);
        table.document.mistake(
            at.as_ref(),
            "`methods` is empty, so these terms apply to no request",
            "name the methods, or write key = \"off\" to protect nothing",
        );
    }
    Some(methods)
}

/// A method, in the form in which it is compared.
fn method(text: &str) -> Result<Method, InvalidValue> {
    let other = || {
        let fix = "write one like \"POST\" or \"DELETE\"";
        InvalidValue::new(format!("`{text}` is not a method that can be protected"), fix)
    };
    let method = Method::from_bytes(text.as_bytes()).map_err(|_| other())?;
    match check_method(&method) {
        Ok(method) if method != Method::CONNECT => Ok(method),
        Err(RouteSettingsError::Method { meant, .. }) => {
            Err(InvalidValue::new(format!("`{text}` is not a method"), format!("write \"{meant}\"")))
        }
        _ => Err(other()),
    }
}

pub(super) fn class(table: &Table<'_, '_>, key: &'static str) -> Option<Class> {
    table.parsed(key, |text| match text {
        "external" => Ok(Class::External),
        "downstream" => Ok(Class::Downstream),
        "local" => Err(InvalidValue::new(
            "class local is for effects that commit in the same transaction as their record, which a gateway \
                cannot join",
            "write \"external\", or \"downstream\" if the service itself recognises repeats",
        )),
        other => Err(InvalidValue::new(
            format!("`class` cannot be \"{other}\""),
            "write \"external\" or \"downstream\"",
        )),
    })
}

/// The name of a header, in any letter case.
pub(super) fn header(text: &str) -> Result<HeaderName, InvalidValue> {
    let refused =
        |_| InvalidValue::new(format!("`{text}` is not a header name"), "write one such as \"x-user\"");
    text.to_ascii_lowercase().parse().map_err(refused)
}

/// One source of keys.
fn source(text: &str) -> Result<KeySource, InvalidValue> {
    match text.split_once(':') {
        Some(("header", name)) => header(name).map(KeySource::Header),
        Some(("json", pointer)) => match Pointer::parse(pointer) {
            Ok(found) => Ok(KeySource::Pointer(found)),
            Err(error) => Err(InvalidValue::new(
                format!("`{pointer}` is not a JSON pointer: {error}"),
                "Write a JSON pointer into the body, such as \"json:/event_id\"",
            )),
        },
        None if text == "fingerprint" => Ok(KeySource::Fingerprint),
        _ => Err(InvalidValue::new(
            format!("unknown source of keys `{text}`"),
            "write \"header:NAME\", \"json:/POINTER\" or \"fingerprint\", or a list of these",
        )),
    }
}

pub(super) fn key_from(table: &Table<'_, '_>, key: &'static str) -> Option<KeySource> {
    let value = table.value(key)?;
    if matches!(value.get_ref(), DeValue::Array(_)) {
        return table.parsed_list(key, source).map(KeySource::Composite);
    }
    table.parsed(key, source)
}

pub(super) fn mismatch_status(table: &Table<'_, '_>, key: &'static str) -> Option<MismatchStatus> {
    let status: u16 = table.count(key, 0)?;
    match status {
        422 => Some(MismatchStatus::UnprocessableContent),
        409 => Some(MismatchStatus::Conflict),
        _ => {
            let at = table.span_of(key);
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

pub(super) fn not_applied_statuses(table: &Table<'_, '_>, key: &'static str) -> Option<Vec<Status>> {
    let mut found = Vec::new();
    for value in table.list(key)? {
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

pub(super) fn statuses(table: &Table<'_, '_>, key: &'static str) -> Option<Vec<(Status, Meaning)>> {
    let value = table.value(key)?;
    let DeValue::Table(entries) = value.get_ref() else {
        table.wrong(key, value, "a table, such as { 500 = \"not-applied\" }");
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
