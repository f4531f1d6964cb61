//! Tables of a file, read key by key. A key that nobody asked for is a mistake, and all mistakes are collected.

use super::Environment;
use super::mistake::{ConfigError, Position, SettingLocation};
use super::nearest::nearest;
use super::overrides::GivenLines;
use crate::invalid_value::InvalidValue;
use semel::quota::Rate;
use semel_text::{duration, size};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

pub(super) type Span = Range<usize>;
pub(super) type Value<'i> = Spanned<DeValue<'i>>;

/// The top level of a file, in messages.
pub(super) const TOP: &str = "the top level of the file";

/// A file that is being read, with the lines that come before it, and its mistakes so far.
pub(super) struct Document<'i> {
    text: &'i str,
    given: &'i GivenLines,
    given_tables: &'i DeTable<'i>,
    pub(super) environment: &'i Environment<'i>,
    mistakes: RefCell<Vec<ConfigError>>,
    /// Which keys each kind of table was asked for.
    known: RefCell<BTreeMap<&'static str, BTreeSet<&'static str>>>,
    /// Keys that nobody asked for.
    unknown_keys: RefCell<Vec<(&'static str, String, Span)>>,
}

impl<'i> Document<'i> {
    /// `given_tables` are those of `given`, whose text begins after the file's.
    pub(super) fn new(
        text: &'i str,
        (given, given_tables): (&'i GivenLines, &'i DeTable<'i>),
        environment: &'i Environment<'i>,
    ) -> Self {
        Self {
            text,
            given,
            given_tables,
            environment,
            mistakes: RefCell::default(),
            known: RefCell::default(),
            unknown_keys: RefCell::default(),
        }
    }

    pub(super) fn mistake(&self, span: Option<&Span>, problem: impl Into<String>, fix: impl Into<String>) {
        let place = span.map(|span| self.place(span)).unwrap_or_default();
        self.mistakes.borrow_mut().push(place.mistake(problem, fix));
    }

    /// Where `span` is.
    pub(super) fn place(&self, span: &Span) -> SettingLocation {
        match self.given.given_by(span.start) {
            Some(given_by) => SettingLocation { at: None, given_by: Some(given_by.to_owned()) },
            None => SettingLocation { at: Some(Position::of(self.text, span)), given_by: None },
        }
    }

    /// Whether a flag or a variable set what is at `span`.
    pub(super) fn is_given(&self, span: &Span) -> bool {
        self.given.given_by(span.start).is_some()
    }

    pub(super) fn invalid(&self, span: Option<&Span>, InvalidValue { problem, fix }: InvalidValue) {
        let usual = || "write another value; `semel config default` explains it".to_owned();
        self.mistake(span, problem, fix.unwrap_or_else(usual));
    }

    /// Which keys each kind of table has.
    #[cfg(test)]
    pub(super) fn known(&self) -> BTreeMap<&'static str, BTreeSet<&'static str>> {
        self.known.borrow().clone()
    }

    /// All mistakes, in the order of the file.
    pub(super) fn end(self) -> Vec<ConfigError> {
        let known = self.known.borrow();
        for (label, key, span) in self.unknown_keys.take() {
            let keys_of_table = known.get(label).into_iter().flatten().copied();
            let elsewhere =
                known.iter().find(|(_, keys)| keys.contains(key.as_str())).map(|(label, _)| *label);
            let fix = match (nearest(&key, keys_of_table), elsewhere) {
                (_, Some(TOP)) => {
                    format!("[{key}] is a section of its own; `semel config default` shows its keys")
                }
                (_, Some(elsewhere)) => format!("put it under {elsewhere}"),
                (Some(meant), None) => format!("write `{meant}`"),
                (None, None) => "remove it; `semel config default` shows every key".to_owned(),
            };
            self.mistake(Some(&span), format!("unknown key `{key}` in {label}"), fix);
        }
        let mut mistakes = self.mistakes.take();
        mistakes.sort_by_key(|mistake| mistake.at);
        mistakes
    }
}

/// The type of a value, in words.
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
    pub(super) document: &'p Document<'i>,
    label: &'static str,
    at: Option<Span>,
    entries: Option<&'p DeTable<'i>>,
    /// What flags and variables set in this table.
    given: Option<&'p DeTable<'i>>,
}

impl<'p, 'i> Table<'p, 'i> {
    pub(super) fn top(document: &'p Document<'i>, entries: &'p DeTable<'i>) -> Self {
        Self { document, label: TOP, at: None, entries: Some(entries), given: None }
    }

    /// The value of `key`, which is a known key from now on.
    pub(super) fn value(&self, key: &'static str) -> Option<&'p Value<'i>> {
        self.document.known.borrow_mut().entry(self.label).or_default().insert(key);
        self.given.and_then(|given| given.get(key)).or_else(|| self.entries?.get(key))
    }

    /// The position of `key`, if it is set.
    pub(super) fn span_of(&self, key: &str) -> Option<Span> {
        let span = |entries: &DeTable<'_>| entries.get_key_value(key).map(|(key, _)| key.span());
        self.given.and_then(span).or_else(|| self.entries.and_then(span))
    }

    /// The position of one of `keys`: of one that a flag or a variable sets, if there is one.
    pub(super) fn span_of_any(&self, keys: &[&str]) -> Option<Span> {
        let mut spans = keys.iter().filter_map(|key| self.span_of(key));
        let first = spans.next()?;
        let mut all = [first.clone()].into_iter().chain(spans);
        Some(all.find(|span| self.document.is_given(span)).unwrap_or(first))
    }

    /// Whether a flag replaces this table, whatever the file says.
    pub(super) fn is_replaced(&self) -> bool {
        self.document.given.replaces(self.label.trim_matches(['[', ']']))
    }

