//! Settings that would trust the wrong callers. They are errors, not warnings, because a caller who is trusted by
//! mistake can read other callers' responses.

use super::jwt::{Algorithm, Issuer, KeyError};
use super::{Identity, Network, Source, Tenant, cookie};
use http::HeaderName;
use http::header;
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

/// Everything that is unsafe, in the order of the settings.
pub(super) fn check(identity: &Identity, reserved: &[HeaderName]) -> Vec<IdentityError> {
    let mut found = Vec::new();
    check_trust(identity, &mut found);
    check_headers(identity, reserved, &mut found);
    check_order(&identity.sources, &mut found);
    for source in &identity.sources {
        match source {
            Source::Cookie(name) if !cookie::is_name(name) => {
                found.push(IdentityError::CookieName(name.clone()));
            }
            Source::Jwt(issuers) => check_issuers(issuers, &mut found),
            _ => {}
        }
    }
    check_tenant(identity, &mut found);
    found
}

/// Headers that one rule reads and another removes.
pub(super) fn beside<'i>(
    identity: &Identity,
    others: impl IntoIterator<Item = &'i Identity>,
) -> Vec<IdentityError> {
    let mut found = Vec::new();
    for other in others {
        for (one, other) in [(identity, other), (other, identity)] {
            let taken = |name: &&HeaderName, is_key: bool| {
                other.believed_headers().any(|believed| {
                    is_spelling(name.as_str(), believed.as_str()) && (is_key || *name != believed)
                })
            };
            let keys = one.key_headers().filter(|name| taken(name, true));
            for name in one.believed_headers().filter(|name| taken(name, false)).chain(keys) {
                let error = IdentityError::HeaderTakenOff(name.clone());
                if !found.contains(&error) {
                    found.push(error);
                }
            }
        }
    }
    found
}

fn check_trust(identity: &Identity, found: &mut Vec<IdentityError>) {
    let mut believed = identity.believed_headers().peekable();
    if believed.peek().is_none() && !identity.trusted.is_empty() {
        found.push(IdentityError::TrustWithoutHeader);
    }
    if identity.trusted.is_empty() {
        found.extend(believed.map(|name| IdentityError::HeaderWithoutTrust(name.clone())));
    }
    let wide = identity.trusted.iter().filter(|network| network.is_too_wide());
    found.extend(wide.map(|network| IdentityError::TrustTooWide(*network)));
}

fn check_headers(identity: &Identity, reserved: &[HeaderName], found: &mut Vec<IdentityError>) {
    let mut seen: Vec<&HeaderName> = Vec::new();
    for name in identity.credentials() {
        if is_reserved(name, reserved) {
            found.push(IdentityError::ReservedHeader(name.clone()));
        }
        if seen.iter().any(|other| is_spelling(name.as_str(), other.as_str())) {
            found.push(IdentityError::HeaderTwice(name.clone()));
        }
        seen.push(name);
    }
}

/// Whether servers that do not distinguish `-` and `_` treat two names as one.
pub(super) fn is_spelling(one: &str, other: &str) -> bool {
    let plain = |byte: u8| if byte == b'_' { b'-' } else { byte };
    one.bytes().map(plain).eq(other.bytes().map(plain))
}

/// Whether a header has another meaning: for the layer, which has reserved it, for HTTP framing, or for another source.
fn is_reserved(name: &HeaderName, reserved: &[HeaderName]) -> bool {
    let of_http = [
        header::ACCEPT,
        header::AUTHORIZATION,
        header::CONNECTION,
        header::CONTENT_ENCODING,
        header::CONTENT_LENGTH,
        header::CONTENT_TYPE,
        header::COOKIE,
        header::DATE,
        header::EXPECT,
        header::FORWARDED,
        header::HOST,
        header::PROXY_AUTHORIZATION,
        header::TE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
        header::USER_AGENT,
        header::VIA,
    ];
    let of_proxies = ["keep-alive", "prefer", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"];
    let names = reserved.iter().chain(&of_http).map(HeaderName::as_str).chain(of_proxies);
    names.into_iter().any(|reserved| is_spelling(reserved, name.as_str()))
}

fn check_order(sources: &[Source], found: &mut Vec<IdentityError>) {
    for (index, source) in sources.iter().enumerate() {
        let before = &sources[..index];
        let unreachable_behind =
            |behind: Source| IdentityError::Unreachable { source: source.name(), behind: behind.name() };
        if before.contains(&Source::Anonymous) {
            found.push(unreachable_behind(Source::Anonymous));
        } else if matches!(source, Source::Jwt(_)) && before.contains(&Source::Authorization) {
            found.push(unreachable_behind(Source::Authorization));
        }
        let is_same = |other: &Source| match (source, other) {
            (Source::Jwt(_), Source::Jwt(_)) | (Source::Mtls(_), Source::Mtls(_)) => true,
            // Identified by their headers.
            (Source::Header(_) | Source::ApiKey(_), _) => false,
            _ => source == other,
        };
        if before.iter().any(is_same) {
            found.push(IdentityError::Twice(source.name()));
        }
    }
}

fn check_issuers(issuers: &[Issuer], found: &mut Vec<IdentityError>) {
    if issuers.is_empty() {
        found.push(IdentityError::NoIssuers);
    }
    for (index, issuer) in issuers.iter().enumerate() {
        if issuers[..index].iter().any(|other| other.name == issuer.name) {
            found.push(IdentityError::IssuerTwice(issuer.name.clone()));
        }
        found.extend(issuer.check());
    }
}

fn check_tenant(identity: &Identity, found: &mut Vec<IdentityError>) {
    match &identity.tenant {
        Tenant::None | Tenant::Header(_) => {}
        Tenant::Claim(name) => {
            if name.is_empty() {
                found.push(IdentityError::ClaimName);
            }
            if !identity.sources.iter().any(|source| matches!(source, Source::Jwt(_))) {
                found.push(IdentityError::ClaimWithoutToken);
            }
        }
        Tenant::Host(hosts) => {
            if hosts.is_empty() {
                found.push(IdentityError::NoHosts);
            }
            for (index, host) in hosts.iter().enumerate() {
                if super::tenant::host_of(host.as_bytes()).as_deref() != Some(host)
                    || hosts[..index].contains(host)
                {
                    found.push(IdentityError::HostName(host.clone()));
                }
            }
            // Without any source, requests without `Authorization` are anonymous.
            if identity.sources.is_empty() || identity.sources.contains(&Source::Anonymous) {
                found.push(IdentityError::HostWithAnonymous);
            }
        }
    }
}
