//! Key sets as issuers publish them (RFC 7517). A symmetric key in a fetched document is refused: what is published is
//! not secret.

use super::algorithm::{Algorithm, Kind};
use super::key::{Key, KeyError};
use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use semel_net::json;
use serde_json::{Map, Value};
use std::fmt;

/// The maximum number of keys in a set: a token without a `kid` is tried with each that fits its algorithm.
pub(super) const KEYS_MAX: usize = 32;
/// The maximum length of a key's name.
pub(super) const ID_BYTES_MAX: usize = 256;

/// The origin of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeySetOrigin {
    /// A file, which may contain secrets.
    File,
    /// A URL, which is public.
    Url,
}

/// The usable keys of a set. Others (of an unknown kind, for encryption, too short) are skipped: a set may contain
/// keys for other readers.
pub(super) fn read(document: &[u8], from: KeySetOrigin) -> Result<Vec<Key>, KeySetError> {
    let members = json::object(document).ok_or(KeySetError::Malformed)?;
    let Some(Value::Array(items)) = members.get("keys") else {
        return Err(KeySetError::Malformed);
    };
    let keys = items.iter().filter_map(Value::as_object).filter_map(|item| key(item, from));
    let keys: Vec<Key> = keys.collect();
    if keys.len() > KEYS_MAX { Err(KeySetError::TooMany) } else { Ok(keys) }
}

fn key(item: &Map<String, Value>, from: KeySetOrigin) -> Option<Key> {
    let text = |name: &str| item.get(name).and_then(Value::as_str);
    if item.contains_key("use") && text("use") != Some("sig") {
        return None;
    }
    if let Some(uses) = item.get("key_ops") {
        let uses = uses.as_array()?;
        uses.iter().find(|operation| operation.as_str() == Some("verify"))?;
    }
    let bytes = |name: &str| BASE64_URL_SAFE_NO_PAD.decode(text(name)?).ok();
    let made = match text("kty")? {
        "RSA" => Key::rsa(&bytes("n")?, &bytes("e")?),
        "EC" => match text("crv")? {
            "P-256" => Key::curve(Kind::P256, &bytes("x")?, &bytes("y")?),
            "P-384" => Key::curve(Kind::P384, &bytes("x")?, &bytes("y")?),
            _ => Err(KeyError::Unsupported),
        },
        "OKP" if text("crv")? == "Ed25519" => Key::ed25519(&bytes("x")?),
        "oct" if from == KeySetOrigin::File => Ok(Key::secret(bytes("k")?)),
        _ => Err(KeyError::Unsupported),
    };
    let mut key = made.ok()?;
    if let Some(id) = item.get("kid") {
        key.id = Some(id.as_str().filter(|id| id.len() <= ID_BYTES_MAX)?.to_owned());
    }
    if let Some(only) = item.get("alg") {
        let only: Algorithm = only.as_str()?.parse().ok()?;
        key.only = Some(only);
    }
    Some(key)
}

/// Why a document is not a key set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeySetError {
    Malformed,
    TooMany,
}

impl fmt::Display for KeySetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => f.write_str("it is not a JSON Web Key Set, or repeats a member"),
            Self::TooMany => write!(f, "it has more than {KEYS_MAX} keys"),
        }
    }
}

impl std::error::Error for KeySetError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_one_in_a_file_only() {
        let document = br#"{"keys":[{"kty":"oct","k":"AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr8"}]}"#;
        let keys = |from| read(document, from).map(|keys| keys.len());
        assert_eq!((keys(KeySetOrigin::File), keys(KeySetOrigin::Url)), (Ok(1), Ok(0)));
    }
}
