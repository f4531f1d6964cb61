//! Sends spans to a collector: OTLP over HTTP, in JSON. A failed batch is not retried but counted as lost, so that a
//! collector that is down neither fills memory nor delays shutdown.

use super::otlp::{self, Span};
use super::tracer::{Counts, Options};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderName, HeaderValue, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use semel::{Clock as _, SystemClock};
use semel_net::client::{self, Client, ClientError, ConnectError, Connection, ReadError, SendError};
use semel_net::target::Transport;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};
use tracing::warn;

/// The target of log lines, which stays the same wherever this code stands.
const LOG: &str = "semel_gateway::trace::export";
/// How many spans one request has at most.
const BATCH_MAX: usize = 512;
/// How long spans wait for others.
const GATHER: Duration = Duration::from_secs(1);
/// The time for everything that is left at shutdown.
const LAST: Duration = Duration::from_secs(2);
/// How often the same trouble is logged.
const LOG_EVERY: Duration = Duration::from_mins(1);
/// The time for a connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// How long a connection may have been idle to carry the next batch. Under load a batch follows about every second, and
/// hardly any server closes an idle connection sooner than after two.
const IDLE_MAX: Duration = Duration::from_millis(1_500);
/// How much of a response is read.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

pub(super) struct Exporter {
    collector: Client,
    /// The connection of the last batch, and when it became idle.
    idle: Option<(Connection, Duration)>,
    path: Uri,
    host: HeaderValue,
    headers: Vec<(HeaderName, HeaderValue)>,
    service: String,
    timeout: Duration,
    counts: Arc<Counts>,
    /// Lost batches.
    lost: Trouble,
    /// Batches that were accepted with a broken response.
    unanswered: Trouble,
}

/// Trouble since it was last logged.
#[derive(Debug, Default)]
struct Trouble {
    logged_at: Option<Duration>,
    batches: u64,
    spans: usize,
}

impl Trouble {
    /// One more batch of that many spans. Returns the batches and spans to log, if it is time.
    fn with(&mut self, spans: usize, now: Duration) -> Option<(u64, usize)> {
        self.batches += 1;
        self.spans += spans;
        self.due(now)
    }

    /// What to log, if it is time: also trouble that is over.
    fn due(&mut self, now: Duration) -> Option<(u64, usize)> {
        if self.logged_at.is_some_and(|at| now.saturating_sub(at) < LOG_EVERY) {
            return None;
        }
        let rest = self.rest()?;
        self.logged_at = Some(now);
        Some(rest)
    }

    /// What was not logged yet, at any time.
    fn rest(&mut self) -> Option<(u64, usize)> {
        let rest = std::mem::take(self);
        self.logged_at = rest.logged_at;
        (rest.batches > 0).then_some((rest.batches, rest.spans))
    }
}

/// How a batch was accepted.
enum Accepted {
    Whole,
    /// The collector accepted it, but its response was cut off.
    Unanswered,
}

