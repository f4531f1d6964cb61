//! The rule that settings become.
//!
//! What lives here: from a request to its caller and tenant. What must never: waiting (keys are fetched behind a request's
//! back), or a word out of a request in what its sender is told.

use super::certificate::{self, Named};
use super::check::{Unsafe, is_spelling};
use super::cookie::{self, Found};
use super::jwt::{self, Moment, Refreshing, Verified, Verifier};
use super::{Identity, Peer, Source, Tenant, tenant};
use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{Extensions, HeaderMap, HeaderName};
use semel::Clock;
use semel::core::scope::{Caller, Identity as Name};
use semel_http::{Callers, Layer, NotIdentified};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// The rule that [`Identity`] becomes at start. Clones are the same rule.
///
/// Two things have to be done with it, and the second refuses every request that the first was not done to: [`prepare`]
/// *every* request, protected or not, as the first thing of all; and put the layer [`under`] it.
///
/// [`prepare`]: Self::prepare
/// [`under`]: Self::under
#[derive(Clone)]
pub struct Live(Arc<Rule>);

struct Rule {
    identity: Identity,
    verifiers: Vec<Verifier>,
    /// What is told to a request in which no source finds anything.
    nobody: String,
    clock: Arc<dyn Clock>,
    peer: PeerOf,
    _refreshing: Vec<Refreshing>,
}

pub(super) type PeerOf = Box<dyn Fn(&Extensions) -> Option<Peer> + Send + Sync>;

/// What is known of a request besides its head. The tenant is found together with the caller, and kept for the layer's second
/// question: asked again, a token may have expired in between, and the request would fall out of its tenant.
#[derive(Clone)]
struct Prepared(Arc<Known>);

struct Known {
    peer: Option<Peer>,
    tenant: OnceLock<Option<Vec<u8>>>,
}

impl Live {
    pub(super) async fn new(
        identity: Identity,
        clock: Arc<dyn Clock>,
        peer: PeerOf,
    ) -> Result<Self, Vec<Unsafe>> {
        let (mut verifiers, mut refreshing, mut found) = (Vec::new(), Vec::new(), Vec::new());
        let issuers = identity.sources.iter().filter_map(|source| match source {
            Source::Jwt(issuers) => Some(issuers),
            _ => None,
        });
        for issuer in issuers.flatten() {
            match jwt::start(issuer.clone(), &clock).await {
                Ok((verifier, task)) => {
                    verifiers.push(verifier);
                    refreshing.extend(task);
                }
                Err(error) => found.push(error),
            }
        }
        if !found.is_empty() {
            return Err(found);
        }
        let nobody = nobody(&identity.sources);
        let rule = Rule { identity, verifiers, nobody, clock, peer, _refreshing: refreshing };
        Ok(Self(Arc::new(rule)))
    }

    /// Takes off what only a trusted proxy may say, unless it came from one, and notes where the request came from.
    ///
    /// Spellings with `_` for `-` are taken off in any case: servers that turn headers into variables see one name in both.
    pub fn prepare(&self, headers: &mut HeaderMap, extensions: &mut Extensions) {
        let peer = (self.0.peer)(extensions);
        let is_trusted = peer.as_ref().is_some_and(|peer| self.0.trusts(peer));
        for believed in self.0.identity.believed_headers() {
            let is_off = |name: &&HeaderName| {
                is_spelling(name.as_str(), believed.as_str()) && !(is_trusted && *name == believed)
            };
            let names: Vec<HeaderName> = headers.keys().filter(is_off).cloned().collect();
            for name in names {
                headers.remove(name);
            }
        }
        extensions.insert(Prepared(Arc::new(Known { peer, tenant: OnceLock::new() })));
    }

    /// The layer, with callers and tenants told apart by this rule.
    #[must_use]
    pub fn under(&self, layer: Layer) -> Layer {
        let layer = layer.callers(self.callers());
        if self.0.identity.tenant == Tenant::None {
            return layer;
        }
        layer.tenant(|parts| parts.extensions.get::<Prepared>()?.0.tenant.get()?.clone())
    }

    /// How callers are told apart. A request whose tenant cannot be told is refused here as well.
    pub fn callers(&self) -> Callers {
        let rule = Arc::clone(&self.0);
        Callers::by(move |parts| rule.identify(parts))
    }
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Live").field(&self.0.identity).finish()
    }
}

fn because(why: impl Into<Cow<'static, str>>) -> NotIdentified {
    NotIdentified::Because(why.into())
}

impl Rule {
    fn trusts(&self, peer: &Peer) -> bool {
        self.identity.trusted.iter().any(|network| network.holds(peer.address))
    }

    /// The caller, and the tenant into what is known of the request.
    fn identify(&self, parts: &Parts) -> Result<Caller, NotIdentified> {
        let Some(Prepared(known)) = parts.extensions.get() else {
            return Err(because(
                "This service did not note where the request came from. (Service: a defect.)",
            ));
        };
        let (caller, token) = self.caller(parts, known)?;
        let tenant = self.tenant(parts, known, token.as_ref())?;
        // Asked twice, the first answer holds.
        let _ = known.tenant.set(tenant);
        Ok(caller)
    }

