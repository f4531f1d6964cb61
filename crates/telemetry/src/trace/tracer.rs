//! Decides which requests are traced, and queues their spans. The queue is bounded; spans that do not fit are dropped
//! and counted.

use super::context::{TRACEPARENT, TRACESTATE};
use super::otlp::Span;
use super::{Context, Spans, export};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use semel::{Clock, Random, SystemRandom};
use semel_net::client::{Authorities, ClientError};
use semel_net::target::Target;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;

/// Where spans go, and which ones.
#[derive(Clone, PartialEq)]
pub struct Options {
    /// The collector; spans are sent to `/v1/traces` below it, over HTTP/1.1 (also where it says `h2c://`).
    pub endpoint: Target,
    /// The certificate authorities.
    pub authorities: Authorities,
    /// Headers for the collector.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The service name of the gateway.
    pub service: String,
    /// The share of new traces that are sampled, from 0 to 1. Other traces follow the client's decision.
    pub sample: f64,
    /// The maximum number of waiting spans.
    pub queue_max: usize,
    /// The timeout for each batch.
    pub timeout: Duration,
}

impl Options {
    /// Sends everything to `endpoint`.
    pub fn new(endpoint: Target) -> Self {
        Self {
            endpoint,
            authorities: Authorities::default(),
            headers: Vec::new(),
            service: "semel".to_owned(),
            sample: 1.0,
            queue_max: 4_096,
            timeout: Duration::from_secs(10),
        }
    }
}

/// Without the headers, which contain secrets.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("endpoint", &self.endpoint)
            .field("headers", &self.headers.iter().map(|(name, _)| name).collect::<Vec<_>>())
            .field("service", &self.service)
            .field("sample", &self.sample)
            .field("queue_max", &self.queue_max)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// The counts of spans.
#[derive(Debug, Default)]
pub struct Counts {
    /// Accepted by the collector.
    pub sent: AtomicU64,
    /// Dropped because the queue was full.
    pub dropped: AtomicU64,
    /// Not accepted by the collector.
    pub failed: AtomicU64,
}

/// Traces requests. Cheap to clone; clones share one queue.
#[derive(Clone)]
pub struct Tracer(Arc<Inner>);

struct Inner {
    options: Options,
    counts: Arc<Counts>,
    queue: mpsc::Sender<Span>,
    /// Until the export starts.
    queued: Mutex<Option<mpsc::Receiver<Span>>>,
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tracer").field(&self.0.options).finish()
    }
}

impl Tracer {
    /// Nothing is sent before it is [exported](Self::export).
    pub fn new(options: Options) -> Self {
        let (queue, queued) = mpsc::channel(options.queue_max.max(1));
        Self(Arc::new(Inner { options, counts: Arc::default(), queue, queued: Mutex::new(Some(queued)) }))
    }

    /// Where its spans go, and which ones.
    pub fn options(&self) -> &Options {
        &self.0.options
    }

    /// The layer that turns tracing spans into exported ones.
    pub fn spans(&self, clock: Arc<dyn Clock>) -> Spans {
        Spans::new(self.0.queue.clone(), Arc::clone(&self.0.counts), clock)
    }

    /// What became of spans so far.
    pub fn counts(&self) -> &Arc<Counts> {
        &self.0.counts
    }

    /// Exports spans until `stop`, then what is left, for at most two seconds. A second call does nothing.
    pub async fn export(&self, stop: impl Future<Output = ()>) -> Result<(), ClientError> {
        let queued = self.0.queued.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(queued) = queued else {
            stop.await;
            return Ok(());
        };
        export::Exporter::new(&self.0.options, Arc::clone(&self.0.counts))?.run(queued, stop).await;
        Ok(())
    }

    /// Starts a request's span, as a child of the client's if there is one, and names it in the request's headers.
    pub fn begin(&self, method: &Method, headers: &mut HeaderMap) -> (Context, tracing::Span) {
        let parent = Context::of(headers);
        let fresh = SystemRandom.bits().to_le_bytes();
        let half = |at: usize| fresh[at..at + 8].try_into().map_or(1, u64::from_le_bytes);
        let (span, chance) = (half(0).max(1), half(8));
        let context = if let Some(parent) = parent {
            Context { span, ..parent }
        } else {
            // An invalid context belongs to an unknown trace.
            headers.remove(TRACESTATE);
            Context { trace: SystemRandom.bits().max(1), span, is_sampled: self.takes(chance) }
        };
        headers.insert(TRACEPARENT, context.header());
        if !context.is_sampled {
            return (context, tracing::Span::none());
        }
        let made = tracing::trace_span!(
            target: semel::SPANS,
            "request",
            otel.kind = "server",
            otel.trace = %format_args!("{:032x}", context.trace),
            otel.span = context.span,
            otel.parent = parent.map_or(0, |parent| parent.span),
            http.request.method = method.as_str(),
            http.response.status_code = tracing::field::Empty,
            semel.operation = tracing::field::Empty,
            semel.outcome = tracing::field::Empty,
            semel.operation_id = tracing::field::Empty,
        );
        (context, made)
    }

    /// Whether a new trace is sampled.
    fn takes(&self, chance: u64) -> bool {
        #[expect(clippy::cast_precision_loss, reason = "a share of all chances need not be exact")]
        let share = chance as f64 / u64::MAX as f64;
        share < self.0.options.sample || self.0.options.sample >= 1.0
    }
}

impl Counts {
    pub(super) fn add(counter: &AtomicU64, many: usize) {
        counter.fetch_add(many as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tracer(sample: f64) -> Tracer {
        let endpoint = Target::parse("http://127.0.0.1:1").expect("a target");
        Tracer::new(Options { sample, ..Options::new(endpoint) })
    }

    fn parent(text: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(TRACEPARENT, HeaderValue::from_static(text));
        headers.insert(TRACESTATE, HeaderValue::from_static("a=b"));
        headers
    }

    #[test]
    fn a_trace_is_continued_with_its_flag_and_its_state() {
        for (flag, is_sampled) in [
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", true),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00", false),
        ] {
            let mut headers = parent(flag);
            // Whatever share of new traces is sampled.
            let (context, _) = tracer(if is_sampled { 0.0 } else { 1.0 }).begin(&Method::POST, &mut headers);
            assert_eq!(
                (context.trace, context.is_sampled),
                (0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736, is_sampled)
            );
            assert_ne!(context.span, 0x00f0_67aa_0ba9_02b7);
            assert_eq!(Context::of(&headers), Some(context));
            assert_eq!(headers[TRACESTATE], "a=b");
        }
    }

    #[test]
    fn an_invalid_trace_is_replaced_without_its_state() {
        let mut headers = parent("00-not-a-context");
        let (context, _) = tracer(1.0).begin(&Method::POST, &mut headers);
        assert!(context.is_sampled && Context::of(&headers) == Some(context));
        assert!(!headers.contains_key(TRACESTATE));
    }

    #[test]
    fn of_traces_that_begin_here_a_share_is_sampled() {
        let sampled = |sample| {
            (0..400)
                .filter(|_| tracer(sample).begin(&Method::GET, &mut HeaderMap::new()).0.is_sampled)
                .count()
        };
        assert_eq!((sampled(0.0), sampled(1.0)), (0, 400));
        assert!((100..300).contains(&sampled(0.5)), "nowhere near half of them");
    }
}
