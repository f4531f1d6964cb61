//! The plan of a gateway: everything that it needs to start.

use super::storage_settings::{Limits, StorageSettings};
use crate::callbacks::ServiceCallbacks;
use crate::stores;
use http::HeaderName;
use semel::quota::{Quotas, Rates};
use semel::sealing::KeyRing;
use semel_admin as admin;
use semel_http::{KeyRule, KeySource, RouteSettings};
use semel_identity::{Identity, Network, Source, caller_text};
use semel_net::target::Target;
use semel_proxy::forward::{self, Host};
use semel_proxy::listen;
use semel_proxy::upstream;
use semel_telemetry::logging;
use semel_telemetry::trace::Tracer;
use std::fmt;
use std::net::IpAddr;

/// The plan of a gateway.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The service behind it.
    pub target: Target,
    /// How clients reach it.
    pub listen: listen::Options,
    /// How the gateway reaches the service.
    pub upstream: upstream::Options,
    /// Which `Host` the service sees.
    pub host: Host,
    /// Where records are stored.
    pub store: stores::Url,
    /// The settings for requests of no operation.
    pub route_settings: RouteSettings,
    /// The questions about them.
    pub callbacks: ServiceCallbacks,
    /// The operations; the first that matches a request decides.
    pub operations: Vec<Operation>,
    /// Who is calling, unless an operation has its own rule.
    pub identity: Identity,
    /// Limits on new keys and records.
    pub quotas: Quotas,
    /// The admin address, if any.
    pub admin: Option<Admin>,
    /// The keys that seal stored outcomes. Without any, they are stored unsealed.
    pub sealing: Option<KeyRing>,
    /// How records are stored.
    pub storage: StorageSettings,
    /// How much of requests is held in memory at once.
    pub limits: Limits,
    /// The proxies whose forwarding headers are passed on.
    pub forwarded_by: Vec<Network>,
    /// The prefix of the published paths.
    pub prefix: String,
    /// Where spans are sent. If nowhere, a client's trace context is forwarded unchanged.
    pub tracer: Option<Tracer>,
    /// The format of log lines; in JSON, the start-up text is log lines too.
    pub log: logging::Form,
    /// Whether every request is logged.
    pub logs_requests: bool,
}

/// The admin address, and who may do what there.
#[derive(Debug, Clone, Default)]
pub struct Admin {
    /// Its address, and who may do what.
    pub options: admin::Options,
    /// TLS, or none.
    pub tls: Option<listen::Tls>,
}

impl Admin {
    /// The settings of a running address after the files of `new` were read: with its TLS, if it keeps using TLS.
    pub(crate) fn renew(&mut self, new: &Self) {
        if self.tls.is_some() && new.tls.is_some() {
            self.tls.clone_from(&new.tls);
        }
    }

    /// Whether everything that cannot change before the next start is the same.
    pub(crate) fn is_at_the_same_place(&self, other: &Self) -> bool {
        self.options.address == other.options.address && self.tls == other.tls
    }
}

/// Requests with their own settings.
#[derive(Debug, Clone)]
pub struct Operation {
    /// The template of their paths.
    pub template: String,
    /// Their settings.
    pub route_settings: RouteSettings,
    /// The questions about them.
    pub callbacks: ServiceCallbacks,
    /// Who is calling, if the operation has its own rule.
    pub identity: Option<Identity>,
    /// Limits on their new keys, besides those for all.
    pub rates: Rates,
}

impl Operation {
    /// Its name in labels and messages: its name, or its template.
    pub(crate) fn title(&self) -> &str {
        self.route_settings.name.as_deref().unwrap_or(&self.template)
    }

    /// How its callers and tenants are identified, if it has its own rule.
    pub(crate) fn callers(&self) -> Option<String> {
        self.identity.as_ref().map(caller_text::known)
    }
}

impl Plan {
    /// A plan for `target`, with defaults for everything else.
    pub fn new(target: Target) -> Self {
        Self {
            target,
            listen: listen::Options::default(),
            upstream: upstream::Options::default(),
            host: Host::default(),
            store: stores::Url::default(),
            route_settings: RouteSettings::default(),
            callbacks: ServiceCallbacks::default(),
            operations: Vec::new(),
            identity: Identity::default(),
            quotas: Quotas::default(),
            admin: Some(Admin::default()),
            sealing: None,
            storage: StorageSettings::default(),
            limits: Limits::default(),
            forwarded_by: Vec::new(),
            prefix: String::new(),
            tracer: None,
            log: logging::Form::default(),
            logs_requests: false,
        }
    }

