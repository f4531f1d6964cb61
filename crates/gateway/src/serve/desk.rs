//! The admin address, opened.
//!
//! What lives here: how [`admin`](crate::admin) gets its socket, its numbers and its peers. What must never: what it answers.

use crate::admin::{self, Admin};
use crate::listen::{self, Bound, Peer};
use crate::metrics::Metrics;
use crate::shadow::Tally;
use http::{Request, Response};
use semel::{Engine, SystemClock};
use semel_http::Body;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

/// How long requests there may take to end once the process is asked to stop.
const DRAIN: Duration = Duration::from_secs(1);

/// The admin address, bound and not served yet.
pub(super) struct Desk {
    bound: Bound,
    service: Seated,
}

impl Desk {
    /// Binds it. Refused where it could be reached from elsewhere: there is no way to configure a token yet.
    pub(super) async fn open(
        address: SocketAddr,
        engine: &Engine,
        metrics: &Metrics,
        shadow: &Tally,
        is_draining: &Arc<AtomicBool>,
    ) -> Result<Self, String> {
        let (counted, running) = (metrics.clone(), engine.clone());
        let is_draining = Arc::clone(is_draining);
        let sources = admin::Sources {
            metrics: Arc::new(move || counted.text(running.running())),
            is_draining: Arc::new(move || is_draining.load(Ordering::Relaxed)),
            shadow: shadow.clone(),
            clock: Arc::new(SystemClock),
        };
        let options = admin::Options { address, ..admin::Options::default() };
        let service = admin::service(engine.clone(), options, sources)
            .map_err(|error| format!("the admin address {address} cannot be opened: {error}"))?;
        let options = listen::Options { address, drain: DRAIN, ..listen::Options::default() };
        let bound = Bound::bind(&options).await.map_err(|error| format!("the admin address: {error}"))?;
        Ok(Self { bound, service: Seated(service) })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.bound.address()
    }

    /// Serves until `stop`.
    pub(super) async fn run(self, stop: impl Future<Output = ()> + Send) {
        self.bound.serve(self.service, stop).await;
    }
}

/// Tells the admin service who is asking.
#[derive(Clone)]
struct Seated(Admin);

impl tower_service::Service<Request<listen::Body>> for Seated {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = <Admin as tower_service::Service<Request<listen::Body>>>::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        tower_service::Service::<Request<listen::Body>>::poll_ready(&mut self.0, context)
    }

    fn call(&mut self, mut request: Request<listen::Body>) -> Self::Future {
        if let Some(Peer { address, local, .. }) = request.extensions().get::<Peer>().copied() {
            request.extensions_mut().insert(admin::Peer { address, local });
        }
        self.0.call(request)
    }
}
