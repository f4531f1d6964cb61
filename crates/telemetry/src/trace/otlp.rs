//! Spans in the JSON mapping of OTLP: IDs as hexadecimal digits, 64-bit numbers as strings.

use serde_json::{Value, json};

/// The side of an exchange that a span describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Internal = 1,
    Server = 2,
    Client = 3,
}

/// A value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Attribute {
    Text(String),
    Number(i64),
    Flag(bool),
}

/// A span that has ended.
#[derive(Debug, Clone)]
pub(super) struct Span {
    pub(super) trace: u128,
    pub(super) id: u64,
    /// 0 if it is the first of its trace.
    pub(super) parent: u64,
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) begun_nanos: u64,
    pub(super) ended_nanos: u64,
    pub(super) attributes: Vec<(&'static str, Attribute)>,
    pub(super) is_error: bool,
}

/// A batch, as sent.
pub(super) fn batch(service: &str, spans: &[Span]) -> Value {
    let version = env!("CARGO_PKG_VERSION");
    let resource =
        [("service.name", service), ("telemetry.sdk.name", "semel"), ("telemetry.sdk.version", version)];
    let resource: Vec<_> =
        resource.map(|(name, text)| json!({"key": name, "value": {"stringValue": text}})).into();
    let spans: Vec<_> = spans.iter().map(span).collect();
    json!({"resourceSpans": [{
        "resource": {"attributes": resource},
        "scopeSpans": [{"scope": {"name": "semel", "version": version}, "spans": spans}],
    }]})
}

fn span(span: &Span) -> Value {
    let attributes: Vec<_> = span
        .attributes
        .iter()
        .map(|(name, value)| {
            let value = match value {
                Attribute::Text(text) => json!({"stringValue": text}),
                Attribute::Number(number) => json!({"intValue": number.to_string()}),
                Attribute::Flag(flag) => json!({"boolValue": flag}),
            };
            json!({"key": name, "value": value})
        })
        .collect();
    let mut written = json!({
        "traceId": format!("{:032x}", span.trace),
        "spanId": format!("{:016x}", span.id),
        "name": span.name,
        "kind": span.kind as u8,
        "startTimeUnixNano": span.begun_nanos.to_string(),
        "endTimeUnixNano": span.ended_nanos.to_string(),
        "attributes": attributes,
        "status": if span.is_error { json!({"code": 2}) } else { json!({}) },
    });
    if span.parent != 0 {
        written["parentSpanId"] = json!(format!("{:016x}", span.parent));
    }
    written
}
