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

/// A reason: at least one visible character, and no control characters. The rule of [`crate::reason`], as far as patterns can
/// express it.
const REASON: &str = r"^[^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890-\u0891\u08e2\u115f-\u1160\u17b4-\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb][^\x00-\x1f\x7f-\x9f]*$";
/// Base64 as it is decoded: padded, and without stray bits.
const BASE64: &str = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$";
/// The patterns that several members have. Attributes take only literals.
const PATTERNS: [(&str, &str, &str); 8] = [
    ("ConfirmClock", "reason", REASON),
    ("Erase", "reason", REASON),
    ("Release", "reason", REASON),
    ("Resolve", "reason", REASON),
    ("Claim", "payloadBase64", BASE64),
    ("Claim", "payload_base64", BASE64),
    ("GivenResponse", "bodyBase64", BASE64),
    ("GivenResponse", "body_base64", BASE64),
];

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
pub(super) fn complete_document(api: &utoipa::openapi::OpenApi, has_tokens: bool) -> Value {
    // Our own types can always be serialised.
    let mut described = serde_json::to_value(api).unwrap_or_default();
    if !has_tokens {
        described["security"] = json!([{ "token": [] }, {}]);
    }
    describe_common_problems(&mut described["paths"]);
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
    for (name, member, pattern) in PATTERNS {
        schemas[name]["properties"][member]["pattern"] = pattern.into();
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

const PROBLEM: &str = "application/problem+json";

/// Adds the problems that do not come from the handlers themselves: those of the gate, of reading parameters and bodies, and of the
/// listener.
fn describe_common_problems(paths: &mut Value) {
    let operations = paths.as_object_mut().into_iter().flatten();
    for operation in operations.flat_map(|(_, methods)| methods.as_object_mut().into_iter().flatten()) {
        let (name, operation) = operation;
        if name == "parameters" {
            continue;
        }
        let has_body = operation.get("requestBody").is_some();
        let parameters = operation["parameters"].as_array();
        let has_query = parameters.is_some_and(|all| all.iter().any(|one| one["in"] == "query"));
        let is_open = operation["security"] == json!([{}]);
        let problems: [(bool, &str, &str); 9] = [
            (
                has_body || has_query,
                "400",
                "`INVALID_REQUEST`: `detail` names the parameter or member, what was found, and what is allowed",
            ),
            (!is_open, "401", "`UNAUTHENTICATED`: no token, or an unknown one"),
            (!is_open, "403", "`FORBIDDEN`: not with this token"),
            (has_body, "413", "`REQUEST_TOO_LARGE`: the body is too large"),
            (has_body, "415", "`UNSUPPORTED_MEDIA_TYPE`: not JSON"),
            (!is_open, "421", "`HOST_NOT_ALLOWED`: sent to another host"),
            (!is_open, "429", "`TOO_MANY_REQUESTS`: too often (Retry-After)"),
            (
                has_body,
                "503",
                "`GATEWAY_BUSY`: too many requests are running at this address, or their bodies take all the memory for them. \
                 Nothing was done (Retry-After)",
            ),
            (
                !has_body,
                "503",
                "`GATEWAY_BUSY`: too many requests are running at this address. Nothing was done (Retry-After)",
            ),
        ];
        for (_, status, description) in problems.into_iter().filter(|(can_happen, ..)| *can_happen) {
            add_problem(&mut operation["responses"][status], description);
        }
    }
}

/// Adds a problem to what `response` already describes.
fn add_problem(response: &mut Value, description: &str) {
    let described = match response["description"].as_str() {
        None | Some("") => description.to_owned(),
        Some(existing) => format!("{existing}. {description}"),
    };
    response["description"] = described.into();
    let content = &mut response["content"];
    if content.get(PROBLEM).is_none() {
        content[PROBLEM] = json!({ "schema": { "$ref": "#/components/schemas/Problem" } });
    }
}

/// Which outcomes need a response, and which take none.
fn only_where(name: &str) -> Value {
    let is = |outcome: &str| json!({ "properties": { "outcome": { "const": outcome } } });
    let refusal = json!({ "required": ["response"], "properties": { "response": {
        "type": "object", "required": ["status"], "properties": { "status": { "minimum": 400 } },
    } } });
    let none = json!({ "properties": { "response": { "type": "null" } } });
    let without_response = if name == "Resolve" { "not-applied" } else { "unknown" };
    json!({ "if": is("failed"), "then": refusal, "else": { "if": is(without_response), "then": none } })
}
