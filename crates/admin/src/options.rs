//! The settings of the admin address. They contain hashes of tokens, not tokens; a token is hashed before it is
//! compared.

use hex::FromHex;
use semel::core::history::WHO_BYTES_MAX;
use semel::core::policy::{Class, Policy};
use semel::quota::Rate;
use semel_text::printable::is_all_printable;
use sha2::{Digest, Sha256};
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::time::Duration;
use subtle::ConstantTimeEq;
use thiserror::Error;

/// What a token allows. No role includes another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Metrics, and records without stored responses.
    Read,
    /// Resolve and release.
    Operate,
    /// The claims API.
    Claim,
    /// Stored responses and fingerprints, together with `read`.
    Bodies,
}

impl Role {
    /// Every role there is.
    pub const ALL: [Self; 4] = [Self::Read, Self::Operate, Self::Claim, Self::Bodies];

    /// The role as it is written in configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Claim => "claim",
            Self::Bodies => "bodies",
        }
    }
}

/// The SHA-256 hash of a token. A token must be random (32 bytes are enough), so that its hash reveals nothing.
#[derive(Clone, Copy)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    /// The hash of a token, as sent after `Bearer`.
    pub fn of(token: impl AsRef<[u8]>) -> Self {
        Self(Sha256::digest(token.as_ref()).into())
    }

    /// A configured hash: 64 hexadecimal digits, as `sha256sum` prints them.
    pub fn parse(text: &str) -> Option<Self> {
        FromHex::from_hex(text).ok().map(Self)
    }

    /// The hash in hexadecimal digits.
    pub fn digits(&self) -> String {
        hex::encode(self.0)
    }

    /// Whether both are equal, in constant time.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash(…)")
    }
}

/// A token of the admin address.
#[derive(Debug, Clone)]
pub struct Token {
    /// The name in histories and logs. Two tokens may share it, so that one can replace the other.
    pub name: String,
    /// The hash of the token.
    pub hash: TokenHash,
    /// Its roles.
    pub roles: Vec<Role>,
}

/// Tokens that are not secret: the empty one, and the one whose hash is in every text about SHA-256 and gets copied
/// from there.
const KNOWN: [&str; 2] = ["", "abc"];

/// The name of whoever acts at an address without tokens.
pub const LOOPBACK: &str = "loopback";

/// What the names of those begin with who open a store with the command line. No token has such a name.
pub const COMMAND_LINE: &str = "cli:";

/// Whether histories can name somebody so: 1 to 64 bytes that can be printed, and not [`LOOPBACK`].
fn fits_history(name: &str) -> bool {
    (1..=WHO_BYTES_MAX).contains(&name.len()) && is_all_printable(name) && name != LOOPBACK
}

/// Whether a token may have this name: histories must not mistake its holder for somebody else.
pub fn check_token_name(name: &str) -> Result<(), OptionsError> {
    if fits_history(name) && !name.starts_with(COMMAND_LINE) {
        return Ok(());
    }
    Err(OptionsError::UnfitName(name.to_owned()))
}

/// How the admin address is set up.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where it listens.
    pub address: SocketAddr,
    /// The tokens. Without any, everybody who reaches the address may do everything except read stored responses; only
    /// a loopback address may have none.
    pub tokens: Vec<Token>,
    /// The longest request body.
    pub body_bytes_max: usize,
    /// How many wrong tokens one address may present. Beyond it they are answered 429 and not logged; a right one is let in.
    pub failures: Rate,
    /// How many requests that write one address may make.
    pub writes: Rate,
    /// The terms of claims that do not say otherwise.
    pub claims: Policy,
}

impl Default for Options {
    /// `127.0.0.1:9090`, no tokens, bodies up to 16 MiB, 10 wrong tokens in 10 s, 5000 writes in 10 s, claims of the class
    /// `external` with its defaults.
    fn default() -> Self {
        const SPAN: Duration = Duration::from_secs(10);
        const fn rate(count: u32) -> Rate {
            Rate { count: NonZeroU32::new(count).expect("not zero"), per: SPAN }
        }
        Self {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 9090)),
            tokens: Vec::new(),
            body_bytes_max: 16 << 20,
            failures: rate(10),
            writes: rate(5_000),
            claims: Policy::new(Class::External),
        }
    }
}

impl Options {
    /// Reports what is wrong, if anything: options that fail must not be served.
    pub fn check(&self) -> Result<(), OptionsError> {
        if self.tokens.is_empty() && !self.address.ip().to_canonical().is_loopback() {
            return Err(OptionsError::OpenToOthers(OpenToOthers(self.address)));
        }
        for (index, token) in self.tokens.iter().enumerate() {
            let name = || token.name.clone();
            // The command line itself acts under its own name.
            if !fits_history(&token.name) {
                return Err(OptionsError::UnfitName(name()));
            }
            if token.roles.is_empty() {
                return Err(OptionsError::NoRole(name()));
            }
            if KNOWN.iter().any(|known| TokenHash::of(known).is(&token.hash)) {
                return Err(OptionsError::KnownToken(name()));
            }
            if self.tokens[..index].iter().any(|other| other.hash.is(&token.hash)) {
                return Err(OptionsError::SameToken(name()));
            }
        }
        if self.claims.class == Class::Local {
            return Err(OptionsError::LocalClaims);
        }
        Ok(())
    }
}

