//! A store's URL on the command line.
//!
//! Clap repeats a value that it refuses. A store's URL may have a password in it that its user is about to be told to remove.

use crate::stores::Url;
use clap::builder::{StringValueParser, TypedValueParser, ValueParserFactory};
use clap::error::ErrorKind;
use clap::{Arg, Command, Error};
use std::ffi::OsStr;

/// Reads a store's URL, and never repeats one that is refused.
#[derive(Debug, Clone, Copy)]
pub struct UrlParser;

impl TypedValueParser for UrlParser {
    type Value = Url;

    fn parse_ref(&self, command: &Command, argument: Option<&Arg>, value: &OsStr) -> Result<Url, Error> {
        let text = StringValueParser::new().parse_ref(command, argument, value)?;
        text.parse().map_err(|reason: String| {
            let name =
                argument.map_or_else(|| "the store's URL".to_owned(), |argument| format!("'{argument}'"));
            Error::raw(ErrorKind::ValueValidation, format!("invalid value for {name}: {reason}\n"))
                .with_cmd(command)
        })
    }
}

impl ValueParserFactory for Url {
    type Parser = UrlParser;

    fn value_parser() -> UrlParser {
        UrlParser
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_url_is_not_repeated() {
        let command = || {
            let store =
                Arg::new("store").long("store").value_name("URL").value_parser(clap::value_parser!(Url));
            Command::new("semel").arg(store)
        };
        for url in [
            "postgres://semel:hunter2@h/d",
            "mongodb://u:hunter2@h/d",
            "host=h password=hunter2",
            "postgres://semel@h/d?password=hunter2",
        ] {
            let error = command().try_get_matches_from(["semel", "--store", url]).expect_err("refused");
            let text = error.to_string();
            assert!(!text.contains("hunter2"), "{text}");
            assert!(text.contains("--store <URL>"), "{text}");
        }
        let matches = command().try_get_matches_from(["semel", "--store", "memory:"]).expect("a store");
        assert_eq!(matches.get_one::<Url>("store").map(ToString::to_string).as_deref(), Some("memory:"));
    }
}
