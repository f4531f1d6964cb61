//! `[otlp]`: where spans are sent.

use super::table::Table;
use crate::invalid_value::InvalidValue;
use http::{HeaderName, HeaderValue};
use semel_net::client::Authorities;
use semel_net::target::{Target, Transport};
use semel_telemetry::trace::{Options, Tracer};

/// The tracer, if spans are sent anywhere.
pub(super) fn read(table: &Table<'_, '_>) -> Option<Tracer> {
    let endpoint = table.parsed("endpoint", |text| {
        let refused = |problem| InvalidValue::new(problem, "write one like \"http://127.0.0.1:4318\"");
        let target = Target::parse(text).map_err(|error| refused(error.to_string()))?;
        if target.transport() == Transport::H2c {
            return Err(refused(format!("`{text}` is for gRPC, but spans are sent over HTTP")));
        }
        Ok(target)
    });
    // Everything is read, even if it is not used, so that mistakes are reported.
    let (service, sample) = (table.text("service").map(|(text, _)| text.to_owned()), sample(table));
    let (queue_max, timeout) = (table.count("queue_max", 1), table.limit("timeout"));
    let (authorities, headers) = (authorities(table), headers(table));
    if endpoint.is_none() && !table.has("endpoint") && !headers.is_empty() {
        let problem = "[[otlp.header]] is set without an `endpoint`";
        table.document.mistake(table.span().as_ref(), problem, "write `endpoint`, or remove the headers");
    }
    let usual = Options::new(endpoint?);
    Some(Tracer::new(Options {
        service: service.unwrap_or(usual.service),
        sample: sample.unwrap_or(usual.sample),
        queue_max: queue_max.unwrap_or(usual.queue_max),
        timeout: timeout.unwrap_or(usual.timeout),
        authorities: authorities.unwrap_or(usual.authorities),
        headers,
        ..Options::new(usual.endpoint)
    }))
}

/// A share from 0 to 1.
fn sample(table: &Table<'_, '_>) -> Option<f64> {
    let value = table.value("sample")?;
    let float = value.get_ref().as_float().map(toml::de::DeFloat::as_str);
    let text = float.or_else(|| value.get_ref().as_integer().map(toml::de::DeInteger::as_str));
    let Some(text) = text else {
        table.wrong("sample", value, "a number from 0 to 1");
        return None;
    };
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    if share.is_none() {
        table.document.mistake(
            Some(&value.span()),
            "`sample` is out of range",
            "write a number from 0.0 to 1.0",
        );
    }
    share
}

fn authorities(table: &Table<'_, '_>) -> Option<Authorities> {
    let (_, pem) = table.file("ca")?;
    let authorities = Authorities::only(&pem).map_err(|error| {
        let fix = "write the path of a PEM file with the authorities' certificates";
        table.document.mistake(table.span_of("ca").as_ref(), error.to_string(), fix);
    });
    authorities.ok()
}

fn headers(table: &Table<'_, '_>) -> Vec<(HeaderName, HeaderValue)> {
    let mut headers = Vec::new();
    for table in table.tables("header", "[[otlp.header]]") {
        let name = table.parsed("name", |text| {
            let refused = || {
                InvalidValue::new(
                    format!("`{text}` is not a header name"),
                    "write one like \"authorization\"",
                )
            };
            text.parse::<HeaderName>().map_err(|_| refused())
        });
        let value = table.secret("value").and_then(|secret| {
            let value = HeaderValue::from_bytes(&secret).map_err(|_| {
                let problem = "the secret that `value` refers to cannot be sent in a header";
                table.document.mistake(
                    table.span_of("value").as_ref(),
                    problem,
                    "put one line of visible characters there",
                );
            });
            let mut value = value.ok()?;
            value.set_sensitive(true);
            Some(value)
        });
        for key in ["name", "value"] {
            if !table.has(key) {
                let fix = format!("write `{key}`");
                table.document.mistake(table.span().as_ref(), format!("a header has no {key}"), fix);
            }
        }
        headers.extend(name.zip(value));
        table.end();
    }
    headers
}

#[cfg(test)]
mod tests {
    use crate::config::{Overrides, read};

    fn messages(text: &str) -> String {
        let mistakes = read(text, &Overrides::default(), &|name| (name == "TOKEN").then(|| "s3cret".into()));
        let mistakes = mistakes.expect_err("mistakes");
        mistakes.iter().map(|mistake| mistake.message("f") + "\n").collect()
    }

    #[test]
    fn spans_are_sent_to_the_configured_address_with_its_headers() {
        let text = "[otlp]\nendpoint = \"https://collector:4318\"\nsample = 0.25\nservice = \"pay\"\n\
            [[otlp.header]]\nname = \"authorization\"\nvalue = \"env:TOKEN\"\n";
        let config = read(text, &Overrides::default(), &|name| (name == "TOKEN").then(|| "s3cret".into()));
        let shown = format!("{:?}", config.expect("no mistake").tracer.expect("a tracer"));
        assert!(
            shown.contains("0.25") && shown.contains("pay") && shown.contains("authorization"),
            "{shown}"
        );
        assert!(!shown.contains("s3cret"), "{shown}");
        assert!(read("", &Overrides::default(), &|_| None).expect("no mistake").tracer.is_none());
    }

    #[test]
    fn the_default_file_has_the_defaults() {
        let shown = |text: &str| {
            let config = read(text, &Overrides::default(), &|_| None).expect("no mistake");
            format!("{:?}", config.tracer.expect("a tracer"))
        };
        let default = crate::config::DEFAULT.replace("#endpoint", "endpoint");
        assert_eq!(shown(&default), shown("[otlp]\nendpoint = \"http://127.0.0.1:4318\"\n"));
    }

    #[test]
    fn each_mistake_is_reported_with_its_fix() {
        for (text, expected) in [
            ("endpoint = \"collector:4318\"", "f:2:12: \"collector:4318\" cannot be used"),
            ("endpoint = \"h2c://collector:4317\"", "is for gRPC"),
            ("sample = 2", "f:2:10: `sample` is out of range"),
            ("sample = -0.5", "`sample` is out of range"),
            ("sample = \"all\"", "a number from 0 to 1"),
            ("queue_max = 0", "`queue_max` is out of range"),
            ("timeout = \"0s\"", "`timeout` must not be zero"),
            ("endpont = \"http://c\"", "unknown key `endpont` in [otlp]"),
            ("[[otlp.header]]\nname = \"a b\"\nvalue = \"env:TOKEN\"", "is not a header name"),
            ("[[otlp.header]]\nname = \"a\"\nvalue = \"s3cret\"", "must not contain the secret itself"),
            ("[[otlp.header]]\nname = \"a\"\nvalue = \"env:NOBODY\"", "NOBODY"),
            ("[[otlp.header]]\nname = \"a\"", "a header has no value"),
            ("[[otlp.header]]\nname = \"a\"\nvalue = \"env:TOKEN\"", "without an `endpoint`"),
        ] {
            let messages = messages(&format!("[otlp]\n{text}\n"));
            assert!(messages.contains(expected) && !messages.contains("s3cret"), "{text}: {messages}");
        }
    }
}
