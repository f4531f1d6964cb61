//! The layer and its settings.
//!
//! Settings of single routes are [`RouteSettings`](crate::RouteSettings).

use crate::layer_state::LayerState;
use crate::memory::{BodyBudget, ResponseBudget};
use crate::observe::{Observer, Unobserved};
use crate::route::{Callers, RouteSettings, RouteSettingsError, Routes};
use crate::run::Service;
use http::Uri;
use http::request::Parts;
use semel::Engine;
use semel::core::scope::normal_path;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Wraps services so that requests with an idempotency key take effect once.
///
/// Cheap to clone; see the [crate](crate) for what it does.
#[derive(Clone)]
pub struct Layer {
    state: Arc<LayerState>,
}

/// The memory for requests in shadow mode. Further requests are passed on without a report: a store that hangs must
/// not fill the memory.
const JUDGED_KIB_MAX: usize = 64 * 1024;

impl Layer {
    /// The default of [`bodies_bytes_max`](Self::bodies_bytes_max): 64 MiB.
    pub const BODIES_BYTES_MAX: usize = 64 << 20;
    /// The default of [`responses_bytes_max`](Self::responses_bytes_max): 48 MiB.
    pub const RESPONSES_BYTES_MAX: usize = 48 << 20;
    /// The default of [`body_time_max`](Self::body_time_max): 5 minutes, enough for 10 MiB over a slow line.
    pub const BODY_TIME_MAX: Duration = Duration::from_mins(5);

    /// A layer with the same settings for every route.
    pub fn new(engine: Engine, settings: RouteSettings) -> Result<Self, RouteSettingsError> {
        Self::routed(engine, Routes::new(settings)?)
    }

    /// A layer with separate settings per route. Fails if they [require](semel::sealing::Seal::Required) sealing and
    /// the engine has no key, or if they have a [reconciler](RouteSettings::reconciler) that the engine does not know.
    pub fn routed(engine: Engine, routes: Routes) -> Result<Self, RouteSettingsError> {
        if let Some(route) =
            routes.route_with_unknown_reconciler(|operation| engine.has_reconciler(operation))
        {
            return Err(RouteSettingsError::Unasked(route));
        }
        if let Some(route) = routes.sealed_route().filter(|_| !engine.has_sealing_keys()) {
            return Err(RouteSettingsError::NoSealingKey(route.to_owned()));
        }
        for method in routes.unregistered_methods() {
            tracing::warn!(%method, "a protected method is not a registered HTTP method; make sure that its spelling matches what clients send");
        }
        let state = LayerState {
            engine,
            routes,
            callers: Callers::default(),
            tenant: None,
            address: None,
            client: None,
            target: None,
            published: None,
            hidden: None,
            observer: Arc::new(Unobserved),
            judging: Arc::new(Semaphore::new(JUDGED_KIB_MAX)),
            body_budget: BodyBudget::new(Self::BODIES_BYTES_MAX),
            response_budget: ResponseBudget::new(Self::RESPONSES_BYTES_MAX),
            body_time_max: Self::BODY_TIME_MAX,
        };
        Ok(Self { state: Arc::new(state) })
    }

    /// How callers are identified, unless the [`RouteSettings`] of a route say otherwise. Default: by the
    /// `Authorization` header.
    #[must_use]
    pub fn callers(self, callers: Callers) -> Self {
        self.with(|state| state.callers = callers)
    }

    /// The tenant of a request; tenants do not share keys. Default: none. Not used for callers whose rule returns the
    /// tenant [itself](Callers::in_tenants).
    #[must_use]
    pub fn tenant(self, tenant: impl Fn(&Parts) -> Option<Vec<u8>> + Send + Sync + 'static) -> Self {
        self.with(|state| state.tenant = Some(Arc::new(tenant)))
    }

    /// The peer address of a request, for quotas. Default: unknown.
    #[must_use]
    pub fn address(self, address: impl Fn(&Parts) -> Option<IpAddr> + Send + Sync + 'static) -> Self {
        self.with(|state| state.address = Some(Arc::new(address)))
    }

    /// The client whose memory a request uses. If memory is short, unfinished request bodies and unread responses are
    /// dropped, first those of the client that uses most. Default: its [address](Self::address); if that is unknown
    /// too, all requests count as one client and wait for each other.
    #[must_use]
    pub fn client(self, client: impl Fn(&Parts) -> Option<IpAddr> + Send + Sync + 'static) -> Self {
        self.with(|state| state.client = Some(Arc::new(client)))
    }

