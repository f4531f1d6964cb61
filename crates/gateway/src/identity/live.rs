//! Finds the caller and the tenant of a request, by the settings. It never waits; keys are fetched in the background.

use super::certificate::{self, CertificateName};
use super::check::{Unsafe, is_spelling};
use super::cookie::{self, CookieMatch};
use super::description::{self, RuleOwner};
use super::jwt::{self, KeySource, Moment, Refreshing, Verified, Verifier};
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
use std::sync::Arc;

/// The rules made from [`Identity`] at start: the default, and the operations' own. Clones share them.
///
/// Two things must be done with it, and the second refuses every request that the first was not done to: [`prepare`]
/// *every* request first of all, protected or not; and put the layer [`under`] it, and each route with its own rule
/// under [that rule](Self::callers_of).
///
/// [`prepare`]: Self::prepare
/// [`under`]: Self::under
#[derive(Clone)]
pub struct Live(Arc<Rules>);

struct Rules {
    /// The default first, each once.
    all: Vec<(Arc<Rule>, Callers)>,
    /// The issuers of all rules.
    issuers: Arc<[RunningIssuer]>,
    peer: PeerOf,
}

/// An issuer with loaded keys, and the task that refreshes them.
#[derive(Clone)]
struct RunningIssuer {
    verifier: Arc<Verifier>,
    _refreshing: Option<Arc<Refreshing>>,
}

struct Rule {
    identity: Identity,
    whose: RuleOwner,
    verifiers: Vec<Arc<Verifier>>,
    /// The refusal if no source finds anything.
    nobody: String,
    clock: Arc<dyn Clock>,
    _issuers: Arc<[RunningIssuer]>,
}

pub(super) type PeerOf = Box<dyn Fn(&Extensions) -> Option<Peer> + Send + Sync>;

/// Where a request came from, recorded before its headers are read.
#[derive(Clone)]
struct RecordedPeer(Option<Peer>);

impl Live {
    /// The default comes first. An issuer of several rules is started once, and its keys are fetched for all of them.
    /// Fetched keys are taken over from `running`.
    pub(super) async fn new(
        identities: Vec<Identity>,
        running: Option<&Self>,
        clock: Arc<dyn Clock>,
        peer: PeerOf,
    ) -> Result<Self, Vec<Unsafe>> {
        let (mut started, mut found): (Vec<RunningIssuer>, Vec<Unsafe>) = (Vec::new(), Vec::new());
        for issuer in identities.iter().flat_map(issuers) {
            if started.iter().any(|known| known.verifier.is_of(issuer)) {
                continue;
            }
            if let Some(known) = running.and_then(|running| running.fetching_for(issuer)) {
                started.push(known);
                continue;
            }
            match jwt::start(issuer.clone(), &clock).await {
                Ok((verifier, task)) => {
                    let verifier = Arc::new(verifier);
                    started.push(RunningIssuer { verifier, _refreshing: task.map(Arc::new) });
                }
                Err(error) => found.push(error),
            }
        }
        if !found.is_empty() {
            return Err(found);
        }
        let started: Arc<[RunningIssuer]> = started.into();
        let mut rules: Vec<(Arc<Rule>, Callers)> = Vec::new();
        for identity in identities {
            if rules.iter().any(|(rule, _)| rule.identity == identity) {
                continue;
            }
            let is_believed = |verifier: &Verifier| issuers(&identity).any(|issuer| verifier.is_of(issuer));
            let verifiers = started.iter().map(|known| &known.verifier);
            let verifiers = verifiers.filter(|verifier| is_believed(verifier)).cloned().collect();
            let whose = if rules.is_empty() { RuleOwner::Default } else { RuleOwner::Operation };
            let (nobody, description) =
                (description::nobody(&identity.sources, whose), description::description(&identity));
            let (clock, issuers) = (Arc::clone(&clock), Arc::clone(&started));
            let rule = Rule { identity, whose, verifiers, nobody, clock, _issuers: issuers };
            let rule = Arc::new(rule);
            let shared_rule = Arc::clone(&rule);
            rules.push((
                rule,
                Callers::in_tenants(move |parts| shared_rule.identify(parts)).described(description),
            ));
        }
        Ok(Self(Arc::new(Rules { all: rules, issuers: started, peer })))
    }