    fn caller(&self, parts: &Parts, known: &Known) -> Result<(Caller, Option<Verified>), NotIdentified> {
        if self.identity.sources.is_empty() {
            return Ok((Callers::by_authorization().identify(parts)?, None));
        }
        for source in &self.identity.sources {
            let name = match source {
                Source::Header(name) => self.believed(parts, known, name)?.map(Name::header),
                Source::ApiKey(name) => one(&parts.headers, name)?.map(Name::api_key),
                Source::Cookie(name) => session(&parts.headers, name)?.map(Name::cookie),
                Source::Mtls(by) => shown(known, *by)?.map(Name::mtls),
                Source::Jwt(_) => match self.token(parts)? {
                    Some(token) => {
                        return Ok((Name::jwt(&token.issuer, &token.subject).into(), Some(token)));
                    }
                    None => None,
                },
                Source::Authorization if parts.headers.contains_key(AUTHORIZATION) => {
                    return Ok((Callers::by_authorization().identify(parts)?, None));
                }
                Source::Authorization => None,
                Source::Anonymous => return Ok((Caller::Anonymous, None)),
            };
            if let Some(name) = name {
                return Ok((name.into(), None));
            }
        }
        Err(because(self.nobody.clone()))
    }

    fn tenant(
        &self,
        parts: &Parts,
        known: &Known,
        token: Option<&Verified>,
    ) -> Result<Option<Vec<u8>>, NotIdentified> {
        let found = match &self.identity.tenant {
            Tenant::None => return Ok(None),
            Tenant::Header(name) => self.believed(parts, known, name)?,
            Tenant::Claim(name) => match token.and_then(|token| token.claims.get(name)) {
                Some(Value::String(tenant)) if !tenant.is_empty() => Some(tenant.clone().into_bytes()),
                _ => None,
            },
            Tenant::Host(hosts) => {
                tenant::host(parts).filter(|host| hosts.contains(host)).map(String::into_bytes)
            }
        };
        found.map(Some).ok_or_else(|| because(no_tenant(&self.identity.tenant)))
    }

    /// The value of a header that is believed, if it came from where it is.
    fn believed(
        &self,
        parts: &Parts,
        known: &Known,
        name: &HeaderName,
    ) -> Result<Option<Vec<u8>>, NotIdentified> {
        if known.peer.as_ref().is_some_and(|peer| self.trusts(peer)) {
            one(&parts.headers, name)
        } else {
            Ok(None)
        }
    }

    /// What the request's token says, if it has one.
    fn token(&self, parts: &Parts) -> Result<Option<Verified>, NotIdentified> {
        let Some(line) = one_line(&parts.headers, &AUTHORIZATION)? else {
            return Ok(None);
        };
        let (scheme, token) = match line.iter().position(|byte| *byte == b' ') {
            Some(space) => line.split_at(space),
            None => (line, [].as_slice()),
        };
        if !scheme.eq_ignore_ascii_case(b"bearer") {
            return Ok(None);
        }
        let moment = Moment { now: self.clock.now(), uptime: self.clock.uptime() };
        let verified = jwt::verify(token.trim_ascii_start(), &self.verifiers, moment);
        verified.map(Some).map_err(|refused| because(format!("The bearer token is not accepted: {refused}.")))
    }
}

/// The value of a header that must not come twice, nor be empty.
fn one(headers: &HeaderMap, name: &HeaderName) -> Result<Option<Vec<u8>>, NotIdentified> {
    match one_line(headers, name)? {
        Some([]) => Err(because(format!("The header {name} is empty; it has to say who is calling."))),
        value => Ok(value.map(<[u8]>::to_vec)),
    }
}

fn one_line<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a [u8]>, NotIdentified> {
    let mut lines = headers.get_all(name).iter();
    let line = lines.next().map(|line| line.as_bytes().trim_ascii());
    if lines.next().is_some() {
        return Err(because(format!("The request has several {name} headers; send one.")));
    }
    Ok(line)
}

fn session(headers: &HeaderMap, name: &str) -> Result<Option<Vec<u8>>, NotIdentified> {
    match cookie::find(headers, name) {
        Found::Nothing => Ok(None),
        Found::One(value) => Ok(Some(value.to_vec())),
        Found::Empty => Err(because(format!("The cookie {name} is empty; it has to name the session."))),
        Found::Several => Err(because(format!("The request has several cookies {name}; send one."))),
    }
}

/// Who the client's certificate names, if it showed one.
fn shown(known: &Known, by: Named) -> Result<Option<Vec<u8>>, NotIdentified> {
    let Some(certificate) = known.peer.as_ref().and_then(|peer| peer.certificate.as_deref()) else {
        return Ok(None);
    };
    let name = certificate::name(certificate, by);
    name.map(Some).map_err(|refused| because(format!("The client certificate names no caller: {refused}.")))
}

/// What is told where no source finds anything.
fn nobody(sources: &[Source]) -> String {
    let ways: Vec<String> = sources
        .iter()
        .filter_map(|source| match source {
            Source::Header(name) => Some(format!("the header {name}, set by the service's own proxy")),
            Source::Jwt(_) => Some("a token in `Authorization: Bearer`".to_owned()),
            Source::ApiKey(name) => Some(format!("an API key in the header {name}")),
            Source::Cookie(name) => Some(format!("the session cookie {name}")),
            Source::Mtls(by) => Some(format!("the {by} of a client certificate")),
            Source::Authorization => Some("an Authorization header".to_owned()),
            Source::Anonymous => None,
        })
        .collect();
    format!(
        "The request does not say who is calling. This service knows callers by {}. (Service: add a source to \
         `identity.sources`; `anonymous` as the last one lets such requests share one scope.)",
        ways.join(", or ")
    )
}

fn no_tenant(tenant: &Tenant) -> String {
    let way = match tenant {
        Tenant::None => "nothing".to_owned(),
        Tenant::Header(name) => format!("the header {name}, set by the service's own proxy"),
        Tenant::Claim(_) => "a claim of its bearer token".to_owned(),
        Tenant::Host(_) => "the host that it is sent to".to_owned(),
    };
    format!(
        "The request does not belong to a tenant that is known here; it is told by {way}. (Service: see `identity.tenant`.)"
    )
}
