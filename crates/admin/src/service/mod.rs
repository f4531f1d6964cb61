//! The admin address: health, metrics, records for operators, claims for workers.
//!
//! The machine decides what is refused; this module translates that into HTTP. Keys, stored bodies and tokens are
//! never logged.
//!
//! | path | role |
//! |---|---|
//! | `GET /healthz`, `GET /readyz`, `GET /` (a page without data) | none |
//! | `GET /metrics` | `read` |
//! | `GET /openapi.json`, `GET /.well-known/idempotency` | any |
//! | `GET /v1/records`, `GET /v1/records/{id}` | `read` (what was answered: `bodies`, too) |
//! | `GET /v1/shadow`, `GET /v1/inboxes` | `read` |
//! | `POST /v1/records/{id}/resolve`, `…/release`, `…/erase`, `POST /v1/clock/confirm` | `operate` |
//! | `POST /v1/claims`, `GET /v1/claims/{id}`, `POST /v1/claims/{id}/renew`, `POST /v1/claims/{id}/outcome` | `claim` |
//!
//! Whoever binds it puts a [`Peer`] among each request's extensions; without one, everything but health is refused.

mod answer;
mod attempts;
mod claim_owner;
mod claims;
mod clock;
mod description;
mod erase;
mod gate;
mod health;
mod host;
mod inboxes;
mod input;
mod limiter;
mod lost;
mod memory;
mod output;
mod page;
mod problem;
mod records;
mod refusals;
mod response_limits;
mod settle;
mod shadow;
mod view;

pub use claims::is_claim;
pub use gate::AccessRefusal;
pub use response_limits::ResponseLimits;

use crate::line_budget::LineBudget;
use crate::options::{Options, OptionsError};
use crate::shadow::Tally;
use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response as AxumResponse};
use axum::routing::get;
use bytes::Bytes;
use health::CachedReadiness;
use http::header::CONTENT_TYPE;
use http::{Request, Response};
use limiter::Limiter;
use problem::{Problem, Situation};
use semel::{Clock, Engine};
use semel_http::{Body, BoxError};
use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::Semaphore;
use tower_service::Service;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Both ends of a request's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// The client's end.
    pub address: SocketAddr,
    /// This end.
    pub local: SocketAddr,
}

/// Data that the address shows from other parts.
#[derive(Clone)]
pub struct Sources {
    /// The metrics of the process, in Prometheus format.
    pub metrics: Arc<dyn Fn() -> String + Send + Sync>,
    /// Whether the process is shutting down and is not ready.
    pub is_draining: Arc<dyn Fn() -> bool + Send + Sync>,
    /// The counts of shadow mode.
    pub shadow: Tally,
    /// The clock for rates.
    pub clock: Arc<dyn Clock>,
    /// The name of a record's operation in logs: as configured, never a client's path.
    pub label: Arc<dyn Fn(&str) -> String + Send + Sync>,
    /// The limits of a response that is stored for a record of this operation.
    pub response_limits: Arc<dyn Fn(&str) -> ResponseLimits + Send + Sync>,
    /// Learns of each request that is refused because of who sent it.
    pub refused: Arc<dyn Fn(AccessRefusal) + Send + Sync>,
    /// Whether it is known which operations have a probe: the engine has the reconcilers of the configuration.
    pub knows_probes: bool,
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources").finish_non_exhaustive()
    }
}

struct Shared {
    engine: Engine,
    options: Options,
    sources: Sources,
    clock: Arc<dyn Clock>,
    failures: Limiter,
    writes: Limiter,
    refused_lines: LineBudget,
    ready: CachedReadiness,
    bodies: input::Bodies,
    responses: memory::Budget,
    waiting: Semaphore,
}

impl Shared {
    /// Whether unknown outcomes of this operation can be probed. `None` if that is not known.
    fn has_probe(&self, operation: &str) -> Option<bool> {
        // Only the worker itself knows where a claim's effect happens.
        if is_claim(operation) {
            return Some(false);
        }
        self.sources.knows_probes.then(|| self.engine.has_reconciler(operation))
    }
}

impl Shared {
    /// How long a response may be that an operator enters for a record of this operation.
    fn response_limits(&self, operation: &str) -> ResponseLimits {
        // No route applies to what workers claim.
        if is_claim(operation) {
            return ResponseLimits::default();
        }
        (self.sources.response_limits)(operation)
    }
}

/// The service of the admin address. Cheap to clone; clones share everything.
#[derive(Clone)]
pub struct Admin {
    router: Router,
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin").finish_non_exhaustive()
    }
}

/// The service of the admin address for `engine`. Fails if the options fail their [check](Options::check).
pub fn service(engine: Engine, options: Options, sources: Sources) -> Result<Admin, OptionsError> {
    options.check()?;
    let clock = Arc::clone(&sources.clock);
    let has_tokens = !options.tokens.is_empty();
    let (failures, writes) = (Limiter::new(options.failures), Limiter::new(options.writes));
    let (ready, bodies) = (CachedReadiness::default(), input::Bodies::new(options.body_bytes_max));
    let responses = memory::Budget::for_bodies_of(0);
    let waiting = Semaphore::new(claims::WAITING_MAX);
    let shared = Shared {
        engine,
        options,
        sources,
        clock,
        failures,
        writes,
        refused_lines: LineBudget::default(),
        ready,
        bodies,
        responses,
        waiting,
    };
    let shared = Arc::new(shared);
    let (router, api) = routes().split_for_parts();
    let described = Bytes::from(description::complete_document(&api, has_tokens).to_string());
    let describe = get(move || async move { ([(CONTENT_TYPE, "application/json")], described) });
    let router = router
        .route("/openapi.json", describe)
        .route("/", get(|| async { page::response() }))
        .fallback(path_not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(from_fn_with_state(Arc::clone(&shared), gate::gate))
        .layer(from_fn_with_state(Arc::clone(&shared), output::bounded))
        .layer(from_fn(output::guarded))
        .with_state(shared);
    Ok(Admin { router })
}

fn routes() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::with_openapi(description::begun())
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(health::metrics))
        .routes(routes!(health::situations))
        .routes(routes!(records::list))
        .routes(routes!(records::show))
        .routes(routes!(settle::resolve))
        .routes(routes!(settle::release))
        .routes(routes!(erase::erase))
        .routes(routes!(clock::confirm))
        .routes(routes!(shadow::show))
        .routes(routes!(inboxes::count))
        .routes(routes!(claims::claim))
        .routes(routes!(attempts::show))
        .routes(routes!(attempts::renew))
        .routes(routes!(attempts::outcome))
}

async fn path_not_found() -> AxumResponse {
    Problem::new(Situation::NoSuchPath, "There is nothing at this path; /openapi.json lists every path.")
        .into_response()
}

async fn method_not_allowed() -> AxumResponse {
    Problem::new(
        Situation::Method,
        "The method is not allowed at this path; Allow names those that \
        are.",
    )
    .into_response()
}

impl<B> Service<Request<B>> for Admin
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // A router is ready whenever it is asked.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let answering = self.router.call(request.map(axum::body::Body::new));
        Box::pin(async move { answering.await.map(|response| response.map(Body::live)) })
    }
}
