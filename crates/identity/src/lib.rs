//! Who is calling: the settings ([`Identity`]), their check ([`IdentityError`]), and the rules made from them
//! ([`IdentityRules`]).
//!
//! A name is not trusted because a request contains it. A header is trusted only from the proxy's addresses, a token
//! only with its issuer's keys. A credential that fails its check is refused; it never falls back to a weaker source.
//!
//! **What lives here**: from the head of a request to its caller and its tenant, by tokens, client certificates, API
//! keys, cookies and headers of trusted proxies; the check of settings that would trust the wrong callers; fetching the
//! keys of issuers. **What must never**: a clock, a configuration file, a listener, the layer that asks, and what a
//! caller means for a record, which is decided in the core.

mod caller_error;
pub mod caller_text;
mod certificate;
mod check;
mod cookie;
mod der;
mod description;
pub mod jwt;
mod network;
mod rules;
mod surroundings;
mod tenant;
mod validity;

pub use caller_error::CallerError;
pub use certificate::CertificateName;
pub use check::IdentityError;
pub use network::{Network, NetworkError};
pub use rules::{IdentityRule, IdentityRules};
pub use surroundings::{Clock, HttpLayer, PeerOf};
pub use validity::expires_at;

use http::HeaderName;
use semel_core::scope::{self, Lifetime};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// How a caller is identified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// By a header that a trusted proxy sets. It is removed from requests of all other addresses.
    Header(HeaderName),
    /// By issuer and subject of a token in `Authorization: Bearer`, signed by one of these.
    Jwt(Vec<jwt::Issuer>),
    /// By an API key in this header. The service checks whether the key is valid.
    ApiKey(HeaderName),
    /// By the session cookie of this name.
    Cookie(String),
    /// By a name in the client's certificate, which the listener has verified.
    Mtls(CertificateName),
    /// By the credentials in `Authorization` (`Basic` and `Bearer`), as they are: a new token is another caller.
    Authorization,
    /// Not at all: such requests share one scope, including their keys and replays. It must be the last source.
    Anonymous,
}

impl Source {
    /// The source in one word, for messages.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Header(_) => "header",
            Self::Jwt(_) => "jwt",
            Self::ApiKey(_) => "api-key",
            Self::Cookie(_) => "cookie",
            Self::Mtls(_) => "mtls",
            Self::Authorization => "authorization",
            Self::Anonymous => "anonymous",
        }
    }

    /// What "the same caller" means with this source; `None` if callers are not distinguished.
    pub const fn lifetime(&self) -> Option<Lifetime> {
        Some(match self {
            Self::Header(_) => scope::Source::Header.lifetime(),
            Self::Jwt(_) => scope::Source::Jwt.lifetime(),
            Self::ApiKey(_) => scope::Source::ApiKey.lifetime(),
            Self::Cookie(_) => scope::Source::Cookie.lifetime(),
            Self::Mtls(_) => scope::Source::Mtls.lifetime(),
            Self::Authorization => scope::Source::Authorization.lifetime(),
            Self::Anonymous => return None,
        })
    }
}

/// The tenant of a request. Two tenants share no keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Tenant {
    /// No tenants.
    #[default]
    None,
    /// The value of a header that a trusted proxy sets. A request without it is refused.
    Header(HeaderName),
    /// This claim, a string, of the verified token. A request without it is refused.
    Claim(String),
    /// The host of the request, one of these (lower case, without port). A request to another host is refused.
    Host(Vec<String>),
}

/// The settings for identifying callers and tenants.
///
/// The sources are tried in order, and the first that finds anything in the request decides: it identifies the caller
/// or, if what it found is not valid, refuses the request. A request in which none finds anything is refused too,
/// unless [`Source::Anonymous`] is last. Without any source, callers are identified by `Authorization`, as the
/// [layer](HttpLayer::by_authorization) does it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    /// How callers are identified.
    pub sources: Vec<Source>,
    /// How tenants are identified.
    pub tenant: Tenant,
    /// The addresses of trusted proxies: the headers of [`Source::Header`] and [`Tenant::Header`] are trusted only
    /// from these.
    pub trusted: Vec<Network>,
    /// Whether the source of a name (the header, the cookie, the kind of certificate name) is part of it, as with the
    /// `callers` of an operation: merchant 7 is then not user 7. Never with the default, whose records do not have it.
    pub is_by_place: bool,
}

impl Identity {
    /// Refuses settings that would trust the wrong callers. Reports everything that is wrong, not only the first.
    /// `reserved` are the headers of the [layer](HttpLayer::reserved_headers).
    pub fn check(&self, reserved: &[HeaderName]) -> Result<(), Vec<IdentityError>> {
        let found = check::check(self, reserved);
        if found.is_empty() { Ok(()) } else { Err(found) }
    }

    /// Reports conflicts with the other rules of the same gateway.
    pub fn check_beside<'i>(&self, others: impl IntoIterator<Item = &'i Self>) -> Vec<IdentityError> {
        check::beside(self, others)
    }

    /// Whether callers are not distinguished.
    pub fn is_anonymous(&self) -> bool {
        self.sources == [Source::Anonymous]
    }

    /// Whether a request without any credentials is accepted, and shares one scope with others like it.
    pub fn is_open(&self) -> bool {
        self.sources.last() == Some(&Source::Anonymous)
    }

    /// The headers that identify callers and tenants, besides `Authorization` and `Cookie`.
    pub fn credentials(&self) -> impl Iterator<Item = &HeaderName> {
        self.believed_headers().chain(self.key_headers())
    }

    /// The headers that API keys come in.
    fn key_headers(&self) -> impl Iterator<Item = &HeaderName> {
        self.sources.iter().filter_map(|source| match source {
            Source::ApiKey(name) => Some(name),
            _ => None,
        })
    }

    /// The headers that are trusted only from trusted addresses.
    pub fn believed_headers(&self) -> impl Iterator<Item = &HeaderName> {
        let callers = self.sources.iter().filter_map(|source| match source {
            Source::Header(name) => Some(name),
            _ => None,
        });
        let tenant = match &self.tenant {
            Tenant::Header(name) => Some(name),
            _ => None,
        };
        callers.chain(tenant)
    }
}

/// Where a request came from, according to its connection.
#[derive(Clone, PartialEq, Eq)]
pub struct Peer {
    /// The other end of the connection.
    pub address: IpAddr,
    /// The verified client certificate (DER).
    pub certificate: Option<Arc<[u8]>>,
}

/// Without the certificate's content.
impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.certificate.as_ref().map(|certificate| certificate.len());
        f.debug_struct("Peer").field("address", &self.address).field("certificate_bytes", &bytes).finish()
    }
}
