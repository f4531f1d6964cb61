//! Settings that would trust the wrong callers. They are errors, not warnings, because a caller who is trusted by
//! mistake can read other callers' responses.

mod identity_error;
mod issuer;

pub use identity_error::IdentityError;

use crate::cookie;
use crate::jwt::Issuer;
use crate::settings::{Identity, Source, Tenant};
use http::HeaderName;
use http::header;

impl Identity {
    /// Everything that is unsafe, in the order of the settings.
    pub(crate) fn found(&self, reserved: &[HeaderName]) -> Vec<IdentityError> {
        let mut found = Vec::new();
        check_trust(self, &mut found);
        check_headers(self, reserved, &mut found);
        check_order(&self.sources, &mut found);
        for source in &self.sources {
            match source {
                Source::Cookie(name) if !cookie::is_name(name) => {
                    found.push(IdentityError::CookieName(name.clone()));
                }
                Source::Jwt(issuers) => check_issuers(issuers, &mut found),
                _ => {}
            }
        }
        check_tenant(self, &mut found);
        found
    }

    /// Refuses settings that would trust the wrong callers. Reports everything that is wrong, not only the first.
    /// `reserved` are the headers of the [layer](crate::HttpLayer::reserved_headers).
    pub fn check(&self, reserved: &[HeaderName]) -> Result<(), Vec<IdentityError>> {
        let found = self.found(reserved);
        if found.is_empty() { Ok(()) } else { Err(found) }
    }

    /// Reports conflicts with the other rules of the same gateway.
    pub fn check_beside<'i>(&self, others: impl IntoIterator<Item = &'i Self>) -> Vec<IdentityError> {
        beside(self, others)
    }
}

/// Headers that one rule reads and another removes.
fn beside<'i>(identity: &Identity, others: impl IntoIterator<Item = &'i Identity>) -> Vec<IdentityError> {
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
