//! A subscriber layer that turns [`semel::SPANS`] into exported spans. It keeps nothing of requests that are not
//! sampled.

use super::otlp::{Attribute, Kind, Span};
use super::tracer::Counts;
use semel::{Clock, Random as _, SystemRandom};
use std::fmt::Debug;
use std::sync::Arc;
use tokio::sync::mpsc;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

/// The field that ends a span that others may keep open.
const ENDS_WITH: &str = "http.response.status_code";

/// Follows the spans of sampled requests.
pub struct Spans {
    queue: mpsc::Sender<Span>,
    counts: Arc<Counts>,
    clock: Arc<dyn Clock>,
}

impl Spans {
    pub(super) fn new(queue: mpsc::Sender<Span>, counts: Arc<Counts>, clock: Arc<dyn Clock>) -> Self {
        Self { queue, counts, clock }
    }

    /// The spans that it follows.
    pub fn follows(metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.target() == semel::SPANS
    }

    /// Nanoseconds since 1970.
    fn now(&self) -> u64 {
        self.clock.now().as_millis().saturating_mul(1_000_000)
    }
}

/// An open span, stored with the registry's own.
struct Open {
    span: Span,
    /// In uptime, which is finer than wall time and never goes back.
    begun_at: std::time::Duration,
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(here) = context.span(id) else { return };
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let parent = here.parent();
        let inherited = parent.as_ref().and_then(|parent| {
            let extensions = parent.extensions();
            let open = extensions.get::<Open>()?;
            Some((open.span.trace, open.span.id, open.ending(self.clock.uptime())))
        });
        // The first span names its trace; others inherit it from their parents, or belong to none that is sampled.
        let first = fields.trace.map(|trace| (trace, fields.parent, self.now()));
        let Some((trace, parent, begun_nanos)) = first.or(inherited) else { return };
        let fresh = || u64::try_from(SystemRandom.bits() >> 64).unwrap_or(1).max(1);
        let span = Span {
            trace,
            id: fields.span.unwrap_or_else(fresh),
            parent,
            name: attributes.metadata().name(),
            kind: fields.kind.unwrap_or(Kind::Internal),
            begun_nanos,
            ended_nanos: 0,
            attributes: fields.others,
            is_error: false,
        };
        here.extensions_mut().insert(Open { span, begun_at: self.clock.uptime() });
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(here) = context.span(id) else { return };
        let mut extensions = here.extensions_mut();
        let Some(open) = extensions.get_mut::<Open>() else { return };
        let mut fields = Fields::default();
        values.record(&mut fields);
        for (name, value) in fields.others {
            if name == ENDS_WITH {
                open.span.ended_nanos = open.ending(self.clock.uptime());
                open.span.is_error = matches!(value, Attribute::Number(500..));
            }
            open.span.attributes.push((name, value));
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(here) = context.span(&id) else { return };
        let Some(open) = here.extensions_mut().remove::<Open>() else { return };
        let ended_nanos = match open.span.ended_nanos {
            0 => open.ending(self.clock.uptime()),
            ended => ended,
        };
        if self.queue.try_send(Span { ended_nanos, ..open.span }).is_err() {
            Counts::add(&self.counts.dropped, 1);
        }
    }
}

impl Open {
    fn ending(&self, now: std::time::Duration) -> u64 {
        let took = now.saturating_sub(self.begun_at).as_nanos();
        self.span.begun_nanos.saturating_add(u64::try_from(took).unwrap_or(u64::MAX))
    }
}

/// The fields of a span.
#[derive(Default)]
struct Fields {
    trace: Option<u128>,
    span: Option<u64>,
    parent: u64,
    kind: Option<Kind>,
    others: Vec<(&'static str, Attribute)>,
}

impl Visit for Fields {
    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "otel.span" => self.span = Some(value),
            "otel.parent" => self.parent = value,
            name => self.others.push((name, Attribute::Number(i64::try_from(value).unwrap_or(i64::MAX)))),
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.others.push((field.name(), Attribute::Number(value)));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.others.push((field.name(), Attribute::Flag(value)));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match (field.name(), value) {
            ("otel.kind", "server") => self.kind = Some(Kind::Server),
            ("otel.kind", "client") => self.kind = Some(Kind::Client),
            (name, value) => self.others.push((name, Attribute::Text(value.to_owned()))),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let value = format!("{value:?}");
        match field.name() {
            "otel.trace" => self.trace = u128::from_str_radix(&value, 16).ok(),
            name => self.others.push((name, Attribute::Text(value))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Options, Tracer};
    use super::*;
    use http::{HeaderMap, HeaderValue, Method};
    use semel::SystemClock;
    use semel_net::target::Target;
    use std::sync::atomic::Ordering;
    use tracing_subscriber::layer::SubscriberExt as _;

    /// The exported spans of a request with three, with room for `queue_max`.
    fn dropped(queue_max: usize, flag: &str) -> u64 {
        let endpoint = Target::parse("http://127.0.0.1:1").expect("a target");
        let tracer = Tracer::new(Options { queue_max, ..Options::new(endpoint) });
        let subscriber = tracing_subscriber::registry().with(tracer.spans(Arc::new(SystemClock)));
        tracing::subscriber::with_default(subscriber, || {
            let mut headers = HeaderMap::new();
            let parent = format!("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-{flag}");
            headers.insert("traceparent", HeaderValue::try_from(parent).expect("a value"));
            let (_, request) = tracer.begin(&Method::POST, &mut headers);
            let _entered = request.enter();
            for _ in 0..2 {
                drop(tracing::trace_span!(target: semel::SPANS, "claim"));
            }
        });
        tracer.counts().dropped.load(Ordering::Relaxed)
    }

    #[test]
    fn spans_without_room_are_dropped_and_counted() {
        assert_eq!((dropped(3, "01"), dropped(1, "01")), (0, 2));
    }

    #[test]
    fn nothing_is_kept_of_a_request_that_is_not_sampled() {
        assert_eq!(dropped(1, "00"), 0);
    }
}
