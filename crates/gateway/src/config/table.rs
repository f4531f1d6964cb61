//! Tables of a file, read key by key.
//!
//! What lives here: a table that remembers which keys it was asked for, so that whatever else stands in it is a mistake. What
//! must never: a value that is passed over in silence, or an end at the first mistake.

use super::Environment;
use super::mistake::{Mistake, Place, parted};
use super::nearest::nearest;
use crate::cli::{size, span};
use semel::quota::Rate;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

pub(super) type Span = Range<usize>;
pub(super) type Value<'i> = Spanned<DeValue<'i>>;

/// The top of a file, as messages name it.
pub(super) const TOP: &str = "the top level of the file";

/// A file as it is read, and what was found wrong with it so far.
pub(super) struct Page<'i> {
    text: &'i str,
    pub(super) environment: &'i Environment<'i>,
    mistakes: RefCell<Vec<Mistake>>,
    /// Which keys each kind of table was asked for.
    known: RefCell<BTreeMap<&'static str, BTreeSet<&'static str>>>,
    /// Keys that nobody asked for.
    strangers: RefCell<Vec<(&'static str, String, Span)>>,
}

impl<'i> Page<'i> {
    pub(super) fn new(text: &'i str, environment: &'i Environment<'i>) -> Self {
        Self {
            text,
            environment,
            mistakes: RefCell::default(),
            known: RefCell::default(),
            strangers: RefCell::default(),
        }
    }

    pub(super) fn mistake(&self, span: Option<&Span>, what: impl Into<String>, mend: impl Into<String>) {
        let at = span.map(|span| Place::of(self.text, span));
        self.mistakes.borrow_mut().push(Mistake { at, what: what.into(), mend: mend.into() });
    }

    /// A mistake in the words of whoever found it.
    pub(super) fn told(&self, span: Option<&Span>, told: &str) {
        let (what, mend) = parted(told);
        self.mistake(span, what, mend);
    }

    /// Which keys each kind of table has.
    #[cfg(test)]
    pub(super) fn known(&self) -> BTreeMap<&'static str, BTreeSet<&'static str>> {
        self.known.borrow().clone()
    }

    /// Everything that is wrong, in the order of the file.
    pub(super) fn end(self) -> Vec<Mistake> {
        let known = self.known.borrow();
        for (label, key, span) in self.strangers.take() {
            let here = known.get(label).into_iter().flatten().copied();
            let elsewhere =
                known.iter().find(|(_, keys)| keys.contains(key.as_str())).map(|(label, _)| *label);
            let mend = match (nearest(&key, here), elsewhere) {
                (_, Some(elsewhere)) => format!("put it under {elsewhere}"),
                (Some(meant), None) => format!("write `{meant}`"),
                (None, None) => "take it out; `semel config default` shows every key".to_owned(),
            };
            self.mistake(Some(&span), format!("unknown key `{key}` in {label}"), mend);
        }
        let mut mistakes = self.mistakes.take();
        mistakes.sort_by_key(|mistake| mistake.at);
        mistakes
    }
}

