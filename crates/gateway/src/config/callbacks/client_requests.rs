//! `authorize` and `rebuild`: requests that the gateway sends to the service for a client. Hop-by-hop headers and
//! Semel's own are never passed on.

use crate::callbacks::{Authorize, Placeholder, Rebuild, Source, Template};
use crate::config::route_values;
use crate::config::table::Table;
use crate::invalid_value::InvalidValue;
use http::HeaderName;
use semel_http::names;

pub(super) fn authorize(table: &Table<'_, '_>) -> Option<Authorize> {
    let path = table.parsed("path", |text| Template::parse(text, &[Placeholder::OperationId]));
    if !table.has("path") {
        let fix = "write path = \"/session\" or the like";
        table.document.mistake(table.span().as_ref(), "`authorize` has no path", fix);
    }
    let (headers, timeout) = (table.parsed_list("headers", header), table.limit("timeout"));
    let mut authorize = Authorize::new(path?);
    authorize.headers = headers.unwrap_or_default();
    authorize.timeout = timeout.unwrap_or(authorize.timeout);
    Some(authorize)
}

pub(super) fn rebuild(table: &Table<'_, '_>) -> Option<Rebuild> {
    let source = table.parsed("from", |text| match text {
        "location" => Ok(Source::Location),
        text if text.starts_with('/') => {
            let path = Template::parse(text, &[Placeholder::OperationId])?;
            if !path.has(Placeholder::OperationId) {
                let problem = format!("`{text}` is the same for every operation");
                return Err(InvalidValue::new(problem, "write {operation_id} into it"));
            }
            Ok(Source::Path(path))
        }
        _ => Err(InvalidValue::new(
            format!("responses cannot be rebuilt from `{text}`"),
            "write \"location\", or a path of the service",
        )),
    });
    let is_silent = !table.has("from");
    let (headers, timeout) = (table.parsed_list("headers", header), table.limit("timeout"));
    let mut rebuild = Rebuild::new(if is_silent { Source::Location } else { source? });
    rebuild.headers = headers.unwrap_or_default();
    rebuild.timeout = timeout.unwrap_or(rebuild.timeout);
    Some(rebuild)
}

/// Hop-by-hop headers, and headers that Semel or the message itself sets.
fn is_reserved(name: &HeaderName) -> bool {
    const RESERVED: &[&str] = &[
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    let is_own = name.as_str().starts_with("idempotency-") || *name == names::OPERATION_ID;
    is_own || RESERVED.contains(&name.as_str())
}

pub(super) fn header(text: &str) -> Result<HeaderName, InvalidValue> {
    let name = route_values::header(text)?;
    if is_reserved(&name) {
        let problem = format!("`{text}` cannot be set or passed on");
        return Err(InvalidValue::new(problem, "write another header's name"));
    }
    Ok(name)
}
