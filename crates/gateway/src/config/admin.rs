//! `[admin]`: where operators and workers connect, and who may do what there.
//!
//! The file contains hashes of tokens. A value that is not a hash may be a token, so it is not repeated in messages.

use super::plan::Admin;
use super::service::tls;
use super::table::Table;
use crate::invalid_value::InvalidValue;
use semel_admin::{Address, Options, OptionsError, Role, Token, TokenHash, check_token_name};

/// The prefix of a hash.
pub(crate) const KIND: &str = "sha256:";

/// The settings of the admin address, unless it is off.
pub(super) fn read(table: &Table<'_, '_>) -> Option<Admin> {
    let address = table.parsed("address", |text| text.parse::<Address>().map_err(InvalidValue::of_sentence));
    let mut options = Options { tokens: tokens(table), ..Options::default() };
    options.failures = table.rate("wrong_tokens_max").unwrap_or(options.failures);
    options.writes = table.rate("writes_max").unwrap_or(options.writes);
    options.body_bytes_max = table.size("body_max").unwrap_or(options.body_bytes_max);
    let tls = tls(table);
    let Address::At(address) = address.unwrap_or_default() else { return None };
    options.address = address;
    // Mistakes in a token are already reported with their position.
    if let Err(OptionsError::OpenToOthers(error)) = options.check() {
        let fix =
            "make a token with `semel key token` and write its lines under [admin], or listen on 127.0.0.1";
        table.document.mistake(table.span_of("address").as_ref(), error.to_string(), fix);
    }
    Some(Admin { options, tls })
}

fn tokens(table: &Table<'_, '_>) -> Vec<Token> {
    let mut options = Options::default();
    for table in table.tables("token", "[[admin.token]]") {
        if let Some(token) = token(&table) {
            let named = check_token_name(&token.name);
            options.tokens.push(token);
            if let Err(error) = named.and_then(|()| options.check()) {
                let (key, fix) = match error {
                    OptionsError::NoRole(_) => ("roles", "name at least one of read, operate, claim, bodies"),
                    OptionsError::SameToken(_) => ("hash", "take one of them out, or make another token"),
                    OptionsError::KnownToken(_) => ("hash", "write the hash that `semel key token` prints"),
                    _ => ("name", "write a short name of who holds it"),
                };
                table.document.mistake(table.span_of(key).as_ref(), error.to_string(), fix);
                options.tokens.pop();
            }
        }
        table.end();
    }
    options.tokens
}

fn token(table: &Table<'_, '_>) -> Option<Token> {
    let name = table.text("name");
    let hash = table.text("hash").and_then(|(text, at)| {
        let hash = text.strip_prefix(KIND).and_then(TokenHash::parse);
        if hash.is_none() {
            // The value may be the token itself.
            let problem = "`hash` is not the hash of a token";
            let fix = "write sha256: and 64 hexadecimal digits, as `semel key token` prints them";
            table.document.mistake(Some(&at), problem, fix);
        }
        hash
    });
    let roles = table.parsed_list("roles", |text| {
        let role = Role::ALL.into_iter().find(|role| role.name() == text);
        role.ok_or_else(|| {
            let fix = "write \"read\", \"operate\", \"claim\" or \"bodies\"";
            InvalidValue::new(format!("`{text}` is not a role"), fix)
        })
    });
    for key in ["name", "hash", "roles"] {
        if !table.has(key) {
            let fix = format!("write `{key}`; `semel key token` prints all three");
            table.document.mistake(table.span().as_ref(), format!("a token has no {key}"), fix);
        }
    }
    let roles = roles?;
    // An unreadable role is already reported; having no roles left is not a second mistake.
    if roles.is_empty() && table.list("roles").is_some_and(|written| !written.is_empty()) {
        return None;
    }
    Some(Token { name: name?.0.to_owned(), hash: hash?, roles })
}
