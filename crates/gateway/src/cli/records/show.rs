//! `semel records show`.
//!
//! What lives here: one record, for people. What must never: what was answered, where nobody asked to see it.

use super::super::moment::{away, written};
use super::super::place::ask_record;
use super::super::stop::Stop;
use super::super::table::{Cell, Column, Gives, Screen, Table, Tone, clean};
use super::tone;
use crate::admin_client::Desk;
use crate::serve::say;
use http::Method;
use semel::SystemClock;
use semel::archive::rfc3339;
use semel::core::store::Clock as _;
use semel::core::time::Time;
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
    pub(super) async fn run(&self, desk: &Desk, is_json: bool) -> Result<(), Stop> {
        let path = format!("/v1/records/{}", super::whole(desk, &self.id, is_json).await?);
        let mut record = ask_record(desk, Method::GET, &path, None, is_json).await?;
        if !self.body {
            withhold(&mut record);
        }
        let response = &record["response"];
        let is_withheld = self.body && response["retained"] == true && response["headers"].is_null();
        if is_json {
            say(&record.to_string());
        } else {
            let screen = Screen::of_stdout();
            say(&told(&record, SystemClock.now(), screen).join("\n"));
            if self.body && !is_withheld {
                say(&answer(response, screen).join("\n"));
            }
        }
        if is_withheld {
            return Err(Stop::failed(
                "the stored response is not shown: that needs a token with the role `bodies` (or --store URL, for whoever may read \
                 the store)",
            ));
        }
        Ok(())
    }
}

/// Takes out what only `--body` shows, whatever the token's roles.
fn withhold(record: &mut Value) {
    if let Some(record) = record.as_object_mut() {
        record.remove("fingerprint");
    }
    if let Some(response) = record.get_mut("response").and_then(Value::as_object_mut) {
        response.retain(|name, _| ["protocol", "status", "retained"].contains(&name.as_str()));
    }
}

/// The record in lines.
pub(super) fn told(record: &Value, now: Time, screen: Screen) -> Vec<String> {
    let text = |name: &str| record[name].as_str().unwrap_or_default();
    let moment = |name: &str| record[name].as_str().map(|at| format!("{}, {}", written(at), away(at, now)));
    let mut lines = vec![screen.tinted(&clean(text("operation")), Tone::Strong)];
    let mut say = |what: &str, more: String| {
        lines.push(format!("  {} {}", screen.tinted(&format!("{what:<12}"), Tone::Quiet), more));
    };
    say("operation id", text("operationId").to_owned());
    say("state", screen.tinted(text("state"), tone(text("state"))) + &doubt(&record["doubt"], now));
    say("class", text("class").to_owned());
    say("attempt", format!("{} (fence {})", record["attempt"], record["fence"]));
    for (what, name) in [
        ("created", "createdAt"),
        ("updated", "updatedAt"),
        ("lease until", "leaseExpiresAt"),
        ("expires", "expiresAt"),
        ("quiet until", "quietUntil"),
    ] {
        if let Some(moment) = moment(name) {
            say(what, moment);
        }
    }
    say("key hash", text("keyHash").to_owned());
    say("caller hash", text("callerHash").to_owned());
    say("response", response(&record["response"]));
    for (what, names) in
        [("resource", &["resourceType", "resourceId"][..]), ("error code", &["errorCode"][..])]
    {
        let said: Vec<_> = names.iter().map(|name| text(name)).filter(|said| !said.is_empty()).collect();
        if !said.is_empty() {
            say(what, clean(&said.join(" ")));
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

fn doubt(doubt: &Value, now: Time) -> String {
    let Some(since) = doubt["since"].as_str() else { return String::new() };
    let how = match doubt["how"].as_str() {
        Some("lapsed") => "its owner fell silent",
        _ => "its owner could not tell",
    };
    let asked = match doubt["probes"].as_u64() {
        None | Some(0) => String::new(),
        Some(1) => "; somebody was asked once, in vain".to_owned(),
        Some(times) => format!("; somebody was asked {times} times, in vain"),
    };
    // What is due by now is asked as soon as there is somebody to ask.
    let next = doubt["nextProbeAt"].as_str().filter(|at| rfc3339::parse(at).is_some_and(|at| at > now));
    let next = next.map(|at| format!("; asked next {}", away(at, now)));
    format!(", {how} ({}){asked}{}", away(since, now), next.unwrap_or_default())
}

fn response(response: &Value) -> String {
    let Some(protocol) = response["protocol"].as_str() else { return "none is kept".to_owned() };
    let status = match (protocol, response["status"].as_u64()) {
        ("http", Some(status)) => status.to_string(),
        ("grpc", Some(status)) => format!("gRPC {status}"),
        _ => "a value".to_owned(),
    };
    if protocol == "value" && response["retained"] != true {
        return "it happened; its answer was not kept".to_owned();
    }
    let kept = if response["retained"] == true {
        "kept"
    } else {
        "its bytes were not kept, or cannot be opened here"
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

fn history(record: &Value, screen: Screen) -> Vec<String> {
    let columns = vec![
        Column::number("ATTEMPT", Gives::Way(1)),
        Column::text("STATE", Gives::Nothing),
        Column::text("AT", Gives::Nothing),
        Column::text("BY", Gives::Ends),
        Column::text("WHY", Gives::Ends),
    ];
    let rows = record["history"].as_array().into_iter().flatten().map(|entry| {
        let text = |name: &str| entry[name].as_str().unwrap_or_default();
        vec![
            Cell::new(entry["attempt"].to_string()),
            Cell::new(text("state")).tone(tone(text("state"))),
            Cell::new(written(text("at")).trim_end_matches(" UTC")),
            Cell::new(text("who")),
            Cell::new(text("why")),
        ]
    });
    let rows: Vec<_> = rows.collect();
    let mut lines = Table::new(screen, columns).lines(&rows);
    match record["historyDropped"].as_u64() {
        None | Some(0) => {}
        Some(dropped) => lines.push(format!("({dropped} earlier entries are not kept)")),
    }
    lines
}

/// The stored answer, as it would be sent.
fn answer(response: &Value, screen: Screen) -> Vec<String> {
    let mut lines = vec![String::new()];
    let pairs = |name: &str| response[name].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| clean(value.as_str().unwrap_or_default());
    if response["headers"].is_null() {
        let what = "no response is stored";
        lines.push(screen.tinted(what, Tone::Quiet));
        return lines;
    }
    for pair in pairs("headers").iter().chain(&pairs("trailers")) {
        lines.push(format!("{}: {}", screen.tinted(&text(&pair[0]), Tone::Quiet), text(&pair[1])));
    }
    lines.push(String::new());
    if let Some(body) = response["body"].as_str() {
        lines.extend(body.lines().map(clean));
    } else if let Some(body) = response["body_base64"].as_str() {
        lines.push(format!("(base64) {body}"));
    }
    lines
}