/// Others can reach the address, and there is no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "the admin address {0} can be reached from other machines, and no token is configured: anybody could settle records"
)]
pub struct OpenToOthers(pub SocketAddr);

/// Why the admin address cannot be served with these options.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum OptionsError {
    /// Others can reach the address, and there is no token.
    #[error("{0}; configure a token, or listen on 127.0.0.1")]
    OpenToOthers(OpenToOthers),
    /// A token's name cannot be used in a history.
    #[error(
        "{0:?} cannot be a token's name: 1 to {WHO_BYTES_MAX} bytes without control and format characters, not \"{LOOPBACK}\", \
         which stands for requests without a token, and not beginning with \"{COMMAND_LINE}\", which stands for users of the \
         command line"
    )]
    UnfitName(String),
    /// A token has no role.
    #[error("the token {0:?} has no role: give it one of read, operate, claim, bodies")]
    NoRole(String),
    /// A token is publicly known.
    #[error(
        "the token {0:?} is one that everybody knows: its hash is that of an example or of nothing at all; make one with `semel \
         key token`"
    )]
    KnownToken(String),
    /// A token is configured twice, with other roles or under another name.
    #[error("the token {0:?} is configured twice: whose roles would count? remove one of them")]
    SameToken(String),
    /// Claims have class `local`.
    #[error(
        "claims cannot have class local: it is for an effect that commits in the same transaction as its record, and a claim is \
         a request of its own; use external, or downstream where the effect's system deduplicates"
    )]
    LocalClaims,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(name: &str, secret: &str) -> Token {
        Token { name: name.into(), hash: TokenHash::of(secret), roles: vec![Role::Read] }
    }

    fn with(change: impl FnOnce(&mut Options)) -> Result<(), OptionsError> {
        let mut options = Options::default();
        change(&mut options);
        options.check()
    }

    #[test]
    fn an_address_that_others_reach_needs_a_token() {
        assert_eq!(with(|_| {}), Ok(()));
        for open in ["0.0.0.0:9090", "[::]:9090", "10.0.0.1:9090", "[2001:db8::1]:9090"] {
            let address = open.parse().expect("an address");
            let refused = Err(OptionsError::OpenToOthers(OpenToOthers(address)));
            assert_eq!(with(|options| options.address = address), refused);
            let guarded = with(|options| {
                options.address = address;
                options.tokens = vec![token("ops", "s3cret")];
            });
            assert_eq!(guarded, Ok(()), "{open}");
        }
        for loopback in ["127.0.0.1:1", "127.8.8.8:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert_eq!(
                with(|options| options.address = loopback.parse().expect("an address")),
                Ok(()),
                "{loopback}"
            );
        }
    }

    #[test]
    fn each_invalid_setting_is_distinguished() {
        let tokens = |tokens: Vec<Token>| with(|options| options.tokens = tokens);
        for name in ["", "loopback", "a\nb", &"x".repeat(65)] {
            assert_eq!(tokens(vec![token(name, "1")]), Err(OptionsError::UnfitName(name.into())));
        }
        assert_eq!(tokens(vec![token(&"x".repeat(64), "1")]), Ok(()));
        assert_eq!(
            tokens(vec![Token { roles: vec![], ..token("a", "1") }]),
            Err(OptionsError::NoRole("a".into()))
        );
        for known in ["", "abc"] {
            assert_eq!(tokens(vec![token("a", known)]), Err(OptionsError::KnownToken("a".into())));
        }
        assert_eq!(tokens(vec![token("a", "1"), token("a", "2")]), Ok(()), "one replaces the other");
        assert_eq!(tokens(vec![token("a", "1"), token("b", "1")]), Err(OptionsError::SameToken("b".into())));
        assert_eq!(
            with(|options| options.claims = Policy::new(Class::Local)),
            Err(OptionsError::LocalClaims)
        );
    }

    #[test]
    fn a_hash_is_what_sha256sum_prints_and_debug_output_hides_it() {
        let printed = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let parsed = TokenHash::parse(printed).expect("64 digits");
        assert!(parsed.is(&TokenHash::of("abc")) && !parsed.is(&TokenHash::of("abd")));
        assert!(TokenHash::parse(&printed[1..]).is_none() && TokenHash::parse("x").is_none());
        assert_eq!(format!("{parsed:?}"), "TokenHash(…)");
    }
}
