//! Opens the admin address, and applies new tokens and certificates. [`semel_admin`] answers its requests.

use super::ServeError;
use crate::callbacks::Directory;
use crate::config::Admin as Plan;
use http::{Request, Response};
use semel::{Engine, SystemClock};
use semel_admin::shadow::Tally;
use semel_admin::{self as admin, Admin, OptionsError};
use semel_http::Body;
use semel_proxy::listen::{self, Bound, Credentials, Peer, RefusalObserver};
use semel_proxy::upstream;
use semel_telemetry::metrics::Metrics;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll};
use std::time::Duration;

/// How long running requests may take after the process was asked to stop.
const DRAIN: Duration = Duration::from_secs(1);

/// The limits of a response that an operator enters, by the record's operation.
type ResponseLimitsOf = Arc<dyn Fn(&str) -> admin::ResponseLimits + Send + Sync>;

/// The limits by the routes of the moment, and the upstream's longest head.
pub(super) fn response_limits(directory: &Directory, upstream: &upstream::Options) -> ResponseLimitsOf {
    let (directory, head_bytes_max) = (directory.clone(), upstream.head_bytes_max);
    Arc::new(move |operation| directory.response_limits(operation, head_bytes_max))
}

/// Binds the address, before anything else is opened.
pub(super) async fn bind(plan: &Plan, metrics: &Metrics) -> Result<Bound, ServeError> {
    let address = plan.options.address;
    plan.options.check().map_err(|error| ServeError::AdminAddress(address, error))?;
    let (tls, drain) = (plan.tls.clone(), DRAIN);
    let counted = metrics.clone();
    let refusals = RefusalObserver::new(move |_| counted.refused_at_admin(None));
    let options = listen::Options { address, tls, refusals, drain, ..listen::Options::default() };
    Bound::bind(&options).await.map_err(|error| match error {
        listen::Error::Address(_, why) if why.kind() == io::ErrorKind::AddrInUse => {
            ServeError::AdminAddressInUse(address)
        }
        other => ServeError::AdminListen(other),
    })
}

/// The admin address, bound and not served yet.
pub(super) struct AdminServer {
    bound: Bound,
    admin_handle: AdminHandle,
}

/// Applies new tokens and certificates to a running admin address. Clones share it.
#[derive(Clone)]
pub(super) struct AdminHandle {
    address: SocketAddr,
    engine: Engine,
    sources: admin::Sources,
    now: Arc<RwLock<Admin>>,
    credentials: Option<Credentials>,
}

impl AdminServer {
    pub(super) fn open(
        bound: Bound,
        plan: &Plan,
        engine: &Engine,
        metrics: &Metrics,
        shadow: &Tally,
        is_draining: &Arc<AtomicBool>,
        response_limits: ResponseLimitsOf,
    ) -> Result<Self, OptionsError> {
        let (counted, named, running) = (metrics.clone(), metrics.clone(), engine.clone());
        let refusing = metrics.clone();
        let is_draining = Arc::clone(is_draining);
        let sources = admin::Sources {
            metrics: Arc::new(move || counted.text(running.running())),
            is_draining: Arc::new(move || is_draining.load(Ordering::Relaxed)),
            shadow: shadow.clone(),
            clock: Arc::new(SystemClock),
            label: Arc::new(move |operation| named.label_of(operation)),
            response_limits,
            refused: Arc::new(move |refusal| refusing.refused_at_admin(Some(refusal.name()))),
            knows_probes: true,
        };
        let now = admin::service(engine.clone(), plan.options.clone(), sources.clone())?;
        let (address, engine) = (plan.options.address, engine.clone());
        let (now, credentials) = (Arc::new(RwLock::new(now)), bound.credentials());
        Ok(Self { bound, admin_handle: AdminHandle { address, engine, sources, now, credentials } })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.bound.address()
    }

    pub(super) fn admin_handle(&self) -> AdminHandle {
        self.admin_handle.clone()
    }

    /// Its TLS credentials, if it uses TLS.
    pub(super) fn credentials(&self) -> Option<Credentials> {
        self.bound.credentials()
    }

    /// Serves until `stop`.
    pub(super) async fn run(self, stop: impl Future<Output = ()> + Send) {
        self.bound.serve(PeerService(self.admin_handle.now), stop).await;
    }
}

impl AdminHandle {
    /// The service with `options`, at the bound address.
    pub(super) fn build(
        &self,
        options: &admin::Options,
        response_limits: ResponseLimitsOf,
    ) -> Result<Admin, OptionsError> {
        let options = admin::Options { address: self.address, ..options.clone() };
        let sources = admin::Sources { response_limits, ..self.sources.clone() };
        admin::service(self.engine.clone(), options, sources)
    }

    /// Its TLS credentials, if it uses TLS.
    pub(super) fn credentials(&self) -> Option<&Credentials> {
        self.credentials.as_ref()
    }

    /// Lets `admin` answer every request from now on.
    pub(super) fn replace(&self, admin: Admin) {
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = admin;
    }
}

/// Adds the peer's addresses to each request.
#[derive(Clone)]
struct PeerService(Arc<RwLock<Admin>>);

impl tower_service::Service<Request<listen::Body>> for PeerService {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = <Admin as tower_service::Service<Request<listen::Body>>>::Future;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // The service itself is always ready.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<listen::Body>) -> Self::Future {
        if let Some(Peer { address, local, .. }) = request.extensions().get::<Peer>().copied() {
            request.extensions_mut().insert(admin::Peer { address, local });
        }
        let mut now = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        now.call(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_may_report_what_an_upstream_may_answer() {
        let limits = admin::ResponseLimits::default();
        assert_eq!(limits.head_bytes_max, upstream::Options::default().head_bytes_max as usize);
        assert_eq!(limits.headers_max, upstream::HEAD_LINES_MAX);
    }
}
