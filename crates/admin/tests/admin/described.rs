//! The description at `/openapi.json`.

use super::world::{World, token};
use semel_admin::Role;
use serde_json::Value;

#[tokio::test]
async fn every_path_that_is_described_asks_for_a_token_except_health() {
    let world = World::with(|options| options.tokens = vec![token("ops", &Role::ALL)]).await;
    let described = world.ask("GET", "/openapi.json").token("ops-secret").send().await.json();
    let paths = described["paths"].as_object().expect("paths");
    assert!(paths.len() >= 11, "{}", paths.len());
    assert_eq!(described["security"], serde_json::json!([{ "token": [] }]), "a token is required");
    for (path, methods) in paths {
        for method in methods.as_object().expect("methods").keys().filter(|name| *name != "parameters") {
            let concrete = path.replace("{id}", "30313233-3435-3637-3839-616263646566");
            let reply = world.ask(&method.to_uppercase(), &concrete).send().await;
            let is_open = path == "/healthz" || path == "/readyz";
            assert_eq!(reply.status == 401, !is_open, "{method} {path}");
            assert!(methods[method]["responses"].get(reply.status.to_string()).is_some(), "{method} {path}");
        }
    }
}

/// Problems that any endpoint can return are described for every endpoint, and the guide explains each code.
#[tokio::test]
async fn the_codes_of_problems_are_described_and_in_the_guide() {
    let guide = include_str!("../../../../docs/guide/src/admin-errors.md");
    let world = World::new().await;
    let described = world.get("/openapi.json").await.json();
    for (path, methods) in described["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods") {
            let description = |status: &str| {
                operation["responses"][status]["description"].as_str().unwrap_or_default().to_owned()
            };
            let busy = description("503");
            assert!(busy.contains("`GATEWAY_BUSY`"), "{method} {path}: {busy}");
            let has_body = operation.get("requestBody").is_some();
            assert_eq!(busy.contains("bodies"), has_body, "{method} {path}: {busy}");
            assert_eq!(description("413").contains("`REQUEST_TOO_LARGE`"), has_body, "{method} {path}");
            for response in operation["responses"].as_object().expect("responses").values() {
                let text = response["description"].as_str().unwrap_or_default();
                for code in text.split('`').skip(1).step_by(2).filter(|code| code.contains('_')) {
                    assert!(
                        guide.contains(&format!("`{code}`")),
                        "{method} {path}: {code} is not in the guide"
                    );
                }
            }
        }
    }
}

#[tokio::test]
async fn the_description_names_every_path_of_the_contract() {
    let world = World::new().await;
    let described = world.get("/openapi.json").await.json();
    let served = [
        ("get", "/healthz"),
        ("get", "/readyz"),
        ("get", "/metrics"),
        ("get", "/v1/records"),
        ("get", "/v1/inboxes"),
        ("get", "/v1/records/{id}"),
        ("post", "/v1/records/{id}/resolve"),
        ("post", "/v1/records/{id}/release"),
        ("post", "/v1/records/{id}/erase"),
        ("post", "/v1/claims"),
        ("get", "/v1/claims/{id}"),
        ("post", "/v1/claims/{id}/renew"),
        ("post", "/v1/claims/{id}/outcome"),
    ];
    for (method, path) in served {
        assert!(described["paths"][path][method].is_object(), "{method} {path}");
    }
    assert_eq!(described["components"]["securitySchemes"]["token"]["scheme"], "bearer");
}

#[tokio::test]
async fn the_type_of_every_problem_leads_to_its_description() {
    let world = World::new().await;
    let described = world.get("/.well-known/idempotency").await.json();
    let codes: Vec<&str> =
        described.as_array().expect("a list").iter().filter_map(|one| one["code"].as_str()).collect();
    for reply in
        [world.get("/nothing").await, world.get("/v1/records/x").await, world.get("/v1/claims").await]
    {
        let (status, code) = reply.problem();
        assert!(codes.contains(&code.as_str()), "{code}");
        let one: &Value =
            described.as_array().into_iter().flatten().find(|one| one["code"] == code.as_str()).expect("one");
        assert_eq!(one["status"], status);
    }
}

/// The patterns are added to members that exist.
#[tokio::test]
async fn reasons_and_base64_have_patterns_beside_their_types() {
    let world = World::new().await;
    let described = world.get("/openapi.json").await.json();
    let reasons = ["ConfirmClock", "Erase", "Release", "Resolve"].map(|name| (name, "reason"));
    let bytes = [
        ("Claim", "payloadBase64"),
        ("Claim", "payload_base64"),
        ("GivenResponse", "bodyBase64"),
        ("GivenResponse", "body_base64"),
    ];
    for (schema, name) in reasons.into_iter().chain(bytes) {
        let member = &described["components"]["schemas"][schema]["properties"][name];
        assert!(!member["type"].is_null() && member["pattern"].is_string(), "{schema}.{name}: {member}");
    }
}
