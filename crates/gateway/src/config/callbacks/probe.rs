//! `probe`: how the gateway finds out what became of an effect in doubt.

use super::{client_requests, meaning};
use crate::callbacks::{Answer, Destination, Placeholder, Probe, Template};
use crate::config::table::Table;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use semel_net::client::Authorities;
use semel_net::target::Transport;
use semel_text::duration;
use std::net::SocketAddr;
use toml::de::DeValue;

pub(super) fn read(table: &Table<'_, '_>, listen: SocketAddr) -> Option<Probe> {
    let destination = destination(table, listen);
    let mut probe = Probe::new(destination.clone().unwrap_or_else(nowhere));
    let methods = [("GET", &Method::GET), ("HEAD", &Method::HEAD), ("POST", &Method::POST)];
    probe.method = table.choice("method", &methods).unwrap_or(&Method::GET).clone();
    probe.headers = headers(table, destination.as_ref());
    probe.meaning = meaning::read(table);
    let is_head = probe.method == Method::HEAD;
    probe.answer = match table.choice("answer", &[("probe", Answer::Probe), ("nothing", Answer::Nothing)]) {
        Some(answer) => answer,
        None if is_head => Answer::Nothing,
        None => Answer::default(),
    };
    if is_head && probe.answer == Answer::Probe {
        let problem = "a response to HEAD has no body to give to a retry";
        table.document.mistake(
            table.span_of("answer").as_ref(),
            problem,
            "write answer = \"nothing\", or another method",
        );
    }
    if is_head && probe.meaning.reads_body() {
        let at = table.span_of("applied_if").or_else(|| table.span_of("not_applied_if"));
        table.document.mistake(
            at.as_ref(),
            "a response to HEAD has no body to check",
            "write method = \"GET\"",
        );
    }
    let is_privileged =
        probe.destination.target.is_some() || probe.headers.values().any(HeaderValue::is_sensitive);
    if is_privileged && !is_head && !table.has("answer") {
        let problem = "retries would get this probe's response, which is requested with more rights than the client has";
        let fix = "write answer = \"nothing\", or answer = \"probe\" if the client may see all of it";
        table.document.mistake(table.span_of("url").as_ref(), problem, fix);
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
        let problem = format!(
            "the shortest pause ({}) is longer than the longest ({})",
            duration::text(pace.min),
            duration::text(pace.max)
        );
        table.document.mistake(at.as_ref(), problem, "make pause_max longer than pause_min");
    }
    probe.authorities = ca(table, destination.as_ref());
    destination.map(|_| probe)
}

/// A placeholder, so that reading continues and every mistake is reported.
fn nowhere() -> Destination {
    Destination { target: None, path: Template::parse("/", &[]).expect("a path") }
}

fn destination(table: &Table<'_, '_>, listen: SocketAddr) -> Option<Destination> {
    let known = [Placeholder::OperationId, Placeholder::Operation];
    let destination = table.parsed("url", |text| Destination::parse(text, &known));
    if !table.has("url") {
        let fix = "write url = \"/effects/{operation_id}\" or the like";
        table.document.mistake(table.span().as_ref(), "a probe has no url", fix);
    }
    let destination = destination?;
    let at = table.value("url").map(toml::Spanned::span);
    if !destination.path.has(Placeholder::OperationId) {
        table.document.mistake(
            at.as_ref(),
            "without {operation_id}, the probe would be the same for every operation",
            "write {operation_id} into the url",
        );
    }
    if destination.is_at(listen) {
        table.document.mistake(
            at.as_ref(),
            "this gateway itself listens there: it would ask itself",
            "write the address of the service, or a path below the upstream",
        );
    }
    Some(destination)
}

/// Headers with their values: strings, or references to secrets.
fn headers(table: &Table<'_, '_>, destination: Option<&Destination>) -> HeaderMap {
    let mut found = HeaderMap::new();
    let Some(value) = table.value("headers") else { return found };
    let DeValue::Table(entries) = value.get_ref() else {
        table.wrong("headers", value, "a table, such as { authorization = \"env:NAME\" }");
        return found;
    };
    for (key, value) in entries {
        let name = client_requests::header(key.get_ref())
            .map_err(|refused| table.document.invalid(Some(&key.span()), refused));
        let Some(text) = value.get_ref().as_str() else {
            table.wrong(key.get_ref(), value, "a string in quotation marks");
            continue;
        };
        let Ok(name) = name else { continue };
        let is_secret = text.starts_with("env:") || text.starts_with("file:");
        let bytes = if is_secret {
            table.secret_at(name.as_str(), text, &value.span())
        } else if is_credential(&name) {
            let problem = format!("`{name}` contains a credential, which does not belong in this file");
            let fix = "write env:NAME or file:PATH";
            table.document.mistake(Some(&value.span()), problem, fix);
            None
        } else {
            Some(text.as_bytes().to_vec())
        };
        let Some(bytes) = bytes else { continue };
        let Ok(mut line) = HeaderValue::from_bytes(&bytes) else {
            let problem = format!("the value of `{name}` cannot be sent in a header");
            table.document.mistake(Some(&value.span()), problem, "write one line without control characters");
            continue;
        };
        line.set_sensitive(is_secret);
        if is_secret && destination.is_some_and(Destination::is_open) {
            let problem = format!(
                "the secret in `{name}` would be sent without TLS, so that others on the \
                network can read it"
            );
            table.document.mistake(Some(&value.span()), problem, "write an https:// url");
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
        let problem = format!("status {status} cannot be the response to a request that happened");
        table.document.mistake(table.span_of("status").as_ref(), problem, "write a number from 200 to 299");
    }
    found
}

fn ca(table: &Table<'_, '_>, destination: Option<&Destination>) -> Authorities {
    let Some((_, pem)) = table.file("ca") else { return Authorities::default() };
    let at = table.span_of("ca");
    let is_tls = |destination: &Destination| {
        destination.target.as_ref().is_some_and(|target| target.transport() == Transport::Https)
    };
    if destination.is_some_and(|destination| !is_tls(destination)) {
        let problem = "the url does not begin with https://, so no certificate is verified";
        table.document.mistake(at.as_ref(), problem, "remove ca; the upstream's is under [upstream]");
    }
    Authorities::only(&pem).unwrap_or_else(|error| {
        let fix = "write the path of a PEM file with the authorities' certificates";
        table.document.mistake(at.as_ref(), error.to_string(), fix);
        Authorities::default()
    })
}
