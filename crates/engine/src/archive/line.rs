//! One record as one line of JSON.
//!
//! Lines contain no tokens: readers of an archive must not be able to finish an attempt.

use super::{Archived, rfc3339};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use semel_core::history;
use semel_core::outcome::{Body, Fields, Outcome, Status};
use semel_core::record::{Record, State};
use serde::Serialize;

/// The version of the format. New fields do not change it; readers ignore unknown fields.
const FORMAT: u32 = 1;

#[derive(Serialize)]
struct Line<'a> {
    format: u32,
    operation_id: String,
    command_id: String,
    key_hash: String,
    caller_hash: String,
    operation: &'a str,
    class: &'static str,
    state: &'static str,
    version: u64,
    attempt: u32,
    fence: u64,
    created_at: String,
    updated_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<Answer<'a>>,
    history_dropped: u32,
    history: Vec<Event<'a>>,
}

#[derive(Serialize)]
struct Answer<'a> {
    protocol: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u32>,
    headers: Vec<(Text<'a>, Text<'a>)>,
    #[serde(flatten)]
    body: Bytes<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    trailers: Vec<(Text<'a>, Text<'a>)>,
}

/// A name or a value: a string, or an object if it is not text.
#[derive(Serialize)]
#[serde(untagged)]
enum Text<'a> {
    Plain(&'a str),
    Binary { base64: String },
}

#[derive(Serialize)]
#[serde(untagged)]
enum Bytes<'a> {
    Plain { body: &'a str },
    Binary { body_base64: String },
    Sealed { body_base64: String, sealed: bool },
    NotRetained { retained: bool },
}

#[derive(Serialize)]
struct Event<'a> {
    attempt: u32,
    to: &'static str,
    at: String,
    who: &'a str,
    why: &'a str,
}

/// Appends the line of `archived`, with its newline.
pub(super) fn write(archived: &Archived<'_>, lines: &mut Vec<u8>) -> serde_json::Result<()> {
    serde_json::to_writer(&mut *lines, &line(archived))?;
    lines.push(b'\n');
    Ok(())
}

fn line<'a>(archived: &Archived<'a>) -> Line<'a> {
    let record = archived.record;
    Line {
        format: FORMAT,
        operation_id: record.operation_id().to_string(),
        command_id: archived.id.to_hex(),
        key_hash: record.key_hash().to_hex(),
        caller_hash: record.caller_hash().to_hex(),
        operation: record.operation(),
        class: record.policy().class.name(),
        state: record.state_name().as_str(),
        version: record.version(),
        attempt: record.attempt(),
        fence: record.fence(),
        created_at: rfc3339::text(record.created_at()),
        updated_at: rfc3339::text(record.updated_at()),
        expires_at: expires_at(record),
        outcome: outcome(record).map(answer),
        history_dropped: record.history().dropped(),
        history: record.history().entries().iter().map(event).collect(),
    }
}

/// The expiry of the archived state.
fn expires_at(record: &Record) -> Option<String> {
    match record.state() {
        State::Succeeded { expires_at, .. }
        | State::FailedReplayable { expires_at, .. }
        | State::FailedNotReplayable { expires_at, .. }
        | State::Expired { until: expires_at } => Some(rfc3339::text(*expires_at)),
        State::Claimed { .. } | State::Processing { .. } | State::Unknown { .. } => None,
    }
}

fn outcome(record: &Record) -> Option<&Outcome> {
    match record.state() {
        State::Succeeded { outcome, .. } | State::FailedReplayable { outcome, .. } => Some(outcome),
        State::FailedNotReplayable { outcome, .. } => outcome.as_ref(),
        State::Claimed { .. } | State::Processing { .. } | State::Unknown { .. } | State::Expired { .. } => {
            None
        }
    }
}

