//! What all requests of a layer share: its settings, its engine, and its memory.

use crate::memory::{BodyBudget, ResponseBudget};
use crate::observe::{Event, EventKind, Observer, ShadowDetails, ShadowOutcome};
use crate::problem::{Code, Problem};
use crate::route::{Callers, CompiledRoute, NotIdentified, Routes, TenantOf};
use http::Uri;
use http::request::Parts;
use semel::Engine;
use semel::core::id::OperationId;
use semel::core::key::Key;
use semel::core::scope::{Operation, Scope};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

type FromParts<T> = Arc<dyn Fn(&Parts) -> Option<T> + Send + Sync>;

/// Whether an operation, by its name, is hidden.
type IsHidden = dyn Fn(&str) -> bool + Send + Sync;

/// State that all requests of a layer share.
#[derive(Clone)]
pub(crate) struct LayerState {
    pub(crate) engine: Engine,
    pub(crate) routes: Routes,
    pub(crate) callers: Callers,
    pub(crate) tenant: Option<Arc<TenantOf>>,
    pub(crate) address: Option<FromParts<IpAddr>>,
    pub(crate) client: Option<FromParts<IpAddr>>,
    pub(crate) target: Option<FromParts<Uri>>,
    pub(crate) published: Option<String>,
    /// Which operations are hidden there.
    pub(crate) hidden: Option<Arc<IsHidden>>,
    pub(crate) observer: Arc<dyn Observer>,
    /// The remaining memory for requests in shadow mode, in KiB.
    pub(crate) judging: Arc<Semaphore>,
    /// Memory for bodies of protected requests.
    pub(crate) body_budget: BodyBudget,
    /// Memory for the responses to them.
    pub(crate) response_budget: ResponseBudget,
    /// How long such a body may take to arrive.
    pub(crate) body_time_max: Duration,
}

impl LayerState {
    /// The target of a request.
    pub(crate) fn target_of(&self, parts: &Parts) -> Uri {
        let original = self.target.as_ref().and_then(|target| target(parts));
        original.unwrap_or_else(|| parts.uri.clone())
    }

    /// The peer address of a request, if known.
    pub(crate) fn address_of(&self, parts: &Parts) -> Option<IpAddr> {
        self.address.as_ref().and_then(|address| address(parts))
    }

    /// The client whose memory a request uses, if known.
    pub(crate) fn client_of(&self, parts: &Parts) -> Option<IpAddr> {
        match &self.client {
            Some(client) => client(parts),
            None => self.address_of(parts),
        }
    }

    /// Reports the result of a request to the observer, and to the log if an operator should look at it.
    pub(crate) fn report(&self, route: &CompiledRoute, what: EventKind) {
        self.report_about(route, what, None, None);
    }

    /// The same with the operation ID, and the key if it matters.
    pub(crate) fn report_about(
        &self,
        route: &CompiledRoute,
        what: EventKind,
        operation_id: Option<OperationId>,
        key: Option<&Key>,
    ) {
        let operation = route.label.as_str();
        match what {
            EventKind::OddWord => tracing::warn!(
                operation,
                "the service answered with a success and `Idempotency-Outcome: not-applied`: the next request with the key runs again"
            ),
            EventKind::FailedOpen => tracing::warn!(
                operation,
                "the store cannot be reached, so the request was forwarded without protection (store_down = \"pass\")"
            ),
            EventKind::WeakKey(weakness) => {
                tracing::warn!(operation, "a weak idempotency key was accepted: {weakness}");
            }
            _ => {}
        }
        let key = key.and_then(|key| self.engine.key_hashes(key).ok()?.first().copied());
        self.observer.observe(&Event { operation_id, key, ..Event::new(operation, what) });
    }

    /// Reports to the observer what would have happened to a request.
    pub(crate) fn report_shadow(
        &self,
        route: &CompiledRoute,
        shadowed: ShadowOutcome,
        seen: ShadowDetails<'_>,
    ) {
        self.observer.observe(&Event::in_shadow(&route.label, shadowed, seen));
    }

    /// How callers are identified under these settings; without settings, as on the rest of the layer.
    pub(crate) fn callers_under<'s>(&'s self, route: Option<&'s CompiledRoute>) -> &'s Callers {
        route.and_then(|route| route.settings.callers.as_ref()).unwrap_or(&self.callers)
    }

    /// All rules that identify callers, without duplicates; the layer's own first.
    pub(crate) fn all_callers(&self) -> Vec<&Callers> {
        let mut found = vec![&self.callers];
        for callers in self.routes.all().filter_map(|(_, settings)| settings.callers.as_ref()) {
            if !found.iter().any(|known| known.is_same(callers)) {
                found.push(callers);
            }
        }
        found
    }

    /// The scope of `operation`, by this rule.
    pub(crate) fn scope_by(
        &self,
        callers: &Callers,
        parts: &Parts,
        operation: Operation,
    ) -> Result<Scope, NotIdentified> {
        callers.scope(parts, operation, self.tenant.as_deref())
    }

    /// The scope of `operation` under these settings.
    pub(crate) fn scope(
        &self,
        route: &CompiledRoute,
        parts: &Parts,
        operation: Operation,
    ) -> Result<Scope, Problem> {
        let scope = self.scope_by(self.callers_under(Some(route)), parts, operation);
        scope.map_err(|why| not_identified(&why))
    }

    /// The prefix of the published paths.
    pub(crate) fn prefix(&self) -> &str {
        self.published.as_deref().unwrap_or_default()
    }

    /// The path of an operation's state, if it is published.
    pub(crate) fn status_at(&self, id: OperationId) -> Option<String> {
        self.published.as_ref().map(|prefix| format!("{prefix}/operations/{id}"))
    }
}

pub(crate) fn not_identified(why: &NotIdentified) -> Problem {
    Problem::new(Code::CallerNotIdentified, why.to_string())
}