/// Why a batch was not accepted.
#[derive(Debug, Error)]
enum NotSent {
    #[error("no response in time")]
    NoResponseInTime,
    #[error("no connection in time")]
    NoConnectionInTime,
    #[error(transparent)]
    NoConnection(#[from] ConnectError),
    #[error("no response: {0}")]
    NoResponse(#[from] SendError),
    #[error("the collector answered {0}")]
    Refused(StatusCode),
    #[error(transparent)]
    Request(#[from] http::Error),
    #[error("the process ends")]
    Ending,
}

impl Exporter {
    pub(super) fn new(options: &Options, counts: Arc<Counts>) -> Result<Self, ClientError> {
        let target = &options.endpoint;
        let path =
            target.join(&Uri::from_static("/v1/traces")).map_or(Uri::from_static("/v1/traces"), Uri::from);
        let host = HeaderValue::from_str(target.authority().as_str());
        let authorities = (target.transport() == Transport::Https).then_some(&options.authorities);
        Ok(Self {
            collector: Client::new(target.host(), target.port(), authorities)?,
            idle: None,
            path,
            host: host.unwrap_or_else(|_| HeaderValue::from_static("")),
            headers: options.headers.clone(),
            service: options.service.clone(),
            timeout: options.timeout,
            counts,
            lost: Trouble::default(),
            unanswered: Trouble::default(),
        })
    }

    /// Sends spans until `stop`, and then for a moment what is left.
    pub(super) async fn run(mut self, mut queued: mpsc::Receiver<Span>, stop: impl Future<Output = ()>) {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        let (stopping, stopped) = oneshot::channel();
        let late = async {
            stop.await;
            // Where nobody hears it, everything is sent.
            let _ = stopping.send(());
            tokio::time::sleep(LAST).await;
        };
        tokio::select! {
            biased;
            () = self.send_until(stopped, &mut queued, &mut batch) => {}
            () = late => {
                while let Ok(span) = queued.try_recv() {
                    batch.push(span);
                }
                self.count_failure(batch.len(), Some(&NotSent::Ending));
            }
        }
        // Nobody comes after this who could log it.
        if let Some((batches, spans)) = self.lost.rest() {
            warn_of_lost(batches, spans, "spans that were not reported before the process ends");
        }
        if let Some((batches, spans)) = self.unanswered.rest() {
            warn_of_unanswered(batches, spans);
        }
    }

    /// Sends spans, and after `stopped` what is left. `batch` was taken out of the queue and is not counted yet.
    async fn send_until(
        &mut self,
        mut stopped: oneshot::Receiver<()>,
        queued: &mut mpsc::Receiver<Span>,
        batch: &mut Vec<Span>,
    ) {
        loop {
            let gathered = async {
                if queued.recv_many(batch, BATCH_MAX).await > 0 && batch.len() < BATCH_MAX {
                    tokio::time::sleep(GATHER).await;
                }
            };
            let is_over = tokio::select! {
                biased;
                _ = &mut stopped => true,
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
                self.send(batch).await;
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
            Ok(Ok(taken)) => {
                let now = SystemClock.uptime();
                let lost = match taken {
                    Accepted::Unanswered => self.unanswered.with(batch.len(), now),
                    Accepted::Whole => self.unanswered.due(now),
                };
                if let Some((batches, spans)) = lost {
                    warn_of_unanswered(batches, spans);
                }
                None
            }
            Ok(Err(why)) => Some(why),
            Err(_) => Some(NotSent::NoResponseInTime),
        };
        self.count_failure(batch.len(), failed.as_ref());
    }

    /// Counts the result for that many spans, and logs lost ones, but not for each batch.
    fn count_failure(&mut self, spans: usize, failed: Option<&NotSent>) {
        let counter = if failed.is_none() { &self.counts.sent } else { &self.counts.failed };
        Counts::add(counter, spans);
        let now = SystemClock.uptime();
        let report = if failed.is_some() { self.lost.with(spans, now) } else { self.lost.due(now) };
        if let Some((batches, spans)) = report {
            match failed {
                Some(why) => warn_of_lost(batches, spans, &why.to_string()),
                None => warn_of_lost(batches, spans, "the collector accepts spans again"),
            }
        }
    }

    async fn post(&mut self, batch: &[Span]) -> Result<Accepted, NotSent> {
        let body = Bytes::from(otlp::batch(&self.service, batch).to_string());
        let mut request = Request::post(self.path.clone())
            .header(HOST, self.host.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(USER_AGENT, concat!("semel/", env!("CARGO_PKG_VERSION")));
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(body))?;
        let (connection, response) = self.send_on_idle_or_new(request).await?;
        let status = response.status();
        // Read to its end, so that the connection can be reused. A response that is too long is ignored.
        let read = client::read(response.into_body(), ANSWER_BYTES_MAX).await;
        // A collector that refuses a batch may not have read it, and then the next one would wait behind it.
        if read.is_ok() && status.is_success() {
            self.idle = Some((connection, SystemClock.uptime()));
        }
        match (status.is_success(), read) {
            (true, Ok(_) | Err(ReadError::TooLong)) => Ok(Accepted::Whole),
            (true, Err(ReadError::Broken(_))) => Ok(Accepted::Unanswered),
            (false, _) => Err(NotSent::Refused(status)),
        }
    }

    /// Sends a request on the connection of the last batch or, if that returns it unsent, on a new one.
    async fn send_on_idle_or_new(
        &mut self,
        mut request: Request<Full<Bytes>>,
    ) -> Result<(Connection, Response<Incoming>), NotSent> {
        let now = SystemClock.uptime();
        let idle = self.idle.take().filter(|(_, since)| now.saturating_sub(*since) < IDLE_MAX);
        if let Some((mut connection, _)) = idle {
            match connection.send(request).await {
                Ok(response) => return Ok((connection, response)),
                Err(SendError { unsent: Some(unsent), .. }) => request = *unsent,
                Err(failed) => return Err(failed.into()),
            }
        }
        let connecting = tokio::time::timeout(CONNECT_WITHIN, self.collector.connect());
        let connected = connecting.await.map_err(|_| NotSent::NoConnectionInTime)?;
        let mut connection = connected?;
        match connection.send(request).await {
            Ok(response) => Ok((connection, response)),
            Err(failed) => Err(failed.into()),
        }
    }
}

fn warn_of_lost(batches: u64, spans: usize, why: &str) {
    warn!(target: LOG, batches, spans, "spans could not be sent and are lost: {why}");
}

fn warn_of_unanswered(batches: u64, spans: usize) {
    warn!(target: LOG, batches, spans, "a collector accepted spans, but its response was cut off");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::otlp::Kind;
    use semel_net::target::Target;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    fn span() -> Span {
        Span {
            trace: 1,
            id: 1,
            parent: 0,
            name: "request",
            kind: Kind::Server,
            begun_nanos: 0,
            ended_nanos: 1,
            attributes: Vec::new(),
            is_error: false,
        }
    }

    #[test]
    fn the_same_trouble_is_logged_once_a_minute() {
        let (mut trouble, second) = (Trouble::default(), Duration::from_secs(1));
        let begun = Duration::from_hours(7);
        let reports: Vec<_> = (0..125).map(|at| trouble.with(10, begun + second * at)).collect();
        let lines: Vec<_> =
            reports.iter().enumerate().filter_map(|(at, report)| Some((at, (*report)?))).collect();
        assert_eq!(lines, [(0, (1, 10)), (60, (60, 600)), (120, (60, 600))]);
    }

    #[test]
    fn short_trouble_is_logged_when_the_minute_ends() {
        let (mut trouble, second) = (Trouble::default(), Duration::from_secs(1));
        let begun = Duration::from_hours(7);
        assert_eq!(trouble.due(begun), None, "nothing has happened");
        assert_eq!(trouble.with(10, begun), Some((1, 10)));
        assert_eq!((trouble.with(10, begun + second), trouble.with(5, begun + second * 2)), (None, None));
        // From here on everything is accepted.
        assert_eq!(trouble.due(begun + second * 59), None, "an unstable collector must not flood the log");
        assert_eq!(trouble.due(begun + second * 60), Some((2, 15)));
        assert_eq!((trouble.due(begun + second * 200), trouble.rest()), (None, None), "once");
        assert_eq!(trouble.with(1, begun + second * 300), Some((1, 1)));
        assert_eq!(trouble.with(7, begun + second * 301), None);
        assert_eq!((trouble.rest(), trouble.rest()), (Some((1, 7)), None), "the process ends");
    }

    /// Answers each batch like this; returns how many connections it took for `batches` of them.
    async fn connections_for(batches: usize, response: &'static str) -> (usize, u64) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(async move {
                    let mut batch = Vec::new();
                    while matches!(stream.read_buf(&mut batch).await, Ok(1..)) {
                        // The end of its JSON.
                        if batch.ends_with(b"]}]}]}") {
                            batch.clear();
                            let _ = stream.write_all(response.as_bytes()).await;
                        }
                    }
                });
            }
        });
        let counts = Arc::new(Counts::default());
        let options = Options::new(Target::parse(&endpoint).expect("a target"));
        let mut exporter = Exporter::new(&options, Arc::clone(&counts)).expect("no TLS");
        for _ in 0..batches {
            exporter.send(&[span()]).await;
        }
        (connections.load(Ordering::Relaxed), counts.sent.load(Ordering::Relaxed))
    }

    #[tokio::test]
    async fn a_connection_is_reused_unless_the_collector_closes_it_or_refused() {
        let accepted = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
        assert_eq!(connections_for(3, accepted).await, (1, 3));
        let closing = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}";
        assert_eq!(connections_for(3, closing).await, (3, 3), "every batch arrives");
        let refused = "HTTP/1.1 413 Content Too Large\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(connections_for(3, refused).await, (3, 0));
    }

    #[tokio::test]
    async fn a_silent_collector_does_not_delay_shutdown() {
        let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = silent.local_addr().expect("an address");
        let endpoint = Target::parse(&format!("http://{address}")).expect("a target");
        let hour = Duration::from_hours(1);
        let counts = Arc::new(Counts::default());
        let options = Options { timeout: hour, ..Options::new(endpoint) };
        let exporter = Exporter::new(&options, Arc::clone(&counts)).expect("no TLS");
        let many = 3 * BATCH_MAX + 1;
        let (queue, queued) = mpsc::channel(many);
        for _ in 0..many {
            queue.try_send(span()).expect("room");
        }
        // It stops while the first batch is being sent; the others have not begun.
        let mut held = None;
        let stop = async { held = silent.accept().await.ok() };
        let run = tokio::time::timeout(hour / 60, exporter.run(queued, stop));
        run.await.expect("it ends long before the collector's time is over");
        assert!(held.is_some(), "nothing was sent at all");
        let counted = (counts.sent.load(Ordering::Relaxed), counts.failed.load(Ordering::Relaxed));
        assert_eq!(counted, (0, many as u64));
    }
}
