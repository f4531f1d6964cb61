//! Who is calling: the settings ([`Identity`]), their check ([`Unsafe`]), and the rule made from them ([`Live`]).
//!
//! A name is not trusted because a request contains it. A header is trusted only from the proxy's addresses, a token
//! only with its issuer's keys. A credential that fails its check is refused; it never falls back to a weaker source.

mod certificate;
mod check;
mod cookie;
mod der;
mod description;
pub mod jwt;
mod live;
mod network;
mod tenant;

pub use certificate::CertificateName;
pub use check::Unsafe;
pub use live::Live;
pub use network::{Network, NetworkError};

use http::{Extensions, HeaderName};
use semel::Clock;
use semel::core::scope::{self, Lifetime};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// How a caller is recognised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// By a header that a trusted proxy sets. From any other address it is taken off the request.
    Header(HeaderName),
    /// By issuer and subject of a token in `Authorization: Bearer`, signed by one of these.
    Jwt(Vec<jwt::Issuer>),
    /// By an API key in this header. Whether the key is valid is for the service to say: here it only has to be one.
    ApiKey(HeaderName),
    /// By the session cookie of this name.
    Cookie(String),
    /// By a name in the client's certificate, which the listener has verified.
    Mtls(CertificateName),
    /// By the credentials in `Authorization`, schemes `Basic` and `Bearer`, as they are: a new token is another caller.
    Authorization,
    /// By nothing: all that come here share one scope, and so each other's keys and replays. Last, if at all.
    Anonymous,
}

impl Source {
    /// The source in one word, as messages name it.
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

    /// What "the same caller" means under this source; nothing where there is no telling callers apart.
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

/// Which tenant a request belongs to. Two tenants share no key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Tenant {
    /// There are none.
    #[default]
    None,
    /// The value of a header that a trusted proxy sets. A request without it is refused.
    Header(HeaderName),
    /// This claim, a text, of the verified token. A request without it is refused.
    Claim(String),
    /// The host that the request was sent to, one of these (lower case, without port). A request to another is refused.
    Host(Vec<String>),
}

/// How callers and tenants are recognised, as it is set.
///
/// The sources are asked in their order, and the first that finds anything in the request decides: what it finds names the
/// caller or, where it is not valid, refuses the request. A request in which none finds anything is refused too, unless
/// [`Source::Anonymous`] stands last. Without any source, callers are recognised as by
/// [`Callers::by_authorization`](semel_http::Callers::by_authorization).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    /// How callers are recognised.
    pub sources: Vec<Source>,
    /// How tenants are.
    pub tenant: Tenant,
    /// The addresses of proxies that are believed: what they write into the headers of [`Source::Header`] and
    /// [`Tenant::Header`] is so.
    pub trusted: Vec<Network>,
    /// Whether what a name was found in (the header, the cookie, which name of a certificate) is part of it, as it is under the
    /// `callers` of an operation: merchant 7 is then not user 7. Never under the default, whose records are known without.
    pub is_by_place: bool,
}

impl Identity {
    /// Refuses settings that would believe the wrong people. Tells everything that is wrong, not the first alone.
    pub fn check(&self) -> Result<(), Vec<Unsafe>> {
        let found = check::check(self);
        if found.is_empty() { Ok(()) } else { Err(found) }
    }

    /// Checks the settings, loads what keys they name, and keeps these fresh for as long as the rule, or anything made from
    /// it, lives. `peer` tells from a request's extensions where it came from.
    ///
    /// Needs a tokio runtime. Waits for one load of each issuer's keys, one after the other, none longer than its timeout.
    pub async fn start(
        self,
        clock: Arc<dyn Clock>,
        peer: impl Fn(&Extensions) -> Option<Peer> + Send + Sync + 'static,
    ) -> Result<Live, Vec<Unsafe>> {
        self.start_beside(Vec::new(), None, clock, peer).await
    }

    /// The same where operations have rules of their own: `others`. Keys that several rules go by are loaded once. Those that are
    /// fetched from an address for `running`, under the same settings, are not waited for: they are as good as they were there,
    /// also while the address is down.
    pub async fn start_beside(
        self,
        others: Vec<Self>,
        running: Option<&Live>,
        clock: Arc<dyn Clock>,
        peer: impl Fn(&Extensions) -> Option<Peer> + Send + Sync + 'static,
    ) -> Result<Live, Vec<Unsafe>> {
        let mut all = vec![self];
        all.extend(others);
        let mut found: Vec<Unsafe> = Vec::new();
        for (place, identity) in all.iter().enumerate() {
            let unsafe_ = check::check(identity).into_iter().chain(identity.check_beside(&all[..place]));
            for unsafe_ in unsafe_ {
                if !found.contains(&unsafe_) {
                    found.push(unsafe_);
                }
            }
        }
        if !found.is_empty() {
            return Err(found);
        }
        Live::new(all, running, clock, Box::new(peer)).await
    }

    /// Tells what does not go together with the rules of others on the same gateway.
    pub(crate) fn check_beside<'i>(&self, others: impl IntoIterator<Item = &'i Self>) -> Vec<Unsafe> {
        check::beside(self, others)
    }

    /// Whether all callers are one.
    pub(crate) fn is_anonymous(&self) -> bool {
        self.sources == [Source::Anonymous]
    }

    /// Whether a request that shows nothing of what callers are known by is let in, and shares one scope with its like.
    pub(crate) fn is_open(&self) -> bool {
        self.sources.last() == Some(&Source::Anonymous)
    }

    /// The headers that callers and tenants are known by, besides `Authorization` and `Cookie`.
    pub(crate) fn credentials(&self) -> impl Iterator<Item = &HeaderName> {
        self.believed_headers().chain(self.key_headers())
    }

    /// The headers that API keys come in.
    fn key_headers(&self) -> impl Iterator<Item = &HeaderName> {
        self.sources.iter().filter_map(|source| match source {
            Source::ApiKey(name) => Some(name),
            _ => None,
        })
    }

    /// The headers that are believed from trusted addresses, and from these only.
    pub(crate) fn believed_headers(&self) -> impl Iterator<Item = &HeaderName> {
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

/// Where a request came from, as the connection tells.
#[derive(Clone, PartialEq, Eq)]
pub struct Peer {
    /// The other end of the connection.
    pub address: IpAddr,
    /// The certificate that the client showed and that was verified, as its bytes are (DER).
    pub certificate: Option<Arc<[u8]>>,
}

/// Without what stands in the certificate.
impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.certificate.as_ref().map(|certificate| certificate.len());
        f.debug_struct("Peer").field("address", &self.address).field("certificate_bytes", &bytes).finish()
    }
}
