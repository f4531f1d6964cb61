//! The layer, and what can be set on it.
//!
//! Contents: how a service is wrapped. Never here: a setting that is a route's; those are [`Terms`](crate::Terms).

use crate::caller::{Callers, NotIdentified, TenantOf};
use crate::observe::{Event, Observer, Seen, Unobserved, What, Would};
use crate::problem::{Code, Problem};
use crate::response_room::ResponseRoom;
use crate::room::Room;
use crate::route::{Ready, Routes};
use crate::service::Service;
use crate::terms::{Terms, TermsError};
use http::Uri;
use http::request::Parts;
use semel::Engine;
use semel::core::id::OperationId;
use semel::core::key::Key;
use semel::core::scope::{Operation, Scope, normal_path};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Wraps services so that what requests with an idempotency key ask of them happens once.
///
/// Cheap to clone; see the [crate](crate) for what it does.
#[derive(Clone)]
pub struct Layer {
    shared: Arc<Shared>,
}

type FromParts<T> = Arc<dyn Fn(&Parts) -> Option<T> + Send + Sync>;

/// Says of an operation, by its name, that nobody is shown it.
type IsHidden = dyn Fn(&str) -> bool + Send + Sync;

/// What every request under a layer shares.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) engine: Engine,
    pub(crate) routes: Routes,
    pub(crate) callers: Callers,
    pub(crate) tenant: Option<Arc<TenantOf>>,
    pub(crate) address: Option<FromParts<IpAddr>>,
    pub(crate) client: Option<FromParts<IpAddr>>,
    pub(crate) target: Option<FromParts<Uri>>,
    pub(crate) published: Option<String>,
    /// Which operations are nobody's to look at there.
    pub(crate) hidden: Option<Arc<IsHidden>>,
    pub(crate) observer: Arc<dyn Observer>,
    /// How much more may be held for judging requests in shadow mode, in KiB.
    pub(crate) judging: Arc<Semaphore>,
    /// For bodies of requests that are to be done once.
    pub(crate) room: Room,
    /// For the responses to them.
    pub(crate) responses: ResponseRoom,
    /// How long such a body may take to come.
    pub(crate) body_time_max: Duration,
}

/// How much is held at once for judging requests in shadow mode. What is beyond that is handed on unjudged: a store
/// that hangs must not fill the memory.
const JUDGED_KIB_MAX: usize = 64 * 1024;

impl Layer {
    /// How many bytes of request bodies are held at once, unless [otherwise said](Self::bodies_bytes_max). 64 MiB.
    pub const BODIES_BYTES_MAX: usize = 64 << 20;
    /// How many bytes of responses are held at once, unless [otherwise said](Self::responses_bytes_max). 48 MiB.
    pub const RESPONSES_BYTES_MAX: usize = 48 << 20;
    /// How long such a body may take to come, unless [otherwise said](Self::body_time_max). Long enough for 10 MiB
    /// over the slowest of lines: 5 minutes.
    pub const BODY_TIME_MAX: Duration = Duration::from_mins(5);

    /// Every route under the same terms.
    pub fn new(engine: Engine, terms: Terms) -> Result<Self, TermsError> {
        Self::routed(engine, Routes::new(terms)?)
    }

