//! The outer form of a token (RFC 7515, compact serialisation). Header fields that point to a key (`jku`, `jwk`,
//! `x5u`, `x5c`) are not read.

use super::algorithm::Algorithm;
use super::jwks::ID_BYTES_MAX;
use super::token_refusal::TokenRefusal;
use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use semel_net::json;
use serde_json::{Map, Value};

/// The maximum length of a token.
pub(super) const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// An unverified token.
pub(super) struct Token<'a> {
    pub(super) algorithm: Algorithm,
    pub(super) key_id: Option<String>,
    /// The signed text: header and claims, as written.
    pub(super) message: &'a [u8],
    pub(super) signature: Vec<u8>,
    /// The unverified claims.
    pub(super) claims: Map<String, Value>,
}

impl<'a> Token<'a> {
    pub(super) fn read(text: &'a [u8]) -> Result<Self, TokenRefusal> {
        if text.len() > TOKEN_BYTES_MAX {
            return Err(TokenRefusal::TooLong);
        }
        let mut parts = text.split(|byte| *byte == b'.');
        let (Some(header), Some(claims), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(TokenRefusal::Malformed);
        };
        let message = &text[..header.len() + 1 + claims.len()];
        let object = |part| BASE64_URL_SAFE_NO_PAD.decode(part).ok().and_then(|text| json::object(&text));
        let header = object(header).ok_or(TokenRefusal::Malformed)?;
        // Extensions that must be understood; none is supported. `b64` is one of them even if it is not listed.
        if header.contains_key("crit") || header.contains_key("b64") {
            return Err(TokenRefusal::Critical);
        }
        let algorithm = header.get("alg").and_then(Value::as_str).ok_or(TokenRefusal::Algorithm)?;
        let algorithm = algorithm.parse().map_err(|_| TokenRefusal::Algorithm)?;
        let key_id = match header.get("kid") {
            None => None,
            Some(Value::String(id)) if id.len() <= ID_BYTES_MAX => Some(id.clone()),
            Some(_) => return Err(TokenRefusal::Malformed),
        };
        let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).map_err(|_| TokenRefusal::Malformed)?;
        let claims = object(claims).ok_or(TokenRefusal::Malformed)?;
        Ok(Self { algorithm, key_id, message, signature, claims })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signature(text: &str) -> Result<Vec<u8>, TokenRefusal> {
        let token = format!("{}.{}.{text}", "eyJhbGciOiJIUzI1NiJ9", "e30");
        Token::read(token.as_bytes()).map(|token| token.signature)
    }

    #[test]
    fn the_example_of_the_rfc_is_read() {
        assert_eq!(signature("A-z_4ME").as_deref(), Ok([3, 236, 255, 224, 193].as_slice()));
        assert_eq!(signature("").as_deref(), Ok([].as_slice()));
    }

    #[test]
    fn padding_other_alphabets_white_space_and_stray_bits_are_refused() {
        for text in ["A-z_4ME=", "QQ==", "A+z/", "A-z_ 4ME", "A-z_\n", "A", "AAAAA", "QR", "QUF", "ä", "A.AA"]
        {
            assert_eq!(signature(text), Err(TokenRefusal::Malformed), "{text}");
        }
    }
}