    /// The fetched keys of an issuer with the same settings, with their age and the task that refreshes them, because
    /// the URL may be down now. A newer set is requested. Local keys are read again instead.
    fn fetching_for(&self, issuer: &jwt::Issuer) -> Option<RunningIssuer> {
        let KeySource::Url(_) = &issuer.keys else { return None };
        let known = self.0.issuers.iter().find(|known| known.verifier.is_of(issuer))?;
        known.verifier.want();
        Some(known.clone())
    }

    /// Removes headers that only a trusted proxy may set, unless the request came from one, and records where the
    /// request came from. A header that any rule trusts is removed from every request, because all requests go to the
    /// same service.
    ///
    /// Spellings with `_` for `-` are always removed: servers that turn headers into variables see one name in both.
    pub fn prepare(&self, headers: &mut HeaderMap, extensions: &mut Extensions) {
        let peer = (self.0.peer)(extensions);
        let names: Vec<HeaderName> =
            headers.keys().filter(|name| self.0.is_off(name, peer.as_ref())).cloned().collect();
        for name in names {
            headers.remove(name);
        }
        extensions.insert(RecordedPeer(peer));
    }

    /// The layer, with callers and tenants identified by the default rule.
    #[must_use]
    pub fn under(&self, layer: Layer) -> Layer {
        layer.callers(self.callers())
    }

    /// How callers and tenants are identified by default. A request without a tenant is refused as well.
    pub fn callers(&self) -> Callers {
        self.0.all.first().map(|(_, callers)| callers.clone()).unwrap_or_default()
    }

    /// The same with an operation's own rule; `None` if it was not started.
    pub fn callers_of(&self, identity: &Identity) -> Option<Callers> {
        let (_, callers) = self.0.all.iter().find(|(rule, _)| rule.identity == *identity)?;
        Some(callers.clone())
    }
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.all.iter().map(|(rule, _)| &rule.identity)).finish()
    }
}

impl Rules {
    /// Whether a header must be removed from a request that came from there.
    fn is_off(&self, name: &HeaderName, peer: Option<&Peer>) -> bool {
        let mut is_believed = false;
        for (rule, _) in &self.all {
            for believed in rule.identity.believed_headers() {
                if name == believed && peer.is_some_and(|peer| rule.trusts(peer)) {
                    return false;
                }
                is_believed |= is_spelling(name.as_str(), believed.as_str());
            }
        }
        is_believed
    }
}

/// The trusted issuers.
fn issuers(identity: &Identity) -> impl Iterator<Item = &jwt::Issuer> {
    let issuers = identity.sources.iter().filter_map(|source| match source {
        Source::Jwt(issuers) => Some(issuers),
        _ => None,
    });
    issuers.flatten()
}

fn because(why: impl Into<Cow<'static, str>>) -> NotIdentified {
    NotIdentified::Because(why.into())
}

/// The credentials of the request are not valid.
fn rejected(why: String) -> NotIdentified {
    NotIdentified::Rejected(why.into())
}

impl Rule {
    fn trusts(&self, peer: &Peer) -> bool {
        self.identity.trusted.iter().any(|network| network.holds(peer.address))
    }

    /// The caller and its tenant, together: asked one after the other, a token could expire in between.
    fn identify(&self, parts: &Parts) -> Result<(Caller, Option<Vec<u8>>), NotIdentified> {
        let Some(RecordedPeer(peer)) = parts.extensions.get() else {
            return Err(because(
                "The address that the request came from was not recorded. (Service: this is a bug.)",
            ));
        };
        let found = self.caller(parts, peer.as_ref());
        let (caller, token) = found.map_err(|why| description::with_setting(why, self.whose))?;
        Ok((caller, self.tenant(parts, peer.as_ref(), token.as_ref())?))
    }

