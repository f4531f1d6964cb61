//! What a probe's responses mean: by status, and by values in a JSON body. No response has two meanings.

use crate::callbacks::{Condition, Meaning};
use crate::config::table::Table;
use semel::core::fingerprint::Pointer;
use serde_json::Value as Json;
use toml::de::DeValue;

pub(super) fn read(table: &Table<'_, '_>) -> Meaning {
    let usual = Meaning::default();
    let meaning = Meaning {
        applied: statuses(table, "applied").unwrap_or(usual.applied),
        applied_if: conditions(table, "applied_if"),
        not_applied: statuses(table, "not_applied").unwrap_or(usual.not_applied),
        not_applied_if: conditions(table, "not_applied_if"),
    };
    let at = table.span_of("not_applied").or_else(|| table.span_of("applied"));
    if let Some(both) = meaning.applied.iter().find(|status| meaning.not_applied.contains(status)) {
        let problem = format!("status {both} would mean both that it happened and that it did not");
        let fix = "remove it from one list; if the body decides, write applied_if and not_applied_if";
        table.document.mistake(at.as_ref(), problem, fix);
    }
    let written = table.value("applied").map(toml::Spanned::get_ref);
    if matches!(written, Some(DeValue::Array(list)) if list.is_empty()) {
        let problem = "no response would ever mean that it happened";
        table.document.mistake(
            table.span_of("applied").as_ref(),
            problem,
            "write the statuses that do, such as [200]",
        );
    }
    if !meaning.applied_if.is_empty() && meaning.applied_if == meaning.not_applied_if {
        let problem = "the same response would mean both that it happened and that it did not";
        table.document.mistake(
            table.span_of("not_applied_if").as_ref(),
            problem,
            "write different values for the two cases",
        );
    }
    meaning
}

fn statuses(table: &Table<'_, '_>, key: &'static str) -> Option<Vec<u16>> {
    let mut found = Vec::new();
    for value in table.list(key)? {
        let number = value.get_ref().as_integer().and_then(|number| number.as_str().parse::<u16>().ok());
        match number {
            // A service that answers with one of these has not looked the operation up.
            Some(status @ (401 | 403 | 407 | 408 | 425 | 429 | 500..=599)) => {
                let problem = format!("status {status} says nothing about the outcome of an operation");
                let fix = "remove it; after such a response the probe is sent again";
                table.document.mistake(Some(&value.span()), problem, fix);
            }
            Some(status @ 200..=499) => found.push(status),
            _ => {
                let fix = "write a number from 200 to 499";
                table.document.mistake(Some(&value.span()), "a probe cannot use this status", fix);
            }
        }
    }
    Some(found)
}

/// `{ "/status" = "paid" }`, or `{ "/status" = ["paid", "settled"] }`.
fn conditions(table: &Table<'_, '_>, key: &'static str) -> Vec<Condition> {
    let mut found = Vec::new();
    let Some(value) = table.value(key) else { return found };
    let DeValue::Table(entries) = value.get_ref() else {
        table.wrong(key, value, "a table, such as { \"/status\" = \"paid\" }");
        return found;
    };
    for (destination, value) in entries {
        let pointer: &str = destination.get_ref();
        if let Err(error) = Pointer::parse(pointer) {
            let problem = format!("`{pointer}` is not a JSON pointer: {error}");
            table.document.mistake(
                Some(&destination.span()),
                problem,
                "write a JSON pointer into the body, such as \"/status\"",
            );
            continue;
        }
        let one = std::slice::from_ref(value);
        let many: Vec<_> = match value.get_ref() {
            DeValue::Array(list) => list.iter().collect(),
            _ => one.iter().collect(),
        };
        let values: Vec<_> = many.iter().filter_map(|value| json(value.get_ref())).collect();
        if values.len() < many.len() || values.is_empty() {
            let problem = format!("the value at `{pointer}` could never be this");
            let fix = "write a string, a whole number, true or false, or a list of these";
            table.document.mistake(Some(&value.span()), problem, fix);
            continue;
        }
        found.push(Condition { pointer: pointer.to_owned(), values });
    }
    found
}

fn json(value: &DeValue<'_>) -> Option<Json> {
    match value {
        DeValue::String(text) => Some(Json::from(&**text)),
        DeValue::Boolean(is) => Some(Json::from(*is)),
        DeValue::Integer(number) if number.radix() == 10 => {
            number.as_str().parse::<i64>().ok().map(Json::from)
        }
        _ => None,
    }
}