/// What a value is, in words.
fn kind(value: &DeValue<'_>) -> &'static str {
    match value.type_str() {
        "integer" => "a whole number",
        "float" => "a number",
        "boolean" => "true or false",
        "datetime" => "a date",
        "array" => "a list",
        "table" => "a table",
        _ => "a string",
    }
}

/// One table.
pub(super) struct Table<'p, 'i> {
    pub(super) page: &'p Page<'i>,
    label: &'static str,
    at: Option<Span>,
    entries: Option<&'p DeTable<'i>>,
}

impl<'p, 'i> Table<'p, 'i> {
    pub(super) fn top(page: &'p Page<'i>, entries: &'p DeTable<'i>) -> Self {
        Self { page, label: TOP, at: None, entries: Some(entries) }
    }

    /// What stands under `key`, which is known from now on.
    pub(super) fn value(&self, key: &'static str) -> Option<&'p Value<'i>> {
        self.page.known.borrow_mut().entry(self.label).or_default().insert(key);
        self.entries?.get(key)
    }

    /// Where `key` stands, if it does.
    pub(super) fn span_of(&self, key: &str) -> Option<Span> {
        self.entries?.get_key_value(key).map(|(key, _)| key.span())
    }

    /// Where the table begins, as well as can be told.
    pub(super) fn span(&self) -> Option<Span> {
        self.at.clone()
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.entries.is_some_and(|entries| entries.contains_key(key))
    }

    /// Whatever nobody asked for is a mistake.
    pub(super) fn end(self) {
        let known = self.page.known.borrow();
        let known = known.get(self.label);
        for (key, _) in self.entries.into_iter().flatten() {
            let name: &str = key.get_ref();
            if !known.is_some_and(|known| known.contains(name)) {
                self.page.strangers.borrow_mut().push((self.label, name.to_owned(), key.span()));
            }
        }
    }

    /// The value is of another type than `wanted`. Only `true` and `false` are repeated: a number may be a secret.
    pub(super) fn wrong(&self, key: &str, value: &Value<'_>, wanted: &str) {
        let found = match value.get_ref() {
            DeValue::Boolean(is) => format!("`{is}`"),
            other => kind(other).to_owned(),
        };
        let what = format!("`{key}`: expected {wanted}, found {found}");
        self.page.mistake(Some(&value.span()), what, format!("write {wanted}"));
    }

    /// A number without its unit, where a text with one is wanted; `suggest` makes that of the digits.
    fn without_unit(&self, key: &str, value: &Value<'_>, wanted: &str, suggest: impl Fn(&str) -> String) {
        let number = value.get_ref().as_integer().filter(|number| number.radix() == 10);
        let Some(digits) = number.map(toml::de::DeInteger::as_str) else {
            let example = suggest("10");
            return self.wrong(key, value, &format!("{wanted} such as {example}"));
        };
        let what = format!("`{key}`: expected {wanted}, found `{digits}`");
        self.page.mistake(Some(&value.span()), what, format!("write {}", suggest(digits)));
    }

    /// So many within so much time.
    pub(super) fn rate(&self, key: &'static str) -> Option<Rate> {
        let value = self.value(key)?;
        if value.get_ref().as_str().is_none() {
            self.without_unit(key, value, "a rate", |digits| format!("\"{digits}/1m\""));
            return None;
        }
        self.parsed(key, super::records::rate)
    }

    pub(super) fn text(&self, key: &'static str) -> Option<(&'p str, Span)> {
        let value = self.value(key)?;
        let DeValue::String(text) = value.get_ref() else {
            self.wrong(key, value, "a string in quotation marks");
            return None;
        };
        Some((text, value.span()))
    }

    pub(super) fn parsed<T>(
        &self,
        key: &'static str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let (text, span) = self.text(key)?;
        parse(text).map_err(|told| self.page.told(Some(&span), &told)).ok()
    }

    pub(super) fn duration(&self, key: &'static str) -> Option<Duration> {
        let value = self.value(key)?;
        if value.get_ref().as_str().is_none() {
            self.without_unit(key, value, "a duration", |digits| format!("\"{digits}s\""));
            return None;
        }
        self.parsed(key, span::parse)
    }

    /// A span that must not be zero.
    pub(super) fn limit(&self, key: &'static str) -> Option<Duration> {
        let limit = self.duration(key)?;
        if limit.is_zero() {
            let what = format!("`{key}` is zero: nothing could be done within it");
            self.page.mistake(self.span_of(key).as_ref(), what, "write a longer duration");
            return None;
        }
        Some(limit)
    }

    pub(super) fn size(&self, key: &'static str) -> Option<usize> {
        let value = self.value(key)?;
        if value.get_ref().as_str().is_none() {
            self.without_unit(key, value, "a size", |digits| format!("\"{digits}MiB\""));
            return None;
        }
        self.parsed(key, size::parse)
    }

    pub(super) fn is(&self, key: &'static str) -> Option<bool> {
        let value = self.value(key)?;
        let is = value.get_ref().as_bool();
        if is.is_none() {
            self.wrong(key, value, "true or false");
        }
        is
    }

    /// A whole number from `least` on.
    pub(super) fn count<T: TryFrom<u64>>(&self, key: &'static str, least: u64) -> Option<T> {
        let value = self.value(key)?;
        let Some(number) = value.get_ref().as_integer() else {
            self.wrong(key, value, "a whole number");
            return None;
        };
        let number = u64::from_str_radix(number.as_str(), number.radix()).ok();
        let fit = number.filter(|number| *number >= least).and_then(|number| T::try_from(number).ok());
        if fit.is_none() {
            let what = format!("`{key}` is out of range");
            self.page.mistake(Some(&value.span()), what, format!("write a whole number from {least} on"));
        }
        fit
    }

    pub(super) fn choice<T: Copy>(&self, key: &'static str, choices: &[(&str, T)]) -> Option<T> {
        let names: Vec<_> = choices.iter().map(|(name, _)| format!("\"{name}\"")).collect();
        let value = self.value(key)?;
        if value.get_ref().as_str().is_none() {
            self.wrong(key, value, &names.join(" or "));
            return None;
        }
        self.parsed(key, |text| {
            let chosen = choices.iter().find(|(name, _)| *name == text).map(|(_, chosen)| *chosen);
            chosen.ok_or_else(|| format!("`{key}` cannot be \"{text}\": write {}", names.join(" or ")))
        })
    }

    /// The elements of a list.
    pub(super) fn list(&self, key: &'static str) -> Option<Vec<&'p Value<'i>>> {
        let value = self.value(key)?;
        let DeValue::Array(list) = value.get_ref() else {
            self.wrong(key, value, "a list in square brackets");
            return None;
        };
        Some(list.iter().collect())
    }

    /// The texts of a list, each with its place.
    pub(super) fn texts(&self, key: &'static str) -> Option<Vec<(&'p str, Span)>> {
        let list = self.list(key)?;
        let text = |value: &&'p Value<'i>| {
            let text = value.get_ref().as_str();
            if text.is_none() {
                self.wrong(key, value, "strings in quotation marks");
            }
            text.map(|text| (text, value.span()))
        };
        Some(list.iter().filter_map(text).collect())
    }

    /// The texts of a list, each read by `parse`.
    pub(super) fn parsed_list<T>(
        &self,
        key: &'static str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        let read =
            |(text, span): &(&str, Span)| parse(text).map_err(|told| self.page.told(Some(span), &told)).ok();
        Some(self.texts(key)?.iter().filter_map(read).collect())
    }

    /// A table below this one; an empty one where there is none.
    pub(super) fn table(&self, key: &'static str, label: &'static str) -> Table<'p, 'i> {
        let value = self.value(key);
        let entries = value.and_then(|value| {
            let table = value.get_ref().as_table();
            if table.is_none() {
                self.wrong(key, value, &format!("a table, {label}"));
            }
            table
        });
        Table { page: self.page, label, at: self.span_of(key), entries }
    }

    /// A list of tables below this one.
    pub(super) fn tables(&self, key: &'static str, label: &'static str) -> Vec<Table<'p, 'i>> {
        let Some(list) = self.list(key) else { return Vec::new() };
        let table = |value: &&'p Value<'i>| {
            let entries = value.get_ref().as_table();
            if entries.is_none() {
                self.wrong(key, value, &format!("tables, {label}"));
            }
            entries.map(|entries| Table {
                page: self.page,
                label,
                at: Some(value.span()),
                entries: Some(entries),
            })
        };
        list.iter().filter_map(table).collect()
    }
}
