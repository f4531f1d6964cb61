//! What a probe's answers mean.
//!
//! What lives here: statuses, and places of a JSON body. What must never: an answer with two meanings, or one that says nothing
//! taken for one that does.

use crate::ask::{Condition, Meaning};
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
        let what = format!("a {both} would say both that it happened and that it did not");
        let mend = "take it out of one list; where the body tells, write applied_if and not_applied_if";
        table.page.mistake(at.as_ref(), what, mend);
    }
    let written = table.value("applied").map(toml::Spanned::get_ref);
    if matches!(written, Some(DeValue::Array(list)) if list.is_empty()) {
        let what = "no answer would ever say that it happened";
        table.page.mistake(
            table.span_of("applied").as_ref(),
            what,
            "write the statuses that do, such as [200]",
        );
    }
    if !meaning.applied_if.is_empty() && meaning.applied_if == meaning.not_applied_if {
        let what = "the same answer would say both that it happened and that it did not";
        table.page.mistake(
            table.span_of("not_applied_if").as_ref(),
            what,
            "write what the body says in each case",
        );
    }
    meaning
}

fn statuses(table: &Table<'_, '_>, key: &'static str) -> Option<Vec<u16>> {
    let mut found = Vec::new();
    for value in table.list(key)? {
        let number = value.get_ref().as_integer().and_then(|number| number.as_str().parse::<u16>().ok());
        match number {
            // Whoever gives one of these has not looked.
            Some(status @ (401 | 403 | 407 | 408 | 425 | 429 | 500..=599)) => {
                let what = format!("a {status} says nothing about what became of an operation");
                let mend = "take it out: such an answer is no answer, and the question is put again";
                table.page.mistake(Some(&value.span()), what, mend);
            }
            Some(status @ 200..=499) => found.push(status),
            _ => {
                let mend = "write a number from 200 to 499";
                table.page.mistake(Some(&value.span()), "that is no status that says anything", mend);
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
    for (place, value) in entries {
        let pointer: &str = place.get_ref();
        if let Err(error) = Pointer::parse(pointer) {
            let what = format!("`{pointer}` is no JSON pointer: {error}");
            table.page.mistake(Some(&place.span()), what, "write a place of the body, such as \"/status\"");
            continue;
        }
        let one = std::slice::from_ref(value);
        let many: Vec<_> = match value.get_ref() {
            DeValue::Array(list) => list.iter().collect(),
            _ => one.iter().collect(),
        };
        let values: Vec<_> = many.iter().filter_map(|value| json(value.get_ref())).collect();
        if values.len() < many.len() || values.is_empty() {
            let what = format!("nothing that stands at `{pointer}` could be that");
            let mend = "write a text, a whole number, true or false, or a list of these";
            table.page.mistake(Some(&value.span()), what, mend);
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
