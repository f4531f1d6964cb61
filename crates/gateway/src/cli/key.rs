//! `semel key`: keys for scripts and people, and tokens for the admin address. A token is printed and stored nowhere.

use super::cli_error::CliError;
use crate::config::admin::KIND;
use crate::invalid_value::InvalidValue;
use clap::{Subcommand, ValueEnum};
use semel::core::key::{Key, mint};
use semel::core::store::Clock as _;
use semel::{Random as _, SystemClock, SystemRandom};
use semel_admin::{OptionsError, Role, TokenHash, check_token_name};
use serde_json::json;
use std::process::ExitCode;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Generate a random key: one per operation, the same for all its retries
    New {
        /// uuid4; or uuid7 or ulid, which sort by time
        #[arg(long, value_name = "FORM", default_value = "uuid4")]
        form: Form,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Derive a key from what an operation is about: the same words give the same key
    ///
    /// For jobs that run again without a memory of their first run. Name everything that identifies this operation:
    /// who, what, and for which day or invoice.
    Derive {
        /// What the operation is about, in order
        #[arg(required = true, value_name = "FIELD")]
        fields: Vec<String>,
        /// A readable key, `order:1234:charge`, instead of a hash
        #[arg(long)]
        readable: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Generate a token for the admin address
    ///
    /// Prints the token, for its holder, and the lines for the configuration file, which contain only its hash. The
    /// token is not stored anywhere.
    Token {
        /// The name of its holder, for histories and logs
        #[arg(value_name = "NAME", value_parser = token_name)]
        name: String,
        /// A role: read, operate, claim or bodies; can be given several times
        #[arg(long = "role", value_name = "ROLE", default_value = "read", value_parser = role)]
        roles: Vec<Role>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Form {
    Uuid4,
    Uuid7,
    Ulid,
}

pub(super) fn main(command: &Command) -> Result<ExitCode, CliError> {
    let text = match command {
        Command::New { form, json } => key_text(&new(*form), *json),
        Command::Derive { fields, readable, json } => key_text(&derive(fields, *readable)?, *json),
        Command::Token { name, roles, json } => {
            let token = NewToken::new();
            if *json { token.document(name, roles) } else { token.text(name, roles) }
        }
    };
    crate::serve::say(&text);
    Ok(ExitCode::SUCCESS)
}

fn key_text(key: &Key, is_json: bool) -> String {
    let key = key.expose();
    if is_json { json!({ "key": key }).to_string() } else { key.into_owned() }
}

fn new(form: Form) -> Key {
    let random = SystemRandom.bits().to_le_bytes();
    let mut tail = [0; 10];
    tail.copy_from_slice(&random[..10]);
    match form {
        Form::Uuid4 => mint::uuid_v4(random),
        Form::Uuid7 => mint::uuid_v7(SystemClock.now(), tail),
        Form::Ulid => mint::ulid(SystemClock.now(), tail),
    }
}

fn derive(fields: &[String], is_readable: bool) -> Result<Key, CliError> {
    let key = if is_readable {
        mint::structured(fields.iter().map(String::as_str))
    } else {
        mint::sha256(fields.iter().map(String::as_bytes))
    };
    key.map_err(|error| CliError::failed(format!("no key can be derived from that: {error}")))
}

fn token_name(text: &str) -> Result<String, OptionsError> {
    check_token_name(text).map(|()| text.to_owned())
}

fn role(text: &str) -> Result<Role, InvalidValue> {
    let role = Role::ALL.into_iter().find(|role| role.name() == text);
    role.ok_or_else(|| InvalidValue::without_fix("expected read, operate, claim or bodies"))
}

/// A token that nobody has yet.
struct NewToken {
    token: String,
    /// As the configuration file has it.
    hash: String,
}

impl NewToken {
    fn new() -> Self {
        let token = format!("semel_{:032x}{:032x}", SystemRandom.bits(), SystemRandom.bits());
        let hash = format!("{KIND}{}", TokenHash::of(&token).digits());
        Self { token, hash }
    }

    /// The token on its own line, and its lines for the configuration file.
    fn text(&self, name: &str, roles: &[Role]) -> String {
        let Self { token, hash } = self;
        let roles: Vec<_> = roles.iter().map(|role| format!("\"{}\"", role.name())).collect();
        // A quotation mark in a name must be escaped in the file.
        let name = name.replace('\\', "\\\\").replace('"', "\\\"");
        let roles = roles.join(", ");
        format!("{token}\n\n[[admin.token]]\nname = \"{name}\"\nroles = [{roles}]\nhash = \"{hash}\"")
    }

    /// The same for programs, under the keys of the file.
    fn document(&self, name: &str, roles: &[Role]) -> String {
        let roles: Vec<_> = roles.iter().map(|role| role.name()).collect();
        json!({ "token": self.token, "name": name, "roles": roles, "hash": self.hash }).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn a_new_key_is_new_every_time() {
        for form in [Form::Uuid4, Form::Uuid7, Form::Ulid] {
            assert_ne!(new(form).expose(), new(form).expose());
        }
    }

    #[test]
    fn a_derived_key_follows_from_its_fields_and_their_borders() {
        let key = |words: &[&str]| derive(&fields(words), false).expect("a key").expose().into_owned();
        assert_eq!(key(&["order", "1234"]), key(&["order", "1234"]));
        assert_ne!(key(&["order1", "234"]), key(&["order", "1234"]));
        let readable = derive(&fields(&["order", "1234", "charge"]), true).expect("a key");
        assert_eq!(readable.expose(), "order:1234:charge");
        assert!(derive(&fields(&["order", "", "charge"]), true).is_err());
    }

    #[test]
    fn a_tokens_lines_fit_the_file_and_contain_only_its_hash() {
        let output = NewToken::new().text("o\"ps", &[Role::Read, Role::Operate]);
        let (token, lines) = output.split_once("\n\n").expect("two parts");
        assert_eq!(token.len(), "semel_".len() + 64);
        assert!(!lines.contains(&token[6..]), "{lines}");
        let config = crate::config::read(lines, &crate::config::Overrides::default(), &|_| None);
        let admin = config.expect("no mistake").admin.expect("open");
        let [known] = &admin.options.tokens[..] else { panic!("{admin:?}") };
        assert_eq!((known.name.as_str(), &known.roles[..]), ("o\"ps", &[Role::Read, Role::Operate][..]));
        assert_eq!(known.hash.digits(), TokenHash::of(token).digits());
    }
}
