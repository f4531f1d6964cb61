//! `[listen]`, `[upstream]`, `[log]`. Missing files are reported when the configuration is read, not when the first
//! client connects.

use super::table::Table;
use crate::invalid_value::InvalidValue;
use semel_identity::Network;
use semel_net::client::Authorities;
use semel_net::target::Target;
use semel_proxy::forward::Host;
use semel_proxy::listen;
use semel_proxy::upstream;
use semel_telemetry::logging::{Form, Level};
use std::net::SocketAddr;

pub(super) fn listen(table: &Table<'_, '_>) -> listen::Options {
    let mut options = listen::Options::default();
    options.address = address(table).unwrap_or(options.address);
    options.tls = tls(table);
    options.clients = clients(table);
    options.handshake_timeout = table.limit("handshake_timeout").unwrap_or(options.handshake_timeout);
    options.head_timeout = table.limit("head_timeout").unwrap_or(options.head_timeout);
    options.body_timeout = table.limit("body_timeout").unwrap_or(options.body_timeout);
    options.idle_timeout = table.limit("idle_timeout").unwrap_or(options.idle_timeout);
    options.write_timeout = table.limit("write_timeout").unwrap_or(options.write_timeout);
    let rate = table.size("rate_min").map(|bytes| u32::try_from(bytes).unwrap_or(u32::MAX));
    options.rate_min.bytes_per_second = rate.unwrap_or(options.rate_min.bytes_per_second);
    options.rate_min.window = table.limit("rate_window").unwrap_or(options.rate_min.window);
    options.connections_max = table.count("connections_max", 1).unwrap_or(options.connections_max);
    options.requests_max = table.count("requests_max", 1).unwrap_or(options.requests_max);
    options.streams_max = table.count("streams_max", 1).unwrap_or(options.streams_max);
    options.headers_max = table.count("headers_max", 1).unwrap_or(options.headers_max);
    options.head_bytes_max = table.size("head_max").unwrap_or(options.head_bytes_max);
    options.drain = table.duration("drain").unwrap_or(options.drain);
    options
}

fn address(table: &Table<'_, '_>) -> Option<SocketAddr> {
    table.parsed("address", |text| semel_text::address::parse(text).map_err(InvalidValue::of_sentence))
}

/// Which client certificates the listener asks for, if any.
fn clients(table: &Table<'_, '_>) -> Option<listen::Clients> {
    let is_required = table.choice("client_certs", &[("required", true), ("optional", false)]);
    let authorities = table.file("client_ca");
    if !table.has("client_ca") && table.has("client_certs") {
        let problem = "`client_certs` needs `client_ca`, which is not set";
        let fix = "write client_ca, the path of a PEM file, or remove client_certs";
        table.document.mistake(table.span_of("client_certs").as_ref(), problem, fix);
    }
    let clients = listen::Clients { authorities: authorities?.0, is_required: is_required.unwrap_or(true) };
    // The listener reads the file again; mistakes are reported here because here they have a line.
    if let Err(error) = clients.check() {
        let fix = "write the path of a PEM file with the authorities' certificates";
        table.document.mistake(table.span_of("client_ca").as_ref(), error.to_string(), fix);
    }
    Some(clients)
}

/// Client certificates need TLS, whether the file or a flag configures it.
pub(super) fn check_clients(table: &Table<'_, '_>, options: &listen::Options) {
    let is_plain = options.tls.is_none() && !table.has("tls_cert") && !table.has("tls_key");
    if options.clients.is_some() && is_plain {
        let problem = "client certificates need TLS, which is not set";
        let fix = "write tls_cert and tls_key too, or remove client_ca";
        table.document.mistake(table.span_of("client_ca").as_ref(), problem, fix);
    }
}

