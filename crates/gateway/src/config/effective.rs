//! The settings in effect, and where each of them comes from. Anything that may be a secret is masked.

use super::mistake::Position;
use super::{DEFAULT, Overrides};
use crate::stores;
use semel_text::masked;
use std::collections::BTreeMap;
use std::fmt;
use toml::de::{DeTable, DeValue};

/// Shown in place of a secret.
const MASKED: &str = "\"(masked)\"";

/// Where a setting comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The default.
    Default,
    /// The file, on this line.
    File(usize),
    /// This environment variable, which overrides the file.
    Variable(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(line) => write!(f, "line {line}"),
            Self::Variable(name) => f.write_str(name),
        }
    }
}

/// One setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Its table, as in `[listen]` or `[[operation]] 2`.
    pub table: String,
    /// Its key.
    pub key: String,
    /// The value, as the file would write it.
    pub value: String,
    /// Where it comes from.
    pub source: Source,
}

/// Every setting that has a value, in the order of the reference. `text` is a file that was [read](super::read) without mistakes.
/// Settings without a default are listed only if they are set; an operation lists what it sets itself.
pub fn settings(text: &str, given: &Overrides) -> Vec<Setting> {
    let mut found = Vec::new();
    let (Some(defaults), Some(file)) = (parsed(DEFAULT), parsed(text)) else { return found };
    // In the order of the reference, because a parsed table has lost its order.
    let mut tables: Vec<(&str, usize)> = defaults
        .iter()
        .filter_map(|(name, value)| {
            value.get_ref().as_table().map(|_| (&**name.get_ref(), name.span().start))
        })
        .collect();
    tables.sort_by_key(|(_, at)| *at);
    for (name, _) in tables {
        let file_table = file.get(name).and_then(|value| value.get_ref().as_table());
        table(
            &mut found,
            name,
            defaults.get(name).and_then(|value| value.get_ref().as_table()),
            file_table,
            text,
            given,
        );
    }
    for (name, value) in &file {
        if let DeValue::Array(list) = value.get_ref() {
            for (index, entry) in (1..).zip(list.iter()) {
                if let Some(entries) = entry.get_ref().as_table() {
                    written(&mut found, &format!("[[{}]] {index}", name.get_ref()), entries, text);
                }
            }
        }
    }
    found
}

fn parsed(text: &str) -> Option<DeTable<'_>> {
    DeTable::parse(text).ok().map(toml::Spanned::into_inner)
}

/// One table of the file, over the reference.
fn table(
    found: &mut Vec<Setting>,
    name: &str,
    defaults: Option<&DeTable<'_>>,
    file_table: Option<&DeTable<'_>>,
    text: &str,
    given: &Overrides,
) {
    let label = format!("[{name}]");
    let mut keys: BTreeMap<&str, (usize, Setting)> = BTreeMap::new();
    for (key, value) in defaults.into_iter().flatten() {
        let setting = setting(&label, name, key.get_ref(), value.get_ref(), Source::Default);
        keys.insert(key.get_ref(), (key.span().start, setting));
    }
    let mut below = Vec::new();
    for (key, value) in file_table.into_iter().flatten() {
        match value.get_ref() {
            DeValue::Array(list) if list.iter().any(|entry| entry.get_ref().as_table().is_some()) => {
                below.push((&**key.get_ref(), list));
                continue;
            }
            _ => {}
        }
        let source = Source::File(Position::of(text, &key.span()).line);
        let key = match (name, &**key.get_ref()) {
            ("log", "format") => "form",
            (_, key) => key,
        };
        let at = keys.get(key).map_or(usize::MAX, |(at, _)| *at);
        keys.insert(key, (at, setting(&label, name, key, value.get_ref(), source)));
    }
    for (table, key, value, given_by) in given.settings().filter(|(table, ..)| *table == name) {
        let at = keys.get(key).map_or(usize::MAX, |(at, _)| *at);
        let value = match (table, key) {
            ("store", "url") => url(value.trim_matches('"')),
            _ => masked::url(&value),
        };
        let source = Source::Variable(given_by.to_owned());
        keys.insert(key, (at, Setting { table: label.clone(), key: key.to_owned(), value, source }));
    }
    let mut keys: Vec<_> = keys.into_values().collect();
    keys.sort_by_key(|key| key.0);
    found.extend(keys.into_iter().map(|(_, setting)| setting));
    for (key, list) in below {
        for (index, entry) in (1..).zip(list.iter()) {
            if let Some(entries) = entry.get_ref().as_table() {
                written(found, &format!("[[{name}.{key}]] {index}"), entries, text);
            }
        }
    }
}

/// The keys that a table of a list sets.
fn written(found: &mut Vec<Setting>, label: &str, entries: &DeTable<'_>, text: &str) {
    let mut entries: Vec<_> = entries.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    for (key, value) in entries {
        let source = Source::File(Position::of(text, &key.span()).line);
        found.push(setting(label, "", key.get_ref(), value.get_ref(), source));
    }
}

fn setting(label: &str, table: &str, key: &str, value: &DeValue<'_>, source: Source) -> Setting {
    let value = match (table, key, value) {
        ("store", "url", DeValue::String(text)) => url(text),
        // The hash of a random token reveals nothing, but there is no need to show it.
        (_, "hash", DeValue::String(_)) => MASKED.to_owned(),
        (_, _, DeValue::String(text)) if is_secret(key) && !is_reference(text) => MASKED.to_owned(),
        (_, _, value) => shown(value, key == "headers"),
    };
    Setting { table: label.to_owned(), key: key.to_owned(), value, source }
}