    /// The original target of a request, for routers that remove prefixes from its path before this layer.
    ///
    /// Without it, two nested routers that both have a `/charges` look like one operation: a key that was used on one
    /// would get the other's outcome. In axum, for a layer inside `nest`, use `|parts|
    /// parts.extensions.get::<axum::extract::OriginalUri>().map(|uri| uri.0.clone())`.
    #[must_use]
    pub fn target(self, target: impl Fn(&Parts) -> Option<Uri> + Send + Sync + 'static) -> Self {
        self.with(|state| state.target = Some(Arc::new(target)))
    }

    /// Publishes the specification at `{prefix}/.well-known/idempotency` and each caller's operations at
    /// `{prefix}/operations/{id}`, and honours `Prefer: respond-async`. Default: off. The prefix is empty, or a path
    /// such as `/payments`.
    #[must_use]
    pub fn publishing(self, prefix: impl Into<String>) -> Self {
        let prefix = prefix.into();
        let prefix = normal_path(&prefix).trim_end_matches('/').to_owned();
        self.with(|state| state.published = Some(prefix))
    }

    /// Hides operations from `/operations/{id}` by their names: those of other users of the same store, which do not
    /// come from requests. Default: none.
    #[must_use]
    pub fn hiding(self, hidden: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        self.with(|state| state.hidden = Some(Arc::new(hidden)))
    }

    /// The memory for bodies of requests with a key, over all routes. They are read before the request runs, and kept
    /// while it does. Default: 64 MiB. A body that gets no memory within a few seconds is refused with 503. The limit
    /// of a single body is [`RouteSettings::request_bytes_max`].
    #[must_use]
    pub fn bodies_bytes_max(self, bytes: usize) -> Self {
        self.with(|state| state.body_budget = BodyBudget::new(bytes))
    }

    /// The memory for responses to requests with a key, over all routes: while they are read and stored, and until
    /// their clients have read them, including replays. Default: 48 MiB.
    ///
    /// Each request takes 8 KiB before it runs; if they are not available within a few seconds, it is refused with
    /// 503 and nothing is run. A response takes twice its length until it is stored. If that is not available within
    /// half a second, the response is stored without its body, like one over [`RouteSettings::response_bytes_max`], and
    /// passed on to its client; a gRPC outcome is then in doubt, because its status comes last. A replay without
    /// memory is refused with 503.
    #[must_use]
    pub fn responses_bytes_max(self, bytes: usize) -> Self {
        self.with(|state| state.response_budget = ResponseBudget::new(bytes))
    }

    /// How long a body may take to arrive, from its first byte to its last; 408 after that. Default: 5 minutes. The
    /// server has to limit the time between two bytes.
    #[must_use]
    pub fn body_time_max(self, span: Duration) -> Self {
        self.with(|state| state.body_time_max = span)
    }

    /// Shares the memory for requests and responses with `before`, if both have the same limits. For a layer that
    /// replaces another one while requests are still running there: otherwise both together could use twice as much.
    #[must_use]
    pub fn sharing_memory_with(self, before: &Self) -> Self {
        self.with(|state| {
            if state.body_budget.is_as_large_as(&before.state.body_budget) {
                state.body_budget = before.state.body_budget.clone();
            }
            if state.response_budget.is_as_large_as(&before.state.response_budget) {
                state.response_budget = before.state.response_budget.clone();
            }
        })
    }

    /// The observer of requests. Default: none.
    #[must_use]
    pub fn observer(self, observer: impl Observer) -> Self {
        self.with(|state| state.observer = Arc::new(observer))
    }

    fn with(mut self, change: impl FnOnce(&mut LayerState)) -> Self {
        change(Arc::make_mut(&mut self.state));
        self
    }
}

impl<S> tower_layer::Layer<S> for Layer {
    type Service = Service<S>;

    fn layer(&self, inner: S) -> Service<S> {
        Service { inner, state: Arc::clone(&self.state) }
    }
}

impl fmt::Debug for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layer")
            .field("routes", &self.state.routes)
            .field("callers", &self.state.callers)
            .finish_non_exhaustive()
    }
}