    /// The settings of all routes, the default's first.
    pub(crate) fn all_route_settings(&self) -> impl Iterator<Item = &RouteSettings> {
        std::iter::once(&self.route_settings)
            .chain(self.operations.iter().map(|operation| &operation.route_settings))
    }

    /// Every rule that identifies callers, the default's first.
    pub(crate) fn identities(&self) -> impl Iterator<Item = &Identity> {
        let of_operations = self.operations.iter().filter_map(|operation| operation.identity.as_ref());
        std::iter::once(&self.identity).chain(of_operations)
    }

    /// Whether any request is protected.
    pub(crate) fn is_any_protected(&self) -> bool {
        self.all_route_settings().any(|route_settings| route_settings.key != KeyRule::Off)
    }

    /// Whether an address belongs to a trusted proxy.
    pub(crate) fn is_proxy(&self) -> impl Fn(IpAddr) -> bool + Send + Sync + use<> {
        let proxies = self.forwarded_by.clone();
        move |address| proxies.iter().any(|network| network.holds(address))
    }

    /// Whether callers are identified by client certificates.
    pub(crate) fn needs_client_certificates(&self) -> bool {
        let mut sources = self.identities().flat_map(|identity| &identity.sources);
        sources.any(|source| matches!(source, Source::Mtls(_)))
    }

    /// What cannot be changed from `old` before the next start.
    pub(crate) fn held_back(&self, old: &Self) -> Vec<&'static str> {
        let is_other =
            |one: &dyn fmt::Debug, other: &dyn fmt::Debug| format!("{one:?}") != format!("{other:?}");
        let is_admin_address_changed = match (&self.admin, &old.admin) {
            (Some(new), Some(old)) => !new.is_at_the_same_place(old),
            (None, None) => false,
            _ => true,
        };
        let held = [
            ("[listen]", is_other(&self.listen, &old.listen)),
            ("the address of [admin], or whether it speaks TLS,", is_admin_address_changed),
            ("[store]", self.store != old.store || self.storage.is_other_store(&old.storage)),
            ("[sweep]", self.storage.is_swept_otherwise(&old.storage)),
            ("[clock]", self.storage.is_dated_otherwise(&old.storage)),
            ("[quotas]", self.quotas != old.quotas),
            // Not compared by debug output, which hides secrets.
            ("[otlp]", self.tracer.as_ref().map(Tracer::options) != old.tracer.as_ref().map(Tracer::options)),
            ("[log]", (self.log, self.logs_requests) != (old.log, old.logs_requests)),
            ("the list of keys in [sealing]", self.sealing != old.sealing),
        ];
        held.into_iter().filter(|(_, is_other)| *is_other).map(|(name, _)| name).collect()
    }

    /// The headers that a client must not remove through `Connection`, because keys, fingerprints or callers are read
    /// from them; where problems of unprotected requests are explained; and the base path.
    pub(crate) fn rules(&self) -> forward::Rules {
        let mut end_to_end: Vec<HeaderName> = Vec::new();
        for route_settings in self.all_route_settings() {
            key_headers(&route_settings.key_source, &mut end_to_end);
            let counted = route_settings.policy.selection.headers();
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
    use semel::core::fingerprint::Selection;
    use semel_identity::Tenant;

    #[test]
    fn identifying_headers_cannot_be_removed_through_connection() {
        let header = HeaderName::from_static;
        let target = Target::parse("http://127.0.0.1:1").expect("a target");
        let mut plan = Plan::new(target);
        let parts = vec![KeySource::Header(header("webhook-id")), KeySource::Fingerprint];
        let mut route_settings =
            RouteSettings { key_source: KeySource::Composite(parts), ..RouteSettings::default() };
        let selection = Selection::default().with_headers(["X-Region"]).expect("fit to be chosen");
        route_settings.policy =
            route_settings.policy.with(|policy| policy.selection = selection).expect("fit for use");
        let (callbacks, rates) = (ServiceCallbacks::default(), Rates::default());
        let operation_identity =
            Identity { sources: vec![Source::ApiKey(header("x-hook-key"))], ..Identity::default() };
        let template = "/hook".to_owned();
        plan.operations.push(Operation {
            template,
            route_settings,
            callbacks,
            identity: Some(operation_identity),
            rates,
        });
        plan.identity.sources = vec![Source::Header(header("x-user")), Source::ApiKey(header("x-key"))];
        plan.identity.tenant = Tenant::Header(header("x-tenant"));
        let kept = plan.rules().end_to_end;
        for name in ["idempotency-key", "webhook-id", "x-region", "x-user", "x-key", "x-tenant", "x-hook-key"]
        {
            assert!(kept.contains(&header(name)), "{name}");
        }
    }
}
