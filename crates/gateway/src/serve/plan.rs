//! What a gateway is to do.
//!
//! What lives here: the plan, whoever made it. What must never: a choice between plans.

use crate::forward::{self, Host};
use crate::identity::{Identity, Source, Tenant};
use crate::trace::Tracer;
use crate::upstream;
use crate::{listen, stores};
use http::HeaderName;
use semel::quota::Quotas;
use semel::sealing::KeyRing;
use semel_http::{KeyRule, KeySource, Routes, Terms, TermsError};
use std::net::SocketAddr;

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
    /// The operations; the first that a request fits decides.
    pub operations: Vec<Operation>,
    /// Who is calling.
    pub identity: Identity,
    /// Limits on new keys and records.
    pub quotas: Quotas,
    /// Where operators and workers find it. Nowhere otherwise.
    pub admin: Option<SocketAddr>,
    /// What stored outcomes are sealed with. They are stored as they are otherwise.
    pub sealing: Option<KeyRing>,
    /// Where spans are sent. Nowhere otherwise, and a client's trace passes as it came.
    pub tracer: Option<Tracer>,
}

/// Requests under terms of their own.
#[derive(Debug, Clone)]
pub struct Operation {
    /// The template of their paths.
    pub template: String,
    /// Their terms.
    pub terms: Terms,
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
            operations: Vec::new(),
            identity: Identity::default(),
            quotas: Quotas::default(),
            admin: None,
            sealing: None,
            tracer: None,
        }
    }

    /// All terms: the default's first.
    pub(super) fn all_terms(&self) -> impl Iterator<Item = &Terms> {
        std::iter::once(&self.terms).chain(self.operations.iter().map(|operation| &operation.terms))
    }

    pub(super) fn routes(&self) -> Result<Routes, TermsError> {
        let routes = Routes::new(self.terms.clone())?;
        self.operations
            .iter()
            .try_fold(routes, |routes, Operation { template, terms }| routes.with(template, terms.clone()))
    }

    /// Whether there is a request that is protected.
    pub(super) fn is_any_protected(&self) -> bool {
        self.all_terms().any(|terms| terms.key != KeyRule::Off)
    }

    /// Whether all callers are one.
    pub(super) fn is_anonymous(&self) -> bool {
        self.identity.sources == [Source::Anonymous]
    }

    /// What no client may have taken off a request by naming it in `Connection`: whatever its key, its fingerprint and its
    /// caller are read from.
    pub(super) fn rules(&self) -> forward::Rules {
        let mut end_to_end: Vec<HeaderName> = Vec::new();
        for terms in self.all_terms() {
            key_headers(&terms.key_source, &mut end_to_end);
            let counted = terms.policy.selection.headers();
            end_to_end.extend(counted.iter().filter_map(|name| name.parse().ok()));
        }
        for source in &self.identity.sources {
            if let Source::Header(name) | Source::ApiKey(name) = source {
                end_to_end.push(name.clone());
            }
        }
        if let Tenant::Header(name) = &self.identity.tenant {
            end_to_end.push(name.clone());
        }
        forward::Rules { end_to_end, ..forward::Rules::default() }
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

    #[test]
    fn whatever_a_request_is_recognised_by_cannot_be_taken_off_it_by_its_connection_header() {
        let header = HeaderName::from_static;
        let target = upstream::Target::parse("http://127.0.0.1:1").expect("a target");
        let mut plan = Plan::new(target);
        let parts = vec![KeySource::Header(header("webhook-id")), KeySource::Fingerprint];
        let mut terms = Terms { key_source: KeySource::Composite(parts), ..Terms::default() };
        terms.policy.selection = terms.policy.selection.with_headers(["X-Region"]).expect("fit to be chosen");
        plan.operations.push(Operation { template: "/hook".to_owned(), terms });
        plan.identity.sources = vec![Source::Header(header("x-user")), Source::ApiKey(header("x-key"))];
        plan.identity.tenant = Tenant::Header(header("x-tenant"));
        let kept = plan.rules().end_to_end;
        for name in ["idempotency-key", "webhook-id", "x-region", "x-user", "x-key", "x-tenant"] {
            assert!(kept.contains(&header(name)), "{name}");
        }
    }
}