fn answer(outcome: &Outcome) -> Answer<'_> {
    let (protocol, status) = match outcome.status {
        Status::Http(code) => ("http", Some(u32::from(code))),
        Status::Grpc(code) => ("grpc", Some(code)),
        Status::Value => ("value", None),
    };
    let body = match &outcome.body {
        Body::NotRetained => Bytes::NotRetained { retained: false },
        Body::Sealed(bytes) => Bytes::Sealed { body_base64: BASE64_STANDARD.encode(bytes), sealed: true },
        Body::Kept(bytes) => match std::str::from_utf8(bytes) {
            Ok(body) => Bytes::Plain { body },
            Err(_) => Bytes::Binary { body_base64: BASE64_STANDARD.encode(bytes) },
        },
    };
    let (headers, trailers) = (fields(&outcome.headers), fields(&outcome.trailers));
    Answer { protocol, status, headers, body, trailers }
}

fn fields(fields: &Fields) -> Vec<(Text<'_>, Text<'_>)> {
    fields.iter().map(|(name, value)| (text(name), text(value))).collect()
}

fn text(bytes: &[u8]) -> Text<'_> {
    std::str::from_utf8(bytes)
        .map_or_else(|_| Text::Binary { base64: BASE64_STANDARD.encode(bytes) }, Text::Plain)
}

