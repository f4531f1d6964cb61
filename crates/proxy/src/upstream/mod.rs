//! The upstream as a tower service: a pool of connections, and one request on one of them.
//!
//! A request is never sent again after a byte of it was sent, and a failure counts as harmless only with proof.

mod base_path;
mod begun;
mod body;
mod connector;
mod dial;
mod error_kind;
mod failed;
mod h1;
mod h2;
mod options;
mod pool;
mod response_timer;
mod slots;
mod socket;
mod tls;

pub use base_path::leads_out;
pub use body::Body;
pub use error_kind::UpstreamError;
pub use h1::HEAD_LINES_MAX;
pub use options::Options;

use crate::listen;
use connector::{Connector, RequestConnection, Requester};
use error_kind::Counting;
use failed::{Failed, NoResponse};
use http::header::UPGRADE;
use http::{Request, Response};
use semel::Attempt;
use semel_http::{Failure, Malformed, TooSlow};
use semel_net::client::AuthoritiesError;
use semel_net::target::Target;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// The target of log lines, which stays the same wherever this code stands.
const LOG: &str = "semel_gateway::upstream";

/// How often a request tries idle connections before it gets a new one.
const REUSES_MAX: u32 = 3;

/// The upstream. Cheap to clone; clones share their connections.
///
/// It takes requests in origin form, does not change their path ([`forward`](crate::forward) does), and returns what
/// the upstream answered. A request with an [`Attempt`] among its extensions is *protected*: the attempt is checked
/// right before the first byte is sent, only recently used connections are reused, and the response timeout covers the
/// body too. Do not send anything else for it, because the attempt [promises](Attempt::promise_checks) this check.
///
/// Its error says what is known: [`Failure::Unreachable`] and [`Failure::ConnectTimeout`] prove that the upstream
/// processed nothing; [`Failure::Broken`] and [`Failure::TimedOut`] do not. Nothing is sent again after a byte was
/// sent.
#[derive(Clone)]
pub struct Upstream {
    connector: Arc<Connector>,
    counting: Option<Counting>,
}

impl Upstream {
    /// Opens no connection yet. Fails for `https://` without any certificate authority.
    pub fn new(target: Target, options: Options) -> Result<Self, AuthoritiesError> {
        Ok(Self { connector: Arc::new(Connector::new(target, options)?), counting: None })
    }

    /// The same upstream, with its errors reported to `count`. Errors caused by clients are not reported.
    #[must_use]
    pub fn counting(self, count: impl Fn(UpstreamError) + Send + Sync + 'static) -> Self {
        Self { counting: Some(Counting(Arc::new(count))), ..self }
    }

    /// Where it is.
    pub fn target(&self) -> &Target {
        &self.connector.target
    }
}

impl tower_service::Service<Request<semel_http::Body>> for Upstream {
    type Response = Response<Body>;
    type Error = Failure;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Failure>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<semel_http::Body>) -> Self::Future {
        let (connector, counting) = (Arc::clone(&self.connector), self.counting.clone());
        Box::pin(async move {
            let attempt = request.extensions().get::<Attempt>().cloned();
            if let Some(attempt) = &attempt {
                attempt.promise_checks();
            }
            let operation_id = attempt.as_ref().map(Attempt::operation_id);
            let sent = send(&connector, request, attempt).await.map_err(|failed| {
                let (upstream, cause) = (&connector.target, failed.message());
                // A client's error is not the upstream's.
                if TooSlow::is_cause_of(&*failed.cause) || Malformed::in_cause_of(&*failed.cause).is_some() {
                    tracing::debug!(target: LOG, %cause, "the client did not send the rest of its request");
                } else {
                    let operation_id = operation_id.map(|id| id.to_string());
                    let kind = UpstreamError::of(&failed);
                    tracing::warn!(target: LOG, %upstream, operation_id, kind = kind.name(), %cause, "{}", failed.failure);
                    if let Some(Counting(count)) = &counting {
                        count(kind);
                    }
                }
                failed.failure
            });
            sent.map(|response| response.map(|body| body.counted(counting)))
        })
    }
}

/// Sends one request: on an idle connection or, if that returns it unsent, on the next.
async fn send(
    connector: &Connector,
    mut request: Request<semel_http::Body>,
    attempt: Option<Attempt>,
) -> Result<Response<Body>, Failed> {
    let slot = request.extensions_mut().remove::<listen::Slot>();
    request.extensions_mut().clear();
    let who = Requester { is_protected: attempt.is_some(), client: slot.as_ref().map(listen::Slot::client) };
    // A body that is already here is not waited for, which would need another poll.
    let is_whole = slot.as_ref().is_some_and(listen::Slot::is_whole);
    if attempt.is_none() && !is_whole {
        begun::wait(&mut request).await.map_err(|error| Failed::new(Failure::Unreachable, error))?;
    }
    // From here on it runs, and is not ended to make room for another.
    if slot.as_ref().is_some_and(|slot| !slot.stay()) {
        return Err(Failed::new(Failure::Unreachable, TooSlow));
    }
    let response = send_as(connector, request, attempt, who).await?;
    Ok(response.map(|body| body.within(slot)))
}

async fn send_as(
    connector: &Connector,
    mut request: Request<semel_http::Body>,
    attempt: Option<Attempt>,
    who: Requester,
) -> Result<Response<Body>, Failed> {
    let is_upgrade = request.headers().contains_key(UPGRADE);
    h1::prepare(&mut request, connector.target.authority().as_str());
    let timeout = connector.options.response_timeout;
    let mut reused = 0;
    loop {
        let must_be_new = reused >= REUSES_MAX;
        let way = connector.way(who, is_upgrade, must_be_new).await?;
        let lent = match way {
            // Separate: it would make every request's state three times as large.
            RequestConnection::H2(lease) => {
                return Box::pin(h2::exchange(lease, request, attempt, timeout, &connector.target)).await;
            }
            RequestConnection::H1(lent) => lent,
        };
        match h1::exchange(lent, request, attempt.clone(), timeout).await {
            Ok(response) => return Ok(response),
            Err(NoResponse::Failed(failed)) => return Err(failed),
            Err(NoResponse::HandedBack(_)) if must_be_new => {
                return Err(Failed::new(Failure::Unreachable, "every connection was closed at once"));
            }
            Err(NoResponse::HandedBack(back)) => {
                request = *back;
                reused += 1;
            }
        }
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstream").field("target", &self.connector.target).finish_non_exhaustive()
    }
}
