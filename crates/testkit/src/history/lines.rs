//! A history as lines of JSON: one for the start of each call, one for its end.

use super::{Answer, Call, History, Operation, Value};
use hex::FromHex;
use semel_core::id::CommandId;
use semel_core::machine::Unchanged;
use semel_core::record::{StateName, Token};
use semel_core::store::{Change, Kind};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use thiserror::Error;

const KINDS: [Kind; 8] = [
    Kind::Unavailable,
    Kind::Ambiguous,
    Kind::Full,
    Kind::ReadOnly,
    Kind::TooLarge,
    Kind::Unfit,
    Kind::DataLost,
    Kind::Closed,
];

/// The line for the start of a call.
pub(super) fn beginning(operation: &Operation) -> String {
    let (ask, expect, next) = match operation.call {
        Call::Get => ("get", None, None),
        Call::Write(Change::Insert(next)) => ("insert", None, Some(next)),
        Call::Write(Change::InsertMarker) => ("insert marker", None, None),
        Call::Write(Change::Replace(expect, next)) => ("replace", Some(expect), Some(next)),
        Call::Write(Change::Remove(expect)) => ("remove", Some(expect), None),
        Call::Write(Change::RemoveMarker) => ("remove marker", None, None),
    };
    let line = json!({
        "at": operation.invoked_at,
        "node": &*operation.node,
        "call": operation.number,
        "id": operation.id.to_hex(),
        "ask": ask,
        "expect": expect.map(|expect| unchanged_to_json(&expect)),
        "next": next.map(|next| value_to_json(&next)),
    });
    format!("{line}\n")
}

/// The line for its answer.
pub(super) fn end(node: &str, number: u64, at: u64, answer: Answer) -> String {
    let (name, shown, kind) = match answer {
        Answer::Done => ("done", None, None),
        Answer::Refused(shown) => ("refused", shown, None),
        Answer::Read(shown) => ("read", shown, None),
        Answer::Failed(kind) => ("failed", None, Some(kind.name())),
        Answer::Ambiguous => ("ambiguous", None, None),
    };
    let shown = shown.map(|value| value_to_json(&value));
    let line =
        json!({ "at": at, "node": node, "call": number, "answer": name, "shown": shown, "kind": kind });
    format!("{line}\n")
}

fn value_to_json(value: &Value) -> Json {
    match value {
        Value::Record { unchanged, digest } => {
            json!({ "record": unchanged_to_json(unchanged), "digest": digest })
        }
        Value::Marker => json!("marker"),
        Value::Unreadable => json!("unreadable"),
    }
}

fn unchanged_to_json(unchanged: &Unchanged) -> Json {
    let token = format!("{:032x}", unchanged.token.bits());
    json!({ "version": unchanged.version, "token": token, "state": unchanged.state.number() })
}

/// Why lines are not a history.
#[derive(Debug, Error)]
pub(super) enum LineError {
    #[error("line {0} is not an event of a history")]
    NotAnEvent(usize),
    #[error("line {line} is not an event of a history: {source}")]
    NotJson { line: usize, source: serde_json::Error },
    #[error("line {0}: this call was started before")]
    StartedTwice(usize),
    #[error("line {0}: this call was never started")]
    NeverStarted(usize),
}

/// Reads lines up to the last complete one.
pub(super) fn parse(text: &str) -> Result<History, LineError> {
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    let mut operations: Vec<Operation> = Vec::new();
    let mut places: BTreeMap<(Arc<str>, u64), usize> = BTreeMap::new();
    for (number, line) in (1..).zip(complete.lines()) {
        let wrong = || LineError::NotAnEvent(number);
        let line: Json =
            serde_json::from_str(line).map_err(|source| LineError::NotJson { line: number, source })?;
        let node: Arc<str> = line["node"].as_str().ok_or_else(wrong)?.into();
        let key = (Arc::clone(&node), line["call"].as_u64().ok_or_else(wrong)?);
        let at = line["at"].as_u64().ok_or_else(wrong)?;
        if line["answer"].is_null() {
            let (id, call) = parse_call(&line).ok_or_else(wrong)?;
            let operation = Operation { node, number: key.1, id, call, invoked_at: at, answer: None };
            if places.insert(key, operations.len()).is_some() {
                return Err(LineError::StartedTwice(number));
            }
            operations.push(operation);
        } else {
            let answer = answered(&line).ok_or_else(wrong)?;
            let index = places.get(&key).and_then(|index| operations.get_mut(*index));
            index.ok_or(LineError::NeverStarted(number))?.answer = Some((at, answer));
        }
    }
    Ok(History::new(operations))
}

fn parse_call(line: &Json) -> Option<(CommandId, Call)> {
    let next = || value_from_json(&line["next"]);
    let expect = || unchanged_from_json(&line["expect"]);
    let call = match line["ask"].as_str()? {
        "get" => Call::Get,
        "insert" => Call::Write(Change::Insert(next()?)),
        "insert marker" => Call::Write(Change::InsertMarker),
        "replace" => Call::Write(Change::Replace(expect()?, next()?)),
        "remove" => Call::Write(Change::Remove(expect()?)),
        "remove marker" => Call::Write(Change::RemoveMarker),
        _ => return None,
    };
    Some((id_from_hex(line["id"].as_str()?)?, call))
}

fn answered(line: &Json) -> Option<Answer> {
    let shown = || match &line["shown"] {
        Json::Null => Some(None),
        value => value_from_json(value).map(Some),
    };
    Some(match line["answer"].as_str()? {
        "done" => Answer::Done,
        "refused" => Answer::Refused(shown()?),
        "read" => Answer::Read(shown()?),
        "failed" => {
            let name = line["kind"].as_str()?;
            Answer::Failed(KINDS.into_iter().find(|kind| kind.name() == name)?)
        }
        "ambiguous" => Answer::Ambiguous,
        _ => return None,
    })
}

fn value_from_json(value: &Json) -> Option<Value> {
    match value.as_str() {
        Some("marker") => Some(Value::Marker),
        Some("unreadable") => Some(Value::Unreadable),
        Some(_) => None,
        None => {
            let unchanged = unchanged_from_json(&value["record"])?;
            Some(Value::Record { unchanged, digest: value["digest"].as_u64()? })
        }
    }
}

fn unchanged_from_json(value: &Json) -> Option<Unchanged> {
    let token = u128::from_str_radix(value["token"].as_str()?, 16).ok()?;
    let state = StateName::from_number(u8::try_from(value["state"].as_u64()?).ok()?)?;
    Some(Unchanged { version: value["version"].as_u64()?, token: Token::from_random(token), state })
}

fn id_from_hex(digits: &str) -> Option<CommandId> {
    FromHex::from_hex(digits).ok().map(CommandId::from_bytes)
}