fn is_secret(key: &str) -> bool {
    key.contains("secret") || ["token", "password", "value"].contains(&key)
}

fn is_reference(text: &str) -> bool {
    text.starts_with("env:") || text.starts_with("file:") || text == "withdraw"
}

/// A store's URL without its password.
fn url(text: &str) -> String {
    text.parse::<stores::Url>().map_or_else(|_| MASKED.to_owned(), |url| format!("\"{url}\""))
}

/// A value as a file writes it. A value in `is_headers` may be a credential unless it refers to one.
fn shown(value: &DeValue<'_>, is_headers: bool) -> String {
    match value {
        DeValue::String(text) => masked::url(&format!("\"{}\"", text.escape_debug())),
        DeValue::Integer(number) => number.as_str().to_owned(),
        DeValue::Float(number) => number.as_str().to_owned(),
        DeValue::Boolean(is) => is.to_string(),
        DeValue::Datetime(at) => at.to_string(),
        DeValue::Array(list) => {
            let list: Vec<_> = list.iter().map(|value| shown(value.get_ref(), false)).collect();
            format!("[{}]", list.join(", "))
        }
        DeValue::Table(table) => {
            let entries = table.iter().map(|(key, value)| {
                let is_open = !is_headers || value.get_ref().as_str().is_some_and(is_reference);
                let inner = is_headers || key.get_ref() == "headers";
                let value =
                    if is_open { shown(value.get_ref(), inner && !is_headers) } else { MASKED.to_owned() };
                format!("{} = {value}", key.get_ref())
            });
            let entries: Vec<_> = entries.collect();
            if entries.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", entries.join(", ")) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_and_query_values_of_urls_are_masked() {
        let text = "[defaults.probe]\nurl = \"https://u:hunter2@h:1/a?api_key=hunter2&id={operation_id}&hunter2\"\n\
                    [[operation]]\nname = \"a?b\"\npath = \"/charges\"\nprobe = { url = \"/effects?key=hunter2\" }\n";
        let shown = |table: &str, key: &str| {
            found(text, &Overrides::default(), table, key).map(|(value, _)| value).unwrap_or_default()
        };
        let probe = "{ url = \"https://(masked)@h:1/a?api_key=(masked)&id={operation_id}&(masked)\" }";
        assert_eq!(shown("[defaults]", "probe"), probe);
        assert_eq!(shown("[[operation]] 1", "probe"), "{ url = \"/effects?key=(masked)\" }");
        assert_eq!(shown("[[operation]] 1", "path"), "\"/charges\"");
        assert_eq!(shown("[[operation]] 1", "name"), "\"a?b\"");
    }

    fn found(text: &str, given: &Overrides, table: &str, key: &str) -> Option<(String, Source)> {
        let all = settings(text, given);
        let setting = all.into_iter().find(|setting| setting.table == table && setting.key == key)?;
        Some((setting.value, setting.source))
    }

    #[test]
    fn a_setting_is_shown_with_its_source() {
        let text = "[defaults]\nttl = \"7d\"\n\n[[operation]]\nname = \"charge\"\n";
        let given = Overrides::default().given("listen", ":80", "SEMEL_LISTEN");
        let ttl = found(text, &given, "[defaults]", "ttl");
        assert_eq!(ttl, Some(("\"7d\"".to_owned(), Source::File(2))));
        let lease = found(text, &given, "[defaults]", "lease");
        assert_eq!(lease, Some(("\"30s\"".to_owned(), Source::Default)));
        let listen = found(text, &given, "[listen]", "address");
        assert_eq!(listen, Some(("\":80\"".to_owned(), Source::Variable("SEMEL_LISTEN".to_owned()))));
        let name = found(text, &given, "[[operation]] 1", "name");
        assert_eq!(name, Some(("\"charge\"".to_owned(), Source::File(5))));
        assert_eq!(found(text, &given, "[listen]", "tls_cert"), None, "it has no default");
        let form = found("[log]\nformat = \"json\"\n", &Overrides::default(), "[log]", "form");
        assert_eq!(form, Some(("\"json\"".to_owned(), Source::File(2))), "under its usual name");
    }

    #[test]
    fn nothing_secret_is_shown() {
        let text = "[store]\nurl = \"postgres://app@db/semel?password=env:DATABASE\"\nhashing_secret = \"env:HASHING\"\n\
                    [[admin.token]]\nname = \"ops\"\nroles = [\"read\"]\nhash = \"sha256:0abc\"\n\
                    [defaults.probe]\nheaders = { authorization = \"Bearer hunter2\", accept = \"env:X\" }\n\
                    [[otlp.header]]\nname = \"authorization\"\nvalue = \"Bearer hunter2\"\n";
        let given = Overrides::default().given("upstream", "http://u:hunter2@h", "SEMEL_UPSTREAM");
        let all: Vec<_> = settings(text, &given).into_iter().map(|setting| setting.value).collect();
        let all = all.join("\n");
        assert!(!all.contains("hunter2") && !all.contains("0abc"), "{all}");
        assert!(all.contains("http://(masked)@h"), "{all}");
        assert!(all.contains("env:HASHING") && all.contains("env:X") && all.contains("postgres://"), "{all}");
    }
}
