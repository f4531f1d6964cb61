//! `/openapi.json`: adds what the handlers' own descriptions cannot express. Paths and fields come from the code.

use serde_json::{Value, json};
use utoipa::OpenApi;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Semel's admin address",
        description = "Records for operators, and claims for workers in any language. Refusals are RFC 9457 problem documents; \
                       their `type` leads to what they mean."
    ),
    security(("token" = [])),
    tags(
        (name = "health", description = "For probes and scrapers"),
        (name = "records", description = "For operators"),
        (name = "shadow", description = "What would have become of requests in shadow mode"),
        (name = "inboxes", description = "What the inboxes of applications hold"),
        (name = "claims", description = "For workers: one attempt for each command"),
        (name = "description", description = "What this address says about itself")
    )
)]
struct Description;

/// The description without its paths.
pub(super) fn begun() -> utoipa::openapi::OpenApi {
    let mut api = Description::openapi();
    let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(
        "One of the configured tokens. Where none is configured, requests from the same machine need none.",
    ));
    let components = api.components.get_or_insert_default();
    components.add_security_scheme("token", SecurityScheme::Http(scheme.build()));
    api
}

/// The complete description, with rules between fields. Without tokens, it requires no authentication.
pub(super) fn whole(api: &utoipa::openapi::OpenApi, has_tokens: bool) -> Value {
    // Our own types can always be serialised.
    let mut described = serde_json::to_value(api).unwrap_or_default();
    if !has_tokens {
        described["security"] = json!([{ "token": [] }, {}]);
    }
    let schemas = &mut described["components"]["schemas"];
    let text = |name: &str| json!({ "required": [name], "properties": { name: { "type": "string" } } });
    schemas["Claim"]["oneOf"] = json!([
        { "required": ["payload"] },
        text("payloadBase64"),
        text("payload_base64"),
        text("fingerprint"),
    ]);
    for name in ["Resolve", "Outcome"] {
        schemas[name]["allOf"] = json!([only_where(name)]);
    }
    let both = |one: &str, other: &str| json!({ "allOf": [text(one), text(other)] });
    schemas["GivenResponse"]["not"] = json!({ "anyOf": [
        both("body", "bodyBase64"),
        both("body", "body_base64"),
        both("bodyBase64", "body_base64"),
    ] });
    schemas["Header"] = json!({
        "description": "A header: its name, then its value",
        "type": "array",
        "prefixItems": [
            { "type": "string", "pattern": "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$" },
            { "type": "string", "pattern": "^[^\\x00-\\x08\\x0a-\\x1f\\x7f]*$" },
        ],
        "items": false,
        "minItems": 2,
    });
    described
}

/// Which outcomes need a response, and which take none.
fn only_where(name: &str) -> Value {
    let is = |outcome: &str| json!({ "properties": { "outcome": { "const": outcome } } });
    let refusal = json!({ "required": ["response"], "properties": { "response": {
        "type": "object", "required": ["status"], "properties": { "status": { "minimum": 400 } },
    } } });
    let none = json!({ "properties": { "response": { "type": "null" } } });
    let without = if name == "Resolve" { "not-applied" } else { "unknown" };
    json!({ "if": is("failed"), "then": refusal, "else": { "if": is(without), "then": none } })
}
