//! Builds what requests pass through: the client's side, the layer, and the upstream's side. It opens no socket and no
//! store, because a reload builds all of this again and may discard it.

use super::ServeError;
use super::ledgers::Ledgers;
use super::pipeline::{Pipeline, WithCallerRules};
use super::requests::{OutcomeRecorder, Timed};
use super::routes::routes;
use super::{alarms, lines};
use crate::callbacks::ServiceClients;
use crate::caller_rules::CallerRules;
use crate::config::Plan;
use semel::{Engine, SystemClock};
use semel_admin::shadow::Tally;
use semel_http::{Layer, Mode, RouteSettingsError, Routes};
use semel_proxy::forward::{self, Client, Inbound, Outbound, Trust};
use semel_proxy::listen::{self, ClientCertificate, Peer};
use semel_proxy::upstream::Upstream;
use semel_telemetry::metrics::Metrics;
use semel_telemetry::trace::Traced;
use std::sync::Arc;
use tower_layer::Layer as _;

/// Everything that requests need, before it is joined. Building it touches no store.
pub(super) struct Stack {
    outbound: Outbound,
    pub(super) caller_rules: CallerRules,
    pub(super) routes: Routes,
}

impl Stack {
    /// `running` is the rule in use, whose fetched keys are taken over.
    pub(super) async fn of(
        plan: &Plan,
        ledgers: &Ledgers,
        metrics: &Metrics,
        running: Option<&CallerRules>,
    ) -> Result<Self, ServeError> {
        let upstream = Upstream::new(plan.target.clone(), plan.upstream.clone())?;
        let trust = Trust::of(plan.is_proxy());
        let forwarding = forward::Options::default().host(plan.host).trust(trust).client(|extensions| {
            let Peer { address, is_tls, .. } = extensions.get::<Peer>()?;
            Some(Client { address: address.ip(), is_tls: *is_tls })
        });
        let counted = metrics.clone();
        let counting = upstream.clone().counting(move |kind| counted.upstream_failed(kind.name()));
        let outbound = Outbound::new(counting, forwarding.clone());
        let peer = |extensions: &http::Extensions| {
            let Peer { address, .. } = extensions.get::<Peer>()?;
            let shown = extensions.get::<ClientCertificate>();
            let certificate = shown.map(|ClientCertificate(certificate)| Arc::clone(certificate));
            Some(semel_identity::Peer { address: address.ip(), certificate })
        };
        let of_operations =
            plan.operations.iter().filter_map(|operation| operation.identity.clone()).collect();
        let caller_rules = CallerRules::start_beside(
            plan.identity.clone(),
            of_operations,
            running,
            Arc::new(SystemClock),
            peer,
        )
        .await;
        let caller_rules = caller_rules.map_err(ServeError::Callers)?;
        // Each route has its own identifying headers.
        let clients = ServiceClients {
            // The gateway's own questions are not counted as requests.
            outbound: Outbound::new(upstream.clone(), forwarding),
            upstream,
            credentials: Vec::new(),
            prefix: plan.prefix.clone(),
        };
        let routes = routes(plan, &clients, &caller_rules, ledgers)?;
        Ok(Self { outbound, caller_rules, routes })
    }

    /// Everything between the listener and the upstream, and the layer in it. Fails if responses must be sealed and
    /// the engine has no key; nothing has changed then. `before` is the layer in use, whose memory is shared.
    pub(super) fn joined(
        self,
        plan: &Plan,
        engine: &Engine,
        metrics: &Metrics,
        shadow: &Tally,
        before: Option<&Layer>,
    ) -> Result<(Pipeline, Layer), RouteSettingsError> {
        let Self { outbound, caller_rules, routes } = self;
        let layer = Layer::routed(engine.clone(), routes.clone())?;
        metrics.call_by(&routes);
        let logging = TwoObservers(alarms::Alarms::new(metrics.clone()), lines::RequestLog);
        let watching = TwoObservers(
            TwoObservers(logging, OutcomeRecorder),
            TwoObservers(metrics.clone(), shadow.clone()),
        );
        let layer = layer
            .address(|parts| parts.extensions.get::<Peer>().map(|peer| peer.address.ip()))
            .client(|parts| parts.extensions.get::<listen::Slot>().map(listen::Slot::client))
            .observer(watching)
            .hiding(semel_admin::is_claim)
            .bodies_bytes_max(plan.limits.bodies_bytes_max)
            .responses_bytes_max(plan.limits.responses_bytes_max)
            .body_time_max(plan.limits.body_time_max);
        let layer = match before {
            Some(before) => layer.sharing_memory_with(before),
            None => layer,
        };
        // If nothing is protected, nothing is published, and every path belongs to the upstream.
        let layer = if plan.is_any_protected() { layer.publishing(plan.prefix.as_str()) } else { layer };
        let layer = caller_rules.under(layer);
        let guarded = layer.layer(Timed::new(Traced::new(outbound), metrics.clone()));
        Ok((Inbound::new(WithCallerRules::new(guarded, caller_rules), plan.rules()), layer))
    }
}

/// Two observers of the layer.
struct TwoObservers<A, B>(A, B);

impl<A: semel_http::Observer, B: semel_http::Observer> semel_http::Observer for TwoObservers<A, B> {
    fn observe(&self, event: &semel_http::Event<'_>) {
        self.0.observe(event);
        self.1.observe(event);
    }

    fn routed(&self, operation: &str, mode: Mode) {
        self.0.routed(operation, mode);
        self.1.routed(operation, mode);
    }

    fn began(&self, operation: &str) {
        self.0.began(operation);
        self.1.began(operation);
    }

    fn ended(&self, operation: &str) {
        self.0.ended(operation);
        self.1.ended(operation);
    }
}
