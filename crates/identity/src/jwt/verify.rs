//! Verifies a token. No claim is used before the signature is verified, except the issuer's name, which only selects
//! the keys.

use super::issuer::{Audience, Issuer};
use super::keys::Keys;
use super::token::Token;
use super::token_refusal::TokenRefusal;
use semel_core::time::Time;
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;

/// An issuer and its keys.
pub(crate) struct Verifier {
    pub(super) issuer: Issuer,
    pub(super) keys: Arc<Keys>,
}

/// The time at which a token is checked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CheckTime {
    /// Wall time, for the times in tokens.
    pub(crate) now: Time,
    /// Uptime, for the age of keys.
    pub(crate) uptime: Duration,
}

/// The claims of a verified token.
#[derive(Debug)]
pub(crate) struct Verified {
    pub(crate) issuer: String,
    pub(crate) subject: String,
    pub(crate) claims: Map<String, Value>,
}

/// Verifies a token with the keys of the issuer that it names.
pub(crate) fn verify(
    text: &[u8],
    verifiers: &[Arc<Verifier>],
    moment: CheckTime,
) -> Result<Verified, TokenRefusal> {
    let token = Token::read(text)?;
    let issuer = token.claims.get("iss").and_then(Value::as_str).ok_or(TokenRefusal::Issuer)?;
    let verifier =
        verifiers.iter().find(|verifier| verifier.issuer.name == issuer).ok_or(TokenRefusal::Issuer)?;
    verifier.check_signature(&token, moment)?;
    let subject = verifier.issuer.check_claims(&token.claims, moment.now)?;
    Ok(Verified { issuer: issuer.to_owned(), subject, claims: token.claims })
}

impl Verifier {
    /// Whether it comes from this issuer, under these settings.
    pub(crate) fn is_of(&self, issuer: &Issuer) -> bool {
        self.issuer == *issuer
    }

    /// Requests newer keys, in the background.
    pub(crate) fn want(&self) {
        self.keys.want();
    }

    fn check_signature(&self, token: &Token<'_>, moment: CheckTime) -> Result<(), TokenRefusal> {
        let algorithm = token.algorithm;
        if !self.issuer.algorithms.contains(&algorithm) {
            return Err(TokenRefusal::Algorithm);
        }
        let Some(keys) = self.keys.at(moment.uptime) else {
            self.keys.want();
            return Err(TokenRefusal::NoKeys);
        };
        let is_meant = |id: &Option<String>| match (id, &token.key_id) {
            (Some(id), Some(named)) => id == named,
            // A configured key serves all names; a token without a name may be signed by any key.
            (None, Some(_)) => self.issuer.is_fixed(),
            (_, None) => true,
        };
        let mut fitting = keys.iter().filter(|key| key.serves(algorithm) && is_meant(&key.id)).peekable();
        if fitting.peek().is_none() {
            self.keys.want();
            return Err(TokenRefusal::UnknownKey);
        }
        let is_signed = fitting.any(|key| key.has_signed(algorithm, token.message, &token.signature));
        if is_signed { Ok(()) } else { Err(TokenRefusal::Signature) }
    }
}

impl Issuer {
    /// The subject of verified claims, if this service accepts them now.
    fn check_claims(&self, claims: &Map<String, Value>, now: Time) -> Result<String, TokenRefusal> {
        if let Audience::OneOf(ours) = &self.audience {
            let is_ours =
                |value: &Value| value.as_str().is_some_and(|name| ours.iter().any(|our| our == name));
            let is_meant = match claims.get("aud") {
                Some(Value::Array(names)) => names.iter().any(is_ours),
                Some(name) => is_ours(name),
                None => false,
            };
            if !is_meant {
                return Err(TokenRefusal::Audience);
            }
        }
        match claims.get("exp").map(moment) {
            None if !self.is_expiry_required => {}
            None | Some(None) => return Err(TokenRefusal::NoExpiry),
            Some(Some(end)) if now < end + self.leeway => {}
            Some(Some(_)) => return Err(TokenRefusal::Expired),
        }
        match claims.get("nbf").map(moment) {
            None => {}
            Some(Some(begin)) if begin <= now + self.leeway => {}
            Some(_) => return Err(TokenRefusal::NotYetValid),
        }
        let subject = claims.get("sub").and_then(Value::as_str).filter(|subject| !subject.is_empty());
        subject.map(str::to_owned).ok_or(TokenRefusal::Subject)
    }
}

/// Seconds since 1970, possibly with a fraction.
fn moment(value: &Value) -> Option<Time> {
    let begin = Time::from_millis(0);
    let Value::Number(seconds) = value else {
        return None;
    };
    Some(match (seconds.as_u64(), seconds.as_f64()) {
        (Some(seconds), _) => begin + Duration::from_secs(seconds),
        (None, Some(seconds)) if seconds > 0.0 => {
            Duration::try_from_secs_f64(seconds).map_or(Time::MAX, |since| begin + since)
        }
        _ => begin,
    })
}
