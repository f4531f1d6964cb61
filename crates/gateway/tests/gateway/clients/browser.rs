//! Chromium: double clicks, and the pages for people.

use super::stripe::{Demo, charges};
use super::world::{Language, World, source};
use crate::tools;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Runs the script in the browser with the address; `None` if a tool is missing.
fn run_in_browser(script: &str, address: &str) -> Option<Value> {
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
    let Some(seen) = run_in_browser("scripts/pay.js", &format!("http://{}", demo.gateway)) else { return };
    assert_eq!(seen["verdict"], "1 umbrella, 2 clicks, 1 charge.", "{seen}");
    assert_eq!(seen["told"], serde_json::json!(["ran", "replayed"]), "{seen}");
    assert_eq!(charges(demo.gateway, seen["customer"].as_str().expect("a name")), 1);
    assert_eq!(seen["errors"], serde_json::json!([]), "the pages have errors");
    assert_eq!(seen["operations"], 1, "the number of operations on the page of guarantees");
}

#[test]
fn a_form_that_is_submitted_twice_is_one_order() {
    let Some(world) = World::new(Language::InNode) else { return };
    let Some(seen) = run_in_browser("scripts/submit.js", &format!("http://{}", world.gateway)) else {
        return;
    };
    let answers = seen["answers"].as_array().expect("a list");
    assert!(answers.len() == 2 && answers[0] == answers[1], "{seen}");
    assert!(answers[0].as_str().expect("text").starts_with("201 "), "{seen}");
    assert_eq!(world.ledger().len(), 1);
}
