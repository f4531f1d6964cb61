//! Asks what became of an effect in doubt. The engine decides when to ask, how often, and from when "it is not there"
//! counts.
//!
//! A probe contains no client credentials, follows no redirects, and ignores responses from caches.

use super::client_requests::ServiceClients;
use super::destination::Destination;
use super::meaning::{Meaning, ProbeReading};
use super::read::{Read, read};
use bytes::Bytes;
use http::header::{AGE, CACHE_CONTROL, PRAGMA, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use semel::core::outcome::{Outcome, Status};
use semel::{Case, Finding, Reconcile};
use semel_http::{Body, Reconciler, RouteSettings, names};
use semel_net::client::{Authorities, AuthoritiesError};
use semel_proxy::upstream::{Options, Upstream};
use std::pin::Pin;
use std::time::Duration;
use tower_service::Service as _;
use tracing::{debug, warn};

/// The target of log lines, which stays the same wherever this code stands.
const LOG: &str = "semel_gateway::ask::probe";

/// What a retry gets when a probe found that it happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Answer {
    /// The probe's response: status, headers and body.
    #[default]
    Probe,
    /// That it happened, and that its response is not retained.
    Nothing,
}

/// How to find out what became of an effect.
#[derive(Debug, Clone)]
pub struct Probe {
    /// Where to ask.
    pub destination: Destination,
    /// The method. GET by default.
    pub method: Method,
    /// Headers to send. Secret values are marked as sensitive.
    pub headers: HeaderMap,
    /// What responses mean.
    pub meaning: Meaning,
    /// What a retry gets then.
    pub answer: Answer,
    /// The status for that; the probe's own by default.
    pub status: Option<StatusCode>,
    /// The certificate authorities for its own URL; the system's by default.
    pub authorities: Authorities,
    /// How often, for how long, and with which timeout it is sent.
    pub pace: semel::Probe,
}

impl Probe {
    /// The default timeout.
    const TIMEOUT: Duration = Duration::from_secs(10);

    /// Asks at `destination`, with defaults for the rest.
    pub fn new(destination: Destination) -> Self {
        Self {
            destination,
            method: Method::GET,
            headers: HeaderMap::new(),
            meaning: Meaning::default(),
            answer: Answer::default(),
            status: None,
            authorities: Authorities::default(),
            pace: semel::Probe { timeout: Self::TIMEOUT, ..semel::Probe::default() },
        }
    }

    /// The reconciler for operations under `route_settings`.
    pub(super) fn build(
        &self,
        clients: &ServiceClients,
        route_settings: &RouteSettings,
    ) -> Result<Reconciler, AuthoritiesError> {
        let upstream = match &self.destination.target {
            None => clients.upstream.clone(),
            Some(target) => {
                let options = Options {
                    connect_timeout: self.pace.timeout,
                    response_timeout: self.pace.timeout,
                    authorities: self.authorities.clone(),
                    ..Options::default()
                };
                Upstream::new(target.clone(), options)?
            }
        };
        Ok(Reconciler::by(Prober { probe: self.clone(), route_settings: route_settings.clone(), upstream }))
    }
}

const BODILESS: [StatusCode; 2] = [StatusCode::NO_CONTENT, StatusCode::RESET_CONTENT];

/// Sends probes.
struct Prober {
    probe: Probe,
    route_settings: RouteSettings,
    upstream: Upstream,
}

impl Reconcile for Prober {
    fn ask(&self, case: Case) -> Pin<Box<dyn Future<Output = Finding> + Send + '_>> {
        Box::pin(self.find_out(case))
    }

    fn pace(&self) -> Option<&semel::Probe> {
        Some(&self.probe.pace)
    }
}

impl Prober {
    async fn find_out(&self, case: Case) -> Finding {
        let operation_id = case.operation_id;
        let Some(request) = self.question(&case) else {
            warn!(target: LOG, %operation_id, "the operation's name is too long for the probe's URL");
            return Finding::NoAnswer;
        };
        // The upstream logs why there is no response.
        let Ok(response) = self.upstream.clone().call(request).await else { return Finding::NoAnswer };
        let (mut head, body) = response.into_parts();
        let status = head.status;
        if !is_fresh(&head.headers) {
            let why = "it comes from a cache, which may be out of date";
            warn!(target: LOG, %operation_id, %status, "a probe's response says nothing about the effect: {why}");
            return Finding::NoAnswer;
        }
        let body = match read(body, self.route_settings.response_bytes_max).await {
            Read::Whole(body) => Some(body),
            Read::TooLong => None,
            Read::Broken => return Finding::NoAnswer,
        };
        match self.probe.meaning.of(status, body.as_deref()) {
            ProbeReading::Applied => {
                head.status = self.probe.status.unwrap_or(status);
                Finding::Applied(Some(match self.probe.answer {
                    // A response of such a status has no body, whatever the probe's has.
                    Answer::Probe if BODILESS.contains(&head.status) => {
                        self.route_settings.found(&head, Some(Bytes::new()))
                    }
                    Answer::Probe => self.route_settings.found(&head, body),
                    Answer::Nothing => Outcome::not_retained(Status::Http(head.status.as_u16())),
                }))
            }
            ProbeReading::NotApplied => {
                debug!(target: LOG, %operation_id, %status, "a probe did not find the effect");
                Finding::NotFound
            }
            ProbeReading::Nothing(why) => {
                warn!(target: LOG, %operation_id, %status, "a probe's response says nothing about the effect: {why}");
                Finding::NoAnswer
            }
        }
    }

    /// The request for one operation. None if its name is too long for a URL.
    fn question(&self, case: &Case) -> Option<Request<Body>> {
        let path = self.probe.destination.path.fill(case.operation_id, case.record.operation())?;
        let path = self.upstream.target().join(&Uri::from(path)).ok()?;
        let mut request = Request::new(Body::from(Bytes::new()));
        *request.method_mut() = self.probe.method.clone();
        *request.uri_mut() = Uri::from(path);
        let id = HeaderValue::from_str(&case.operation_id.to_string()).ok()?;
        let headers = request.headers_mut();
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("semel/", env!("CARGO_PKG_VERSION"))));
        headers.extend(self.probe.headers.clone());
        uncached(headers);
        headers.insert(names::OPERATION_ID, id);
        Some(request)
    }
}

/// Tells every cache, however old, to forward the request.
pub(super) fn uncached(headers: &mut HeaderMap) {
    for name in [CACHE_CONTROL, PRAGMA] {
        headers.insert(name, HeaderValue::from_static("no-cache"));
    }
}

/// Whether a response is fresh, as far as it shows: one from a cache has an `Age`.
fn is_fresh(headers: &HeaderMap) -> bool {
    headers.get_all(AGE).iter().all(|age| age.as_bytes() == b"0")
}
