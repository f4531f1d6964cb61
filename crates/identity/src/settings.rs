//! How callers and tenants are identified.

use crate::certificate::CertificateName;
use crate::jwt;
use crate::network::Network;
use http::HeaderName;
use semel_core::scope::{self, Lifetime};

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
/// [layer](crate::HttpLayer::by_authorization) does it.
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
    pub(crate) fn key_headers(&self) -> impl Iterator<Item = &HeaderName> {
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
