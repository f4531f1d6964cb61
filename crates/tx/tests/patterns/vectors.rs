//! `vectors/inbox`: what consumers in other languages store for a message.

use crate::world::url;
use semel_tx::patterns::{Message, MessageId, PatternError};
use serde_json::Value;
use sqlx::{Connection as _, PgConnection, Row as _};

fn vectors(name: &str) -> Vec<Value> {
    let path = format!("{}/../../vectors/inbox/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn body(case: &Value) -> Vec<u8> {
    if let Some(text) = case["body"]["text"].as_str() {
        return text.as_bytes().to_vec();
    }
    let hex = case["body"]["hex"].as_str().expect("a text or hexadecimal digits");
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("digits")).collect()
}

#[test]
fn fingerprints_of_messages_are_what_the_vectors_say() {
    let cases = vectors("messages.json");
    assert!(cases.len() > 20, "{}", cases.len());
    for case in cases {
        let id = MessageId::new("m-1").expect("an id");
        let message = match case["form"].as_str() {
            Some("json") => Message::json("payments", id, body(&case)),
            Some("raw") => Message::raw("payments", id, body(&case)),
            form => panic!("{form:?}: {case}"),
        };
        match (message, case["fingerprint"].as_str()) {
            (Ok(message), Some(expected)) => {
                let found: Vec<String> =
                    message.fingerprint().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
                assert_eq!(found.concat(), expected, "{case}");
            }
            (Err(PatternError::Invalid(_)), None) => assert_eq!(case["error"], "Malformed", "{case}"),
            (message, _) => panic!("{case}: {message:?}"),
        }
    }
}

#[test]
fn composite_ids_are_what_the_vectors_say() {
    for case in vectors("ids.json") {
        let parts =
            case["parts"].as_array().expect("parts").iter().map(|part| part.as_str().expect("a text"));
        assert_eq!(MessageId::composite(parts).expect("an id").as_str(), case["id"], "{case}");
    }
}

/// The bytes before the body, and the statement for raw messages.
#[tokio::test]
async fn the_guide_shows_how_to_compute_a_fingerprint() {
    let guide = include_str!("../../../../docs/guide/src/patterns/inbox.md");
    let heads: Vec<&str> = guide.split('`').filter(|text| text.starts_with("73656d")).collect();
    let [raw, json] = heads[..] else { panic!("{heads:?}") };
    let documented = guide.lines().find(|line| line.starts_with("SELECT sha256(")).expect("a statement");
    let mut connection = PgConnection::connect(&url()).await.expect("the server answers");
    for case in vectors("messages.json") {
        let Some(expected) = case["fingerprint"].as_str() else { continue };
        let body = body(&case);
        let (sql, hashed) = if case["form"] == "raw" {
            (documented.replace("73656d656c2d…", raw), body)
        } else {
            let kind = if body.is_empty() { "'\\x00'" } else { "'\\x02'" };
            let canonical = case["canonical_body"].as_str().expect("a text").as_bytes().to_vec();
            (format!("SELECT sha256(decode('{json}', 'hex') || {kind}::bytea || $1)"), canonical)
        };
        let row = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(hashed).fetch_one(&mut connection).await;
        let found: Vec<u8> = row.expect("the statement is right").get(0);
        let found: Vec<String> = found.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(found.concat(), expected, "{case}");
    }
}