pub(super) fn tls(table: &Table<'_, '_>) -> Option<listen::Tls> {
    let (certificates, key) = (table.file("tls_cert"), table.file("tls_key"));
    let lone = match (table.has("tls_cert"), table.has("tls_key")) {
        (true, false) => Some("tls_cert"),
        (false, true) => Some("tls_key"),
        _ => None,
    };
    if let Some(lone) = lone {
        let problem = format!("only `{lone}` is set: TLS needs a certificate and its key");
        table.document.mistake(
            table.span_of(lone).as_ref(),
            problem,
            "write both tls_cert and tls_key, or neither",
        );
    }
    let tls = listen::Tls { certificates: certificates?.0, key: key?.0 };
    // The listener reads the files again; mistakes are reported here because here they have a line.
    if let Err(error) = tls.check() {
        let (key, fix) = match &error {
            listen::Error::OtherKey { .. } => {
                ("tls_key", "write the path of the key that belongs to the certificate")
            }
            listen::Error::NoKey(_) => ("tls_key", "write the path of a PEM file with the private key"),
            listen::Error::Damaged(file, _) if *file == tls.key => {
                ("tls_key", "write the path of a PEM file with the private key, not encrypted")
            }
            _ => ("tls_cert", "write the path of a PEM file with the certificate and its chain"),
        };
        table.document.mistake(table.span_of(key).as_ref(), error.to_string(), fix);
    }
    Some(tls)
}

/// The upstream's URL, if it is set, and how it is reached.
pub(super) fn upstream(table: &Table<'_, '_>) -> (Option<Target>, upstream::Options, Host) {
    let target = table.parsed("url", |text| {
        let fix = "write one like \"http://127.0.0.1:3000\"";
        Target::parse(text).map_err(|error| InvalidValue::new(error.to_string(), fix))
    });
    let mut options = upstream::Options::default();
    options.connect_timeout = table.limit("connect_timeout").unwrap_or(options.connect_timeout);
    options.response_timeout = table.limit("response_timeout").unwrap_or(options.response_timeout);
    options.is_fresh_when_protected =
        table.is("fresh_connections").unwrap_or(options.is_fresh_when_protected);
    options.idle_time_max_protected =
        table.duration("idle_timeout_protected").unwrap_or(options.idle_time_max_protected);
    options.idle_time_max = table.duration("idle_timeout").unwrap_or(options.idle_time_max);
    options.idle_max = table.count("idle_max", 0).unwrap_or(options.idle_max);
    options.connections_max = table.count("connections_max", 1).unwrap_or(options.connections_max);
    if let Some((_, pem)) = table.file("ca") {
        match Authorities::only(&pem) {
            Ok(authorities) => options.authorities = authorities,
            Err(error) => table.document.mistake(
                table.span_of("ca").as_ref(),
                error.to_string(),
                "write the path of a PEM file with the authorities' certificates",
            ),
        }
    }
    let host = table.choice("host", &[("keep", Host::Keep), ("target", Host::Target)]);
    (target, options, host.unwrap_or_default())
}

/// The proxies whose `Forwarded` and `X-Forwarded-*` are passed on.
pub(super) fn forwarded_by(table: &Table<'_, '_>) -> Vec<Network> {
    let networks = table.parsed_list("forwarded_by", |text| {
        let network = text.parse::<Network>().map_err(InvalidValue::of_sentence)?;
        if network.is_too_wide() {
            let problem = format!(
                "{network} is wider than any private network, and clients in it could claim any address"
            );
            return Err(InvalidValue::new(problem, "Write the proxies' own addresses"));
        }
        Ok(network)
    });
    networks.unwrap_or_default()
}

/// The format of log lines, the log level, and whether every request is logged.
pub(super) fn log(table: &Table<'_, '_>) -> (Form, Level, bool) {
    let forms = [("text", Form::Text), ("json", Form::Json)];
    let mut form = table.choice("form", &forms);
    // What most other programs call it.
    if let Some(at) = table.span_of("format") {
        if table.has("form") {
            let problem = "`format` is another name of `form`, and both are set";
            table.document.mistake(Some(&at), problem, "remove one of them");
        }
        form = table.choice("format", &forms);
    }
    let levels =
        [("error", Level::Error), ("warn", Level::Warn), ("info", Level::Info), ("debug", Level::Debug)];
    let level = table.choice("level", &levels);
    (form.unwrap_or_default(), level.unwrap_or_default(), table.is("requests").unwrap_or(false))
}
