//! What is refused, and why.

use crate::jwt::{Algorithm, KeyError, StartError};
use crate::network::Network;
use http::HeaderName;
use std::fmt;

/// A setting that is refused at start. `Display` says why, and how to fix it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[expect(
    missing_docs,
    reason = "what a variant means is what it displays; the fields are the names it puts in"
)]
pub enum IdentityError {
    HeaderWithoutTrust(HeaderName),
    TrustTooWide(Network),
    TrustWithoutHeader,
    ReservedHeader(HeaderName),
    HeaderTwice(HeaderName),
    HeaderTakenOff(HeaderName),
    CookieName(String),
    Unreachable { source: &'static str, behind: &'static str },
    Twice(&'static str),
    NoIssuers,
    IssuerTwice(String),
    NoIssuer,
    NoAudience(String),
    NoAlgorithm(String),
    AlgorithmOfOtherKey { issuer: String, algorithm: Algorithm },
    ShortSecret { issuer: String, algorithm: Algorithm, bytes_min: usize },
    Key { issuer: String, error: KeyError },
    Leeway(String),
    KeysAddress { issuer: String },
    KeysInTheClear { issuer: String },
    KeysRefresh { issuer: String },
    KeysNotLoaded { issuer: String, why: String },
    ClaimWithoutToken,
    ClaimName,
    NoHosts,
    HostName(String),
    HostWithAnonymous,
}

impl IdentityError {
    /// The error of an issuer whose keys cannot be used.
    pub(crate) fn of_start(issuer: String, error: StartError) -> Self {
        match error {
            StartError::Key(error) => Self::Key { issuer, error },
            StartError::NotLoaded(why) => Self::KeysNotLoaded { issuer, why },
        }
    }
}

impl fmt::Display for IdentityError {
    #[expect(clippy::too_many_lines, reason = "one text for each case, and nothing else")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HeaderWithoutTrust(name) => write!(
                f,
                "the header `{name}` identifies callers, but no address is trusted to set it, so any client \
                    could. Name the addresses of the proxy that sets it"
            ),
            Self::TrustTooWide(network) => write!(
                f,
                "{network} is wider than any private network: clients in it could set the trusted headers \
                    themselves. Name the proxy's own addresses"
            ),
            Self::TrustWithoutHeader => f.write_str(
                "addresses are trusted, but no header is read from them. Name the header, or remove the addresses",
            ),
            Self::ReservedHeader(name) => write!(
                f,
                "`{name}` has another meaning in HTTP and can identify neither a caller nor a tenant. Use \
                    another header"
            ),
            Self::HeaderTwice(name) => write!(
                f,
                "`{name}` is used twice, or in two spellings that servers treat as one. Give each source \
                    its own header"
            ),
            Self::HeaderTakenOff(name) => write!(
                f,
                "one rule trusts `{name}`, or another spelling of it, from proxies, so it is removed from \
                    all other requests and cannot carry the API key of another rule. Use another header"
            ),
            Self::CookieName(name) => {
                write!(f, "`{name}` is not a valid cookie name. Write the name of the session cookie")
            }
            Self::Unreachable { source, behind } => write!(
                f,
                "`{source}` comes after `{behind}`, which matches every request. Put it before, or remove it"
            ),
            Self::Twice(source) => write!(f, "`{source}` is listed twice among the sources. Remove one"),
            Self::NoIssuers => f.write_str("callers are identified by tokens, but no issuer is set. Name one"),
            Self::IssuerTwice(issuer) => {
                write!(f, "the issuer `{issuer}` is set twice. Keep one; a key set can contain several keys")
            }
            Self::NoIssuer => f.write_str(
                "an issuer has no name, so tokens of any issuer with the same key would be accepted. Write \
                    its exact `iss`",
            ),
            Self::NoAudience(issuer) => write!(
                f,
                "issuer `{issuer}`: the audience is empty. Write the `aud` of its tokens for this service, \
                    or accept any audience explicitly"
            ),
            Self::NoAlgorithm(issuer) => write!(
                f,
                "issuer `{issuer}`: none of the allowed algorithms fits its key. Name the algorithm that \
                    signs its tokens"
            ),
            Self::AlgorithmOfOtherKey { issuer, algorithm } => write!(
                f,
                "issuer `{issuer}`: {algorithm} needs another kind of key than the one that is set. (A \
                    public key must never be the secret of HS…: everybody knows it.) Remove {algorithm} \
                    from the list, or set its key"
            ),
            Self::ShortSecret { issuer, algorithm, bytes_min } => write!(
                f,
                "issuer `{issuer}`: the secret has fewer than the {bytes_min} bytes that {algorithm} needs, \
                    and could be guessed from a token. Make a longer one (openssl rand -hex {bytes_min})"
            ),
            Self::Key { issuer, error } => write!(f, "issuer `{issuer}`: the key cannot be used: {error}"),
            Self::Leeway(issuer) => {
                write!(f, "issuer `{issuer}`: a leeway of more than five minutes accepts expired tokens. \
                    Synchronise the clocks instead")
            }
            Self::KeysAddress { issuer } => {
                write!(f, "issuer `{issuer}`: the keys' URL must begin with https:// and contain no user name")
            }
            Self::KeysInTheClear { issuer } => write!(
                f,
                "issuer `{issuer}`: keys fetched over http:// can be replaced on the network, by somebody \
                    who can then pose as any caller. Use https://"
            ),
            Self::KeysRefresh { issuer } => write!(
                f,
                "issuer `{issuer}`: the times for fetching keys do not fit together. The minimum interval \
                    must be at least one second, the usual interval at least as long, keys must be valid \
                    for at least that long, and no limit may be zero"
            ),
            Self::KeysNotLoaded { issuer, why } => {
                write!(f, "issuer `{issuer}`: the keys cannot be loaded: {why}")
            }
            Self::ClaimWithoutToken => f.write_str(
                "the tenant is a claim of a token, but no tokens are verified. Add an issuer and the source \"jwt\"",
            ),
            Self::ClaimName => f.write_str("the name of the tenant's claim is missing. Write it"),
            Self::NoHosts => f.write_str(
                "the tenant is the Host, but no host is named, so any client could invent tenants. Name the hosts",
            ),
            Self::HostName(host) => {
                write!(f, "`{host}` is not a host in normal form: lower case, no port, no trailing dot, and \
                    listed only once")
            }
            Self::HostWithAnonymous => f.write_str(
                "the tenant is the Host and callers may be anonymous, so only the Host, which any client \
                    can set, would separate tenants. Identify callers, or remove the tenant",
            ),
        }
    }
}

impl std::error::Error for IdentityError {}
