//! `probe`: how it is found out what became of an effect in doubt.
//!
//! What lives here: whom to ask, with what, and how often. What must never: a secret that anybody on the way could read.

use super::{aside, meaning};
use crate::ask::{Answer, Place, Placeholder, Probe, Template};
use crate::cli::span;
use crate::config::table::Table;
use crate::upstream::{Tls, Transport};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use std::net::SocketAddr;
use toml::de::DeValue;

pub(super) fn read(table: &Table<'_, '_>, listen: SocketAddr) -> Option<Probe> {
    let place = place(table, listen);
    let mut probe = Probe::new(place.clone().unwrap_or_else(nowhere));
    let methods = [("GET", &Method::GET), ("HEAD", &Method::HEAD), ("POST", &Method::POST)];
    probe.method = table.choice("method", &methods).unwrap_or(&Method::GET).clone();
    probe.headers = headers(table, place.as_ref());
    probe.meaning = meaning::read(table);
    let is_head = probe.method == Method::HEAD;
    probe.answer = match table.choice("answer", &[("probe", Answer::Probe), ("nothing", Answer::Nothing)]) {
        Some(answer) => answer,
        None if is_head => Answer::Nothing,
        None => Answer::default(),
    };
    if is_head && probe.answer == Answer::Probe {
        let what = "an answer to HEAD has no body, which a retry could be given";
        table.page.mistake(
            table.span_of("answer").as_ref(),
            what,
            "write answer = \"nothing\", or another method",
        );
    }
    if is_head && probe.meaning.reads_body() {
        let at = table.span_of("applied_if").or_else(|| table.span_of("not_applied_if"));
        table.page.mistake(
            at.as_ref(),
            "an answer to HEAD has no body that could say anything",
            "write method = \"GET\"",
        );
    }
    let is_privileged = probe.place.target.is_some() || probe.headers.values().any(HeaderValue::is_sensitive);
    if is_privileged && !is_head && !table.has("answer") {
        let what = "clients that retry would be given what this probe is answered, which is asked for with more rights than theirs";
        let mend = "write answer = \"nothing\"; or answer = \"probe\", where the client may see all of it";
        table.page.mistake(table.span_of("url").as_ref(), what, mend);
    }
    probe.status = status(table);
    let pace = &mut probe.pace;
    pace.timeout = table.limit("timeout").unwrap_or(pace.timeout);
    pace.min = table.limit("pause_min").unwrap_or(pace.min);
    pace.max = table.limit("pause_max").unwrap_or(pace.max);
    pace.give_up_after = table.limit("give_up_after").unwrap_or(pace.give_up_after);
    pace.quiet = table.limit("quiet").unwrap_or(pace.quiet);
    if pace.min > pace.max {
        let at = table.span_of("pause_min").or_else(|| table.span_of("pause_max"));
        let what = format!(
            "the shortest pause ({}) is longer than the longest ({})",
            span::text(pace.min),
            span::text(pace.max)
        );
        table.page.mistake(at.as_ref(), what, "make pause_max longer than pause_min");
    }
    probe.tls = ca(table, place.as_ref());
    place.map(|_| probe)
}

/// For reading on, so that every mistake is told.
fn nowhere() -> Place {
    Place { target: None, path: Template::parse("/", &[]).expect("a path") }
}

fn place(table: &Table<'_, '_>, listen: SocketAddr) -> Option<Place> {
    let known = [Placeholder::OperationId, Placeholder::Operation];
    let place = table.parsed("url", |text| Place::parse(text, &known));
    if !table.has("url") {
        let mend = "write url = \"/effects/{operation_id}\" or the like";
        table.page.mistake(table.span().as_ref(), "a probe has no url to ask", mend);
    }
    let place = place?;
    let at = table.value("url").map(toml::Spanned::span);
    if !place.path.has(Placeholder::OperationId) {
        table.page.mistake(
            at.as_ref(),
            "without {operation_id} the same would be asked about every operation",
            "write {operation_id} where the url names the operation",
        );
    }
    if place.is_at(listen) {
        table.page.mistake(
            at.as_ref(),
            "that is where this gateway itself listens: it would ask itself",
            "write the address of the service, or a path below the upstream",
        );
    }
    Some(place)
}

/// Headers with their values: texts, or where secrets are.
fn headers(table: &Table<'_, '_>, place: Option<&Place>) -> HeaderMap {
    let mut found = HeaderMap::new();
    let Some(value) = table.value("headers") else { return found };
    let DeValue::Table(entries) = value.get_ref() else {
        table.wrong("headers", value, "a table, such as { authorization = \"env:NAME\" }");
        return found;
    };
    for (key, value) in entries {
        let name = aside::header(key.get_ref()).map_err(|told| table.page.told(Some(&key.span()), &told));
        let Some(text) = value.get_ref().as_str() else {
            table.wrong(key.get_ref(), value, "a text in quotation marks");
            continue;
        };
        let Ok(name) = name else { continue };
        let is_secret = text.starts_with("env:") || text.starts_with("file:");
        let bytes = if is_secret {
            table.secret_at(name.as_str(), text, &value.span())
        } else if is_credential(&name) {
            let what = format!("`{name}` says who is asking, and stands in this file");
            let mend = "write env:NAME or file:PATH; a secret does not belong into this file";
            table.page.mistake(Some(&value.span()), what, mend);
            None
        } else {
            Some(text.as_bytes().to_vec())
        };
        let Some(bytes) = bytes else { continue };
        let Ok(mut line) = HeaderValue::from_bytes(&bytes) else {
            let what = format!("what stands there for `{name}` cannot be sent in a header");
            table.page.mistake(Some(&value.span()), what, "write one line without control characters");
            continue;
        };
        line.set_sensitive(is_secret);
        if is_secret && place.is_some_and(Place::is_open) {
            let what = format!("the secret in `{name}` would be sent so that anybody on the way can read it");
            table.page.mistake(Some(&value.span()), what, "write an https:// url");
        }
        found.append(name, line);
    }
    found
}

fn is_credential(name: &HeaderName) -> bool {
    let name = name.as_str();
    let words = ["authorization", "cookie", "token", "secret", "password", "api-key", "apikey"];
    words.iter().any(|word| name.contains(word))
}

fn status(table: &Table<'_, '_>) -> Option<StatusCode> {
    let status: u16 = table.count("status", 0)?;
    let found = StatusCode::from_u16(status).ok().filter(StatusCode::is_success);
    if found.is_none() {
        let what = format!("{status} is no answer to what happened");
        table.page.mistake(table.span_of("status").as_ref(), what, "write a number from 200 to 299");
    }
    found
}

fn ca(table: &Table<'_, '_>, place: Option<&Place>) -> Tls {
    let Some((_, pem)) = table.file("ca") else { return Tls::default() };
    let at = table.span_of("ca");
    let is_tls =
        |place: &Place| place.target.as_ref().is_some_and(|target| target.transport() == Transport::Https);
    if place.is_some_and(|place| !is_tls(place)) {
        let what = "the url does not begin with https://, so that nobody's certificate is looked at";
        table.page.mistake(at.as_ref(), what, "take ca out; for the upstream it stands under [upstream]");
    }
    Tls::only(&pem).unwrap_or_else(|error| {
        let mend = "write the path of a PEM file with the authorities' certificates";
        table.page.mistake(at.as_ref(), error.to_string(), mend);
        Tls::default()
    })
}
