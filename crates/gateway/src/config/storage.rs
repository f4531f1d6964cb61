//! `[store]`, `[sweep]`, `[limits]`, `[published]`: how records are stored, and how much the process holds at once.

use super::storage_settings::{Hashing, Limits, Next, StorageSettings};
use super::table::{Span, Table};
use crate::invalid_value::InvalidValue;
use crate::stores;
use semel::core::scope::Secret;
use semel::secrets;
use semel_http::RouteSettings;
use semel_text::duration;
use std::path::PathBuf;

/// Withdraws an announced secret.
const WITHDRAW: &str = "withdraw";

/// The store and its settings.
pub(super) fn store(table: &Table<'_, '_>, storage: &mut StorageSettings) -> stores::Url {
    let settings = &mut storage.settings;
    settings.store_timeout = table.limit("timeout").unwrap_or(settings.store_timeout);
    settings.request_timeout = table.limit("request_timeout").unwrap_or(settings.request_timeout);
    settings.finish_wait = table.duration("finish_wait").unwrap_or(settings.finish_wait);
    settings.retry_after = table.limit("retry_after").unwrap_or(settings.retry_after);
    settings.cache_bytes_max = table.size("cache_max").unwrap_or(settings.cache_bytes_max);
    // Nodes rely on writes not taking longer: `secrets::RefreshSettings`.
    let in_flight = secrets::RefreshSettings::default().in_flight;
    if settings.store_timeout >= in_flight {
        let problem =
            format!("`timeout` is longer than the longest write may take ({})", duration::text(in_flight));
        table.document.mistake(
            table.span_of("timeout").as_ref(),
            problem,
            "write a shorter duration, such as \"10s\"",
        );
    }
    let secret = table.text("hashing_secret").and_then(|at| hashing_secret(table, "hashing_secret", &at));
    let next = next(table);
    if let (Some(secret), Next::Secret(next)) = (&secret, &next)
        && secret == next
    {
        let problem = "`hashing_secret_next` is the secret that is already in use";
        let fix = "make another one with openssl rand -hex 32, or remove hashing_secret_next";
        table.document.mistake(table.span_of("hashing_secret_next").as_ref(), problem, fix);
    }
    storage.hashing = Hashing { secret, next };
    table
        .parsed("url", |text| text.parse::<stores::Url>().map_err(InvalidValue::of_sentence))
        .unwrap_or_default()
}

/// The replacement of the secret, if any.
fn next(table: &Table<'_, '_>) -> Next {
    let key = "hashing_secret_next";
    match table.text(key) {
        None => Next::None,
        Some((WITHDRAW, _)) => Next::Withdrawn,
        Some(at) => hashing_secret(table, key, &at).map_or(Next::None, Next::Secret),
    }
}

/// The secret that a text refers to, which is the value of `key`.
fn hashing_secret(table: &Table<'_, '_>, key: &str, (text, span): &(&str, Span)) -> Option<Vec<u8>> {
    let written = table.secret_at(key, text, span)?;
    let bytes = hex::decode(written.trim_ascii()).ok();
    let problem = match &bytes {
        None => Some("the hashing secret is not in hexadecimal digits".to_owned()),
        Some(bytes) => Secret::from_bytes(bytes).err().map(|error| error.to_string()),
    };
    if let Some(problem) = problem {
        table.document.mistake(table.span_of(key).as_ref(), problem, "make one with openssl rand -hex 32");
        return None;
    }
    bytes
}

/// `[clock]`, and the older keys for it under `[sweep]`.
pub(super) fn clock(table: &Table<'_, '_>, sweep: &Table<'_, '_>, storage: &mut StorageSettings) {
    let clock = &mut storage.settings.clock;
    for before in [sweep, table] {
        if let Some(skew) = before.limit("skew") {
            clock.skew = skew;
            storage.skew_is_chosen = true;
        }
        clock.steady_for = before.duration("steady_for").unwrap_or(clock.steady_for);
    }
    clock.settle = table.duration("settle").unwrap_or(clock.settle);
    clock.downtime_max = table.limit("downtime_max").unwrap_or(clock.downtime_max);
    clock.heartbeat = table.limit("heartbeat").unwrap_or(clock.heartbeat);
}

pub(super) fn sweep(table: &Table<'_, '_>, storage: &mut StorageSettings) {
    let sweep = &mut storage.settings.sweep;
    sweep.every = table.duration("every").unwrap_or(sweep.every);
    sweep.chunk = table.count("chunk", 1).unwrap_or(sweep.chunk);
    sweep.records_per_second_max =
        table.count("records_per_second_max", 1).unwrap_or(sweep.records_per_second_max);
    storage.archive = table.text("archive").map(|(path, _)| PathBuf::from(path));
    if table.text("archive").is_some_and(|(path, _)| path.is_empty()) {
        let at = table.span_of("archive");
        table.document.mistake(at.as_ref(), "`archive` is empty", "write the path of a file, or remove it");
    }
}

/// The default budget for requests, responses and the cache together.
const MEMORY_BYTES: usize = 128 << 20;

/// `[limits]`. A limit that is not set is a share of `memory`: half for request bodies, three eighths for responses,
/// and one eighth for the cache, unless `cache_is_chosen` under `[store]`.
pub(super) fn limits(table: &Table<'_, '_>, cache_is_chosen: bool, storage: &mut StorageSettings) -> Limits {
    let eighth = table.size("memory").unwrap_or(MEMORY_BYTES) / 8;
    if !cache_is_chosen {
        storage.settings.cache_bytes_max = eighth;
    }
    Limits {
        bodies_bytes_max: table.size("bodies_max").unwrap_or(eighth * 4),
        responses_bytes_max: table.size("responses_max").unwrap_or(eighth * 3),
        body_time_max: table.limit("body_time_max").unwrap_or(Limits::default().body_time_max),
    }
}

/// A body of the allowed size must fit, at least alone.
pub(super) fn check_room<'t>(
    table: &Table<'_, '_>,
    limits: Limits,
    all: impl Iterator<Item = &'t RouteSettings>,
) {
    let longest = all.map(|route_settings| route_settings.request_bytes_max).max().unwrap_or_default();
    if longest > limits.bodies_bytes_max {
        let problem = "a body of `request_max` does not fit into `bodies_max`, which is half of `memory` \
            unless it is set";
        let at = table.span_of("bodies_max").or_else(|| table.span_of("memory"));
        table.document.mistake(at.as_ref(), problem, "make bodies_max larger, or request_max smaller");
    }
}

pub(super) fn prefix(table: &Table<'_, '_>) -> String {
    table.parsed("prefix", published_at).unwrap_or_default()
}

/// The prefix of the published paths: empty, or a path.
pub(crate) fn published_at(text: &str) -> Result<String, InvalidValue> {
    let is_segment = |segment: &str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        !segment.is_empty() && segment.bytes().all(is_plain) && segment != "." && segment != ".."
    };
    let is_path = text.strip_prefix('/').is_some_and(|path| path.split('/').all(is_segment));
    if text.is_empty() || is_path {
        return Ok(text.to_owned());
    }
    let fix = "write one like \"/payments\", or an empty string";
    Err(InvalidValue::new(format!("`{text}` cannot be a path prefix"), fix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_a_plain_path() {
        for good in ["", "/payments", "/v1/semel", "/~x"] {
            assert_eq!(published_at(good), Ok(good.to_owned()));
        }
        for bad in ["/", "payments", "/a/", "//a", "/a?b", "/a b", "/{x}", "/../a", "/%41"] {
            assert!(published_at(bad).is_err(), "{bad}");
        }
    }
}
