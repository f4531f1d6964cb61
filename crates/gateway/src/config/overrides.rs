//! What flags and environment variables set: lines of a file that come before the file.

use super::DEFAULT;
use super::flags::{Flag, Kind};
use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::ops::Range;
use std::sync::LazyLock;
use toml::de::{DeTable, DeValue};

/// The options that flags and environment variables set. They override the file.
#[derive(Clone, Default)]
pub struct Overrides(Vec<Override>);

#[derive(Clone)]
struct Override {
    flag: &'static Flag,
    value: String,
    /// The flag or the variable.
    given_by: String,
}

impl Overrides {
    /// Sets an option as the flag `--name value` would. A switch is "true" or "false".
    ///
    /// # Panics
    ///
    /// If there is no such flag.
    #[must_use]
    pub fn with(self, name: &str, value: &str) -> Self {
        self.given(name, value, format!("--{name}"))
    }

    /// The same, if a mistake in the value is to be reported under another name than the flag's.
    #[must_use]
    pub fn given(mut self, name: &str, value: &str, given_by: impl Into<String>) -> Self {
        let flag = Flag::of(name).unwrap_or_else(|| panic!("there is no flag --{name}"));
        let is_on = !matches!(flag.kind, Kind::Means { .. } | Kind::Replaces { .. }) || value == "true";
        if is_on {
            self.0.push(Override { flag, value: value.to_owned(), given_by: given_by.into() });
        }
        self
    }

    /// Only what was given for these flags.
    pub(crate) fn only(mut self, names: &[&str]) -> Self {
        self.0.retain(|given| names.contains(&given.flag.name));
        self
    }

    /// What was given for a flag.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|given| given.flag.name == name).map(|given| &*given.value)
    }

    /// What is set: the table, the key, the value as a file writes it, and the flag or the variable.
    pub(crate) fn settings(&self) -> impl Iterator<Item = (&'static str, &'static str, String, &str)> {
        self.0.iter().map(|given| (given.flag.table, given.flag.key, given.in_file(), &*given.given_by))
    }

    /// These options as the lines of a file, after `offset` bytes of nothing: its places are then places of no file that is as
    /// long as that.
    pub(super) fn lines(&self, offset: usize) -> GivenLines {
        let mut text = " ".repeat(offset);
        text.push('\n');
        let mut places = Vec::new();
        let set = || self.0.iter().filter(|given| !matches!(given.flag.kind, Kind::Replaces { .. }));
        let tables: BTreeSet<_> = set().map(|given| given.flag.table).collect();
        for table in tables {
            let _ = writeln!(text, "[{table}]");
            let mut keys = BTreeSet::new();
            for given in set().filter(|given| given.flag.table == table) {
                // Of two flags for one key, the first counts: a flag comes before a variable.
                if keys.insert(given.flag.key) {
                    let start = text.len();
                    let _ = writeln!(text, "{} = {}", given.flag.key, given.in_file());
                    places.push((start..text.len(), given.given_by.clone()));
                }
            }
        }
        let replaced = self.0.iter().filter(|given| matches!(given.flag.kind, Kind::Replaces { .. }));
        GivenLines { text, places, replaced: replaced.map(|given| given.flag.table).collect() }
    }
}

impl Override {
    /// The value as a file writes it.
    fn in_file(&self) -> String {
        match self.flag.kind {
            Kind::Text { .. } | Kind::Choice { .. } | Kind::File { .. } => quoted(&self.value),
            // Without leading zeros, which TOML does not have.
            Kind::Number { .. } => {
                self.value.parse::<usize>().map_or_else(|_| self.value.clone(), |n| n.to_string())
            }
            Kind::Switch => self.value.clone(),
            Kind::Means { value, .. } => quoted(value),
            Kind::Replaces { shown } => shown.to_owned(),
        }
    }
}

/// Without the values: a URL may have a password in it.
impl fmt::Debug for Overrides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|given| &given.given_by)).finish()
    }
}

/// The lines that flags and variables stand for.
#[derive(Debug, Default)]
pub(super) struct GivenLines {
    pub(super) text: String,
    /// Where in the text each of them is.
    places: Vec<(Range<usize>, String)>,
    /// The tables of the file that do not count.
    replaced: BTreeSet<&'static str>,
}

impl GivenLines {
    /// The flag or the variable at this place, if it is not one of the file.
    pub(super) fn given_by(&self, at: usize) -> Option<&str> {
        self.places.iter().find(|(place, _)| place.contains(&at)).map(|(_, given_by)| &**given_by)
    }

    /// Whether a flag replaces this table.
    pub(super) fn replaces(&self, table: &str) -> bool {
        self.replaced.contains(table)
    }
}

/// A string of a TOML file.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(quoted, "\\U{:08X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// The default of a flag's key, as the command line writes it. None if there is none.
pub(crate) fn default_of(flag: &Flag) -> Option<&'static str> {
    static DEFAULTS: LazyLock<DeTable<'static>> =
        LazyLock::new(|| DeTable::parse(DEFAULT).map(toml::Spanned::into_inner).unwrap_or_default());
    match DEFAULTS.get(flag.table)?.get_ref().as_table()?.get(flag.key)?.get_ref() {
        DeValue::String(text) => Some(text),
        DeValue::Integer(number) => Some(number.as_str()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::flags::FLAGS;
    use super::*;

    #[test]
    fn every_text_is_the_value_that_it_was() {
        for text in ["", "a b", "\"\\", "\u{1b}[2J\n\u{202e}é", "C:\\key.pem"] {
            let file = format!("a = {}", quoted(text));
            let read = DeTable::parse(&file).expect("TOML");
            assert_eq!(read.get_ref().get("a").and_then(|value| value.get_ref().as_str()), Some(text));
        }
    }

    #[test]
    fn each_line_is_found_by_its_place() {
        let over = Overrides::default().with("ttl", "1h").given("listen", ":80", "SEMEL_LISTEN");
        let lines = over.lines(10);
        let at = |text: &str| lines.text.find(text).expect("it is there");
        assert_eq!(lines.given_by(at("1h")), Some("--ttl"));
        assert_eq!(lines.given_by(at("address")), Some("SEMEL_LISTEN"));
        assert_eq!(lines.given_by(0), None);
        assert!(at("[") > 10 && !lines.replaces("identity"));
        let over = over.with("anonymous", "true").with("require-key", "false");
        assert!(over.lines(0).replaces("identity") && !over.lines(0).text.contains("required"));
        assert!(over.with("connections-max", "+05").lines(0).text.contains("connections_max = 5\n"));
    }

    #[test]
    fn the_command_line_has_the_defaults_of_the_file() {
        let default = |name| Flag::of(name).and_then(default_of);
        assert_eq!(default("ttl"), Some("24h"));
        assert_eq!(default("connections-max"), Some("4096"));
        assert_eq!((default("upstream"), default("fresh-connections")), (None, None));
        assert!(FLAGS.iter().filter_map(default_of).count() > 10);
    }
}
