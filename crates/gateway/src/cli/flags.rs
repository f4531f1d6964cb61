//! The flags of `semel serve` for options of the configuration file, made from their rows.

use super::secret_parser;
use crate::config::Overrides;
use crate::config::flags::{FLAGS, Flag, Kind, check_number};
use crate::config::overrides::default_of;
use clap::builder::{NonEmptyStringValueParser, PossibleValue, PossibleValuesParser};
use clap::error::{Error, ErrorKind};
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
        Kind::Switch | Kind::Means { .. } | Kind::Replaces { .. } => argument.action(ArgAction::SetTrue),
    };
    match default_of(flag).filter(|_| flag.shows_default && is_valued(flag)) {
        Some(default) => argument.default_value(default),
        None => argument,
    }
}

const fn is_valued(flag: &Flag) -> bool {
    !matches!(flag.kind, Kind::Switch | Kind::Replaces { .. } | Kind::Means { .. })
}

/// What was given on the command line and by variables. A flag overrides the variables of all flags for its key.
pub(super) fn given(matches: &ArgMatches) -> Result<Overrides, Error> {
    let mut given = Overrides::default();
    for source in [ValueSource::CommandLine, ValueSource::EnvVariable] {
        for flag in FLAGS.iter().filter(|flag| is_set(matches, flag, source)) {
            if let Kind::Means { conflicts, .. } = flag.kind
                && let Some(other) = Flag::of(conflicts).filter(|other| is_set(matches, other, source))
            {
                return Err(conflict(source, flag, other));
            }
            let value = if is_valued(flag) {
                matches.get_one::<String>(flag.name).cloned().unwrap_or_default()
            } else {
                matches.get_flag(flag.name).to_string()
            };
            given = match source {
                ValueSource::EnvVariable => given.given(flag.name, &value, flag.variable),
                _ => given.with(flag.name, &value),
            };
        }
    }
    Ok(given)
}

/// The flags of the command line.
pub(super) fn on_command_line(matches: &ArgMatches) -> impl Iterator<Item = &'static Flag> {
    FLAGS.iter().filter(|flag| is_set(matches, flag, ValueSource::CommandLine))
}

/// Whether `source` sets this option. A switch that stands for a value sets nothing if it is off.
fn is_set(matches: &ArgMatches, flag: &Flag, source: ValueSource) -> bool {
    let is_on = match flag.kind {
        Kind::Means { .. } | Kind::Replaces { .. } => matches.get_flag(flag.name),
        _ => true,
    };
    matches.value_source(flag.name) == Some(source) && is_on
}

fn conflict(source: ValueSource, flag: &Flag, other: &Flag) -> Error {
    let (one, two) = match source {
        ValueSource::EnvVariable => (flag.variable.to_owned(), other.variable.to_owned()),
        _ => (format!("--{}", flag.name), format!("--{}", other.name)),
    };
    Error::raw(ErrorKind::ArgumentConflict, format!("{one} and {two} cannot be used together\n"))
}
