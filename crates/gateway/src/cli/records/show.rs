//! `semel records show`.
//!
//! What lives here: one record, for people. What must never: what was answered, where nobody asked to see it.

use super::super::cli_error::CliError;
use super::super::say_document;
use super::super::table::{Screen, Tone};
use super::super::target::ask_record;
use super::tone;
use crate::admin_client::AdminClient;
use crate::serve::say;
use http::Method;
use semel::SystemClock;
use semel::archive::rfc3339;
use semel::core::store::Clock as _;
use semel::core::time::Time;
use semel_admin::moment::{away, written};
use semel_text::printable::printable;
use semel_text::wrap::wrapped;
use serde_json::Value;

#[derive(Debug, Clone, clap::Args)]
pub(super) struct Args {
    /// The operation ID, or enough of its first digits that no other ID starts with them
    #[arg(value_name = "OPERATION_ID", value_parser = super::beginning)]
    id: String,
    /// Also show the stored response with headers and body. At a gateway this needs a token with the role `bodies`
    #[arg(long)]
    pub(super) body: bool,
}

impl Args {
    pub(super) async fn run(&self, client: &AdminClient, is_json: bool) -> Result<(), CliError> {
        let path = format!("/v1/records/{}", super::find_operation_id(client, &self.id, is_json).await?);
        let mut record = ask_record(client, Method::GET, &path, None, is_json).await?;
        if !self.body {
            withhold(&mut record);
        }
        let response = &record["response"];
        let is_withheld = self.body && response["retained"] == true && response["headers"].is_null();
        if is_json {
            say_document(&record);
        } else {
            let screen = Screen::of_stdout();
            say(&describe(&record, SystemClock.now(), screen).join("\n"));
            if self.body && !is_withheld && response["unopened"] != true {
                say(&answer(response, screen).join("\n"));
            }
        }
        if self.body && response["unopened"] == true {
            return Err(CliError::failed(format!(
                "the stored response is sealed and was not opened: {}",
                unopened(client)
            )));
        }
        if is_withheld {
            return Err(CliError::failed(
                "the stored response is not shown: that needs a token with the role `bodies` (or --store URL, for whoever may read \
                 the store)",
            ));
        }
        Ok(())
    }
}

/// Why no key opens a response, and what to do.
fn unopened(client: &AdminClient) -> &'static str {
    match client {
        AdminClient::Remote(_) => {
            "the gateway has no key that opens it; another gateway on the store may have"
        }
        AdminClient::Local(local) if local.is_configured() => {
            "no key under [sealing] of the file given with --config opens it; name the file of the gateway that sealed it"
        }
        AdminClient::Local(_) => "give --config FILE for the gateways' keys",
    }
}

/// Takes out what only `--body` shows, whatever the token's roles.
fn withhold(record: &mut Value) {
    if let Some(record) = record.as_object_mut() {
        record.remove("fingerprint");
    }
    if let Some(response) = record.get_mut("response").and_then(Value::as_object_mut) {
        response.retain(|name, _| ["protocol", "status", "retained", "unopened"].contains(&name.as_str()));
    }
}