    /// The position of the table, as far as it is known.
    pub(super) fn span(&self) -> Option<Span> {
        self.at.clone()
    }

    pub(super) fn has(&self, key: &str) -> bool {
        [self.given, self.entries].into_iter().flatten().any(|entries| entries.contains_key(key))
    }

    /// Keys that nobody asked for are mistakes.
    pub(super) fn end(self) {
        let known = self.document.known.borrow();
        let known = known.get(self.label);
        for (key, _) in self.entries.into_iter().flatten() {
            let name: &str = key.get_ref();
            if !known.is_some_and(|known| known.contains(name)) {
                self.document.unknown_keys.borrow_mut().push((self.label, name.to_owned(), key.span()));
            }
        }
    }

    /// Reports a value that is not of the type `expected`. Only `true` and `false` are repeated: a number may be a
    /// secret.
    pub(super) fn wrong(&self, key: &str, value: &Value<'_>, expected: &str) {
        let found = match value.get_ref() {
            DeValue::Boolean(is) => format!("`{is}`"),
            other => kind(other).to_owned(),
        };
        let problem = format!("`{key}`: expected {expected}, found {found}");
        self.document.mistake(Some(&value.span()), problem, format!("write {expected}"));
    }

    /// Reports a number without a unit; `suggest` turns its digits into a correct value.
    fn without_unit(&self, key: &str, value: &Value<'_>, expected: &str, suggest: impl Fn(&str) -> String) {
        let number = value.get_ref().as_integer().filter(|number| number.radix() == 10);
        let Some(digits) = number.map(toml::de::DeInteger::as_str) else {
            let example = suggest("10");
            return self.wrong(key, value, &format!("{expected} such as {example}"));
        };
        let problem = format!("`{key}`: expected {expected}, found `{digits}`");
        self.document.mistake(Some(&value.span()), problem, format!("write {}", suggest(digits)));
    }

    /// A number per duration.
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
        parse: impl FnOnce(&str) -> Result<T, InvalidValue>,
    ) -> Option<T> {
        let (text, span) = self.text(key)?;
        parse(text).map_err(|refused| self.document.invalid(Some(&span), refused)).ok()
    }

    pub(super) fn duration(&self, key: &'static str) -> Option<Duration> {
        let value = self.value(key)?;
        if value.get_ref().as_str().is_none() {
            self.without_unit(key, value, "a duration", |digits| format!("\"{digits}s\""));
            return None;
        }
        self.parsed(key, |text| duration::parse(text).map_err(InvalidValue::of_sentence))
    }

    /// A duration that must not be zero.
    pub(super) fn limit(&self, key: &'static str) -> Option<Duration> {
        let limit = self.duration(key)?;
        if limit.is_zero() {
            let problem = format!("`{key}` must not be zero");
            self.document.mistake(self.span_of(key).as_ref(), problem, "write a longer duration");
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
        self.parsed(key, |text| size::parse(text).map_err(InvalidValue::of_sentence))
    }

    pub(super) fn is(&self, key: &'static str) -> Option<bool> {
        let value = self.value(key)?;
        let is = value.get_ref().as_bool();
        if is.is_none() {
            self.wrong(key, value, "true or false");
        }
        is
    }

    /// A whole number of at least `least`.
    pub(super) fn count<T: TryFrom<u64>>(&self, key: &'static str, least: u64) -> Option<T> {
        let value = self.value(key)?;
        let Some(number) = value.get_ref().as_integer() else {
            self.wrong(key, value, "a whole number");
            return None;
        };
        let number = u64::from_str_radix(number.as_str(), number.radix()).ok();
        let fit = number.filter(|number| *number >= least).and_then(|number| T::try_from(number).ok());
        if fit.is_none() {
            let problem = format!("`{key}` is out of range");
            self.document.mistake(
                Some(&value.span()),
                problem,
                format!("write a whole number of {least} or more"),
            );
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
            let problem = || format!("`{key}` cannot be \"{text}\"");
            chosen.ok_or_else(|| InvalidValue::new(problem(), format!("write {}", names.join(" or "))))
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

    /// The strings of a list, each with its position.
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

    /// The strings of a list, each read by `parse`.
    pub(super) fn parsed_list<T>(
        &self,
        key: &'static str,
        parse: impl Fn(&str) -> Result<T, InvalidValue>,
    ) -> Option<Vec<T>> {
        let read = |(text, span): &(&str, Span)| {
            parse(text).map_err(|refused| self.document.invalid(Some(span), refused)).ok()
        };
        Some(self.texts(key)?.iter().filter_map(read).collect())
    }

    /// A table in this one; an empty one if it is missing.
    pub(super) fn table(&self, key: &'static str, label: &'static str) -> Table<'p, 'i> {
        let value = self.value(key);
        let entries = value.and_then(|value| {
            let table = value.get_ref().as_table();
            if table.is_none() {
                self.wrong(key, value, &format!("a table, {label}"));
            }
            table
        });
        let is_top = self.label == TOP;
        let given = is_top.then(|| self.document.given_tables.get(key)?.get_ref().as_table()).flatten();
        Table { document: self.document, label, at: self.span_of(key), entries, given }
    }

    /// A list of tables in this one.
    pub(super) fn tables(&self, key: &'static str, label: &'static str) -> Vec<Table<'p, 'i>> {
        let Some(list) = self.list(key) else { return Vec::new() };
        let table = |value: &&'p Value<'i>| {
            let entries = value.get_ref().as_table();
            if entries.is_none() {
                self.wrong(key, value, &format!("tables, {label}"));
            }
            entries.map(|entries| Table {
                document: self.document,
                label,
                at: Some(value.span()),
                entries: Some(entries),
                given: None,
            })
        };
        list.iter().filter_map(table).collect()
    }
}
