//! The caller of a request.
//!
//! The default rule, and custom rules. Unverified claims are never trusted, and callers that should be separate never
//! share a scope.

use http::header::{AUTHORIZATION, COOKIE};
use http::request::Parts;
use semel::core::scope::{Caller, Identity, Operation, Scope};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// Why a request's caller cannot be identified. `Display` says how to fix it, and never quotes a header.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NotIdentified {
    /// `Authorization` has more than one line.
    SeveralAuthorizations,
    /// The scheme is neither `Basic` nor `Bearer`: its value may change with every request.
    Scheme,
    /// A `Cookie` and no `Authorization`: every session would be one caller.
    CookieOnly,
    /// The configured rule found no caller.
    ByRule,
    /// The configured rule found no caller, for this reason. Clients see the text: it must not quote a header.
    Because(Cow<'static, str>),
    /// The configured rule found an invalid credential: an expired token, a duplicate header. Clients see the text:
    /// it must not quote a header.
    Rejected(Cow<'static, str>),
}

impl NotIdentified {
    /// Whether the request has an invalid credential; otherwise it has none.
    pub const fn is_rejection(&self) -> bool {
        match self {
            Self::SeveralAuthorizations | Self::Scheme | Self::Rejected(_) => true,
            Self::CookieOnly | Self::ByRule | Self::Because(_) => false,
        }
    }
}

impl fmt::Display for NotIdentified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SeveralAuthorizations => {
                "The request has several Authorization headers; send one. (Service: or set `Layer::callers` to your \
                 own rule.)"
            }
            Self::Scheme => {
                "The Authorization header is neither Basic nor Bearer, and may differ on every retry. (Service: set \
                 `Layer::callers` to your own rule, or to `Callers::all_anonymous()`.)"
            }
            Self::CookieOnly => {
                "The request has a Cookie and no Authorization header, so its session cannot be identified. \
                 (Service: set `Layer::callers` to a rule that identifies the session, or to `Callers::all_anonymous()`.)"
            }
            Self::ByRule => {
                "The request does not say who is calling in the way that this service requires. (Service: see the rule \
                 in `Layer::callers`, or in `RouteSettings::callers` of the route.)"
            }
            Self::Because(why) | Self::Rejected(why) => why,
        })
    }
}

impl std::error::Error for NotIdentified {}

type Rule = dyn Fn(&Parts) -> Result<Caller, NotIdentified> + Send + Sync;
type RuleOfBoth = dyn Fn(&Parts) -> Result<(Caller, Option<Vec<u8>>), NotIdentified> + Send + Sync;
/// The tenant of a request, if it has one.
pub(crate) type TenantOf = dyn Fn(&Parts) -> Option<Vec<u8>> + Send + Sync;

/// How callers are identified: on a whole [`Layer`](crate::Layer), or on one route by its
/// [`RouteSettings`](crate::RouteSettings).
///
/// Clones are the same rule. Two rules that were created separately are different, even if they do the same.
#[derive(Clone, Default)]
pub struct Callers {
    kind: Kind,
    words: Option<Arc<str>>,
}

#[derive(Clone, Default)]
enum Kind {
    #[default]
    Authorization,
    Anonymous,
    Rule(Arc<Rule>),
    InTenants(Arc<RuleOfBoth>),
}

impl From<Kind> for Callers {
    fn from(kind: Kind) -> Self {
        Self { kind, words: None }
    }
}

impl Callers {
    /// The default: by the `Authorization` header, schemes `Basic` and `Bearer`. The guarantee is then *per access
    /// token*: a client with a renewed token is another caller. Without the header, callers are anonymous and share
    /// one scope. Requests whose caller cannot be identified in this way are refused.
    pub fn by_authorization() -> Self {
        Kind::Authorization.into()
    }

    /// All callers share one scope, and so each other's keys and replays.
    pub fn all_anonymous() -> Self {
        Kind::Anonymous.into()
    }

    /// By your own rule. Put the layer *inside* authentication: the rule reads the result of authentication, such as an
    /// extension of the request or a header that only authentication can set.
    ///
    /// ```
    /// use semel::core::scope::{Caller, Identity};
    /// use semel_http::{Callers, NotIdentified};
    ///
    /// // What your authentication puts into the request.
    /// #[derive(Clone)]
    /// struct User { id: String }
    ///
    /// let callers = Callers::by(|parts| {
    ///     let user: &User = parts.extensions.get().ok_or(NotIdentified::ByRule)?;
    ///     Ok(Identity::header(user.id.as_str()).found_in("user").into())
    /// });
    ///
    /// let mut request = http::Request::new(());
    /// assert!(callers.identify(&request.clone().into_parts().0).is_err(), "nobody was authenticated");
    /// request.extensions_mut().insert(User { id: "42".to_owned() });
    /// let found = callers.identify(&request.into_parts().0)?;
    /// assert_eq!(found, Caller::from(Identity::header("42").found_in("user")));
    /// # Ok::<(), NotIdentified>(())
    /// ```
    pub fn by(rule: impl Fn(&Parts) -> Result<Caller, NotIdentified> + Send + Sync + 'static) -> Self {
        Kind::Rule(Arc::new(rule)).into()
    }

    /// By your own rule that also returns the tenant, if any. [`Layer::tenant`](crate::Layer::tenant) is not used for
    /// such callers.
    ///
    /// ```
    /// use semel::core::scope::Identity;
    /// use semel_http::{Callers, NotIdentified, RouteSettings};
    ///
    /// // What authentication left behind on this route.
    /// #[derive(Clone)]
    /// struct Partner { organisation: String, key: String }
    ///
    /// let callers = Callers::in_tenants(|parts| {
    ///     let partner: &Partner = parts.extensions.get().ok_or(NotIdentified::ByRule)?;
    ///     Ok((Identity::api_key(&*partner.key).into(), Some(partner.organisation.clone().into())))
    /// });
    /// let settings = RouteSettings { callers: Some(callers), ..RouteSettings::default() };
    /// ```
    pub fn in_tenants(
        rule: impl Fn(&Parts) -> Result<(Caller, Option<Vec<u8>>), NotIdentified> + Send + Sync + 'static,
    ) -> Self {
        Kind::InTenants(Arc::new(rule)).into()
    }

