//! What a gateway is to do.
//!
//! What lives here: the plan, whoever made it. What must never: a choice between plans.

use super::ledgers::Ledgers;
use super::{Keeping, Limits};
use crate::admin;
use crate::ask::{Questions, Ways};
use crate::forward::{self, Host};
use crate::identity::{Identity, Live, Network, Source};
use crate::logging;
use crate::trace::Tracer;
use crate::upstream;
use crate::{listen, stores};
use http::HeaderName;
use semel::quota::{Quotas, Rates};
use semel::sealing::KeyRing;
use semel_http::{KeyRule, KeySource, Routes, Terms, TermsError};
use std::fmt;
use std::net::IpAddr;

/// What a gateway is to do.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The service behind it.
    pub target: upstream::Target,
    /// How clients reach it.
    pub listen: listen::Options,
    /// How it reaches the service.
    pub upstream: upstream::Options,
    /// Which `Host` the service sees.
    pub host: Host,
    /// Where records are kept.
    pub store: stores::Url,
    /// The terms of requests that are no operation's.
    pub terms: Terms,
    /// What is asked about them.
    pub questions: Questions,
    /// The operations; the first that a request fits decides.
    pub operations: Vec<Operation>,
    /// Who is calling, where an operation does not say otherwise.
    pub identity: Identity,
    /// Limits on new keys and records.
    pub quotas: Quotas,
    /// Where operators and workers find it, and who may do what there. Nowhere otherwise.
    pub admin: Option<Admin>,
    /// What stored outcomes are sealed with. They are stored as they are otherwise.
    pub sealing: Option<KeyRing>,
    /// How records are kept, besides where.
    pub keeping: Keeping,
    /// What is held of requests at once.
    pub limits: Limits,
    /// The proxies whose word about earlier stations is passed on.
    pub forwarded_by: Vec<Network>,
    /// What stands before the paths that are published.
    pub prefix: String,
    /// Where spans are sent. Nowhere otherwise, and a client's trace passes as it came.
    pub tracer: Option<Tracer>,
    /// How log lines look; in JSON, the start-up text is log lines too.
    pub log: logging::Form,
    /// Whether every request is logged.
    pub logs_requests: bool,
}

/// The admin address, and who may do what there.
#[derive(Debug, Clone, Default)]
pub struct Admin {
    /// Where it is, and who may do what.
    pub options: admin::Options,
    /// TLS, or none.
    pub tls: Option<listen::Tls>,
}

impl Admin {
    /// What a running address goes by once the files of `new` were read: its TLS, where it is to go on with TLS.
    pub(super) fn renew(&mut self, new: &Self) {
        if self.tls.is_some() && new.tls.is_some() {
            self.tls.clone_from(&new.tls);
        }
    }

    /// Whether what cannot change before the next start is the same.
    pub(super) fn is_at_the_same_place(&self, other: &Self) -> bool {
        self.options.address == other.options.address && self.tls == other.tls
    }
}

/// Requests under terms of their own.
#[derive(Debug, Clone)]
pub struct Operation {
    /// The template of their paths.
    pub template: String,
    /// Their terms.
    pub terms: Terms,
    /// What is asked about them.
    pub questions: Questions,
    /// Who is calling, where that is told otherwise than the plan has it for all.
    pub identity: Option<Identity>,
    /// Limits on their new keys, besides those on all.
    pub rates: Rates,
}

impl Operation {
    /// By what labels and messages know it: its name, else its template.
    pub(crate) fn title(&self) -> &str {
        self.terms.name.as_deref().unwrap_or(&self.template)
    }
}

impl Plan {
    /// In front of `target`, and everything else as it is by default.
    pub fn new(target: upstream::Target) -> Self {
        Self {
            target,
            listen: listen::Options::default(),
            upstream: upstream::Options::default(),
            host: Host::default(),
            store: stores::Url::default(),
            terms: Terms::default(),
            questions: Questions::default(),
            operations: Vec::new(),
            identity: Identity::default(),
            quotas: Quotas::default(),
            admin: Some(Admin::default()),
            sealing: None,
            keeping: Keeping::default(),
            limits: Limits::default(),
            forwarded_by: Vec::new(),
            prefix: String::new(),
            tracer: None,
            log: logging::Form::default(),
            logs_requests: false,
        }
    }

    /// All terms: the default's first.
    pub(super) fn all_terms(&self) -> impl Iterator<Item = &Terms> {
        std::iter::once(&self.terms).chain(self.operations.iter().map(|operation| &operation.terms))
    }

    /// Every rule by which callers are recognised: the default's first.
    pub(super) fn identities(&self) -> impl Iterator<Item = &Identity> {
        let own = self.operations.iter().filter_map(|operation| operation.identity.as_ref());
        std::iter::once(&self.identity).chain(own)
    }

    /// The routes, each under its own rule for callers, with everything that is asked about them on these ways: with what
    /// callers are known by there, and nothing that they are known by elsewhere; and limited by these ledgers.
    pub(super) fn routes(&self, ways: &Ways, live: &Live, ledgers: &Ledgers) -> Result<Routes, String> {
        let asked = |questions: &Questions, terms: &Terms, identity: &Identity| {
            let ways = Ways { credentials: identity.credentials().cloned().collect(), ..ways.clone() };
            questions.put_to(terms.clone(), &ways).map_err(|error| error.to_string())
        };
        let told = |error: TermsError| error.to_string();
        let routes = Routes::new(asked(&self.questions, &self.terms, &self.identity)?).map_err(told)?;
        self.operations.iter().try_fold(routes, |routes, operation| {
            let Operation { template, terms, questions, identity, .. } = operation;
            let mut terms = asked(questions, terms, identity.as_ref().unwrap_or(&self.identity))?;
            if let Some(identity) = identity {
                let callers = live.callers_of(identity);
                terms.callers = Some(callers.ok_or("the rule for an operation's callers was not started")?);
            }
            terms.rates = ledgers.of(operation);
            routes.with(template, terms).map_err(told)
        })
    }