/// The record in lines.
pub(super) fn describe(record: &Value, now: Time, screen: Screen) -> Vec<String> {
    let text = |name: &str| printable(record[name].as_str().unwrap_or_default());
    let moment = |name: &str| record[name].as_str().map(|at| format!("{}, {}", written(at), away(at, now)));
    let mut lines = vec![screen.tinted(&text("operation"), Tone::Strong)];
    let room = screen.width.map_or(usize::MAX, |width| width.saturating_sub(LABEL_INDENT.len()).max(20));
    let mut say = |title: &str, more: String| {
        // A command is copied as a whole, and colours take no room.
        let is_whole = title == "next" || screen.has_colour && title == "state";
        let more = if is_whole { vec![more] } else { wrapped(&more, room) };
        let label = screen.tinted(&format!("{title:<12}"), Tone::Quiet);
        lines.push(format!("  {label} {}", more[0]));
        lines.extend(more[1..].iter().map(|more| format!("{LABEL_INDENT}{more}")));
    };
    say("operation id", text("operationId"));
    say("state", screen.tinted(&text("state"), tone(&text("state"))) + &doubt(&record["doubt"], now));
    if let Some(progress) = probe_progress(&record["doubt"], now) {
        say("probe", progress);
    }
    say("class", text("class"));
    say("attempt", format!("{} (fence {})", record["attempt"], record["fence"]));
    for (title, name) in [
        ("created", "createdAt"),
        ("updated", "updatedAt"),
        ("lease until", "leaseExpiresAt"),
        ("expires", "expiresAt"),
        ("quiet until", "quietUntil"),
    ] {
        if let Some(moment) = moment(name) {
            say(title, moment);
        }
    }
    say("key hash", text("keyHash"));
    say("caller hash", text("callerHash"));
    say("response", response(&record["response"]));
    for (title, names) in
        [("resource", &["resourceType", "resourceId"][..]), ("error code", &["errorCode"][..])]
    {
        let values: Vec<_> = names.iter().map(|name| text(name)).filter(|value| !value.is_empty()).collect();
        if !values.is_empty() {
            say(title, values.join(" "));
        }
    }
    if record["earlierDoubt"] == true {
        say("doubt", "an earlier attempt may have taken effect".to_owned());
    }
    if let Some(next) = next_step(record) {
        say("next", next);
    }
    lines.push(String::new());
    lines.extend(history(record, screen));
    lines
}

/// Why nobody knows the outcome, and since when.
fn doubt(doubt: &Value, now: Time) -> String {
    let Some(since) = doubt["since"].as_str() else { return String::new() };
    let how = match doubt["how"].as_str() {
        Some("lapsed") => "the owner of the attempt went silent",
        _ => "the attempt ended without a clear answer",
    };
    format!(", {how} ({})", away(since, now))
}

/// Whether anybody was asked what became of it, and will be.
fn probe_progress(doubt: &Value, now: Time) -> Option<String> {
    doubt["since"].as_str()?;
    if doubt["hasProbe"] == false {
        return Some("none is configured for this operation: an operator has to resolve it".to_owned());
    }
    let progress = match doubt["probes"].as_u64() {
        None | Some(0) => "not asked yet".to_owned(),
        Some(1) => "asked once, without an answer that settles it".to_owned(),
        Some(times) => format!("asked {times} times, without an answer that settles it"),
    };
    let next = match doubt["nextProbeAt"].as_str() {
        // Whether there is a probe at all is known to gateways.
        _ if doubt["hasProbe"] != true => String::new(),
        None => "; not asked again: an operator has to resolve it".to_owned(),
        Some(at) if rfc3339::parse(at).is_some_and(|at| at > now) => format!("; next {}", away(at, now)),
        Some(_) => "; due now".to_owned(),
    };
    Some(progress + &next)
}

fn response(response: &Value) -> String {
    let Some(protocol) = response["protocol"].as_str() else { return "none is stored".to_owned() };
    let status = match (protocol, response["status"].as_u64()) {
        ("http", Some(status)) => status.to_string(),
        ("grpc", Some(status)) => format!("gRPC {status}"),
        _ => "a value".to_owned(),
    };
    if protocol == "value" && response["retained"] != true && response["unopened"] != true {
        return "it happened; its response was not stored".to_owned();
    }
    let kept = match (&response["retained"], &response["unopened"]) {
        (Value::Bool(true), _) => "stored",
        (_, Value::Bool(true)) => "stored sealed, and no key here opens it",
        _ => "its body was not stored",
    };
    format!("{status}, {kept}")
}

fn next_step(record: &Value) -> Option<String> {
    let id = record["operationId"].as_str()?;
    if record["canResolve"] == true {
        return Some(format!("semel records resolve {id} --outcome applied|not-applied|failed --reason …"));
    }
    (record["state"] == "FAILED_NOT_REPLAYABLE")
        .then(|| "the next request with the key is the next attempt".to_owned())
}