    /// Each route under its own terms. Fails if these [require](semel::sealing::Seal::Required) that outcomes are
    /// sealed, and the engine has no key; and where they have a [reconciler](Terms::reconciler) that the engine does
    /// not ask.
    pub fn routed(engine: Engine, routes: Routes) -> Result<Self, TermsError> {
        if let Some(route) = routes.unasked_route(|operation| engine.has_reconciler(operation)) {
            return Err(TermsError::Unasked(route));
        }
        if let Some(route) = routes.sealed_route().filter(|_| !engine.has_sealing_keys()) {
            return Err(TermsError::NoSealingKey(route.to_owned()));
        }
        for method in routes.unregistered_methods() {
            tracing::warn!(%method, "protected, but no registered HTTP method: make sure that it is spelt as clients send it");
        }
        let shared = Shared {
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
            room: Room::new(Self::BODIES_BYTES_MAX),
            responses: ResponseRoom::new(Self::RESPONSES_BYTES_MAX),
            body_time_max: Self::BODY_TIME_MAX,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// How callers are distinguished, on routes whose [`Terms`] do not say otherwise. By the `Authorization` header
    /// otherwise.
    #[must_use]
    pub fn callers(self, callers: Callers) -> Self {
        self.with(|shared| shared.callers = callers)
    }

    /// The tenant that a request belongs to; two tenants share no key. None otherwise. Callers whose rule tells it
    /// [by itself](Callers::in_tenants) are not asked about.
    #[must_use]
    pub fn tenant(self, tenant: impl Fn(&Parts) -> Option<Vec<u8>> + Send + Sync + 'static) -> Self {
        self.with(|shared| shared.tenant = Some(Arc::new(tenant)))
    }

    /// The address that a request came from, for quotas. Not known otherwise.
    #[must_use]
    pub fn address(self, address: impl Fn(&Parts) -> Option<IpAddr> + Send + Sync + 'static) -> Self {
        self.with(|shared| shared.address = Some(Arc::new(address)))
    }

    /// Whose memory a request takes: if there is no more, bodies that are still being read and responses that are not
    /// read give way, of the client that holds most first. By its [address](Self::address) otherwise; where that is
    /// not known either, all requests are one client's, and wait for each other.
    #[must_use]
    pub fn client(self, client: impl Fn(&Parts) -> Option<IpAddr> + Send + Sync + 'static) -> Self {
        self.with(|shared| shared.client = Some(Arc::new(client)))
    }

    /// Where a request was sent to, for routers that cut prefixes off its path before this layer sees it.
    ///
    /// Without it, two nested routers that both have a `/charges` look like one operation: a key that was used on one
    /// would be answered with the other's outcome. In axum, for a layer inside of `nest`, take `|parts|
    /// parts.extensions.get::<axum::extract::OriginalUri>().map(|uri| uri.0.clone())`.
    #[must_use]
    pub fn target(self, target: impl Fn(&Parts) -> Option<Uri> + Send + Sync + 'static) -> Self {
        self.with(|shared| shared.target = Some(Arc::new(target)))
    }

    /// Publishes the specification at `{prefix}/.well-known/idempotency` and each caller's operations at
    /// `{prefix}/operations/{id}`, and honours `Prefer: respond-async`. Nothing of that otherwise. The prefix is
    /// empty, or a path such as `/payments`.
    #[must_use]
    pub fn publishing(self, prefix: impl Into<String>) -> Self {
        let prefix = prefix.into();
        let prefix = normal_path(&prefix).trim_end_matches('/').to_owned();
        self.with(|shared| shared.published = Some(prefix))
    }

    /// Which operations `/operations/{id}` shows to nobody, by their names: those of others on the same store, which
    /// came by no request. None otherwise.
    #[must_use]
    pub fn hiding(self, hidden: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        self.with(|shared| shared.hidden = Some(Arc::new(hidden)))
    }

    /// How many bytes of request bodies are held at once, over all routes: those of requests with a key, which are read
    /// before they run, and held while they do. 64 MiB otherwise. A body for which no room is found within a few
    /// seconds is refused with 503; each body's own limit is [`Terms::request_bytes_max`].
    #[must_use]
    pub fn bodies_bytes_max(self, bytes: usize) -> Self {
        self.with(|shared| shared.room = Room::new(bytes))
    }

    /// How many bytes of responses to requests with a key are held at once, over all routes: while they are read to
    /// be stored, while they are stored, and until their clients have read them, replays included. 48 MiB otherwise.
    ///
    /// Each request takes 8 KiB before it runs; if there is no room for that within a few seconds, it is refused with
    /// 503 and nothing is run. A response takes twice its length until it is stored. One that finds no room in half a
    /// second is stored without its body, as one over [`Terms::response_bytes_max`] is, and passed on to its client;
    /// of gRPC its outcome is in doubt then, since its status comes last. A replay that finds no room is refused with
    /// 503.
    #[must_use]
    pub fn responses_bytes_max(self, bytes: usize) -> Self {
        self.with(|shared| shared.responses = ResponseRoom::new(bytes))
    }

    /// How long such a body may take to come, from its first byte to its last; 408 after that. 5 minutes otherwise.
    /// How long the next byte may take is for the server to bound.
    #[must_use]
    pub fn body_time_max(self, span: Duration) -> Self {
        self.with(|shared| shared.body_time_max = span)
    }

    /// Shares the memory for requests and responses with `before`, where both have the same limits. For a layer that
    /// takes the place of another while requests are still running there: without this, both together could hold
    /// twice as much.
    #[must_use]
    pub fn sharing_memory_with(self, before: &Self) -> Self {
        self.with(|shared| {
            if shared.room.is_as_large_as(&before.shared.room) {
                shared.room = before.shared.room.clone();
            }
            if shared.responses.is_as_large_as(&before.shared.responses) {
                shared.responses = before.shared.responses.clone();
            }
        })
    }

    /// Who is told what becomes of each request. Nobody otherwise.
    #[must_use]
    pub fn observer(self, observer: impl Observer) -> Self {
        self.with(|shared| shared.observer = Arc::new(observer))
    }

    fn with(mut self, change: impl FnOnce(&mut Shared)) -> Self {
        change(Arc::make_mut(&mut self.shared));
        self
    }
}

impl Shared {
    /// Where a request was sent to.
    pub(crate) fn target(&self, parts: &Parts) -> Uri {
        let told = self.target.as_ref().and_then(|target| target(parts));
        told.unwrap_or_else(|| parts.uri.clone())
    }

    /// The address that a request came from, where that is known.
    pub(crate) fn address_of(&self, parts: &Parts) -> Option<IpAddr> {
        self.address.as_ref().and_then(|address| address(parts))
    }

    /// Whose memory a request takes, where that is known.
    pub(crate) fn client_of(&self, parts: &Parts) -> Option<IpAddr> {
        match &self.client {
            Some(client) => client(parts),
            None => self.address_of(parts),
        }
    }

    /// Tells anyone who watches what became of a request, and the log where somebody should look.
    pub(crate) fn tell(&self, ready: &Ready, what: What) {
        self.tell_about(ready, what, None, None);
    }

    /// The same of a request that is known by its command, and where it matters by its key.
    pub(crate) fn tell_about(
        &self,
        ready: &Ready,
        what: What,
        operation_id: Option<OperationId>,
        key: Option<&Key>,
    ) {
        let operation = ready.label.as_str();
        match what {
            What::OddWord => tracing::warn!(
                operation,
                "the handler answered with a success and says that nothing took effect: the next request will run again"
            ),
            What::FailedOpen => tracing::warn!(
                operation,
                "the store cannot be reached: the request is handed on without protection, as the terms have it"
            ),
            What::WeakKey(weakness) => tracing::warn!(operation, "a weak key was taken: {weakness}"),
            _ => {}
        }
        let key = key.and_then(|key| self.engine.key_hashes(key).ok()?.first().copied());
        self.observer.observe(&Event { operation_id, key, ..Event::new(operation, what) });
    }

    /// Tells anyone who watches what would have become of a request.
    pub(crate) fn tell_shadow(&self, ready: &Ready, would: Would, seen: Seen<'_>) {
        self.observer.observe(&Event::in_shadow(&ready.label, would, seen));
    }

    /// How callers are distinguished under these terms; where they are nobody's, as on the rest of the layer.
    pub(crate) fn callers_under<'s>(&'s self, ready: Option<&'s Ready>) -> &'s Callers {
        ready.and_then(|ready| ready.terms.callers.as_ref()).unwrap_or(&self.callers)
    }

    /// Every way in which callers are distinguished, each once; that of the rest of the layer first.
    pub(crate) fn all_callers(&self) -> Vec<&Callers> {
        let mut found = vec![&self.callers];
        for callers in self.routes.all().filter_map(|(_, terms)| terms.callers.as_ref()) {
            if !found.iter().any(|known| known.is_same(callers)) {
                found.push(callers);
            }
        }
        found
    }

    /// Who asks for `operation`, by these callers' rule.
    pub(crate) fn scope_by(
        &self,
        callers: &Callers,
        parts: &Parts,
        operation: Operation,
    ) -> Result<Scope, NotIdentified> {
        callers.scope(parts, operation, self.tenant.as_deref())
    }

    /// Who asks for `operation` under these terms.
    pub(crate) fn scope(&self, ready: &Ready, parts: &Parts, operation: Operation) -> Result<Scope, Problem> {
        let scope = self.scope_by(self.callers_under(Some(ready)), parts, operation);
        scope.map_err(|why| not_identified(&why))
    }

    /// What is before the paths that this layer publishes.
    pub(crate) fn prefix(&self) -> &str {
        self.published.as_deref().unwrap_or_default()
    }

    /// Where an operation's state can be asked for, if anywhere.
    pub(crate) fn status_at(&self, id: OperationId) -> Option<String> {
        self.published.as_ref().map(|prefix| format!("{prefix}/operations/{id}"))
    }
}

pub(crate) fn not_identified(why: &NotIdentified) -> Problem {
    Problem::new(Code::CallerNotIdentified, why.to_string())
}

impl<S> tower_layer::Layer<S> for Layer {
    type Service = Service<S>;

    fn layer(&self, inner: S) -> Service<S> {
        Service { inner, shared: Arc::clone(&self.shared) }
    }
}

impl fmt::Debug for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layer")
            .field("routes", &self.shared.routes)
            .field("callers", &self.shared.callers)
            .finish_non_exhaustive()
    }
}