    fn caller(
        &self,
        parts: &Parts,
        peer: Option<&Peer>,
    ) -> Result<(Caller, Option<Verified>), NotIdentified> {
        if self.identity.sources.is_empty() {
            return Ok((Callers::by_authorization().identify(parts)?, None));
        }
        for source in &self.identity.sources {
            let (name, found_in) = match source {
                Source::Header(name) => (self.believed(parts, peer, name)?.map(Name::header), name.as_str()),
                Source::ApiKey(name) => (one(&parts.headers, name)?.map(Name::api_key), name.as_str()),
                Source::Cookie(name) => (session(&parts.headers, name)?.map(Name::cookie), name.as_str()),
                Source::Mtls(by) => (shown(peer, *by)?.map(Name::mtls), by.kind()),
                Source::Jwt(_) => match self.token(parts)? {
                    Some(token) => {
                        return Ok((Name::jwt(&token.issuer, &token.subject).into(), Some(token)));
                    }
                    None => continue,
                },
                Source::Authorization if parts.headers.contains_key(AUTHORIZATION) => {
                    return Ok((Callers::by_authorization().identify(parts)?, None));
                }
                Source::Authorization => continue,
                Source::Anonymous => return Ok((Caller::Anonymous, None)),
            };
            if let Some(name) = name {
                return Ok((self.name_in_rule(name, found_in).into(), None));
            }
        }
        Err(because(self.nobody.clone()))
    }

    /// The caller in this rule. With an operation's own `callers`, the source of the name is part of it: merchant 7
    /// must not become user 7, whatever rule applies later. With the default, it is not part of it.
    fn name_in_rule(&self, name: Name, found_in: &str) -> Name {
        if self.identity.is_by_place { name.found_in(found_in) } else { name }
    }

    fn tenant(
        &self,
        parts: &Parts,
        peer: Option<&Peer>,
        token: Option<&Verified>,
    ) -> Result<Option<Vec<u8>>, NotIdentified> {
        let found = match &self.identity.tenant {
            Tenant::None => return Ok(None),
            Tenant::Header(name) => self.believed(parts, peer, name)?,
            Tenant::Claim(name) => match token.and_then(|token| token.claims.get(name)) {
                Some(Value::String(tenant)) if !tenant.is_empty() => Some(tenant.clone().into_bytes()),
                _ => None,
            },
            Tenant::Host(hosts) => {
                tenant::host(parts).filter(|host| hosts.contains(host)).map(String::into_bytes)
            }
        };
        found.map(Some).ok_or_else(|| because(description::no_tenant(&self.identity.tenant, self.whose)))
    }

    /// The value of a trusted header, if it came from a trusted address.
    fn believed(
        &self,
        parts: &Parts,
        peer: Option<&Peer>,
        name: &HeaderName,
    ) -> Result<Option<Vec<u8>>, NotIdentified> {
        if peer.is_some_and(|peer| self.trusts(peer)) { one(&parts.headers, name) } else { Ok(None) }
    }

    /// The claims of the request's token, if it has one.
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
        verified.map(Some).map_err(|refused| {
            let setting = "(Service: see `identity.issuer`.)";
            rejected(format!("The bearer token is not accepted: {refused}. {setting}"))
        })
    }
}

/// The value of a header that must be present at most once, and not be empty.
fn one(headers: &HeaderMap, name: &HeaderName) -> Result<Option<Vec<u8>>, NotIdentified> {
    match one_line(headers, name)? {
        Some([]) => Err(rejected(format!("The header {name} is empty; it must identify the caller."))),
        value => Ok(value.map(<[u8]>::to_vec)),
    }
}

fn one_line<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a [u8]>, NotIdentified> {
    let mut lines = headers.get_all(name).iter();
    let line = lines.next().map(|line| line.as_bytes().trim_ascii());
    if lines.next().is_some() {
        return Err(rejected(format!("The request has several {name} headers; send one.")));
    }
    Ok(line)
}

fn session(headers: &HeaderMap, name: &str) -> Result<Option<Vec<u8>>, NotIdentified> {
    match cookie::find(headers, name) {
        CookieMatch::Nothing => Ok(None),
        CookieMatch::One(value) => Ok(Some(value.to_vec())),
        CookieMatch::Empty => {
            Err(rejected(format!("The cookie {name} is empty; it must identify the session.")))
        }
        CookieMatch::Several => Err(rejected(format!("The request has several cookies {name}; send one."))),
    }
}

/// The name in the client's certificate, if it has one.
fn shown(peer: Option<&Peer>, by: CertificateName) -> Result<Option<Vec<u8>>, NotIdentified> {
    let Some(certificate) = peer.and_then(|peer| peer.certificate.as_deref()) else {
        return Ok(None);
    };
    let name = certificate::name(certificate, by);
    name.map(Some).map_err(|refused| rejected(format!("The client certificate names no caller: {refused}.")))
}
