//! Finds the caller and the tenant of a request, by the settings. It never waits; keys are fetched in the background.

use super::caller_error::CallerError;
use super::certificate::{self, CertificateName};
use super::check::{IdentityError, is_spelling};
use super::cookie::{self, CookieMatch};
use super::description::{self, RuleOwner};
use super::jwt::{self, CheckTime, KeySource, Refreshing, Verified, Verifier};
use super::peer::Peer;
use super::settings::{Identity, Source, Tenant};
use super::surroundings::{Clock, HttpLayer};
use super::tenant;
use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{Extensions, HeaderMap, HeaderName};
use semel_core::scope::{Caller, Identity as Name};
use serde_json::Value;
use std::fmt;
use std::sync::Arc;

/// The rules made from [`Identity`] at start: the default, and the operations' own. Clones share them.
///
/// [`prepare`](Self::prepare) *every* request first of all: a [rule](Self::rules) identifies nobody in a request that
/// was not prepared.
#[derive(Clone)]
pub struct IdentityRules(Arc<Shared>);

struct Shared {
    /// The default first, each once.
    all: Vec<Arc<IdentityRule>>,
    /// The issuers of all rules.
    issuers: Arc<[RunningIssuer]>,
    layer: Arc<HttpLayer>,
}

/// An issuer with loaded keys, and the task that refreshes them.
#[derive(Clone)]
struct RunningIssuer {
    verifier: Arc<Verifier>,
    _refreshing: Option<Arc<Refreshing>>,
}

/// How callers and tenants are identified, by default or for an operation.
pub struct IdentityRule {
    identity: Identity,
    whose: RuleOwner,
    verifiers: Vec<Arc<Verifier>>,
    /// The refusal if no source finds anything.
    nobody: String,
    clock: Arc<dyn Clock>,
    layer: Arc<HttpLayer>,
    _issuers: Arc<[RunningIssuer]>,
}

/// Where a request came from, recorded before its headers are read.
#[derive(Clone)]
struct RecordedPeer(Option<Peer>);

impl IdentityRules {
    /// Checks the settings, loads their keys, and refreshes these as long as the rules, or one of them, exist. `others`
    /// are the operations' own. Keys of several rules are loaded once. Keys that `running` has fetched under the same
    /// settings are taken over without waiting, also while the URL is down.
    ///
    /// Needs a tokio runtime. Waits for one load of each issuer's keys, one after the other, each with its timeout.
    pub async fn start(
        default: Identity,
        others: Vec<Identity>,
        running: Option<&Self>,
        clock: Arc<dyn Clock>,
        layer: HttpLayer,
    ) -> Result<Self, Vec<IdentityError>> {
        let mut all = vec![default];
        all.extend(others);
        let mut found: Vec<IdentityError> = Vec::new();
        for (index, identity) in all.iter().enumerate() {
            let own = identity.found(layer.reserved_headers);
            for error in own.into_iter().chain(identity.check_beside(&all[..index])) {
                if !found.contains(&error) {
                    found.push(error);
                }
            }
        }
        if !found.is_empty() {
            return Err(found);
        }
        Self::new(all, running, clock, layer).await
    }

    /// The default comes first. An issuer of several rules is started once, and its keys are fetched for all of them.
    /// Fetched keys are taken over from `running`.
    async fn new(
        identities: Vec<Identity>,
        running: Option<&Self>,
        clock: Arc<dyn Clock>,
        layer: HttpLayer,
    ) -> Result<Self, Vec<IdentityError>> {
        let (mut started, mut found): (Vec<RunningIssuer>, Vec<IdentityError>) = (Vec::new(), Vec::new());
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
                Err(error) => found.push(IdentityError::of_start(issuer.name.clone(), error)),
            }
        }
        if !found.is_empty() {
            return Err(found);
        }
        let started: Arc<[RunningIssuer]> = started.into();
        let layer = Arc::new(layer);
        let mut rules: Vec<Arc<IdentityRule>> = Vec::new();
        for identity in identities {
            if rules.iter().any(|rule| rule.identity == identity) {
                continue;
            }
            let is_believed = |verifier: &Verifier| issuers(&identity).any(|issuer| verifier.is_of(issuer));
            let verifiers = started.iter().map(|known| &known.verifier);
            let verifiers = verifiers.filter(|verifier| is_believed(verifier)).cloned().collect();
            let whose = if rules.is_empty() { RuleOwner::Default } else { RuleOwner::Operation };
            let nobody = description::nobody(&identity.sources, whose);
            let (clock, layer, issuers) = (Arc::clone(&clock), Arc::clone(&layer), Arc::clone(&started));
            let rule = IdentityRule { identity, whose, verifiers, nobody, clock, layer, _issuers: issuers };
            rules.push(Arc::new(rule));
        }
        Ok(Self(Arc::new(Shared { all: rules, issuers: started, layer })))
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
        let peer = (self.0.layer.peer)(extensions);
        let names: Vec<HeaderName> =
            headers.keys().filter(|name| self.0.is_off(name, peer.as_ref())).cloned().collect();
        for name in names {
            headers.remove(name);
        }
        extensions.insert(RecordedPeer(peer));
    }

    /// The rules, each once, the default first. Each one keeps the keys that it needs fresh.
    pub fn rules(&self) -> impl Iterator<Item = &Arc<IdentityRule>> {
        self.0.all.iter()
    }
}