    /// Whether there is a request that is protected.
    pub(super) fn is_any_protected(&self) -> bool {
        self.all_terms().any(|terms| terms.key != KeyRule::Off)
    }

    /// Whether an address is that of a proxy whose word about its clients counts.
    pub(super) fn is_proxy(&self) -> impl Fn(IpAddr) -> bool + Send + Sync + use<> {
        let proxies = self.forwarded_by.clone();
        move |address| proxies.iter().any(|network| network.holds(address))
    }

    /// Refuses to know callers by certificates that the listener, as it is, asks nobody for.
    pub(super) fn check_certificates(&self, listen: &listen::Options) -> Result<(), String> {
        let is_asked = listen.tls.is_some() && listen.clients.is_some();
        let mut sources = self.identities().flat_map(|identity| &identity.sources);
        if !is_asked && sources.any(|source| matches!(source, Source::Mtls(_))) {
            return Err("callers are to be known by client certificates, and the listener asks for none: set `client_ca` under \
                        [listen] and start anew"
                .to_owned());
        }
        Ok(())
    }

    /// What of this plan cannot take the place of `old`'s before the next start.
    pub(super) fn held_back(&self, old: &Self) -> Vec<&'static str> {
        let is_other =
            |one: &dyn fmt::Debug, other: &dyn fmt::Debug| format!("{one:?}") != format!("{other:?}");
        let is_desk_other = match (&self.admin, &old.admin) {
            (Some(new), Some(old)) => !new.is_at_the_same_place(old),
            (None, None) => false,
            _ => true,
        };
        let held = [
            ("[listen]", is_other(&self.listen, &old.listen)),
            ("the address of [admin], or whether it speaks TLS,", is_desk_other),
            ("[store]", self.store != old.store || self.keeping.is_other_store(&old.keeping)),
            ("[sweep]", self.keeping.is_swept_otherwise(&old.keeping)),
            ("[clock]", self.keeping.is_dated_otherwise(&old.keeping)),
            ("[quotas]", self.quotas != old.quotas),
            // Not by what is shown of them: secrets are not.
            ("[otlp]", self.tracer.as_ref().map(Tracer::options) != old.tracer.as_ref().map(Tracer::options)),
            ("[log]", (self.log, self.logs_requests) != (old.log, old.logs_requests)),
            ("the list of keys in [sealing]", self.sealing != old.sealing),
        ];
        held.into_iter().filter(|(_, is_other)| *is_other).map(|(name, _)| name).collect()
    }

    /// What no client may have taken off a request by naming it in `Connection`, whatever its key, its fingerprint and its
    /// caller are read from; where the problems of unprotected requests are explained; and what no path may lead out of.
    pub(super) fn rules(&self) -> forward::Rules {
        let mut end_to_end: Vec<HeaderName> = Vec::new();
        for terms in self.all_terms() {
            key_headers(&terms.key_source, &mut end_to_end);
            let counted = terms.policy.selection.headers();
            end_to_end.extend(counted.iter().filter_map(|name| name.parse().ok()));
        }
        end_to_end.extend(self.identities().flat_map(Identity::credentials).cloned());
        forward::Rules { end_to_end, prefix: self.prefix.clone(), base: self.target.base().to_owned() }
    }
}

fn key_headers(source: &KeySource, found: &mut Vec<HeaderName>) {
    match source {
        KeySource::Header(name) => found.push(name.clone()),
        KeySource::Composite(parts) => parts.iter().for_each(|part| key_headers(part, found)),
        KeySource::Pointer(_) | KeySource::Fingerprint => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Tenant;
    use semel::core::fingerprint::Selection;

    #[test]
    fn whatever_a_request_is_recognised_by_cannot_be_taken_off_it_by_its_connection_header() {
        let header = HeaderName::from_static;
        let target = upstream::Target::parse("http://127.0.0.1:1").expect("a target");
        let mut plan = Plan::new(target);
        let parts = vec![KeySource::Header(header("webhook-id")), KeySource::Fingerprint];
        let mut terms = Terms { key_source: KeySource::Composite(parts), ..Terms::default() };
        let selection = Selection::default().with_headers(["X-Region"]).expect("fit to be chosen");
        terms.policy = terms.policy.with(|policy| policy.selection = selection).expect("fit for use");
        let (questions, rates) = (Questions::default(), Rates::default());
        let own = Identity { sources: vec![Source::ApiKey(header("x-hook-key"))], ..Identity::default() };
        let template = "/hook".to_owned();
        plan.operations.push(Operation { template, terms, questions, identity: Some(own), rates });
        plan.identity.sources = vec![Source::Header(header("x-user")), Source::ApiKey(header("x-key"))];
        plan.identity.tenant = Tenant::Header(header("x-tenant"));
        let kept = plan.rules().end_to_end;
        for name in ["idempotency-key", "webhook-id", "x-region", "x-user", "x-key", "x-tenant", "x-hook-key"]
        {
            assert!(kept.contains(&header(name)), "{name}");
        }
    }
}
