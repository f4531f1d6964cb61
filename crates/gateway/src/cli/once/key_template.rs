//! The key as it is written on the command line, with its placeholders.

use crate::invalid_value::InvalidValue;
use semel::archive::rfc3339;
use semel::core::time::Time;
use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// The parts of a key.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct KeyTemplate(Vec<Part>);

#[derive(Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Date,
    Hour,
    Sha256(PathBuf),
}

/// The characters of `2026-11-19` and of `2026-11-19T23`.
const DATE: usize = 10;
const HOUR: usize = 13;

impl KeyTemplate {
    pub(super) fn parse(text: &str) -> Result<Self, InvalidValue> {
        let (mut parts, mut plain, mut rest) = (Vec::new(), String::new(), text);
        while let Some(at) = rest.find(['{', '}']) {
            let (before, from) = rest.split_at(at);
            plain.push_str(before);
            if let Some(after) = from.strip_prefix("{{").or_else(|| from.strip_prefix("}}")) {
                plain.push_str(&from[..1]);
                rest = after;
                continue;
            }
            let placeholder = from.strip_prefix('{').and_then(|from| from.split_once('}'));
            let Some((name, after)) = placeholder else {
                return Err(InvalidValue::without_fix(format!(
                    "the key `{text}` has a brace without its other half; for a brace itself, write it twice"
                )));
            };
            parts.extend([Part::Text(std::mem::take(&mut plain)), Part::named(name)?]);
            rest = after;
        }
        plain.push_str(rest);
        parts.push(Part::Text(plain));
        Ok(Self(parts))
    }

    /// The key at `now`, the store's time.
    pub(super) fn expand(&self, now: Time) -> Result<String, InvalidValue> {
        let moment = rfc3339::text(now);
        let start = |characters: usize| moment.get(..characters).unwrap_or(&moment).to_owned();
        self.0
            .iter()
            .map(|part| match part {
                Part::Text(text) => Ok(text.clone()),
                Part::Date => Ok(start(DATE)),
                Part::Hour => Ok(start(HOUR)),
                Part::Sha256(file) => sha256(file),
            })
            .collect()
    }
}

impl Part {
    fn named(name: &str) -> Result<Self, InvalidValue> {
        match (name, name.strip_prefix("sha256:")) {
            ("date", _) => Ok(Self::Date),
            ("hour", _) => Ok(Self::Hour),
            (_, Some(file)) if !file.is_empty() => Ok(Self::Sha256(file.into())),
            _ => Err(InvalidValue::new(
                format!("`{{{name}}}` in the key is not a placeholder"),
                "write {date}, {hour} or {sha256:FILE}, and {{ for a brace",
            )),
        }
    }
}

/// The SHA-256 of a file, in hexadecimal digits.
fn sha256(path: &Path) -> Result<String, InvalidValue> {
    let unreadable = |why: &dyn std::fmt::Display| {
        InvalidValue::without_fix(format!("{} cannot be read: {why}", path.display()))
    };
    let mut file = File::open(path).map_err(|error| unreadable(&error))?;
    // A pipe would never end, or be empty the next time.
    if !file.metadata().map_err(|error| unreadable(&error))?.is_file() {
        return Err(unreadable(&"it is not a regular file"));
    }
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; 64 << 10]);
    loop {
        match file.read(&mut buffer).map_err(|error| unreadable(&error))? {
            0 => return Ok(hex::encode(hash.finalize())),
            read => hash.update(&buffer[..read]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use semel_test_support::ScratchDir;

    fn expanded(text: &str) -> Result<String, InvalidValue> {
        let now = rfc3339::parse("2026-11-19T23:59:59.999Z").expect("a moment");
        KeyTemplate::parse(text)?.expand(now)
    }

    #[test]
    fn placeholders_are_the_date_and_the_hour() {
        assert_eq!(expanded("payout-{date}").as_deref(), Ok("payout-2026-11-19"));
        assert_eq!(expanded("{hour}/{date}").as_deref(), Ok("2026-11-19T23/2026-11-19"));
        assert_eq!(expanded("migrate-42").as_deref(), Ok("migrate-42"));
    }

    #[test]
    fn a_doubled_brace_is_a_brace() {
        assert_eq!(expanded("{{date}} {{{date}}}").as_deref(), Ok("{date} {2026-11-19}"));
    }

    #[test]
    fn what_is_not_a_placeholder_is_refused() {
        for bad in ["{Date}", "{}", "a{day}", "{sha256}", "{sha256:}", "{ date }"] {
            let why = expanded(bad).expect_err(bad).to_string();
            assert!(why.contains("is not a placeholder"), "{why}");
        }
        for bad in ["{date", "date}", "}{", "{{}"] {
            let why = expanded(bad).expect_err(bad).to_string();
            assert!(why.contains("without its other half"), "{why}");
        }
    }

    #[test]
    fn a_file_counts_by_its_content() {
        let folder = ScratchDir::new("key-template");
        let file = folder.write("a.sql", "abc");
        let text = format!("schema-{{sha256:{}}}", file.display());
        let known = "schema-ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(expanded(&text).as_deref(), Ok(known));
        for unread in [folder.join("missing").display().to_string(), folder.join(".").display().to_string()] {
            assert!(
                expanded(&format!("{{sha256:{unread}}}"))
                    .expect_err("unread")
                    .to_string()
                    .contains("cannot be read")
            );
        }
    }
}