fn event(entry: &history::Entry) -> Event<'_> {
    let at = rfc3339::text(entry.at);
    Event { attempt: entry.attempt, to: entry.to.as_str(), at, who: &entry.who, why: &entry.why }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use semel_core::classify::{Answer as Given, Ending, Rules};
    use semel_core::fingerprint::{Limits, Request};
    use semel_core::id::CommandId;
    use semel_core::key::Key;
    use semel_core::machine::{self, Begin, Command, Decision, Found, NewAttempt, Stamp};
    use semel_core::policy::{Class, Policy};
    use semel_core::record::Token;
    use semel_core::scope::{Identity, Operation, Scope, Secret};
    use semel_core::time::Time;
    use serde_json::{Value, json};

    /// A command that was claimed in 2009 and finished with `outcome` a second later.
    pub(in super::super) fn finished(key: &str, outcome: Outcome) -> (CommandId, Record) {
        let secret = Secret::from_bytes(b"0123456789abcdef0123456789abcdef").expect("32 bytes");
        let scope = Scope::new(Identity::api_key("k-17"), Operation::route("POST", "/charges"));
        let key = Key::from_source(key).expect("a key");
        let policy = Policy::new(Class::External).into();
        let payload = (Request::new("POST", "POST /charges", "/charges", b"amount=5"), Limits::default());
        let command = Command::new(&secret, &scope, &key, policy, &payload).expect("a payload");
        let token = Token::from_random(0x5eed_5eed_5eed_5eed_5eed_5eed_5eed_5eed);
        let stamp = |millis| Stamp::new(Time::from_millis(millis), "worker-1", "");
        let new_attempt = NewAttempt { token, begin: Begin::Processing };
        let claimed = stamp(1_234_567_890_123);
        let Decision::Run(claim) = machine::decide(Found::Nothing, &command, new_attempt, claimed) else {
            unreachable!("there is no entry")
        };
        let ending = Ending::of(Class::External, &Given::new(outcome.status), &Rules::default(), outcome);
        let done = machine::finish(&claim.next, token, ending, stamp(1_234_567_891_123)).expect("its owner");
        (command.id, done.next)
    }

    fn parsed(id: CommandId, record: &Record) -> Value {
        let mut lines = Vec::new();
        write(&Archived { id, record }, &mut lines).expect("written to memory");
        assert_eq!(
            lines.iter().position(|byte| *byte == b'\n'),
            Some(lines.len() - 1),
            "one line, and it is ended"
        );
        serde_json::from_slice(&lines).expect("a line of JSON")
    }

    #[test]
    fn a_line_contains_everything_in_the_record() {
        let outcome = Outcome::http(201, [("link", "</a>"), ("link", "</b>")], "{\"id\":7}\nüber");
        let (id, record) = finished("order-1234-charge", outcome);
        let expected = json!({
            "format": 1,
            "operation_id": record.operation_id().to_string(),
            "command_id": id.to_hex(),
            "key_hash": record.key_hash().to_hex(),
            "caller_hash": record.caller_hash().to_hex(),
            "operation": "POST /charges",
            "class": "external",
            "state": "SUCCEEDED",
            "version": 2,
            "attempt": 1,
            "fence": 1_234_567_890_123_u64,
            "created_at": "2009-02-13T23:31:30.123Z",
            "updated_at": "2009-02-13T23:31:31.123Z",
            "expires_at": "2009-02-14T23:31:31.123Z",
            "outcome": {
                "protocol": "http",
                "status": 201,
                "headers": [["link", "</a>"], ["link", "</b>"]],
                "body": "{\"id\":7}\nüber",
            },
            "history_dropped": 0,
            "history": [
                {"attempt": 1, "to": "PROCESSING", "at": "2009-02-13T23:31:30.123Z", "who": "worker-1", "why": ""},
                {"attempt": 1, "to": "SUCCEEDED", "at": "2009-02-13T23:31:31.123Z", "who": "worker-1", "why": ""},
            ],
        });
        assert_eq!(parsed(id, &record), expected);
    }

    #[test]
    fn bytes_that_are_not_text_are_kept_exactly() {
        let outcome =
            Outcome::http(200, [(b"x-raw".as_slice(), [0xff, 0x00].as_slice())], vec![0xff, 0xfe, 0x00]);
        let (id, record) = finished("order-1234-charge", outcome);
        let line = parsed(id, &record);
        assert_eq!(line["outcome"]["body_base64"], "//4A");
        assert_eq!(line["outcome"]["body"], Value::Null);
        assert_eq!(line["outcome"]["headers"], json!([["x-raw", {"base64": "/wA="}]]));
    }

    #[test]
    fn a_sealed_body_stays_sealed_and_says_so() {
        let sealed = Outcome { body: Body::Sealed("abc".into()), ..Outcome::not_retained(Status::Http(200)) };
        let (id, record) = finished("order-1234-charge", sealed);
        let line = parsed(id, &record);
        assert_eq!(line["outcome"]["body_base64"], "YWJj");
        assert_eq!(line["outcome"]["sealed"], true);
        assert_eq!(line["outcome"]["body"], Value::Null);
    }

    #[test]
    fn what_was_not_retained_is_not_taken_for_empty() {
        let (id, record) = finished("order-1234-charge", Outcome::not_retained(Status::Http(200)));
        let line = parsed(id, &record);
        assert_eq!(line["outcome"]["retained"], false);
        assert_eq!((&line["outcome"]["body"], &line["outcome"]["sealed"]), (&Value::Null, &Value::Null));
        let (id, record) = finished("order-1234-charge", Outcome::http::<&str, &str>(200, [], ""));
        assert_eq!(parsed(id, &record)["outcome"]["body"], "");
    }

    #[test]
    fn a_tombstone_has_an_expiry_and_no_outcome() {
        let (id, record) = finished("order-1234-charge", Outcome::value("false"));
        assert_eq!(parsed(id, &record)["outcome"]["protocol"], "value");
        let now = record.expires_at().expect("it expires");
        let stamp = Stamp::new(now, "sweeper", "");
        let tombstone = machine::expire(&record, stamp).expect("it is past its time").next;
        let line = parsed(id, &tombstone);
        assert_eq!((&line["state"], &line["outcome"]), (&json!("EXPIRED"), &Value::Null));
        assert_eq!(line["expires_at"], "2009-03-16T23:31:31.123Z");
    }

    #[test]
    fn no_line_contains_a_token() {
        let (id, record) = finished("order-1234-charge", Outcome::value("1"));
        let line = parsed(id, &record).to_string();
        assert!(!line.contains("5eed") && !line.contains(&record.token().bits().to_string()), "{line}");
    }
}