/// What happened, oldest first: attempt, moment, state and who, and below it what was done and why.
fn history(record: &Value, screen: Screen) -> Vec<String> {
    let entries: Vec<_> = record["history"].as_array().into_iter().flatten().collect();
    let state_width = entries.iter().filter_map(|entry| entry["state"].as_str()).map(str::len).max();
    let mut lines = vec![screen.tinted("HISTORY", Tone::Quiet)];
    for entry in entries {
        let text = |name: &str| printable(entry[name].as_str().unwrap_or_default());
        let (state, who) = (text("state"), text("who"));
        let room = " ".repeat(state_width.unwrap_or_default().saturating_sub(state.len()));
        let state = screen.tinted(&state, tone(&state));
        let attempt = format!("attempt {}", entry["attempt"]);
        lines.push(format!("  {}  {attempt}  {state}{room}  by {who}", written(&text("at"))));
        let why = text("why");
        if !why.is_empty() {
            let width =
                screen.width.map_or(usize::MAX, |width| width.saturating_sub(WHY_INDENT.len()).max(20));
            lines.extend(wrapped(&why, width).into_iter().map(|line| format!("{WHY_INDENT}{line}")));
        }
    }
    match record["historyDropped"].as_u64() {
        None | Some(0) => {}
        Some(dropped) => lines.push(format!("  ({dropped} earlier entries were dropped)")),
    }
    lines
}

/// Where what follows a label begins.
const LABEL_INDENT: &str = "               ";

/// Where the reason of a history's entry begins.
const WHY_INDENT: &str = "      ";

