//! The flags of `semel serve` for options of the configuration file, made from their rows.

use super::secret_parser;
use crate::config::Overrides;
use crate::config::flags::{FLAGS, Flag, Kind, check_number};
use crate::config::overrides::default_of;
use clap::builder::{NonEmptyStringValueParser, PossibleValue, PossibleValuesParser};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches};

/// The flag of a row. Its ID is its name.
pub(super) fn argument(flag: &'static Flag) -> Arg {
    let argument = Arg::new(flag.name).long(flag.name).env(flag.variable).help(flag.help);
    let argument = match flag.heading {
        Some(heading) => argument.help_heading(heading),
        None => argument,
    };
    let argument = match flag.kind {
        Kind::Text { name, check, is_hidden: true } => {
            argument.value_name(name).value_parser(secret_parser::checked(check))
        }
        Kind::Text { name, check, is_hidden: false } => {
            argument.value_name(name).value_parser(move |text: &str| check(text).map(|()| text.to_owned()))
        }
        Kind::Number { name } => argument
            .value_name(name)
            .value_parser(move |text: &str| check_number(text).map(|()| text.to_owned())),
        Kind::Choice { name, words } => {
            let words = words.iter().map(|(word, help)| match help {
                Some(help) => PossibleValue::new(*word).help(*help),
                None => PossibleValue::new(*word),
            });
            argument.value_name(name).value_parser(PossibleValuesParser::new(words))
        }
        Kind::File { needs } => {
            let argument = argument.value_name("FILE").value_parser(NonEmptyStringValueParser::new());
            needs.iter().fold(argument, |argument, other| argument.requires(*other))
        }
        Kind::Switch | Kind::Replaces { .. } => argument.action(ArgAction::SetTrue),
        Kind::Means { conflicts, .. } => argument.action(ArgAction::SetTrue).conflicts_with(conflicts),
    };
    match default_of(flag).filter(|_| flag.shows_default && is_valued(flag)) {
        Some(default) => argument.default_value(default),
        None => argument,
    }
}

const fn is_valued(flag: &Flag) -> bool {
    !matches!(flag.kind, Kind::Switch | Kind::Replaces { .. } | Kind::Means { .. })
}

/// What was given on the command line and by variables.
pub(super) fn given(matches: &ArgMatches) -> Overrides {
    FLAGS.iter().fold(Overrides::default(), |given, flag| {
        let value = if is_valued(flag) {
            matches.get_one::<String>(flag.name).cloned()
        } else {
            Some(matches.get_flag(flag.name).to_string())
        };
        match (matches.value_source(flag.name), value) {
            (Some(ValueSource::CommandLine), Some(value)) => given.with(flag.name, &value),
            (Some(ValueSource::EnvVariable), Some(value)) => given.given(flag.name, &value, flag.variable),
            _ => given,
        }
    })
}
