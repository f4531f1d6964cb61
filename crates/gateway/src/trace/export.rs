//! Sends spans to a collector: OTLP over HTTP, in JSON.
//!
//! What lives here: batches, and one request for each. What must never: a second try. A collector that is down must not make spans
//! pile up, and what was lost is counted.

use super::otlp::{self, Span};
use super::tracer::{Counts, Options};
use crate::upstream::{self, Upstream};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderName, HeaderValue, Request, Uri};
use http_body_util::{BodyExt as _, Limited};
use semel_http::Body;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tower_service::Service as _;
use tracing::warn;

/// How many spans one request has at most.
const BATCH_MAX: usize = 512;
/// How long spans wait for others.
const GATHER: Duration = Duration::from_secs(1);
/// How much of an answer is read.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

pub(super) struct Exporter {
    collector: Upstream,
    path: Uri,
    host: HeaderValue,
    headers: Vec<(HeaderName, HeaderValue)>,
    service: String,
    timeout: Duration,
    counts: Arc<Counts>,
    /// Whether the last batch was taken: an outage is told once.
    is_well: bool,
}

impl Exporter {
    pub(super) fn new(options: &Options, counts: Arc<Counts>) -> Result<Self, upstream::TlsError> {
        let target = options.endpoint.clone();
        let path =
            target.join(&Uri::from_static("/v1/traces")).map_or(Uri::from_static("/v1/traces"), Uri::from);
        let host = HeaderValue::from_str(target.authority().as_str());
        let connection = upstream::Options {
            tls: options.tls.clone(),
            connections_max: 4,
            response_timeout: options.timeout,
            ..upstream::Options::default()
        };
        Ok(Self {
            collector: Upstream::new(target, connection)?,
            path,
            host: host.unwrap_or_else(|_| HeaderValue::from_static("")),
            headers: options.headers.clone(),
            service: options.service.clone(),
            timeout: options.timeout,
            counts,
            is_well: true,
        })
    }

    pub(super) async fn run(mut self, mut queued: mpsc::Receiver<Span>, stop: impl Future<Output = ()>) {
        let mut stop = pin!(stop);
        let mut batch = Vec::with_capacity(BATCH_MAX);
        loop {
            let gathered = async {
                if queued.recv_many(&mut batch, BATCH_MAX).await > 0 && batch.len() < BATCH_MAX {
                    tokio::time::sleep(GATHER).await;
                }
            };
            let is_over = tokio::select! {
                biased;
                () = &mut stop => true,
                () = gathered => false,
            };
            loop {
                while batch.len() < BATCH_MAX
                    && let Ok(span) = queued.try_recv()
                {
                    batch.push(span);
                }
                if batch.is_empty() {
                    break;
                }
                self.send(&batch).await;
                batch.clear();
            }
            if is_over {
                return;
            }
        }
    }

    async fn send(&mut self, batch: &[Span]) {
        let sent = tokio::time::timeout(self.timeout, self.post(batch)).await;
        let failed = match sent {
            Ok(Ok(())) => None,
            Ok(Err(why)) => Some(why),
            Err(_) => Some("no answer in time".to_owned()),
        };
        let counter = if failed.is_none() { &self.counts.sent } else { &self.counts.failed };
        Counts::add(counter, batch.len());
        if let Some(why) = &failed
            && self.is_well
        {
            warn!(spans = batch.len(), "spans could not be sent and are lost: {why}");
        }
        self.is_well = failed.is_none();
    }

    async fn post(&mut self, batch: &[Span]) -> Result<(), String> {
        let body = Bytes::from(otlp::batch(&self.service, batch).to_string());
        let mut request = Request::post(self.path.clone())
            .header(HOST, self.host.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(http::header::CONTENT_LENGTH, body.len())
            .header(USER_AGENT, concat!("semel/", env!("CARGO_PKG_VERSION")));
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request.body(Body::from(body)).map_err(|error| error.to_string())?;
        let response = self.collector.call(request).await.map_err(|failure| failure.to_string())?;
        let status = response.status();
        // To its end, so that the connection can be used again.
        let _ = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        if status.is_success() { Ok(()) } else { Err(format!("the collector answered {status}")) }
    }
}