impl fmt::Debug for IdentityRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.all.iter().map(|rule| &rule.identity)).finish()
    }
}

impl Shared {
    /// Whether a header must be removed from a request that came from there.
    fn is_off(&self, name: &HeaderName, peer: Option<&Peer>) -> bool {
        let mut is_believed = false;
        for rule in &self.all {
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

impl IdentityRule {
    /// The settings that it was made from.
    pub fn settings(&self) -> &Identity {
        &self.identity
    }

    /// How it distinguishes callers: what "the same caller" means to a client.
    pub fn description(&self) -> String {
        description::description(&self.identity)
    }

    fn trusts(&self, peer: &Peer) -> bool {
        self.identity.trusted.iter().any(|network| network.holds(peer.address))
    }

    /// The caller and its tenant, together: asked one after the other, a token could expire in between. A request
    /// without a tenant is refused as well.
    pub fn identify(&self, parts: &Parts) -> Result<(Caller, Option<Vec<u8>>), CallerError> {
        let Some(RecordedPeer(peer)) = parts.extensions.get() else {
            let why = "The address that the request came from was not recorded. (Service: this is a bug.)";
            return Err(CallerError::Missing(why.to_owned()));
        };
        let found = self.caller(parts, peer.as_ref());
        let (caller, token) = found.map_err(|why| description::with_setting(why, self.whose))?;
        Ok((caller, self.tenant(parts, peer.as_ref(), token.as_ref())?))
    }

    fn caller(&self, parts: &Parts, peer: Option<&Peer>) -> Result<(Caller, Option<Verified>), CallerError> {
        if self.identity.sources.is_empty() {
            return Ok((self.by_authorization(parts)?, None));
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
                    return Ok((self.by_authorization(parts)?, None));
                }
                Source::Authorization => continue,
                Source::Anonymous => return Ok((Caller::Anonymous, None)),
            };
            if let Some(name) = name {
                return Ok((self.name_in_rule(name, found_in).into(), None));
            }
        }
        Err(CallerError::Missing(self.nobody.clone()))
    }

    fn by_authorization(&self, parts: &Parts) -> Result<Caller, CallerError> {
        (self.layer.by_authorization)(parts, self.whose.setting())
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
    ) -> Result<Option<Vec<u8>>, CallerError> {
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
        found
            .map(Some)
            .ok_or_else(|| CallerError::Missing(description::no_tenant(&self.identity.tenant, self.whose)))
    }

    /// The value of a trusted header, if it came from a trusted address.
    fn believed(
        &self,
        parts: &Parts,
        peer: Option<&Peer>,
        name: &HeaderName,
    ) -> Result<Option<Vec<u8>>, CallerError> {
        if peer.is_some_and(|peer| self.trusts(peer)) { one(&parts.headers, name) } else { Ok(None) }
    }

    /// The claims of the request's token, if it has one.
    fn token(&self, parts: &Parts) -> Result<Option<Verified>, CallerError> {
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
        let moment = CheckTime { now: self.clock.now(), uptime: self.clock.uptime() };
        let verified = jwt::verify(token.trim_ascii_start(), &self.verifiers, moment);
        verified.map(Some).map_err(|refused| {
            let setting = "(Service: see `identity.issuer`.)";
            CallerError::Rejected(format!("The bearer token is not accepted: {refused}. {setting}"))
        })
    }
}

/// The value of a header that must be present at most once, and not be empty.
fn one(headers: &HeaderMap, name: &HeaderName) -> Result<Option<Vec<u8>>, CallerError> {
    match one_line(headers, name)? {
        Some([]) => {
            Err(CallerError::Rejected(format!("The header {name} is empty; it must identify the caller.")))
        }
        value => Ok(value.map(<[u8]>::to_vec)),
    }
}

fn one_line<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a [u8]>, CallerError> {
    let mut lines = headers.get_all(name).iter();
    let line = lines.next().map(|line| line.as_bytes().trim_ascii());
    if lines.next().is_some() {
        return Err(CallerError::Rejected(format!("The request has several {name} headers; send one.")));
    }
    Ok(line)
}

fn session(headers: &HeaderMap, name: &str) -> Result<Option<Vec<u8>>, CallerError> {
    match cookie::find(headers, name) {
        CookieMatch::Nothing => Ok(None),
        CookieMatch::One(value) => Ok(Some(value.to_vec())),
        CookieMatch::Empty => {
            Err(CallerError::Rejected(format!("The cookie {name} is empty; it must identify the session.")))
        }
        CookieMatch::Several => {
            Err(CallerError::Rejected(format!("The request has several cookies {name}; send one.")))
        }
    }
}

/// The name in the client's certificate, if it has one.
fn shown(peer: Option<&Peer>, by: CertificateName) -> Result<Option<Vec<u8>>, CallerError> {
    let Some(certificate) = peer.and_then(|peer| peer.certificate.as_deref()) else {
        return Ok(None);
    };
    let name = certificate::name(certificate, by);
    name.map(Some).map_err(|refused| {
        CallerError::Rejected(format!("The client certificate names no caller: {refused}."))
    })
}