    /// The same rule with your own description for the published specification, such as "per API key".
    #[must_use]
    pub fn described(self, words: impl Into<Arc<str>>) -> Self {
        Self { words: Some(words.into()), ..self }
    }

    /// How callers are identified, as text for the published specification.
    pub fn description(&self) -> &str {
        self.words.as_deref().unwrap_or(match &self.kind {
            Kind::Authorization => "per access token",
            Kind::Anonymous => "not at all (all are anonymous)",
            Kind::Rule(_) | Kind::InTenants(_) => "per identity, as the service determines it",
        })
    }

    /// The caller of a request.
    pub fn identify(&self, parts: &Parts) -> Result<Caller, NotIdentified> {
        match &self.kind {
            Kind::Authorization => by_authorization(parts),
            Kind::Anonymous => Ok(Caller::Anonymous),
            Kind::Rule(rule) => rule(parts),
            Kind::InTenants(rule) => rule(parts).map(|(caller, _)| caller),
        }
    }

    /// The scope of `operation`; `tenant` gives the tenant if the rule does not.
    pub(crate) fn scope(
        &self,
        parts: &Parts,
        operation: Operation,
        tenant: Option<&TenantOf>,
    ) -> Result<Scope, NotIdentified> {
        let (caller, tenant) = match &self.kind {
            Kind::InTenants(rule) => rule(parts)?,
            _ => (self.identify(parts)?, tenant.and_then(|tenant| tenant(parts))),
        };
        let scope = Scope::new(caller, operation);
        Ok(match tenant {
            Some(tenant) => scope.in_tenant(tenant),
            None => scope,
        })
    }

    /// Whether both are the same rule.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (&self.kind, &other.kind) {
            (Kind::Authorization, Kind::Authorization) | (Kind::Anonymous, Kind::Anonymous) => true,
            (Kind::Rule(one), Kind::Rule(other)) => Arc::ptr_eq(one, other),
            (Kind::InTenants(one), Kind::InTenants(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

impl fmt::Debug for Callers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            Kind::Authorization => "Callers(by authorization)",
            Kind::Anonymous => "Callers(all anonymous)",
            Kind::Rule(_) | Kind::InTenants(_) => "Callers(by a rule)",
        })
    }
}

fn by_authorization(parts: &Parts) -> Result<Caller, NotIdentified> {
    let mut lines = parts.headers.get_all(AUTHORIZATION).iter();
    let Some(line) = lines.next() else {
        let has_cookie = parts.headers.contains_key(COOKIE);
        return if has_cookie { Err(NotIdentified::CookieOnly) } else { Ok(Caller::Anonymous) };
    };
    if lines.next().is_some() {
        return Err(NotIdentified::SeveralAuthorizations);
    }
    let line = line.as_bytes();
    let space = line.iter().position(|byte| *byte == b' ').ok_or(NotIdentified::Scheme)?;
    let (scheme, credentials) = line.split_at(space);
    let credentials = credentials.trim_ascii_start();
    let scheme = str::from_utf8(scheme).map_err(|_| NotIdentified::Scheme)?;
    let is_stable = ["basic", "bearer"].iter().any(|stable| scheme.eq_ignore_ascii_case(stable));
    if !is_stable || credentials.is_empty() {
        return Err(NotIdentified::Scheme);
    }
    Ok(Identity::authorization(scheme, credentials).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identified(headers: &[(&str, &str)]) -> Result<Caller, NotIdentified> {
        let mut request = http::Request::builder();
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).expect("a request").into_parts();
        Callers::default().identify(&parts)
    }

    #[test]
    fn schemes_are_compared_without_case_and_credentials_exactly() {
        let bearer = identified(&[("authorization", "Bearer t0ken")]);
        assert_eq!(bearer, Ok(Identity::authorization("bearer", "t0ken").into()));
        assert_eq!(bearer, identified(&[("authorization", "bEARER  t0ken"), ("cookie", "a=b")]));
        assert_ne!(bearer, identified(&[("authorization", "Bearer T0ken")]));
        assert_ne!(bearer, identified(&[("authorization", "Basic t0ken")]));
    }

    #[test]
    fn peer_bug_indistinguishable_callers_share_a_scope() {
        for scheme in
            ["AWS4-HMAC-SHA256 Credential=a", "Digest username=a", "OAuth a=b", "Bearer", "Bearer ", "x"]
        {
            assert_eq!(identified(&[("authorization", scheme)]), Err(NotIdentified::Scheme), "{scheme}");
        }
        let twice = [("authorization", "Bearer a"), ("authorization", "Bearer a")];
        assert_eq!(identified(&twice), Err(NotIdentified::SeveralAuthorizations));
        assert_eq!(identified(&[("cookie", "session=7")]), Err(NotIdentified::CookieOnly));
        assert_eq!(identified(&[]), Ok(Caller::Anonymous));
    }

    #[test]
    fn anonymous_by_choice_covers_everybody() {
        let request = http::Request::builder().header("cookie", "a=b").header("authorization", "Digest x");
        let (parts, ()) = request.body(()).expect("a request").into_parts();
        assert_eq!(Callers::all_anonymous().identify(&parts), Ok(Caller::Anonymous));
    }
}
