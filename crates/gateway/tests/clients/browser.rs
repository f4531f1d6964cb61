//! Chromium: double clicks, and the pages for people.

use crate::stripe::{Demo, charges};
use crate::tools;
use crate::world::{World, Written, source};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Opens the browser and does what the script says with the address; `None` where something is missing.
fn browse(script: &str, address: &str) -> Option<Value> {
    let pictures = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pictures");
    std::fs::create_dir_all(&pictures).expect("a folder for pictures");
    let output = Command::new(tools::program("node")?)
        .arg(source(script))
        .arg(tools::program("chromium")?)
        .arg(address)
        .arg(&pictures)
        .env("NODE_PATH", tools::node_modules()?)
        .output()
        .expect("Node runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).expect("JSON"))
}

#[test]
fn a_double_click_on_the_demos_page_charges_once() {
    let demo = Demo::new();
    let Some(seen) = browse("scripts/pay.js", &format!("http://{}", demo.gateway)) else { return };
    assert_eq!(seen["verdict"], "1 umbrella, 2 clicks, 1 charge.", "{seen}");
    assert_eq!(seen["told"], serde_json::json!(["ran", "replayed"]), "{seen}");
    assert_eq!(charges(demo.gateway, seen["customer"].as_str().expect("a name")), 1);
    assert_eq!(seen["errors"], serde_json::json!([]), "the pages have none");
    assert_eq!(seen["operations"], 1, "on the page of what is promised");
}

#[test]
fn a_form_that_is_submitted_twice_is_one_order() {
    let Some(world) = World::new(Written::InNode) else { return };
    let Some(seen) = browse("scripts/submit.js", &format!("http://{}", world.gateway)) else { return };
    let answers = seen["answers"].as_array().expect("a list");
    assert!(answers.len() == 2 && answers[0] == answers[1], "{seen}");
    assert!(answers[0].as_str().expect("text").starts_with("201 "), "{seen}");
    assert_eq!(world.ledger().len(), 1);
}
