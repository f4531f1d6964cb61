//! Finds names in texts, and the names that our files declare.

use std::collections::BTreeSet;

use crate::workspace::TextFile;

/// A line of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Location {
    pub(super) file: String,
    pub(super) line: usize,
}

/// Every run of such characters, with its location.
pub(super) fn locations(
    file: &TextFile,
    is_part: fn(char) -> bool,
) -> impl Iterator<Item = (&str, Location)> {
    file.text.lines().enumerate().flat_map(move |(index, line)| {
        let words = line.split(move |c| !is_part(c)).filter(|word| !word.is_empty());
        words.map(move |word| (word, Location { file: file.path.clone(), line: index + 1 }))
    })
}

/// The contents of the string literals on each line of a source. Escapes are not decoded.
pub(super) fn literals(source: &str) -> impl Iterator<Item = String> + '_ {
    source.lines().flat_map(|line| line.split('"').skip(1).step_by(2).map(str::to_owned))
}

/// The keys of the configuration file, commented out or not, including those of inline tables.
pub(super) fn settings(file: &str) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    for line in file.lines() {
        let line = line.trim_start_matches('#');
        if let Some((key, value)) = line.split_once(" = ").filter(|(key, _)| is_key(key)) {
            keys.insert(key.to_owned());
            keys.extend(within(value));
        }
        // `[operation.kept_for]`, `[[admin.token]]`: the table's name may also be written as a key.
        if let Some(name) = line.trim_start_matches('[').split(']').next().filter(|_| line.starts_with('[')) {
            keys.extend(name.split('.').filter(|part| is_key(part)).map(str::to_owned));
        }
    }
    keys
}

fn is_key(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// The keys of `{ a = 1, b = 2 }`.
fn within(value: &str) -> impl Iterator<Item = String> + '_ {
    let inner = value.split_once('{').map_or("", |(_, inner)| inner);
    let parts = inner.split([',', '{']).filter_map(|part| part.split_once('='));
    parts.map(|(key, _)| key.trim().to_owned()).filter(|key| is_key(key))
}

/// The keys in the TOML examples of a page, with their locations. Manifests of crates (`[dependencies]`) are
/// left out.
pub(super) fn toml_keys(file: &TextFile) -> Vec<(String, Location)> {
    let (mut found, mut is_inside) = (Vec::new(), false);
    for (index, line) in file.text.lines().enumerate() {
        if let Some(language) = line.trim().strip_prefix("```") {
            is_inside = !is_inside && language == "toml";
        }
        is_inside &= line != "[dependencies]";
        let key = line.trim_start().trim_start_matches('#').split(" = ").next().unwrap_or_default();
        if is_inside && line.contains(" = ") && is_key(key) {
            found.push((key.to_owned(), Location { file: file.path.clone(), line: index + 1 }));
        }
    }
    found
}

/// The paths that a source declares as served.
pub(super) fn served(source: &str) -> impl Iterator<Item = String> + '_ {
    let after = source.split("path = \"").skip(1);
    after.filter_map(|rest| rest.split('"').next()).filter(|path| path.starts_with("/v1/")).map(str::to_owned)
}

/// The path with `{id}` for identifiers, and without a trailing slash.
pub(super) fn normal(path: &str) -> String {
    let is_word = |part: &str| part.chars().all(|c| c.is_ascii_lowercase() || c == '-') || part == "v1";
    let parts = path.split('/').filter(|part| !part.is_empty());
    parts.flat_map(|part| ["/", if is_word(part) { part } else { "{id}" }]).collect()
}