/// The stored answer, as it would be sent.
fn answer(response: &Value, screen: Screen) -> Vec<String> {
    let mut lines = vec![String::new()];
    let pairs = |name: &str| response[name].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| printable(value.as_str().unwrap_or_default());
    if response["headers"].is_null() || response["retained"] != true {
        let note = "no response is stored";
        lines.push(screen.tinted(note, Tone::Quiet));
        return lines;
    }
    for pair in pairs("headers").iter().chain(&pairs("trailers")) {
        lines.push(format!("{}: {}", screen.tinted(&text(&pair[0]), Tone::Quiet), text(&pair[1])));
    }
    lines.push(String::new());
    match (response["body"].as_str(), response["bodyBase64"].as_str()) {
        (Some(""), _) | (None, None | Some("")) => {
            lines.push(screen.tinted("the body is empty", Tone::Quiet));
        }
        (Some(body), _) => lines.extend(body.lines().map(printable)),
        (None, Some(body)) => lines.push(format!("(base64) {body}")),
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const ID: &str = "0190c1de-5a4e-8d2b-b1c5-3a7d5e6f7a8b";

    fn shown(record: &Value, width: Option<usize>) -> String {
        let now = rfc3339::parse("2026-11-17T12:00:00Z").expect("a moment");
        describe(record, now, Screen { width, has_colour: false }).join("\n")
    }

    fn record(state: &str, more: &Value) -> Value {
        let mut record = json!({
            "operationId": ID, "operation": "charge", "state": state, "class": "external", "attempt": 1,
            "fence": 1_794_916_800_000_u64, "createdAt": "2026-11-17T11:30:00.000Z",
            "updatedAt": "2026-11-17T11:31:00.000Z", "keyHash": "5f0c9d6e", "callerHash": "a1b2c3d4",
            "history": [],
        });
        if let (Some(record), Some(more)) = (record.as_object_mut(), more.as_object()) {
            record.extend(more.clone());
        }
        record
    }

    fn unknown(doubt: &Value) -> Value {
        let history = json!([
            {"attempt": 1, "state": "PROCESSING", "at": "2026-11-17T11:30:00.000Z", "who": "node-a", "why": ""},
            {"attempt": 1, "state": "UNKNOWN", "at": "2026-11-17T11:31:00.000Z", "who": "node-a",
             "why": "the connection closed, or the response was not valid HTTP"},
        ]);
        record("UNKNOWN", &json!({"doubt": doubt, "canResolve": true, "history": history}))
    }

    #[test]
    fn a_record_without_a_probe_says_so() {
        let doubt =
            json!({"how": "owner", "since": "2026-11-17T11:31:00.000Z", "hasProbe": false, "probes": 0});
        crate::texts::assert_is("show-no-probe", &shown(&unknown(&doubt), Some(80)));
    }

    #[test]
    fn a_stored_response_is_printed_below_its_record() {
        let response = json!({
            "protocol": "http", "status": 201, "retained": true,
            "headers": [["location", "/charges/7"], ["content-type", "application/json"]],
            "body": "{\n  \"id\": 7\n}",
        });
        let more = json!({
            "expiresAt": "2026-11-18T11:31:00.000Z", "response": response, "resourceType": "charge", "resourceId": "7",
        });
        let record = record("SUCCEEDED", &more);
        let body = answer(&record["response"], Screen { width: Some(80), has_colour: false }).join("\n");
        crate::texts::assert_is("show-body", &format!("{}\n{body}", shown(&record, Some(80))));
    }

    #[test]
    fn an_empty_body_differs_from_no_body() {
        let screen = Screen { width: Some(80), has_colour: false };
        let last = |response: Value| answer(&response, screen).pop().unwrap_or_default();
        let empty = json!({ "protocol": "http", "status": 204, "retained": true, "headers": [], "body": "" });
        assert_eq!(last(empty), "the body is empty");
        let too_large = json!({ "protocol": "http", "status": 201, "retained": false, "headers": [] });
        assert_eq!(last(too_large), "no response is stored");
        let erased = json!({ "protocol": "http", "status": 201, "retained": false });
        assert_eq!(last(erased), "no response is stored");
    }

    #[test]
    fn the_progress_of_probes_is_shown() {
        let progress =
            |doubt: Value| probe_progress(&doubt, rfc3339::parse("2026-11-17T12:00:00Z").expect("a moment"));
        let since = "2026-11-17T11:31:00.000Z";
        let (later, before) = ("2026-11-17T12:05:00.000Z", "2026-11-17T11:59:00.000Z");
        let texts = [
            json!({"since": since, "hasProbe": true, "probes": 0, "nextProbeAt": before}),
            json!({"since": since, "hasProbe": true, "probes": 1, "nextProbeAt": later}),
            json!({"since": since, "hasProbe": true, "probes": 9}),
            json!({"since": since, "probes": 2, "nextProbeAt": later}),
            json!({}),
        ]
        .map(progress);
        let texts = texts.map(Option::unwrap_or_default);
        assert_eq!(
            texts.each_ref().map(String::as_str),
            [
                "not asked yet; due now",
                "asked once, without an answer that settles it; next in 5m",
                "asked 9 times, without an answer that settles it; not asked again: an operator has to resolve it",
                "asked 2 times, without an answer that settles it",
                "",
            ]
        );
    }

    #[test]
    fn a_history_shows_who_did_what_and_why() {
        let history = json!([
            {"attempt": 1, "state": "PROCESSING", "at": "2026-11-17T11:30:00.000Z", "who": "node-a", "why": ""},
            {"attempt": 1, "state": "UNKNOWN", "at": "2026-11-17T11:31:00.000Z", "who": "node-b",
             "why": "the owner went silent and its lease ran out"},
            {"attempt": 1, "state": "FAILED_NOT_REPLAYABLE", "at": "2026-11-17T11:40:00.000Z", "who": "ops",
             "why": "resolved as not-applied: the provider's ledger has no charge for this operation ID, and the provider \
                     confirmed by telephone that none is pending"},
        ]);
        let record = record(
            "FAILED_NOT_REPLAYABLE",
            &json!({"expiresAt": "2026-11-18T11:40:00.000Z", "history": history, "historyDropped": 2}),
        );
        crate::texts::assert_is("show-history", &shown(&record, Some(80)));
    }
}
