//! URLs on the command line.
//!
//! Clap repeats a value that it refuses. A URL may have a password in it that its user is about to be told to remove.

use crate::config::flags::Refusal;
use crate::stores;
use clap::builder::{StringValueParser, TypedValueParser, ValueParserFactory};
use clap::error::ErrorKind;
use clap::{Arg, Command, Error};
use semel_admin::client;
use semel_net::target::Target;
use std::ffi::OsStr;
use std::sync::Arc;

type Parse<T> = dyn Fn(&str) -> Result<T, Refusal> + Send + Sync;

/// Reads a value with `parse`, and never repeats one that is refused.
pub struct SecretParser<T> {
    parse: Arc<Parse<T>>,
}

impl<T> SecretParser<T> {
    fn new<E: Into<Refusal>>(parse: impl Fn(&str) -> Result<T, E> + Send + Sync + 'static) -> Self {
        Self { parse: Arc::new(move |text| parse(text).map_err(E::into)) }
    }
}

impl<T> Clone for SecretParser<T> {
    fn clone(&self) -> Self {
        Self { parse: Arc::clone(&self.parse) }
    }
}

impl<T: Clone + Send + Sync + 'static> TypedValueParser for SecretParser<T> {
    type Value = T;

    fn parse_ref(&self, command: &Command, argument: Option<&Arg>, value: &OsStr) -> Result<T, Error> {
        let text = StringValueParser::new().parse_ref(command, argument, value)?;
        (self.parse)(&text).map_err(|reason| {
            let name = argument.map_or_else(|| "a URL".to_owned(), |argument| format!("'{argument}'"));
            Error::raw(ErrorKind::ValueValidation, format!("invalid value for {name}: {reason}\n"))
                .with_cmd(command)
        })
    }
}

/// The upstream's URL.
pub(super) fn upstream() -> SecretParser<Target> {
    SecretParser::new(Target::parse)
}

impl ValueParserFactory for stores::Url {
    type Parser = SecretParser<Self>;

    fn value_parser() -> Self::Parser {
        SecretParser::new(str::parse)
    }
}

/// A text that `check` accepts.
pub(super) fn checked(check: fn(&str) -> Result<(), Refusal>) -> SecretParser<String> {
    SecretParser::new(move |text| check(text).map(|()| text.to_owned()))
}

/// A gateway's admin address.
pub(super) fn admin() -> SecretParser<client::Url> {
    SecretParser::new(str::parse)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command() -> Command {
        let argument = |name| Arg::new(name).long(name).value_name("URL");
        Command::new("semel")
            .arg(argument("store").value_parser(clap::value_parser!(stores::Url)))
            .arg(argument("admin").value_parser(admin()))
            .arg(argument("upstream").value_parser(upstream()))
    }

    #[test]
    fn a_refused_url_is_not_repeated() {
        for (flag, url) in [
            ("--store", "postgres://semel:hunter2@h/d"),
            ("--store", "mongodb://u:hunter2@h/d"),
            ("--store", "host=h password=hunter2"),
            ("--store", "postgres://semel@h/d?password=hunter2"),
            ("--admin", "http://ops:hunter2@h"),
            ("--upstream", "http://u:hunter2@h"),
        ] {
            let error = command().try_get_matches_from(["semel", flag, url]).expect_err("refused");
            let text = error.to_string();
            assert!(!text.contains("hunter2"), "{text}");
            assert!(text.contains(&format!("{flag} <URL>")), "{text}");
        }
        let matches = command().try_get_matches_from(["semel", "--store", "memory:"]).expect("a store");
        assert_eq!(
            matches.get_one::<stores::Url>("store").map(ToString::to_string).as_deref(),
            Some("memory:")
        );
    }
}
