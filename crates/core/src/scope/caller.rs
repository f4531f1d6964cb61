//! Who is calling.
//!
//! The caller, its identity and the source of the identity. Code that builds an [`Identity`] has to verify it first.

use std::fmt;

use crate::encoding::Sink;

/// The caller of a request.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Caller {
    /// Not identified. All anonymous callers (of a tenant) share one scope, and so each other's keys.
    Anonymous,
    /// Identified by a stable, authenticated identity.
    Identified(Identity),
}

impl Caller {
    pub(super) fn encode(&self, out: &mut impl Sink) {
        match self {
            Self::Anonymous => out.tag(0),
            Self::Identified(identity) => identity.encode(out),
        }
    }
}

impl From<Identity> for Caller {
    fn from(identity: Identity) -> Self {
        Self::Identified(identity)
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anonymous => f.write_str("Anonymous"),
            Self::Identified(identity) => identity.fmt(f),
        }
    }
}

/// The source of an identity. The same text from two sources means two callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// A header that a trusted proxy sets.
    Header,
    /// Issuer and subject of a verified JWT.
    Jwt,
    /// An API key.
    ApiKey,
    /// A session cookie.
    Cookie,
    /// The subject of a client certificate.
    Mtls,
    /// The credentials of an `Authorization` header, as they are.
    Authorization,
}

/// How long an identity from a [`Source`] stays the same.
///
/// A client that returns with another identity is another caller, and its retry runs again. So documentation of the
/// guarantee has to state this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lifetime {
    /// As long as the caller exists.
    Identity,
    /// Until the credential is replaced: an API key, a certificate's subject.
    Credential,
    /// Until the session ends: a new log-in is another caller.
    Session,
    /// Until the token is refreshed, which may be minutes: the guarantee is "per access token".
    Token,
}

impl Source {
    /// How long an identity from this source stays the same.
    pub const fn lifetime(self) -> Lifetime {
        match self {
            Self::Header | Self::Jwt => Lifetime::Identity,
            Self::ApiKey | Self::Mtls => Lifetime::Credential,
            Self::Cookie => Lifetime::Session,
            Self::Authorization => Lifetime::Token,
        }
    }

    /// The tag in hashed bytes; 0 is the anonymous caller. The tag also says whether the name is qualified by where
    /// it was found.
    const fn tag(self, is_found_in: bool) -> u8 {
        match (self, is_found_in) {
            (Self::Header, false) => 1,
            (Self::Jwt, _) => 2,
            (Self::ApiKey, false) => 3,
            (Self::Cookie, false) => 4,
            (Self::Mtls, false) => 5,
            (Self::Authorization, _) => 6,
            (Self::Header, true) => 7,
            (Self::ApiKey, true) => 8,
            (Self::Cookie, true) => 9,
            (Self::Mtls, true) => 10,
        }
    }
}

/// A caller's name and its source. Debug output shows the source only.
///
/// ```
/// use semel_core::scope::{Identity, Source};
///
/// assert_ne!(Identity::jwt("https://a", "42"), Identity::jwt("https://b", "42"));
/// assert_ne!(Identity::api_key("42"), Identity::cookie("42"));
/// assert_eq!(Identity::authorization("Bearer", "t0ken"), Identity::authorization("bearer", "t0ken"));
/// assert_eq!(Identity::jwt("https://a", "42").source(), Source::Jwt);
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Identity {
    source: Source,
    /// Qualifies the name: a JWT's issuer, an `Authorization` scheme in lower case, or the header or cookie it was
    /// found in, if that counts.
    realm: Option<Vec<u8>>,
    name: Vec<u8>,
}

impl Identity {
    fn of(source: Source, name: impl Into<Vec<u8>>) -> Self {
        Self { source, realm: None, name: name.into() }
    }

    /// The value of a header that a trusted proxy sets.
    pub fn header(value: impl Into<Vec<u8>>) -> Self {
        Self::of(Source::Header, value)
    }

    /// A JWT's `iss` and `sub`. Only from a token with a verified signature: anyone can write claims.
    pub fn jwt(issuer: &str, subject: &str) -> Self {
        Self { realm: Some(issuer.into()), ..Self::of(Source::Jwt, subject) }
    }

    /// A valid API key.
    pub fn api_key(key: impl Into<Vec<u8>>) -> Self {
        Self::of(Source::ApiKey, key)
    }

    /// The value of the session cookie.
    pub fn cookie(value: impl Into<Vec<u8>>) -> Self {
        Self::of(Source::Cookie, value)
    }

    /// The subject of a verified client certificate.
    pub fn mtls(subject: impl Into<Vec<u8>>) -> Self {
        Self::of(Source::Mtls, subject)
    }

    /// Scheme and credentials of an `Authorization` header. The scheme's case is ignored, the credentials are
    /// compared exactly: a new token is another caller ([`Lifetime::Token`]).
    pub fn authorization(scheme: &str, credentials: impl Into<Vec<u8>>) -> Self {
        let realm = Some(scheme.to_ascii_lowercase().into_bytes());
        Self { realm, ..Self::of(Source::Authorization, credentials) }
    }

    /// The same name, qualified by where it was found: the name of the header (case is ignored) or of the cookie, or
    /// the type of name in the certificate. It differs from the unqualified name, and from the same name found
    /// elsewhere.
    ///
    /// Names from a token or from `Authorization` are already qualified by issuer or scheme, and are unchanged.
    ///
    /// ```
    /// use semel_core::scope::Identity;
    ///
    /// let merchant = Identity::header("7").found_in("X-Merchant");
    /// assert_eq!(merchant, Identity::header("7").found_in("x-merchant"));
    /// assert_ne!(merchant, Identity::header("7").found_in("x-user"));
    /// assert_ne!(merchant, Identity::header("7"));
    /// ```
    #[must_use]
    pub fn found_in(self, what: &str) -> Self {
        let realm = match self.source {
            Source::Jwt | Source::Authorization => return self,
            Source::Header | Source::ApiKey => what.to_ascii_lowercase(),
            Source::Cookie | Source::Mtls => what.to_owned(),
        };
        Self { realm: Some(realm.into_bytes()), ..self }
    }

    /// The source of the identity.
    pub const fn source(&self) -> Source {
        self.source
    }

    /// The tag decides whether one or two fields follow.
    fn encode(&self, out: &mut impl Sink) {
        out.tag(self.source.tag(self.realm.is_some()));
        if let Some(realm) = &self.realm {
            out.field(realm);
        }
        out.field(&self.name);
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identified({:?})", self.source)
    }
}
